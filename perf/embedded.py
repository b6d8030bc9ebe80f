#!/usr/bin/env python3
"""What do embeddings cost a stream of the same server, and the stream the embeddings?

    perf/embedded.py [BINARY] [--model FILE] [--rounds 6] [--threads 2] [--texts 8] [--words 60] [--prompts 2] [--tokens 300]

BINARY is a `corelane`, this build's if none is named. Clients on --threads threads send --texts texts of --words words
at once, again and again. Streams of the built-in model are short; use --prompts 20 --tokens 900 for it.
"""

import argparse
import pathlib
import random

from beside import Poster, turns
from server import CORELANE, Server, machine

WORDS = "the cat sat on a mat and one old ship ran over the hill into the red garden of the small house at the river".split()


class Client(Poster):
    """Sends texts."""

    def __init__(self, url: str, texts: int, words: int):
        super().__init__(url)
        self.texts, self.words = texts, words

    def embed(self) -> int:
        """The number of tokens in texts that no request before had."""
        texts = [" ".join(random.choices(WORDS, k=self.words)) for _ in range(self.texts)]
        answer = self.post("/v1/embeddings", {"input": texts, "encoding_format": "base64"})
        return answer["usage"]["prompt_tokens"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path, nargs="?", default=CORELANE)
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=300)
    options = parser.parse_args()
    with Server("--pooling=mean", model=options.model, binary=options.binary) as server:
        client = Client(server.url, options.texts, options.words)
        turns(server.url, client.embed, "tokens", options.threads, options.rounds, options.prompts, options.tokens)
    print(f"machine: {machine()}")


if __name__ == "__main__":
    main()

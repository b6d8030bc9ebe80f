"""What do embeddings cost a stream, and the stream the embeddings?

Clients on --threads threads send --texts texts of --words words at once, again and again. Streams of the built-in model
are short; use --prompts 20 --tokens 900 for it.
"""

import random

from shared.report import add, add_server
from shared.requests import Poster
from shared.server import Server
from shared.turns import beside_a_stream

WORDS = "the cat sat on a mat and one old ship ran over the hill into the red garden of the small house at the river".split()


def arguments(parser) -> None:
    add_server(parser)
    add(parser, rounds=6, threads=2, texts=8, words=60, prompts=2, tokens=300)


def run(args) -> dict:
    with Server("--pooling=mean", model=args.model, binary=args.binary) as server:
        client = Poster(server.url)

        def embed() -> int:
            """The number of tokens in texts that no request before had."""
            texts = [" ".join(random.choices(WORDS, k=args.words)) for _ in range(args.texts)]
            answer = client.post("/v1/embeddings", {"input": texts, "encoding_format": "base64"})
            return answer["usage"]["prompt_tokens"]

        return beside_a_stream(server.url, embed, "tokens", args.threads, args.rounds, args.prompts, args.tokens)

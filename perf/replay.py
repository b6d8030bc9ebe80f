#!/usr/bin/env python3
"""What do guesses bring on recorded answers? All the runs of the study, by `corelane bench replay`.

    perf/replay.py FOLDER [--model FILE] [--model-draft FILE [--draft-accept 0.7]] [--rounds 3] [--only NAME ...]

Records are in perf/records: answers to edits of source files (the real changes of some commits), answers from passages
of the documentation, and prose that does not repeat its prompt. They are texts. A model of `corelane model synth` has the
vocabulary of the built-in one, in which texts take several times as many tokens as in that of a real model. So the texts
are cut into words here, and each word becomes a token. FOLDER gets a table and the JSON of each run.

Nobody has recorded what a draft model would have guessed. It computes its guesses, and as many of them are right as
--draft-accept says.
"""

import argparse
import json
import pathlib
import random
import re
import subprocess

from server import CORELANE, machine

RECORDS = pathlib.Path(__file__).parent / "records"
# About as vocabularies of byte pairs cut text: words with their space, long ones in parts; single digits; marks; spaces.
WORD = re.compile(r" ?[A-Za-z]{1,7}|[A-Za-z]{1,7}| ?\d| ?[^\sA-Za-z\d]{1,3}|\n *|\s")
FIRST_TOKEN, LAST_TOKEN = 20_000, 70_000  # ordinary tokens of a vocabulary of 151,936

RUNS = {
    # name: the records, how many at once, and those beside
    "edits-1": ("edits", 1, None),
    "retrieval-1": ("retrieval", 1, None),
    "edits-4": ("edits", 4, None),
    "retrieval-4": ("retrieval", 4, None),
    "prose-1": ("prose", 1, None),
    "random-1": ("random", 1, None),
    "random-8": ("random", 8, None),
    "random-32": ("random", 32, None),
    "edits-beside": ("edits", 1, "random"),
    "prose-4": ("prose", 4, None),
    "prose-beside": ("prose", 1, "random"),
}


class Words:
    """Numbers words."""

    def __init__(self):
        self.numbers: dict[str, int] = {}

    def tokens(self, text: str) -> list[int]:
        pieces = WORD.findall(text)
        assert "".join(pieces) == text
        return [FIRST_TOKEN + self.numbers.setdefault(piece, len(self.numbers)) for piece in pieces]


def records(name: str, words: Words, most: int, at_once: int) -> list[dict]:
    """Records as tokens. Each answer is cut to `most` tokens."""
    if name == "random":
        draw = random.Random(1)
        tokens = lambda count: [draw.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(count)]
        # Of different lengths, or the streams of a run would end together.
        return [{"prompt": tokens(32), "answer": tokens(draw.randrange(60, 140))} for _ in range(2 * at_once + 6)]
    texts = [json.loads(line) for line in (RECORDS / f"{name}.jsonl").read_text().splitlines()]
    return [{"prompt": words.tokens(text["prompt"]), "answer": words.tokens(text["answer"])[:most]} for text in texts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model")
    parser.add_argument("--model-draft")
    parser.add_argument("--draft-accept", default="0.7")
    parser.add_argument("--spec", default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--answer", type=int, default=300, help="most tokens of an answer")
    parser.add_argument("--only", nargs="*", choices=RUNS, default=list(RUNS))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    words = Words()

    def written(name: str, at_once: int) -> pathlib.Path:
        file = options.folder / f"{name}.tokens.jsonl"
        lines = (json.dumps(record) + "\n" for record in records(name, words, options.answer, at_once))
        file.write_text("".join(lines))
        return file

    with (options.folder / "replay.txt").open("a") as table:
        for name in options.only:
            texts, at_once, beside = RUNS[name]
            files = [written(texts, at_once)] + ([written(beside, 1)] if beside else [])
            command = [CORELANE, "bench", "replay", files[0], f"--concurrency={at_once}", f"--rounds={options.rounds}"]
            command += [f"--json={options.folder / name}.json"]
            command += [f"--model={options.model}"] if options.model else []
            command += [f"--beside={files[1]}"] if beside else []
            command += [f"--spec={options.spec}"]
            if options.model_draft:
                command += [f"--model-draft={options.model_draft}", f"--draft-accept={options.draft_accept}"]
            shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            shown = f"$ {' '.join(str(part) for part in ['corelane', *command[1:]])}\n{shown}"
            print(f"## {name}\n{shown}", file=table, flush=True)
            print(f"## {name}\n{shown}", flush=True)
            for file in files:
                file.unlink()
        print(f"machine: {machine()}", file=table)


if __name__ == "__main__":
    main()

"""What do guesses bring on edits of code, on answers from passages, and on texts that repeat nothing?

Runs `corelane bench replay` on recorded answers. Records are in perf/records: answers to edits of source files (the real
changes of some commits), answers from passages of the documentation, and prose that does not repeat its prompt. They are
texts. A model of `corelane model synth` has the vocabulary of the built-in one, in which texts take several times as many
tokens as in that of a real model. So the texts are cut into words here, and each word becomes a token.

Nobody has recorded what a draft model would have guessed. It computes its guesses, and as many of them are right as
--draft-accept says.
"""

import json
import pathlib
import random
import re
import tempfile

from shared.report import add, add_server, write
from shared.server import CORELANE, ROOT, model_file, saved

RECORDS = ROOT / "perf" / "records"
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


def arguments(parser) -> None:
    add_server(parser, binary=False)
    parser.add_argument("--model-draft", type=model_file)
    parser.add_argument("--answer", type=int, default=300, help="most tokens of an answer [default: 300]")
    parser.add_argument("--only", nargs="*", choices=RUNS, default=list(RUNS))
    add(parser, draft_accept="0.7", spec="auto", rounds=3)


def run(args) -> dict:
    words, found = Words(), {}
    with tempfile.TemporaryDirectory() as folder:

        def written(name: str, at_once: int) -> str:
            file = pathlib.Path(folder) / f"{name}.tokens.jsonl"
            file.write_text("".join(json.dumps(record) + "\n" for record in records(name, words, args.answer, at_once)))
            return str(file)

        for name in args.only:
            texts, at_once, beside = RUNS[name]
            command = [str(CORELANE), "bench", "replay", written(texts, at_once)]
            command += [f"--concurrency={at_once}", f"--rounds={args.rounds}", f"--spec={args.spec}"]
            command += [f"--model={args.model}"] if args.model else []
            command += [f"--beside={written(beside, 1)}"] if beside else []
            if args.model_draft:
                command += [f"--model-draft={args.model_draft}", f"--draft-accept={args.draft_accept}"]
            print(f"## {name}")
            found[name] = saved(command, "--json", show=True)
            print(flush=True)
            write(args.json, found)
    return found

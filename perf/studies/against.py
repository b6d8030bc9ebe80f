"""Is this build slower than another one?

BINARY is a `corelane` of another commit, or built in another way. Both get the same FLAGS, and take turns. Both stay
loaded; while one is measured, the other idles. LOAD is `eight` streams at once as in the ladder (the default), `one`
stream at a time, or `prompts` of 800 tokens, whose answers are one token long.
"""

import pathlib

from shared.report import add, add_flags, add_server
from shared.server import Server, measure, pinned

LOADS = {
    "eight": ["--num-prompts=40", "--max-concurrency=8", "--random-input-len=32", "--random-output-len=50"],
    "one": ["--num-prompts=8", "--max-concurrency=1", "--random-input-len=32", "--random-output-len=50"],
    "prompts": [
        *["--num-prompts=8", "--max-concurrency=1", "--random-input-len=800", "--random-output-len=1"],
        '--extra-body={"cache_prompt": false}',
    ],
}


def arguments(parser) -> None:
    parser.add_argument("other", type=pathlib.Path, metavar="BINARY")
    parser.add_argument("--load", choices=LOADS, default="eight")
    add_server(parser)
    add_flags(parser)
    add(parser, rounds=6)


def run(args) -> dict:
    flags, model = [*pinned(), *args.flags], args.model
    with Server(*flags, model=model, binary=args.binary) as ours, Server(*flags, model=model, binary=args.other) as other:
        load = [*LOADS[args.load], f"--vs={other.url}", f"--rounds={args.rounds}", "--num-warmups=8"]
        found = measure(ours.url, *load)
    ratio = found["ratios"]["output_throughput"]
    pairs = " ".join(f"{pair:.3f}" for pair in ratio["pairs"])
    print(f"output tokens/s, ours / theirs: {ratio['median']:.3f}; round by round: {pairs}")
    return found

#!/usr/bin/env python3
"""Compares this build with another one, in turns.

    perf/against.py BINARY [--load LOAD] [--model FILE] [--flags FLAGS] [--rounds N] [--json FILE]

BINARY is a `corelane` of another commit, or built in another way. Both get the same FLAGS, such as "--flash-attn on".
Both stay loaded; while one is measured, the other idles. LOAD is `eight` streams at once as in the ladder (the
default), `one` stream at a time, or `prompts` of 800 tokens, whose answers are one token long.
"""

import argparse
import json
import pathlib
import shlex

from server import Server, bench, machine, pinned

LOADS = {
    "eight": ["--num-prompts=40", "--max-concurrency=8", "--random-input-len=32", "--random-output-len=50"],
    "one": ["--num-prompts=8", "--max-concurrency=1", "--random-input-len=32", "--random-output-len=50"],
    "prompts": [
        *["--num-prompts=8", "--max-concurrency=1", "--random-input-len=800", "--random-output-len=1"],
        '--extra-body={"cache_prompt": false}',
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--load", choices=LOADS, default="eight")
    parser.add_argument("--model")
    parser.add_argument("--flags", default="", type=shlex.split)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("against.json"))
    options = parser.parse_args()
    flags, model = [*pinned(), *options.flags], options.model
    with Server(*flags, model=model) as ours, Server(*flags, model=model, binary=options.binary) as other:
        load = [*LOADS[options.load], f"--vs={other.url}", f"--rounds={options.rounds}", "--num-warmups=8"]
        load += ["--no-progress"]
        bench(ours.url, *load, result=options.json)
    saved = json.loads(options.json.read_text())
    ratio = saved["ratios"]["output_throughput"]
    pairs = " ".join(f"{pair:.3f}" for pair in ratio["pairs"])
    print(f"output tokens/s, ours / theirs: {ratio['median']:.3f}; round by round: {pairs}")
    print(f"machine: {machine()}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares this build with another one under the ladder's load, in turns.

    perf/against.py BINARY [--model FILE] [--flags FLAGS] [--rounds N] [--json FILE]

BINARY is a `corelane` of another commit. Both get the same FLAGS, such as "--flash-attn on", so that they differ only
by their commits. Both stay loaded; while one is measured, the other idles.
"""

import argparse
import json
import pathlib
import shlex

from server import Server, bench, machine, pinned

LOAD = ["--num-prompts=40", "--max-concurrency=8", "--random-input-len=32", "--random-output-len=50"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--model")
    parser.add_argument("--flags", default="", type=shlex.split)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("against.json"))
    options = parser.parse_args()
    flags, model = [*pinned(), *options.flags], options.model
    with Server(*flags, model=model) as ours, Server(*flags, model=model, binary=options.binary) as other:
        load = [*LOAD, f"--vs={other.url}", f"--rounds={options.rounds}", "--num-warmups=8", "--no-progress"]
        bench(ours.url, *load, result=options.json)
    saved = json.loads(options.json.read_text())
    ratio = saved["ratios"]["output_throughput"]
    pairs = " ".join(f"{pair:.3f}" for pair in ratio["pairs"])
    print(f"output tokens/s, ours / theirs: {ratio['median']:.3f}; round by round: {pairs}")
    print(f"machine: {machine()}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Is this build slower than another one? The ladder's load on both, in turns.

    perf/against.py BINARY [--model FILE] [--flags FLAGS] [--rounds N] [--json FILE]

BINARY is a `corelane` of another commit; both get the same FLAGS ("--flash-attn on"),
so that only what lies between the commits differs. Both stay loaded, and the one that
is not asked idles.
"""

import argparse
import json
import pathlib
import shlex

from server import Server, bench, machine

LOAD = ["--num-prompts=40", "--max-concurrency=8", "--random-input-len=32", "--random-output-len=50"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--model")
    parser.add_argument("--flags", default="", type=shlex.split)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("against.json"))
    options = parser.parse_args()
    flags, model = options.flags, options.model
    with Server(*flags, model=model) as ours, Server(*flags, model=model, binary=options.binary) as other:
        load = [*LOAD, f"--vs={other.url}", f"--rounds={options.rounds}", "--num-warmups=8", "--no-progress"]
        bench(ours.url, *load, result=options.json)
    saved = json.loads(options.json.read_text())
    ratio = saved["ratios"]["output_throughput"]
    pairs = " ".join(f"{pair:.3f}" for pair in ratio["pairs"])
    print(f"output tokens/s, of the other's: {ratio['median']:.3f}; pair by pair: {pairs}")
    print(f"machine: {machine()}")


if __name__ == "__main__":
    main()

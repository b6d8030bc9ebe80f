#!/usr/bin/env python3
"""A KV cache for each sequence against one for all, at the server, in turns.

    perf/cache.py [--model FILE] [--streams 8] [--prompts 24] [--rounds 4] [--flash-attn auto] [--json FILE]

Lengths vary by a factor of nine, so that sequences begin and end at different
times: that is where a cache for each sequence costs llama.cpp divided steps.
"""

import argparse

from server import Server, bench, machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--flash-attn", default="auto")
    parser.add_argument("--json")
    options = parser.parse_args()
    flags = [f"--parallel={options.streams}", f"--flash-attn={options.flash_attn}"]
    with Server(*flags, "--no-kv-unified", model=options.model) as each, Server(*flags, model=options.model) as one:
        load = [f"--max-concurrency={options.streams}", f"--num-prompts={options.prompts}", f"--rounds={options.rounds}"]
        load += ["--random-input-len=100", "--random-output-len=50", "--random-range-ratio=0.8", "--no-progress"]
        if options.json:
            load += ["--save-result", f"--result-filename={options.json}"]
        bench(each.url, f"--vs={one.url}", *load)
    print(f"machine: {machine()}")


if __name__ == "__main__":
    main()

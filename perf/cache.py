#!/usr/bin/env python3
"""Compares one KV cache for all sequences with a cache for each, at the server, in turns.

    perf/cache.py [--model FILE] [--streams 8] [--prompts 24] [--input-len 100] [--range-ratio 0.8] [--ctx-size 0]
                  [--rounds 4] [--flash-attn auto] [--json FILE]

Lengths vary around --input-len and 50 generated tokens by --range-ratio, by default up to a factor of nine. Sequences
therefore start and end at different times. Then a cache for each sequence makes llama.cpp split steps, and in one cache
the cells of a sequence lie between those of others.
"""

import argparse

from server import Server, bench, machine, pinned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--input-len", type=int, default=100)
    parser.add_argument("--range-ratio", type=float, default=0.8)
    parser.add_argument("--ctx-size", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--flash-attn", default="auto")
    parser.add_argument("--json")
    options = parser.parse_args()
    flags = pinned() + [f"--parallel={options.streams}", f"--flash-attn={options.flash_attn}", f"--ctx-size={options.ctx_size}"]
    with Server(*flags, model=options.model) as one, Server(*flags, "--no-kv-unified", model=options.model) as each:
        load = [f"--max-concurrency={options.streams}", f"--num-prompts={options.prompts}", f"--rounds={options.rounds}"]
        load += [f"--random-input-len={options.input_len}", f"--random-range-ratio={options.range_ratio}"]
        load += ["--random-output-len=50", "--no-progress"]
        if options.json:
            load += ["--save-result", f"--result-filename={options.json}"]
        bench(one.url, f"--vs={each.url}", *load)
    print(f"machine: {machine()}")


if __name__ == "__main__":
    main()

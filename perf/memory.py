#!/usr/bin/env python3
"""Resident memory beside what weights and KV cache need, and its growth.

    perf/memory.py [--model FILE] [--requests 10000]

Overhead: at 8 requests of 2,048 tokens of context, after a load. Growth: over
many short requests, after the first thousand.
"""

import argparse
import json
import urllib.request

from server import Server, bench, machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--requests", type=int, default=10_000)
    options = parser.parse_args()
    with Server("--parallel=8", f"--ctx-size={8 * 2048}", model=options.model) as server:
        print(f"resident at start: {server.resident_mb():.0f} MB")
        # Prompts that fill the cache, so that all of it is really there.
        full = ["--num-prompts=8", "--max-concurrency=8", "--random-input-len=1900", "--random-output-len=100"]
        bench(server.url, *full)
        print(f"resident with the cache full: {server.resident_mb():.0f} MB")
        with urllib.request.urlopen(f"{server.url}/v1/models") as response:
            meta = json.load(response)["data"][0]["meta"]
        print(f"weights: {meta['size'] / 1e6:.0f} MB")
    short = ["--max-concurrency=8", "--random-input-len=8", "--random-output-len=4"]
    with Server() as server:  # the built-in model: requests, not tokens
        bench(server.url, "--num-prompts=1000", *short)
        before = server.resident_mb()
        bench(server.url, f"--num-prompts={options.requests}", *short)
        print(f"growth over {options.requests} requests: {server.resident_mb() - before:.1f} MB of {before:.0f}")
    print(f"machine: {machine()}")


if __name__ == "__main__":
    main()

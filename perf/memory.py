#!/usr/bin/env python3
"""Measures resident memory beyond weights and KV cache, and its growth, in MiB.

    perf/memory.py [--model FILE] [--requests 10000] [--json FILE]

Overhead: the resident memory of a server with 8 x 2,048 tokens of context, all in use, minus the model's file and
the KV cache as computed from the model's shape (by default Qwen3-0.6B's). Growth: the built-in model's server gets
many short requests twice. The first pass warms up; growth is what the second pass adds.
"""

import argparse
import json
import os
import pathlib

from server import MIB, Server, bench, machine

SLOTS, SLOT_TOKENS = 8, 2048


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="without it, only growth is measured")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--head-size", type=int, default=128)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    taken = {"machine": machine()}
    if options.model:
        taken["overhead"] = overhead(options)
    taken["growth"] = growth(options.requests)
    if options.json:
        options.json.write_text(json.dumps(taken, indent=1) + "\n")
    print(f"machine: {machine()}")


def overhead(options) -> dict[str, float]:
    numbers = 2 * options.layers * options.kv_heads * options.head_size  # keys and values of one token
    taken = {
        "weights_mib": os.path.getsize(options.model) / MIB,
        "kv_mib": 2 * numbers * SLOTS * SLOT_TOKENS / MIB,  # two bytes per number
    }
    with Server(f"--parallel={SLOTS}", f"--ctx-size={SLOTS * SLOT_TOKENS}", model=options.model) as server:
        taken["start_mib"] = server.resident_mib()
        print(f"resident at start: {taken['start_mib']:.1f} MiB")
        # Fill the cache with prompts, so that all of its memory is resident.
        full = [f"--num-prompts={SLOTS}", f"--max-concurrency={SLOTS}"]
        bench(server.url, *full, f"--random-input-len={SLOT_TOKENS - 100}", "--random-output-len=100")
        taken["full_mib"] = server.resident_mib()
        taken["full_anonymous_mib"] = server.resident_mib("RssAnon")
        taken["full_file_mib"] = server.resident_mib("RssFile")
    taken["overhead_mib"] = taken["full_mib"] - taken["weights_mib"] - taken["kv_mib"]
    print(f"resident with the cache full: {taken['full_mib']:.1f} MiB, {taken['full_anonymous_mib']:.1f} of no file,", end=" ")
    print(f"{taken['full_file_mib']:.1f} of files")
    print(f"weights: {taken['weights_mib']:.1f} MiB, the model's file")
    print(f"KV cache: {taken['kv_mib']:.1f} MiB, 2 x {options.layers} layers x {options.kv_heads} heads", end=" ")
    print(f"x {options.head_size} numbers x 2 bytes x {SLOTS * SLOT_TOKENS} tokens")
    print(f"overhead: {taken['overhead_mib']:.1f} MiB")
    return taken


def growth(requests: int) -> dict[str, float]:
    load = [f"--num-prompts={requests}", "--max-concurrency=8", "--random-input-len=8", "--random-output-len=4"]
    with Server() as server:  # the built-in model: its tokens cost little beside its requests
        taken = {"requests": requests, "before_mib": server.resident_mib()}
        for seed, times in enumerate(("first", "second")):  # different prompts
            bench(server.url, *load, f"--seed={seed}", quiet=True)
            taken[f"{times}_mib"] = server.resident_mib()
    print(f"resident before any request: {taken['before_mib']:.2f} MiB")
    print(f"after {requests} requests: {taken['first_mib']:.2f} MiB, after as many again: {taken['second_mib']:.2f} MiB")
    print(f"growth: {taken['second_mib'] - taken['first_mib']:.2f} MiB over the second {requests} requests")
    return taken


if __name__ == "__main__":
    main()

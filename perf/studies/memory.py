"""How much memory does the server take beyond weights and cache, and does it grow over 10,000 requests?

In MiB. Overhead: the resident memory of a server with 8 x 2,048 tokens of context, all in use, minus the model's file and
the KV cache as computed from the model's shape (by default Qwen3-0.6B's). Growth: the built-in model's server gets many
short requests twice. The first pass warms up; growth is what the second pass adds. Without --model, only growth is
measured.
"""

import os

from shared.report import add, add_server
from shared.server import MIB, Server, measure

SLOTS, SLOT_TOKENS = 8, 2048


def arguments(parser) -> None:
    add_server(parser)
    add(parser, layers=28, kv_heads=8, head_size=128, requests=10_000)


def run(args) -> dict:
    taken = {"overhead": overhead(args)} if args.model else {}
    return taken | {"growth": growth(args)}


def overhead(args) -> dict[str, float]:
    numbers = 2 * args.layers * args.kv_heads * args.head_size  # keys and values of one token
    taken = {
        "weights_mib": os.path.getsize(args.model) / MIB,
        "kv_mib": 2 * numbers * SLOTS * SLOT_TOKENS / MIB,  # two bytes per number
    }
    flags = [f"--parallel={SLOTS}", f"--ctx-size={SLOTS * SLOT_TOKENS}"]
    with Server(*flags, model=args.model, binary=args.binary) as server:
        taken["start_mib"] = server.resident_mib()
        print(f"resident at start: {taken['start_mib']:.1f} MiB")
        # Fill the cache with prompts, so that all of its memory is resident.
        full = [f"--num-prompts={SLOTS}", f"--max-concurrency={SLOTS}"]
        measure(server.url, *full, f"--random-input-len={SLOT_TOKENS - 100}", "--random-output-len=100", show=True)
        taken["full_mib"] = server.resident_mib()
        taken["full_anonymous_mib"] = server.resident_mib("RssAnon")
        taken["full_file_mib"] = server.resident_mib("RssFile")
    taken["overhead_mib"] = taken["full_mib"] - taken["weights_mib"] - taken["kv_mib"]
    print(f"resident with the cache full: {taken['full_mib']:.1f} MiB, {taken['full_anonymous_mib']:.1f} of no file,", end=" ")
    print(f"{taken['full_file_mib']:.1f} of files")
    print(f"weights: {taken['weights_mib']:.1f} MiB, the model's file")
    print(f"KV cache: {taken['kv_mib']:.1f} MiB, 2 x {args.layers} layers x {args.kv_heads} heads", end=" ")
    print(f"x {args.head_size} numbers x 2 bytes x {SLOTS * SLOT_TOKENS} tokens")
    print(f"overhead: {taken['overhead_mib']:.1f} MiB")
    return taken


def growth(args) -> dict[str, float]:
    load = [f"--num-prompts={args.requests}", "--max-concurrency=8", "--random-input-len=8", "--random-output-len=4"]
    with Server(binary=args.binary) as server:  # the built-in model: its tokens cost little beside its requests
        taken = {"requests": args.requests, "before_mib": server.resident_mib()}
        for seed, times in enumerate(("first", "second")):  # different prompts
            measure(server.url, *load, f"--seed={seed}")
            taken[f"{times}_mib"] = server.resident_mib()
    print(f"resident before any request: {taken['before_mib']:.2f} MiB")
    print(f"after {args.requests} requests: {taken['first_mib']:.2f} MiB, after as many again: {taken['second_mib']:.2f} MiB")
    print(f"growth: {taken['second_mib'] - taken['first_mib']:.2f} MiB over the second {args.requests} requests")
    return taken

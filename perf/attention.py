#!/usr/bin/env python3
"""Compares corelane's attention with llama.cpp's, with and without flash attention: one binary, in turns.

    perf/attention.py --model FILE [--long-model FILE] [--json FILE] [--rounds N]

Rung 0 of the ladder with texts of 32 to 2,000 tokens. "alone": corelane's kernels for the weights on both sides;
corelane's attention against the better of `--flash-attn llama` and `off`. "together": corelane's kernels and attention
against `--kernels llama` with the better of the two. corelane's side has one KV cache for all. llama.cpp's side has the
layout that is faster for it: one cache for short texts, a cache for each sequence for longer ones. --long-model: the
model for texts of 1,998 tokens. A quarter of Qwen3-0.6B, in layers and in vocabulary, takes minutes rather than hours.

Prints a table in Markdown: tokens per second of the steps that only decode (for the prompts: of the steps that only
compute prompts), and the ratios within a round: median (from to). `cargo bench --bench attention` measures single layers.
"""

import argparse
import json
import pathlib
import statistics

from server import machine
from settings import run
from spread import shown, spread

Q8_0 = ["--cache-type-k=q8_0", "--cache-type-v=q8_0"]
# At once, prompt, generated; the rate; flags; the targets of the ratios, alone and together.
ROWS = [
    ((8, 32, 50), "decode", [], 1.1, 1.8),
    ((8, 462, 50), "decode", [], 1.3, 1.8),
    ((8, 1998, 50), "decode", [], 1.3, 1.8),
    ((1, 1998, 50), "decode", [], 1.15, None),
    ((8, 1998, 50), "decode", Q8_0, 1.6, None),
    ((2, 1999, 1), "prefill", [], 1.2, None),
]
OURS, FLASH, PLAIN = "auto", "llama", "off"
STOCK = "--kernels=llama"
LONG = 1000  # prompts from this many tokens on use --long-model
UNIFIED_MAX = 100  # up to this many tokens, llama.cpp is faster with one cache for all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a GGUF file; the targets are of Qwen3-0.6B's shape in Q4_K_M")
    parser.add_argument("--long-model", help="a GGUF file for long texts")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| model: at once x prompt + generated | rate | ours, t/s | alone | together |\n|---|---|---|---|---|", flush=True)
    rows = []
    for workload, rate, flags, alone, together in ROWS:
        is_long = workload[1] >= LONG and options.long_model
        others = [FLASH] if flags else [FLASH, PLAIN]  # quantised values need flash attention
        settings = {attention: [] for attention in [OURS, *others]}
        if together:
            settings |= {f"stock {attention}": [STOCK] for attention in others}
        found = {name: [] for name in settings}
        for round in range(options.rounds):  # rounds start with different settings
            for name in list(settings)[:: 1 if round % 2 else -1]:
                every = ["--ubatch-size=512", f"--flash-attn={name.split()[-1]}", *flags, *settings[name]]
                if name != OURS and workload[1] > UNIFIED_MAX:
                    every.append("--no-kv-unified")
                model = options.long_model if is_long else options.model
                found[name].append(run(model, workload, every)[rate])
        name = f"{'quarter' if is_long else 'large'}: {workload[0]} x {workload[1]} + {workload[2]}{', q8_0' if flags else ''}"
        row = {"workload": name, "rate": rate, "tokens_per_s": found}
        row["alone"] = {"least": alone, "ratio": to_better(found, others)}
        if together:
            row["together"] = {"least": together, "ratio": to_better(found, [f"stock {attention}" for attention in others])}
        ratios = [shown(row[kind]["ratio"]) if kind in row else "" for kind in ("alone", "together")]
        print(f"| {name} | {rate} | {statistics.median(found[OURS]):.1f} | {' | '.join(ratios)} |", flush=True)
        rows.append(row)
        if options.json:
            options.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    print(f"\nmachine: {machine()}")


def to_better(found: dict[str, list[float]], others: list[str]) -> dict[str, float]:
    """Our rate over the better of the others (by the median), round by round."""
    better = max(others, key=lambda name: statistics.median(found[name]))
    return spread([ours / theirs for ours, theirs in zip(found[OURS], found[better])])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Our attention against llama.cpp's, with and without flash attention: the same binary, in turns.

    perf/attention.py --model FILE [--long-model FILE] [--json FILE] [--rounds N]

Rung 0 of the ladder, texts of 32 to 2,000 tokens. "alone": our kernels for the weights on both
sides, our attention against the better one of `--flash-attn llama` and `off`. "together": our kernels
and our attention against `--kernels llama` with the better of the two. Ours has one KV cache for all;
llama.cpp's has that for short texts and a cache for each sequence for the others, which is what it is
faster with. --long-model: for texts of 1,998 tokens; a quarter of Qwen3-0.6B, in layers and in
vocabulary, takes minutes and not hours.

Prints a table in Markdown: tokens a second of the steps that only decode (of the prompts: of those that
only read prompts), and the ratios within a round: median (from to). `cargo bench --bench attention` has
the attention of single steps.
"""

import argparse
import json
import pathlib
import statistics

from server import CORELANE, machine
from settings import run
from spread import shown, spread

Q8_0 = ["--cache-type-k=q8_0", "--cache-type-v=q8_0"]
# At once, prompt, generated; the rate that counts; flags; the ratios that were aimed at, alone and together.
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
LONG = 1000  # tokens of a prompt, from which on the model is the other one
UNIFIED_MAX = 100  # tokens of a prompt, up to which llama.cpp's attention is faster in one cache for all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a GGUF file; the targets are of Qwen3-0.6B's shape in Q4_K_M")
    parser.add_argument("--long-model", help="another one for long texts")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| model: at once x prompt + generated | rate | ours, t/s | alone | together |\n|---|---|---|---|---|", flush=True)
    rows = []
    for workload, rate, flags, alone, together in ROWS:
        is_long = workload[1] >= LONG and options.long_model
        others = [FLASH] if flags else [FLASH, PLAIN]  # without flash attention, values are not quantised
        settings = {attention: [] for attention in [OURS, *others]}
        if together:
            settings |= {f"stock {attention}": [STOCK] for attention in others}
        found = {name: [] for name in settings}
        for round in range(options.rounds):  # each begins with another
            for name in list(settings)[:: 1 if round % 2 else -1]:
                every = ["--ubatch-size=512", f"--flash-attn={name.split()[-1]}", *flags, *settings[name]]
                if name != OURS and workload[1] > UNIFIED_MAX:
                    every.append("--no-kv-unified")
                model = options.long_model if is_long else options.model
                found[name].append(run(CORELANE, model, workload, every)[rate])
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
    """Ours to the others that are faster in the median, within a round."""
    better = max(others, key=lambda name: statistics.median(found[name]))
    return spread([ours / theirs for ours, theirs in zip(found[OURS], found[better])])


if __name__ == "__main__":
    main()

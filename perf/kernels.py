#!/usr/bin/env python3
"""Compares corelane's kernels for the weights with llama.cpp's (--kernels=llama): one binary, in turns.

    perf/kernels.py --model FILE [--json FILE] [--rounds N] [--flash-attn WHEN]

Rung 0 of the ladder: texts of 32 + 50 tokens, 1 to 32 at once, and a prompt of 511 tokens. Prints a table in Markdown:
tokens per second of the steps that only decode (for the prompt: of the steps that only compute prompts), and the ratio
within a round: median (from to). The decode rows are repeated with the built-in model. `cargo bench --bench kernels`
measures single products.
"""

import argparse
import json
import pathlib
import statistics

from server import machine
from settings import run
from spread import shown, spread

# At once, prompt, generated; the rate; the target of the ratio.
ROWS = [
    ((1, 32, 50), "decode", 1.0),
    ((4, 32, 50), "decode", 1.5),
    ((8, 32, 50), "decode", 1.8),
    ((16, 32, 50), "decode", 1.7),
    ((32, 32, 50), "decode", 1.7),
    ((1, 511, 1), "prefill", 1.4),
]
BUILTIN = [((1, 32, 50), "decode", None), ((8, 32, 50), "decode", None), ((32, 32, 50), "decode", None)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a GGUF file; the targets are of Qwen3-0.6B's shape in Q4_K_M")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--flash-attn", default="llama", help="flash attention on both sides [default: llama]")
    options = parser.parse_args()
    # A cache for each sequence: in one cache, llama.cpp's attention reads the cells of all sequences.
    base = ["--ubatch-size=512", f"--flash-attn={options.flash_attn}", "--no-kv-unified"]
    print("| model: at once x prompt + generated | rate | llama.cpp's t/s | ours | ratio |\n|---|---|---|---|---|", flush=True)
    rows = []
    for model, workload, rate, least in [(options.model, *row) for row in ROWS] + [(None, *row) for row in BUILTIN]:
        found = {"llama": [], "auto": []}
        for round in range(options.rounds):  # rounds start with different sides
            for kernels, runs in list(found.items())[:: 1 if round % 2 else -1]:
                runs.append(run(model, workload, [*base, f"--kernels={kernels}"])[rate])
        ratio = spread([ours / theirs for ours, theirs in zip(found["auto"], found["llama"])])
        name = f"{'large' if model else 'built-in'}: {workload[0]} x {workload[1]} + {workload[2]}"
        theirs, ours = (statistics.median(runs) for runs in found.values())
        print(f"| {name} | {rate} | {theirs:.1f} | {ours:.1f} | {shown(ratio)} |", flush=True)
        rows.append({"workload": name, "rate": rate, "least": least, "tokens_per_s": found, "ratio": ratio})
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "flags": base, "rows": rows}, indent=1) + "\n")
    print(f"\nmachine: {machine()}")


if __name__ == "__main__":
    main()

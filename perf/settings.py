#!/usr/bin/env python3
"""The settings that llama.cpp leaves open, measured: rung 0 of the ladder
with one of them changed, each in turns with the defaults.

    perf/settings.py --model FILE [--rounds 3] [--openmp target-openmp/release/corelane]

Prints a table in Markdown: tokens a second of the whole workload (prompts
included in the time), and the ratio to the defaults within a round.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

from server import CORELANE, machine

# name, flags
POLLING = [("poll 0", ["--poll=0"]), ("poll 10", ["--poll=10"]), ("poll 100", ["--poll=100"])]
CACHE = [
    ("a cache for each sequence", ["--no-kv-unified"]),
    ("flash attention off", ["--flash-attn=off"]),
    ("KV cache in q8_0", ["--cache-type-k=q8_0", "--cache-type-v=q8_0"]),
]
MICRO_BATCH = [(f"micro-batch {n}", [f"--ubatch-size={n}"]) for n in (128, 256, 1024)]
# (concurrency, requests, prompt tokens, generated tokens): settings
WORKLOADS = {
    (8, 16, 32, 50): [*POLLING, *CACHE],
    (8, 8, 462, 50): CACHE,
    (32, 32, 462, 50): CACHE,
    (8, 8, 1998, 50): [*CACHE, *MICRO_BATCH],
    (32, 32, 1998, 50): CACHE,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--openmp", help="a binary that was built with --features openmp")
    parser.add_argument("--short", action="store_true", help="only the workloads of at most 512 tokens")
    options = parser.parse_args()
    print("| at once x prompt + generated | setting | t/s | ratio to the default | from, to |")
    print("|---|---|---|---|---|")
    for workload, settings in WORKLOADS.items():
        if options.short and workload[2] + workload[3] > 512:
            continue
        runs = [("default", [], CORELANE), *[(name, flags, CORELANE) for name, flags in settings]]
        if options.openmp and workload[2] < 100:
            runs.append(("OpenMP", [], options.openmp))
        rates: dict[str, list[float]] = {name: [] for name, _, _ in runs}
        for _ in range(options.rounds):
            for name, flags, binary in runs:
                rates[name].append(rate(binary, options.model, workload, flags))
        for name, found in rates.items():
            ratios = [a / b for a, b in zip(found, rates["default"])]
            print(
                f"| {workload[0]} x {workload[2]} + {workload[3]} | {name} | {statistics.median(found):.1f} "
                f"| {statistics.median(ratios):.3f} | {min(ratios):.3f}, {max(ratios):.3f} |",
                flush=True,
            )
    print(f"\nmachine: {machine()}")


def rate(binary, model: str, workload: tuple[int, int, int, int], flags: list[str]) -> float:
    """Tokens a second of rung 0."""
    concurrency, requests, prompt, generated = workload
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "ladder.json"
        command = [str(binary), "bench", "ladder", f"--model={model}", "--rung=0", "--rounds=1", f"--json={result}"]
        command += [f"--concurrency={concurrency}", f"--requests={requests}"]
        command += [f"--prompt-tokens={prompt}", f"--gen-tokens={generated}", *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return json.loads(result.read_text())["rounds"][0][0]["tokens_per_s"]


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The settings that llama.cpp leaves open, measured: rung 0 of the ladder
with one of them changed, each in turns with the default of its row: that of the
server, but for a micro-batch of 512 (see LONG_STEPS), and but for the row of
micro-batches. The ladder puts no bound on the time between tokens.

    perf/settings.py --model FILE [--large FILE] [--openmp BINARY] [--json FILE]

--model: a quarter of Qwen3-0.6B, in layers and in vocabulary, so that long
prompts take minutes and not hours. --large: the whole, for the rows that are
about threads and not about the cache; --openmp: a binary that was built with
--features openmp. What is not given is reported as not taken.

Prints a table in Markdown. Tokens a second: "all" of the whole run, prompt and
generated; "prefill" of the steps of prompts alone; "decode" of the steps
without any. Ratios to the default are within a round: median (from to).
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

from server import CORELANE, machine
from spread import shown, spread

EACH = ("a KV cache for each", ["--no-kv-unified"])
LLAMA = ("llama.cpp's flash attention", ["--flash-attn=llama"])
PLAIN = ("no flash attention", ["--flash-attn=off"])
Q8_0 = ("KV in q8_0", ["--cache-type-k=q8_0", "--cache-type-v=q8_0"])
CACHE = [EACH, LLAMA, PLAIN, Q8_0]
POLLING = [(f"poll {n}", [f"--poll={n}"]) for n in (0, 10, 100)]
OPENMP = ("OpenMP", [])
MICRO_BATCH = [(f"micro-batch {n}", [f"--ubatch-size={n}"]) for n in (64, 128, 512, 1024)]
# A sequence decodes as soon as its own prompt is in the cache. The fewer steps
# all prompts take, the longer all sequences decode together; "rows" says how many did
# in the steps that "decode" is of.
LONG_STEPS = ["--ubatch-size=512"]
# model, (concurrency, prompt tokens, generated tokens), flags of all, rounds, settings.
# A run of the short rows takes seconds, in which a shared machine may do anything: more rounds.
# The longest row has one round and one setting.
ROWS = [
    ("large", (8, 32, 50), LONG_STEPS, 9, [*POLLING, OPENMP, EACH, LLAMA, PLAIN]),
    ("quarter", (1, 32, 50), LONG_STEPS, 15, [LLAMA, PLAIN]),
    ("quarter", (8, 32, 50), LONG_STEPS, 15, [LLAMA, PLAIN]),
    ("quarter", (8, 96, 50), LONG_STEPS, 15, [LLAMA, PLAIN]),
    ("quarter", (8, 206, 50), LONG_STEPS, 15, [LLAMA, PLAIN]),
    ("quarter", (1, 462, 50), LONG_STEPS, 3, CACHE[1:]),  # one sequence: one cache either way
    ("quarter", (1, 1998, 50), LONG_STEPS, 3, CACHE[1:]),
    ("quarter", (8, 462, 50), LONG_STEPS, 3, CACHE),
    # One token each: all steps are prompts, of as many rows as a micro-batch has.
    ("quarter", (8, 511, 1), [], 3, MICRO_BATCH),
    ("quarter", (32, 462, 50), LONG_STEPS, 3, [EACH]),
    ("quarter", (8, 1998, 50), LONG_STEPS, 3, [EACH, LLAMA, PLAIN]),
    ("quarter", (32, 1998, 150), LONG_STEPS, 1, [EACH]),
]
RATES = ["all", "prefill", "decode"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--large")
    parser.add_argument("--openmp")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, help="of every row [default: 3; short ones 9 or 15; the longest 1]")
    parser.add_argument("--only", default="", help='rows with one of these in their name: "8 x 96,8 x 206"')
    options = parser.parse_args()
    models = {"quarter": options.model, "large": options.large}
    print("| at once x prompt + generated | setting |" + "".join(f" {rate} t/s | ratio |" for rate in RATES) + " rows | rounds |")
    print("|---|---|" + "---|---|" * len(RATES) + "---|---|", flush=True)
    rows, not_taken = [], []
    for model, workload, base, rounds, settings in ROWS:
        name = f"{model}: {workload[0]} x {workload[1]} + {workload[2]}"
        if not any(part in name for part in options.only.split(",")):
            not_taken.append(name)
            continue
        runs = [("default", [], CORELANE)]
        for setting, flags in settings:
            binary = options.openmp if setting == OPENMP[0] else CORELANE
            if models[model] and binary:
                runs.append((setting, flags, binary))
            else:
                not_taken.append(f"{setting} at {name}")
                print(f"| {name} | {setting} | not taken |" + " |" * (2 * len(RATES) + 2), flush=True)
        if len(runs) == 1:
            continue
        found = {setting: [] for setting, _, _ in runs}
        for _ in range(options.rounds or rounds):
            for setting, flags, binary in runs:
                found[setting].append(run(binary, models[model], workload, base + flags))
        for setting, flags, _ in runs:
            row = {"workload": name, "setting": setting, "flags": base + flags, "runs": found[setting]}
            row |= {rate: compare(found[setting], found["default"], rate) for rate in RATES}
            row["decode_rows_mean"] = found[setting][0]["decode_rows_mean"]  # the same in each round
            rows.append(row)
            together = row["decode_rows_mean"] or 0
            print(f"| {name} | {setting} |" + "".join(cells(row[rate]) for rate in RATES) + f" {together:.1f} | {len(found[setting])} |", flush=True)
        if options.json:  # after each row, so that an interruption loses but one
            taken = {"machine": machine(), "rows": rows, "not_taken": not_taken}
            options.json.write_text(json.dumps(taken, indent=1) + "\n")
    print(f"\nmachine: {machine()}")


def run(binary, model: str | None, workload: tuple[int, int, int], flags: list[str]) -> dict[str, float | None]:
    """Tokens a second of rung 0, and the rows of the steps that only decode. No model is the built-in one."""
    concurrency, prompt, generated = workload
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "ladder.json"
        command = [str(binary), "bench", "ladder", *([f"--model={model}"] if model else []), "--rung=0", "--rounds=1", f"--json={result}"]
        command += [f"--concurrency={concurrency}", f"--requests={concurrency}"]
        command += [f"--prompt-tokens={prompt}", f"--gen-tokens={generated}"]
        # A flag given twice is an error: the later one is a setting's.
        command += {flag.partition("=")[0]: flag for flag in flags}.values()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        one = json.loads(result.read_text())["rounds"][0][0]
    every = concurrency * (prompt + generated) / one["wall_s"]
    rates = {"all": every, "prefill": one["prefill_tokens_per_s"], "decode": one["decode_tokens_per_s"]}
    return rates | {"decode_rows_mean": one["decode_rows_mean"]}


def compare(found: list[dict], default: list[dict], rate: str) -> dict | None:
    """None where there were no such steps."""
    if any(run[rate] is None for run in found + default):
        return None
    ratio = spread([a[rate] / b[rate] for a, b in zip(found, default)])
    return {"median": statistics.median(run[rate] for run in found), "ratio": ratio}


def cells(compared: dict | None) -> str:
    if compared is None:
        return " - | - |"
    return f" {compared['median']:.1f} | {shown(compared['ratio'])} |"


if __name__ == "__main__":
    main()

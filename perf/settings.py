#!/usr/bin/env python3
"""Measures llama.cpp's open settings: rung 0 of the ladder with one setting changed, in turns with the default.

    perf/settings.py --model FILE [--large FILE] [--json FILE] [--rounds N] [--only NAMES]

The default is the server's, except for a micro-batch of 512 rows (see LONG_STEPS) in all rows but the one about
micro-batches. The ladder sets no bound on the time between tokens.

--model: a quarter of Qwen3-0.6B, in layers and in vocabulary, so that long prompts take minutes rather than hours.
--large: the whole model, for the rows about threads. A row whose model is not given is reported as not taken.

Prints a table in Markdown. Tokens per second: "all" of the whole run, prompt and generated; "prefill" of the steps
that only compute prompts; "decode" of the steps without prompts. The ratios to the default are within a round:
median (from to).
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
MICRO_BATCH = [(f"micro-batch {n}", [f"--ubatch-size={n}"]) for n in (64, 128, 512, 1024)]
# A sequence decodes as soon as its own prompt is computed. The fewer steps all prompts take, the longer all
# sequences decode together. "rows" is the mean number of sequences in the steps of "decode".
LONG_STEPS = ["--ubatch-size=512"]
# Model, (concurrency, prompt tokens, generated tokens), flags of all runs, rounds, settings.
# A run of a short row takes seconds, in which a shared machine may do anything, so short rows have more rounds.
ROWS = [
    ("large", (8, 32, 50), LONG_STEPS, 7, [*POLLING, EACH, LLAMA, PLAIN]),
    ("quarter", (1, 32, 50), LONG_STEPS, 7, [LLAMA, PLAIN]),
    ("quarter", (8, 206, 50), LONG_STEPS, 7, [LLAMA, PLAIN]),
    ("quarter", (8, 462, 50), LONG_STEPS, 3, CACHE),
    ("quarter", (1, 1998, 50), LONG_STEPS, 3, CACHE[1:]),  # with one sequence, both cache layouts are the same
    ("quarter", (8, 1998, 50), LONG_STEPS, 3, [EACH, LLAMA, PLAIN]),
    ("quarter", (32, 462, 50), LONG_STEPS, 3, [EACH]),
    # With one token each, all steps are prompts with a micro-batch of rows.
    ("quarter", (8, 511, 1), [], 3, MICRO_BATCH),
]
RATES = ["all", "prefill", "decode"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--large")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, help="rounds of every row [default: 7 for short rows, 3 for others]")
    parser.add_argument("--only", default="", help='only rows whose name contains one of these, such as "8 x 206,8 x 462"')
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
        runs = [("default", [])]
        for setting, flags in settings:
            if models[model]:
                runs.append((setting, flags))
            else:
                not_taken.append(f"{setting} at {name}")
                print(f"| {name} | {setting} | not taken |" + " |" * (2 * len(RATES) + 2), flush=True)
        if len(runs) == 1:
            continue
        found = {setting: [] for setting, _ in runs}
        for _ in range(options.rounds or rounds):
            for setting, flags in runs:
                found[setting].append(run(models[model], workload, base + flags))
        for setting, flags in runs:
            row = {"workload": name, "setting": setting, "flags": base + flags, "runs": found[setting]}
            row |= {rate: compare(found[setting], found["default"], rate) for rate in RATES}
            row["decode_rows_mean"] = found[setting][0]["decode_rows_mean"]  # the same in each round
            rows.append(row)
            together = row["decode_rows_mean"] or 0
            print(f"| {name} | {setting} |" + "".join(cells(row[rate]) for rate in RATES) + f" {together:.1f} | {len(found[setting])} |", flush=True)
        if options.json:  # after each row, so that an interruption loses one row only
            taken = {"machine": machine(), "rows": rows, "not_taken": not_taken}
            options.json.write_text(json.dumps(taken, indent=1) + "\n")
    print(f"\nmachine: {machine()}")


def run(model: str | None, workload: tuple[int, int, int], flags: list[str]) -> dict[str, float | None]:
    """Tokens per second of rung 0, and the mean rows of the steps that only decode. None is the built-in model."""
    concurrency, prompt, generated = workload
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "ladder.json"
        command = [str(CORELANE), "bench", "ladder", *([f"--model={model}"] if model else []), "--rung=0", "--rounds=1", f"--json={result}"]
        command += [f"--concurrency={concurrency}", f"--requests={concurrency}"]
        command += [f"--prompt-tokens={prompt}", f"--gen-tokens={generated}"]
        # A flag given twice is an error, so a setting's flag replaces the row's.
        command += {flag.partition("=")[0]: flag for flag in flags}.values()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        one = json.loads(result.read_text())["rounds"][0][0]
    every = concurrency * (prompt + generated) / one["wall_s"]
    rates = {"all": every, "prefill": one["prefill_tokens_per_s"], "decode": one["decode_tokens_per_s"]}
    return rates | {"decode_rows_mean": one["decode_rows_mean"]}


def compare(found: list[dict], default: list[dict], rate: str) -> dict | None:
    """None if there were no such steps."""
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

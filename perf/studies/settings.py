"""Is any of llama.cpp's settings better than the default?

Rung 0 of the ladder with one setting changed, in turns with the default. The default is the server's, except for a
micro-batch of 512 rows in all rows but the one about micro-batches. The ladder sets no bound on the time between tokens.

--model: a quarter of Qwen3-0.6B, in layers and in vocabulary, so that long prompts take minutes rather than hours.
--large: the whole model, for the rows about threads. A row whose model is not given is reported as not taken.

Tokens per second: "all" of the whole run, prompt and generated; "prefill" of the steps that only compute prompts;
"decode" of the steps without prompts. "rows" is the mean number of sequences in the steps of "decode".
"""

import statistics

from shared.report import add_server, row, table, write
from shared.rung import LONG_STEPS, rung_0, shown_workload
from shared.server import model_file
from shared.statistics import ratios, shown, spread
from shared.turns import in_turns

EACH = ("a KV cache for each", ["--no-kv-unified"])
LLAMA = ("llama.cpp's flash attention", ["--flash-attn=llama"])
PLAIN = ("no flash attention", ["--flash-attn=off"])
Q8_0 = ("KV in q8_0", ["--cache-type-k=q8_0", "--cache-type-v=q8_0"])
CACHE = [EACH, LLAMA, PLAIN, Q8_0]
POLLING = [(f"poll {n}", [f"--poll={n}"]) for n in (0, 10, 100)]
MICRO_BATCH = [(f"micro-batch {n}", [f"--ubatch-size={n}"]) for n in (64, 128, 512, 1024)]
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


def arguments(parser) -> None:
    add_server(parser, model="quarter", binary=False)
    parser.add_argument("--large", type=model_file)
    parser.add_argument("--rounds", type=int, help="rounds of every row [default: 7 for short rows, 3 for others]")
    parser.add_argument("--only", default="", help='only rows whose name contains one of these, such as "8 x 206,8 x 462"')


def run(args) -> dict:
    models = {"quarter": args.model, "large": args.large}
    rates = [column for rate in RATES for column in (f"{rate} t/s", "ratio")]
    table("at once x prompt + generated", "setting", *rates, "rows", "rounds")
    rows, not_taken = [], []
    for model, workload, base, rounds, settings in ROWS:
        name = f"{model}: {shown_workload(workload)}"
        if not any(part in name for part in args.only.split(",")):
            not_taken.append(name)
            continue
        if not models[model]:
            for setting, _ in settings:
                not_taken.append(f"{setting} at {name}")
                row(name, setting, "not taken", *[""] * (2 * len(RATES) + 1))
            continue
        flags = {"default": base} | {setting: base + changed for setting, changed in settings}
        ways = {setting: lambda every=every: rung_0(models[model], workload, every) for setting, every in flags.items()}
        found = in_turns(args.rounds or rounds, ways, alternate=False)
        for setting, runs in found.items():
            line = {"workload": name, "setting": setting, "flags": flags[setting], "runs": runs}
            line |= {rate: compare(runs, found["default"], rate) for rate in RATES}
            line["decode_rows_mean"] = runs[0]["decode_rows_mean"]  # the same in each round
            rows.append(line)
            cells = [cell for rate in RATES for cell in shown_rate(line[rate])]
            row(name, setting, *cells, f"{line['decode_rows_mean'] or 0:.1f}", len(runs))
        write(args.json, {"rows": rows, "not_taken": not_taken})  # so that an interruption loses one row only
    return {"rows": rows, "not_taken": not_taken}


def compare(found: list[dict], default: list[dict], rate: str) -> dict | None:
    """None if there were no such steps."""
    if any(run[rate] is None for run in found + default):
        return None
    values, base = ([run[rate] for run in runs] for runs in (found, default))
    return {"median": statistics.median(values), "ratio": spread(ratios(values, base))}


def shown_rate(compared: dict | None) -> tuple[str, str]:
    return ("-", "-") if compared is None else (f"{compared['median']:.1f}", shown(compared["ratio"]))

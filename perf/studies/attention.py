"""How fast is decoding with our attention, and with llama.cpp's?

One binary, in turns. Rung 0 of the ladder with texts of 32 to 2,000 tokens. "alone": corelane's kernels for the weights
on both sides; corelane's attention against the better of `--flash-attn llama` and `off`. "together": corelane's kernels
and attention against `--kernels llama` with the better of the two. corelane's side has one KV cache for all. llama.cpp's
side has the layout that is faster for it: one cache for short texts, a cache for each sequence for longer ones.
--long-model is the model for texts of 1,998 tokens. A quarter of Qwen3-0.6B takes minutes rather than hours.

Prints tokens per second of the steps that only decode (for the prompts: of the steps that only compute prompts), and the
ratios within a round. The targets are of Qwen3-0.6B's shape in Q4_K_M. `perf/study benches attention` measures single
layers.
"""

import statistics

from shared.report import add, add_server, row, table, write
from shared.rung import LONG_STEPS, rung_0, shown_workload
from shared.server import model_file
from shared.statistics import ratios, shown, spread
from shared.turns import in_turns

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


def arguments(parser) -> None:
    add_server(parser, model="large", binary=False)
    parser.add_argument("--long-model", type=model_file, help="a GGUF file for long texts")
    add(parser, rounds=3)


def run(args) -> dict:
    table("model: at once x prompt + generated", "rate", "ours, t/s", "alone", "together")
    rows = []
    for workload, rate, flags, alone, together in ROWS:
        is_long = workload[1] >= LONG and args.long_model
        model = args.long_model if is_long else args.model
        others = [FLASH] if flags else [FLASH, PLAIN]  # quantised values need flash attention
        stock = [f"stock {attention}" for attention in others if together]

        def side(name: str):
            every = [*LONG_STEPS, f"--flash-attn={name.split()[-1]}", *flags, *([STOCK] if name in stock else [])]
            every += ["--no-kv-unified"] if name != OURS and workload[1] > UNIFIED_MAX else []
            return lambda: rung_0(model, workload, every)[rate]

        found = in_turns(args.rounds, {name: side(name) for name in reversed([OURS, *others, *stock])})
        name = f"{'quarter' if is_long else 'large'}: {shown_workload(workload)}{', q8_0' if flags else ''}"
        line = {"workload": name, "rate": rate, "tokens_per_s": found}
        line["alone"] = {"least": alone, "ratio": to_better(found, others)}
        if together:
            line["together"] = {"least": together, "ratio": to_better(found, stock)}
        shares = [shown(line[kind]["ratio"]) if kind in line else "" for kind in ("alone", "together")]
        row(name, rate, f"{statistics.median(found[OURS]):.1f}", *shares)
        rows.append(line)
        write(args.json, {"rows": rows})
    return {"rows": rows}


def to_better(found: dict[str, list[float]], others: list[str]) -> dict[str, float]:
    """Our rate over the better of the others (by the median), round by round."""
    better = max(others, key=lambda name: statistics.median(found[name]))
    return spread(ratios(found[OURS], found[better]))

"""How fast is decoding with our kernels for the weights, and with llama.cpp's?

One binary, in turns with --kernels=llama. Rung 0 of the ladder: texts of 32 + 50 tokens, 1 to 32 at once, and a prompt of
511 tokens. Prints tokens per second of the steps that only decode (for the prompt: of the steps that only compute
prompts), and the ratio within a round. The decode rows are repeated with the built-in model. The targets are of
Qwen3-0.6B's shape in Q4_K_M. `perf/study benches kernels` measures single products.
"""

import statistics
from pathlib import Path

from shared.report import add, add_server, row, table
from shared.rung import LONG_STEPS, rung_0, shown_workload
from shared.server import model_file
from shared.statistics import ratios, shown, spread
from shared.turns import in_turns

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


def arguments(parser) -> None:
    add_server(parser, model="large", binary=False)
    add(parser, rounds=7, flash_attn="llama")


def run(args) -> dict:
    # A cache for each sequence: in one cache, llama.cpp's attention reads the cells of all sequences.
    base = [*LONG_STEPS, f"--flash-attn={args.flash_attn}", "--no-kv-unified"]
    table("model: at once x prompt + generated", "rate", "llama.cpp's t/s", "ours", "ratio")
    rows = []
    is_large = args.model == model_file("large")
    lines = [(args.model, *line) for line in ROWS] + [(None, *line) for line in BUILTIN if is_large]
    for model, workload, rate, least in lines:
        side = lambda kernels: lambda: rung_0(model, workload, [*base, f"--kernels={kernels}"])[rate]
        found = in_turns(args.rounds, {kernels: side(kernels) for kernels in ("auto", "llama")})
        ratio = spread(ratios(found["auto"], found["llama"]))
        name = f"{'large' if is_large else Path(model).stem}: " if model else "built-in: "
        name += shown_workload(workload)
        theirs, ours = (f"{statistics.median(found[kernels]):.1f}" for kernels in ("llama", "auto"))
        row(name, rate, theirs, ours, shown(ratio))
        rows.append({"workload": name, "rate": rate, "least": least if is_large else None, "tokens_per_s": found, "ratio": ratio})
    return {"flags": base, "rows": rows}

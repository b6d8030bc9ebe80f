"""How fast is a mechanism, a product with weights, the attention of a layer, or a made-up set of servers?

Runs one of the crate's benchmarks. `micro`: each mechanism without a model, of which the medians are printed. `kernels`:
single products with weights, by our kernels, by llama.cpp's, and at the machine's limit. `attention`: the attention of one
layer, ours and llama.cpp's. `growth`: 1 to 64 servers behind a router, simulated in made-up time.
"""

import json
import subprocess
import sys
import time

from shared.server import ROOT


def arguments(parser) -> None:
    parser.add_argument("bench", choices=["micro", "kernels", "attention", "growth"], metavar="BENCH")


def run(args) -> dict | None:
    began = time.time() - 1  # file times are coarser
    sys.stdout.flush()
    is_micro = args.bench == "micro"
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if is_micro else {}
    bench = subprocess.run(["cargo", "bench", "--quiet", "--bench", args.bench], cwd=ROOT, **output)
    if bench.returncode:
        sys.exit((bench.stdout or b"").decode() + f"the benchmark ended with status {bench.returncode}")
    if not is_micro:
        return None
    medians = {}
    for estimates in (ROOT / "target/criterion").rglob("new/estimates.json"):
        if estimates.stat().st_mtime >= began:  # older files are of other runs, such as those of a renamed benchmark
            name = json.loads((estimates.parent / "benchmark.json").read_text())["full_id"]
            medians[name] = json.loads(estimates.read_text())["median"]
    assert medians, "no benchmark wrote its numbers"
    for name, median in sorted(medians.items()):
        print(f"{name:<60} {time_of(median['point_estimate'])}")
    return {"medians_ns": medians}


def time_of(nanoseconds: float) -> str:
    for unit, size in (("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"

#!/usr/bin/env python3
"""Runs the benchmarks of benches/micro and prints the median of each.

    perf/criterion.py [--json FILE]

Reads the files that this run wrote to target/criterion. Older files, such as those of a renamed benchmark, are ignored.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

from server import ROOT, machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path, help="medians in nanoseconds, with their 95 %% intervals")
    options = parser.parse_args()
    began = time.time() - 1  # file times are coarser
    bench = subprocess.run(["cargo", "bench", "--quiet", "--bench", "micro"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if bench.returncode:
        sys.stdout.buffer.write(bench.stdout)
        sys.exit(bench.returncode)
    medians = {}
    for estimates in (ROOT / "target/criterion").rglob("new/estimates.json"):
        if estimates.stat().st_mtime >= began:
            name = json.loads((estimates.parent / "benchmark.json").read_text())["full_id"]
            medians[name] = json.loads(estimates.read_text())["median"]
    assert medians, "no benchmark wrote its numbers"
    for name, median in sorted(medians.items()):
        print(f"{name:<60} {time_of(median['point_estimate'])}")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "medians_ns": medians}, indent=1) + "\n")
    print(f"machine: {machine()}")


def time_of(nanoseconds: float) -> str:
    for unit, size in (("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs the benchmarks of benches/, and prints the median of each.

Reads what criterion writes to target/criterion, and of that only what this run
wrote: a benchmark that was renamed leaves its last numbers there.
"""

import json
import subprocess
import sys
import time

from server import ROOT, machine


def main() -> None:
    began = time.time() - 1  # the times of files are coarser
    bench = subprocess.run(["cargo", "bench", "--quiet"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if bench.returncode:
        sys.stdout.buffer.write(bench.stdout)
        sys.exit(bench.returncode)
    medians = {}
    for estimates in (ROOT / "target/criterion").rglob("new/estimates.json"):
        if estimates.stat().st_mtime >= began:
            name = json.loads((estimates.parent / "benchmark.json").read_text())["full_id"]
            medians[name] = json.loads(estimates.read_text())["median"]["point_estimate"]
    assert medians, "no benchmark wrote its numbers"
    for name, nanoseconds in sorted(medians.items()):
        print(f"{name:<60} {time_of(nanoseconds)}")
    print(f"machine: {machine()}")


def time_of(nanoseconds: float) -> str:
    for unit, size in (("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


if __name__ == "__main__":
    main()

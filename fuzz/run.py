#!/usr/bin/env python3
"""Fuzzes the targets, two at a time: builds them, runs each, tells what it reached.

    fuzz/run.py                       ten seconds each
    fuzz/run.py --seconds 3600 http   an hour of one
    fuzz/run.py --keep                also keeps the smallest new inputs in corpus/

Inputs found so far are in target/fuzz; what ends a target is in target/fuzz/found.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

FUZZ = Path(__file__).resolve().parent
ROOT = FUZZ.parent
WORK = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
BINARIES = WORK / "release"
FOUND = WORK / "fuzz" / "found"
TARGETS = sorted(path.stem for path in (FUZZ / "targets").glob("*.rs"))
# Longest input in bytes. libFuzzer begins with short ones.
MAX_BYTES = {"gguf": 8192}
# Seeds beside those in corpus/.
SEEDS = {"template": [ROOT / "tests" / "templates"]}
# Of the inputs kept in the repository: this many of at most this size.
KEPT, KEPT_BYTES = 100, 512


def build():
    environment = os.environ | {"RUSTC_WORKSPACE_WRAPPER": str(FUZZ / "instrument")}
    command = ["cargo", "build", "--quiet", "--release", "-p", "corelane-fuzz"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def command(target, *flags):
    dictionaries = {"connection": None, "server": "http", "kept": "requests", "tokens": None}
    dictionary = dictionaries.get(target, target)
    call = [BINARIES / f"fuzz-{target}", *flags]
    call += [f"-dict={FUZZ}/dictionaries/{dictionary}.dict"] if dictionary else []
    # A regular expression, a schema or a model file may take long; 25 s is no progress.
    call += ["-timeout=25", "-rss_limit_mb=4096", f"-max_len={MAX_BYTES.get(target, 4096)}"]
    return call + [f"-artifact_prefix={FOUND}/{target}-", WORK / "fuzz" / target]


def run(target, seconds):
    (WORK / "fuzz" / target).mkdir(parents=True, exist_ok=True)
    log = WORK / "fuzz" / f"{target}.log"
    flags = [f"-max_total_time={seconds}", "-print_final_stats=1"]
    seeds = [FUZZ / "corpus" / target, *SEEDS.get(target, [])]
    with log.open("wb") as out:
        call = command(target, *flags) + seeds
        status = subprocess.run(call, cwd=WORK / "fuzz", stdout=out, stderr=out).returncode
    text = log.read_text(errors="replace")
    edges = re.search(r"\((\d+) inline 8-bit counters\)", text)
    reached = re.findall(r"cov: (\d+)", text)
    runs = re.search(r"number_of_executed_units: (\d+)", text)
    figures = [int(found) if found else 0 for found in
               (runs and runs[1], reached and reached[-1], edges and edges[1])]
    return target, status, figures, text


def keep(target):
    """Replaces corpus/ by the smallest inputs that reach what all of them reach."""
    merged = WORK / "fuzz" / f"{target}.merged"
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir()
    call = [*command(target, "-merge=1")[:-1], merged]
    call += [FUZZ / "corpus" / target, WORK / "fuzz" / target, *SEEDS.get(target, [])]
    subprocess.run(call, cwd=WORK / "fuzz", check=True, capture_output=True)
    inputs = sorted((path.stat().st_size, path) for path in merged.iterdir())
    kept = [path for size, path in inputs if size <= KEPT_BYTES][:KEPT]
    corpus = FUZZ / "corpus" / target
    for path in corpus.iterdir():
        if re.fullmatch("[0-9a-f]{16}", path.name):  # other names are seeds written by hand
            path.unlink()
    seeds = {path.read_bytes() for path in corpus.iterdir()}
    for path in kept:
        if path.read_bytes() not in seeds:
            shutil.copy(path, corpus / path.name[:16])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=10, help="time of each target")
    parser.add_argument("--keep", action="store_true", help="keep the smallest new inputs")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    options = parser.parse_args()
    unknown = set(options.targets) - set(TARGETS)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    targets = options.targets or TARGETS
    build()
    FOUND.mkdir(parents=True, exist_ok=True)
    print(f"{'target':10} {'runs':>10} {'edges':>8} {'of':>8}", flush=True)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for target, status, figures, text in pool.map(lambda t: run(t, options.seconds), targets):
            runs, reached, edges = figures
            print(f"{target:10} {runs:10} {reached:8} {edges:8}", flush=True)
            if status:
                failed += 1
                print(f"{target} ended with status {status}:\n{text[-4000:]}")
            elif options.keep:
                keep(target)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures start-up time, idle CPU and memory of the built server.

    perf/spine.py [--model FILE] [--json FILE]
"""

import argparse
import json
import pathlib
import time

from server import Server, bench, machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    with Server(model=options.model, ops=True) as server:
        found = {"start_s": server.start_s, "resident_mib": server.resident_mib()}
        print(f"start-up: {1e3 * found['start_s']:.0f} ms")
        print(f"resident at start: {found['resident_mib']:.0f} MiB")
        load = ["--num-prompts=40", "--max-concurrency=8", "--random-input-len=32", "--random-output-len=50"]
        bench(server.url, *load)
        found["resident_after_40_requests_mib"] = server.resident_mib()
        print(f"resident after 40 requests: {found['resident_after_40_requests_mib']:.0f} MiB")
        time.sleep(3)  # ggml's threads poll for a while after the last step
        before = server.cpu_seconds()
        time.sleep(20)
        found["idle_core_percent"] = 5 * (server.cpu_seconds() - before)
        print(f"idle: {found['idle_core_percent']:.2f} % of a core over 20 s")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine()} | found, indent=1) + "\n")
    print(f"machine: {machine()}")


if __name__ == "__main__":
    main()

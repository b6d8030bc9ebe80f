#!/usr/bin/env python3
"""Start-up, idle CPU and memory of the built server.

    perf/spine.py [--model FILE]

Starts target/release/corelane, measures, ends it, and prints the machine.
"""

import argparse
import time

from server import Server, bench, machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    options = parser.parse_args()
    with Server(model=options.model, ops=True) as server:
        print(f"start-up: {1e3 * server.start_s:.0f} ms")
        print(f"resident at start: {server.resident_mib():.0f} MiB")
        load = ["--num-prompts=40", "--max-concurrency=8", "--random-input-len=32", "--random-output-len=50"]
        bench(server.url, *load)
        print(f"resident after 40 requests: {server.resident_mib():.0f} MiB")
        time.sleep(3)  # ggml's threads poll for a while after the last step
        before = server.cpu_seconds()
        time.sleep(20)
        print(f"idle: {5 * (server.cpu_seconds() - before):.2f} % of a core over 20 s")
    print(f"machine: {machine()}")


if __name__ == "__main__":
    main()

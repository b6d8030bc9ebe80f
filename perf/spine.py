#!/usr/bin/env python3
"""First figures of the built server: start-up, idle CPU, memory, tokens a second.

    perf/spine.py [--model FILE] [--rounds 3] [--requests 40] [--tokens 50]

Starts target/release/corelane on a free port of the loopback address, measures,
ends it, and prints a table and the machine. The client runs on the same cores.
"""

import argparse
import concurrent.futures
import http.client
import json
import pathlib
import re
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).parents[1]
TICKS = 100  # of /proc/PID/stat, a second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=50)
    parser.add_argument("serve", nargs="*", help="further flags of corelane serve, after --")
    options = parser.parse_args()

    command = [ROOT / "target/release/corelane", "serve", "--port", "0", "--ops-addr", "none", "--log", "warn"]
    command += ["--model", options.model] if options.model else []
    started = time.monotonic()
    process = subprocess.Popen([*command, *options.serve], stdout=subprocess.PIPE, text=True)
    try:
        banner = ""
        while "curl" not in banner:
            line = process.stdout.readline()
            assert line, "the server ended before it was ready"
            banner += line
        print(f"start-up: {1e3 * (time.monotonic() - started):.0f} ms")
        measure(process.pid, re.search(r"http://(\S+)", banner).group(1), options)
    finally:
        process.terminate()
        process.wait()
    machine()


def measure(pid: int, address: str, options: argparse.Namespace) -> None:
    print(f"resident at start: {resident_mb(pid):.0f} MB")
    complete(address, "warm up", options.tokens)
    time.sleep(3)  # ggml's threads poll for a while after the last step
    before = cpu_seconds(pid)
    time.sleep(10)
    print(f"idle: {10 * (cpu_seconds(pid) - before):.2f} % of a core over 10 s")
    rates = {1: [], 8: []}
    for _ in range(options.rounds):
        for concurrency, found in rates.items():
            found.append(rate(address, concurrency, options))
    for concurrency, found in rates.items():
        spread = f"{min(found):.1f} to {max(found):.1f}"
        print(f"{concurrency} at a time: {statistics.median(found):.1f} tokens/s ({spread})")
    print(f"resident after the load: {resident_mb(pid):.0f} MB")


def rate(address: str, concurrency: int, options: argparse.Namespace) -> float:
    """Generated tokens a second, prompts included in the time."""
    # Different words, so that requests do not walk in step.
    prompts = [f"{i} {'once upon a time ' * 6}" for i in range(options.requests)]
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        tokens = sum(pool.map(lambda prompt: complete(address, prompt, options.tokens), prompts))
    return tokens / (time.monotonic() - began)


def complete(address: str, prompt: str, tokens: int) -> int:
    connection = http.client.HTTPConnection(address)
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body))
    return json.loads(connection.getresponse().read())["usage"]["completion_tokens"]


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mb(pid: int) -> float:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1e3


def machine() -> None:
    cpus = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    print(f"machine: {len(cpus)} x {cpus[0]}; commit {commit.stdout.strip()}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures a server that is asked for several times more than it can do.

    perf/overload.py [--model FILE] [--seconds 300] [--times 4] [--queue 64] [--slots 8] [--json FILE]

Capacity is the tokens per second of a closed loop with one client per slot, for a fifth of --seconds before and after
the overload. In the overload, requests arrive at random at --times the rate of that loop. Goodput is the tokens per
second of requests that ended before the last one arrived. Meanwhile, further requests time how fast refusals come, and
the server's memory is watched. Fails if any request fails in another way than by a refusal: every admitted request must
be finished.
"""

import argparse
import http.client
import json
import math
import pathlib
import statistics
import sys
import threading
import time

from server import Server, machine, measure

# Lengths vary: equal requests would all end and start together, which is easier and unlike many clients.
LOAD = ["--random-input-len=32", "--random-output-len=50", "--random-range-ratio=0.5"]
LOAD += ["--timeout-s=3600"]
PROBES = 4  # connections that time a refusal once per second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--times", type=float, default=4)
    parser.add_argument("--queue", type=int, default=64, help="size of the queue")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    flags = [f"--parallel={options.slots}", f"--queue-requests={options.queue}"]
    with Server(*flags, model=options.model) as server:
        rate = closed_loop(server.url, options.slots, 3 * options.slots, 1)["request_throughput"]  # a warm-up
        count = max(3 * options.slots, math.ceil(rate * options.seconds / 5))
        before = closed_loop(server.url, options.slots, count, 2)
        rate = options.times * before["request_throughput"]
        with Probe(server) as probe:
            load = [*LOAD, f"--request-rate={rate}", f"--num-prompts={math.ceil(rate * options.seconds)}", "--seed=3"]
            open_loop = measure(server.url, *load, "--save-detailed", check=False)
        after = closed_loop(server.url, options.slots, count, 4)
    capacity = [run["output_throughput"] for run in (before, after)]
    taken = {"machine": machine(), "capacity_tokens_per_s": capacity, "request_rate": rate}
    taken |= goodput(open_loop) | probe.taken(options.seconds)
    taken["goodput_of_capacity"] = taken["goodput_tokens_per_s"] / statistics.mean(capacity)
    show(taken, options)
    if options.json:
        options.json.write_text(json.dumps(taken, indent=1) + "\n")
    other = {kind: n for kind, n in taken["failures"].items() if kind != "status 429"}
    if other or probe.failed:
        sys.exit(f"requests failed in another way than by a refusal: {other or probe.failed!r}")


def closed_loop(url: str, clients: int, requests: int, seed: int) -> dict:
    return measure(url, *LOAD, f"--max-concurrency={clients}", f"--num-prompts={requests}", f"--seed={seed}")


def goodput(load: dict) -> dict:
    """Counts requests that ended while others still arrived."""
    window = max(load["start_times"])
    ends = [start + took for start, took in zip(load["start_times"], load["latencies"])]
    done = [not error and end <= window for error, end in zip(load["errors"], ends)]
    tokens = sum(n for n, in_time in zip(load["output_lens"], done) if in_time)
    return {
        "window_s": window,
        "goodput_tokens_per_s": tokens / window,
        "requests": load["completed"] + load["failed"],
        "completed": load["completed"],
        "failures": load["failures"],
        "p99_itl_ms": load["p99_itl_ms"],
        "p99_ttft_ms": load["p99_ttft_ms"],
    }


class Probe:
    """Times refusals and watches the memory while the `with` block runs."""

    def __init__(self, server: Server):
        self.server, self.over, self.failed = server, threading.Event(), None
        self.refused_ms, self.admitted, self.resident = [], 0, []

    def __enter__(self) -> "Probe":
        self.began = time.monotonic()
        self.threads = [threading.Thread(target=self.run, args=(self.ask,)) for _ in range(PROBES)]
        self.threads.append(threading.Thread(target=self.run, args=(self.look,)))
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()

    def run(self, work) -> None:
        try:
            work()
        except Exception as error:  # reported at the end; a thread would only print it
            self.failed = error

    def ask(self) -> None:
        host = self.server.url.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=60)
        # If it is admitted, it ends after a second, so that the next one can be sent.
        body = json.dumps({"prompt": "refuse me", "max_tokens": 1, "timeout_ms": 1000})
        while not self.over.wait(1):
            began = time.perf_counter()
            connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
            response = connection.getresponse()
            response.read()
            took = time.perf_counter() - began
            if response.status == 429:
                self.refused_ms.append(1e3 * took)
            elif response.status in (200, 504):
                self.admitted += 1
            else:
                raise RuntimeError(f"a probe was answered {response.status}")

    def look(self) -> None:
        while not self.over.wait(1):
            self.resident.append((time.monotonic() - self.began, self.server.resident_mib()))

    def taken(self, seconds: float) -> dict:
        """Growth counts from a fifth of the time on: queue and cache fill before."""
        times = sorted(self.refused_ms)
        settled = [mib for at, mib in self.resident if at >= seconds / 5]
        if len(times) < 10 or len(settled) < 2:
            sys.exit(f"only {len(times)} probes were refused; use more --seconds or a smaller --queue")
        at = lambda share: times[min(len(times) - 1, int(share * len(times)))]  # noqa: E731
        return {
            "refusals_timed": len(times),
            "probes_admitted": self.admitted,
            "refusal_ms": {"p50": at(0.5), "p99": at(0.99), "max": times[-1]},
            "resident_mib": {"settled": settled[0], "end": settled[-1], "growth": settled[-1] - settled[0]},
        }


def show(taken: dict, options) -> None:
    before, after = taken["capacity_tokens_per_s"]
    refusal, resident = taken["refusal_ms"], taken["resident_mib"]
    print(f"capacity: {before:.1f} tokens/s before, {after:.1f} after")
    print(f"asked: {taken['request_rate']:.2f} requests/s, {options.times:g} x capacity, for {taken['window_s']:.0f} s")
    print(f"goodput: {taken['goodput_tokens_per_s']:.1f} tokens/s, {taken['goodput_of_capacity']:.3f} of capacity")
    print(f"requests: {taken['requests']}, {taken['completed']} completed, others: {taken['failures']}")
    print(f"ITL p99 {taken['p99_itl_ms']:.1f} ms, TTFT p99 {taken['p99_ttft_ms']:.0f} ms")
    print(f"refused within {refusal['p50']:.2f} ms (p50), {refusal['p99']:.2f} (p99), {refusal['max']:.2f} (max), of {taken['refusals_timed']}")
    print(f"resident: {resident['settled']:.1f} MiB, {resident['end']:.1f} at the end, growth {resident['growth']:.2f}")
    print(f"machine: {taken['machine']}")


if __name__ == "__main__":
    main()

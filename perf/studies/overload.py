"""What is left of a server that is asked for four times its capacity?

Capacity is the tokens per second of a closed loop with one client per slot, for a fifth of --seconds before and after
the overload. In the overload, requests arrive at random at --times the rate of that loop. Goodput is the tokens per
second of requests that ended before the last one arrived. Meanwhile, further requests time how fast refusals come, and
the server's memory is watched. Fails if any request fails in another way than by a refusal: every admitted request must
be finished.
"""

import math
import statistics
import sys
import threading
import time

from shared.report import add, add_server
from shared.requests import JSON, connect
from shared.server import Server, measure
from shared.statistics import percentile
from shared.turns import Beside

# Lengths vary: equal requests would all end and start together, which is easier and unlike many clients.
LOAD = ["--random-input-len=32", "--random-output-len=50", "--random-range-ratio=0.5"]
LOAD += ["--timeout-s=3600"]
PROBES = 4  # connections that time a refusal once per second


def arguments(parser) -> None:
    add_server(parser)
    add(parser, seconds=300.0, times=4.0, queue=64, slots=8)


def run(args) -> dict:
    flags = [f"--parallel={args.slots}", f"--queue-requests={args.queue}"]
    with Server(*flags, model=args.model, binary=args.binary) as server:
        rate = closed_loop(server.url, args.slots, 3 * args.slots, 1)["request_throughput"]  # a warm-up
        count = max(3 * args.slots, math.ceil(rate * args.seconds / 5))
        before = closed_loop(server.url, args.slots, count, 2)
        rate = args.times * before["request_throughput"]
        with Probe(server) as probe:
            load = [*LOAD, f"--request-rate={rate}", f"--num-prompts={math.ceil(rate * args.seconds)}", "--seed=3"]
            open_loop = measure(server.url, *load, "--save-detailed", check=False)
        after = closed_loop(server.url, args.slots, count, 4)
    capacity = [loop["output_throughput"] for loop in (before, after)]
    taken = {"capacity_tokens_per_s": capacity, "request_rate": rate}
    taken |= goodput(open_loop) | probe.taken(args.seconds)
    taken["goodput_of_capacity"] = taken["goodput_tokens_per_s"] / statistics.mean(capacity)
    show(taken, args)
    other = {kind: n for kind, n in taken["failures"].items() if kind != "status 429"}
    if other or probe.failed:
        taken["failed"] = f"requests failed in another way than by a refusal: {other or repr(probe.failed)}"
    return taken


def closed_loop(url: str, clients: int, requests: int, seed: int) -> dict:
    return measure(url, *LOAD, f"--max-concurrency={clients}", f"--num-prompts={requests}", f"--seed={seed}")


def goodput(load: dict) -> dict:
    """Counts requests that ended while others still arrived."""
    window = max(load["start_times"])
    ends = [start + took for start, took in zip(load["start_times"], load["latencies"])]
    done = [not error and end <= window for error, end in zip(load["errors"], ends)]
    tokens = sum(n for n, in_time in zip(load["output_lens"], done) if in_time)
    found = {"window_s": window, "goodput_tokens_per_s": tokens / window, "requests": load["completed"] + load["failed"]}
    return found | {key: load[key] for key in ("completed", "failures", "p99_itl_ms", "p99_ttft_ms")}


class Probe(Beside):
    """Times refusals and watches the memory while the `with` block runs."""

    def __init__(self, server: Server):
        super().__init__(*[self.ask] * PROBES, self.look, strict=False)  # an error is reported at the end
        self.server, self.refused_ms, self.admitted, self.resident = server, [], 0, []

    def ask(self, over: threading.Event) -> None:
        connection = connect(self.server.url)
        # If it is admitted, it ends after a second, so that the next one can be sent.
        body = b'{"prompt": "refuse me", "max_tokens": 1, "timeout_ms": 1000}'
        while not over.wait(1):
            began = time.perf_counter()
            connection.request("POST", "/v1/completions", body, JSON)
            response = connection.getresponse()
            response.read()
            took = time.perf_counter() - began
            if response.status == 429:
                self.refused_ms.append(1e3 * took)
            elif response.status in (200, 504):
                self.admitted += 1
            else:
                raise RuntimeError(f"a probe was answered {response.status}")

    def look(self, over: threading.Event) -> None:
        while not over.wait(1):
            self.resident.append((time.monotonic() - self.began, self.server.resident_mib()))

    def taken(self, seconds: float) -> dict:
        """Growth counts from a fifth of the time on: queue and cache fill before."""
        times = self.refused_ms
        settled = [mib for at, mib in self.resident if at >= seconds / 5]
        if len(times) < 10 or len(settled) < 2:
            sys.exit(f"only {len(times)} probes were refused; use more --seconds or a smaller --queue")
        return {
            "refusals_timed": len(times),
            "probes_admitted": self.admitted,
            "refusal_ms": {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99), "max": max(times)},
            "resident_mib": {"settled": settled[0], "end": settled[-1], "growth": settled[-1] - settled[0]},
        }


def show(taken: dict, args) -> None:
    before, after = taken["capacity_tokens_per_s"]
    refusal, resident = taken["refusal_ms"], taken["resident_mib"]
    print(f"capacity: {before:.1f} tokens/s before, {after:.1f} after")
    print(f"asked: {taken['request_rate']:.2f} requests/s, {args.times:g} x capacity, for {taken['window_s']:.0f} s")
    print(f"goodput: {taken['goodput_tokens_per_s']:.1f} tokens/s, {taken['goodput_of_capacity']:.3f} of capacity")
    print(f"requests: {taken['requests']}, {taken['completed']} completed, others: {taken['failures']}")
    print(f"ITL p99 {taken['p99_itl_ms']:.1f} ms, TTFT p99 {taken['p99_ttft_ms']:.0f} ms")
    print(f"refused within {refusal['p50']:.2f} ms (p50), {refusal['p99']:.2f} (p99), {refusal['max']:.2f} (max), of {taken['refusals_timed']}")
    print(f"resident: {resident['settled']:.1f} MiB, {resident['end']:.1f} at the end, growth {resident['growth']:.2f}")

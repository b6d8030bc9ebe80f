#!/usr/bin/env python3
"""Measures what malicious requests cost a stream that runs beside them.

    perf/hostile.py [--model FILE] [--rounds 4] [--rate 5] [--prompts 2] [--tokens 300] [--json FILE]

Measures the p99 of the time between two tokens of one stream, in turns alone and beside the requests of
tests/python/hostile_requests.py, which are sent one after another at --rate per second. Also measures how long each
request waits for its refusal, beside the stream and on an idle server. Streams of the built-in model are short; use
--prompts 100 --tokens 900 for it. Fails if a request was not refused, or was never sent.
"""

import argparse
import collections
import itertools
import json
import pathlib
import sys
import threading
import time

from server import ROOT, Server, machine, measure
from spread import shown, spread

sys.path.append(str(ROOT / "tests" / "python"))
from hostile_requests import REQUESTS, send  # noqa: E402

ALONE = 5  # times that each request is sent to the idle server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--rate", type=float, default=5)
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    rounds, beside = [], collections.defaultdict(list)
    with Server(model=options.model) as server:
        itl_p99(server.url, options)  # a warm-up
        alone = {name: [refused(server.url, *request) for _ in range(ALONE)] for name, *request in REQUESTS}
        for _ in range(options.rounds):
            quiet = itl_p99(server.url, options)
            with Trouble(server.url, options.rate, beside) as trouble:
                troubled = itl_p99(server.url, options)
            rounds.append({"alone_ms": quiet, "beside_ms": troubled, "requests": trouble.count})
            print(f"ITL p99 {quiet:.2f} ms, {troubled:.2f} ms beside {trouble.count} requests: {troubled / quiet:.3f}")
    missing = [name for name, *_ in REQUESTS if name not in beside]
    if missing:
        sys.exit(f"the stream was too short; never sent beside it: {', '.join(missing)}")
    ratio = spread([round["beside_ms"] / round["alone_ms"] for round in rounds])
    answers = {name: {"alone_ms": spread(alone[name]), "beside_ms": spread(beside[name])} for name, *_ in REQUESTS}
    if options.json:
        taken = {"machine": machine(), "ratio": ratio, "rounds": rounds, "answers": answers}
        options.json.write_text(json.dumps(taken, indent=1) + "\n")
    print("\n| request | answered in ms, alone | beside the stream |\n|---|---|---|")
    for name, times in answers.items():
        print(f"| {name} | {shown(times['alone_ms'], '.1f')} | {shown(times['beside_ms'], '.1f')} |")
    print(f"\nratio: {shown(ratio)}")
    print(f"machine: {machine()}")


def itl_p99(url: str, options) -> float:
    """The p99 of the time between two tokens, in ms."""
    load = [f"--num-prompts={options.prompts}", "--max-concurrency=1", "--random-input-len=32"]
    load += [f"--random-output-len={options.tokens}", "--metric-percentiles=99"]
    return measure(url, *load)["p99_itl_ms"]


def refused(url: str, path: str, body: bytes) -> float:
    """Milliseconds until the refusal."""
    status, text, seconds = send(url, path, body)
    if not 400 <= status < 500:
        raise RuntimeError(f"answered {status}, not refused: {body[:60]} {text[:200]}")
    return 1e3 * seconds


class Trouble:
    """Sends the requests in turn while the `with` block runs. Each round continues where the last one stopped."""

    turns = itertools.cycle(REQUESTS)

    def __init__(self, url: str, rate: float, times: dict[str, list[float]]):
        self.url, self.rate, self.times = url, rate, times
        self.count, self.over, self.failed = 0, False, None

    def __enter__(self) -> "Trouble":
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def __exit__(self, kind, *_) -> None:
        self.over = True
        self.thread.join()
        if self.failed and not kind:
            raise RuntimeError(f"after {self.count} requests") from self.failed

    def run(self) -> None:
        due = time.monotonic()
        try:
            while not self.over:
                name, *request = next(self.turns)
                self.times[name].append(refused(self.url, *request))
                self.count += 1
                due = max(due + 1 / self.rate, time.monotonic())
                time.sleep(max(0, due - time.monotonic()))
        except Exception as error:  # raised again in __exit__; a thread would only print it
            self.failed = error


if __name__ == "__main__":
    main()

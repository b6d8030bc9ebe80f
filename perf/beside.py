"""What a load costs a stream that runs beside it, and what the stream costs the load: measured in turns.

Each round measures the stream alone, both together, and the load alone for as long. Every second round has the opposite
order.
"""

import http.client
import json
import threading
import time
import typing
import urllib.parse

from server import measure
from spread import shown, spread


class Poster:
    """Posts to a server. Each thread has its connection."""

    def __init__(self, url: str):
        self.host, self.own = urllib.parse.urlsplit(url).netloc, threading.local()

    def post(self, path: str, body: dict) -> dict:
        if not hasattr(self.own, "connection"):
            self.own.connection = http.client.HTTPConnection(self.host)
        self.own.connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = self.own.connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(answer)
        return answer


class Load:
    """Calls `work` from some threads while the `with` block runs. `work` returns the number of its units."""

    def __init__(self, work: typing.Callable[[], float], threads: int):
        self.work, self.threads = work, threads
        self.units, self.over, self.failed = [0.0] * threads, False, None

    def __enter__(self) -> "Load":
        self.began = time.monotonic()
        self.running = [threading.Thread(target=self.run, args=(index,)) for index in range(self.threads)]
        for thread in self.running:
            thread.start()
        return self

    def __exit__(self, kind, *_) -> None:
        self.took = time.monotonic() - self.began
        self.done = sum(self.units)  # before the calls that are still running
        self.over = True
        for thread in self.running:
            thread.join()
        if self.failed and not kind:
            raise RuntimeError(f"the load ended after {self.done:.0f} units") from self.failed

    @property
    def per_second(self) -> float:
        return self.done / self.took

    def run(self, index: int) -> None:
        try:
            while not self.over:
                self.units[index] += self.work()
        except Exception as error:  # raised again in __exit__; a thread would only print it
            self.failed = error


def turns(url: str, work: typing.Callable[[], float], unit: str, threads: int, rounds: int, prompts: int, tokens: int) -> None:
    """Measures and prints. The stream has `prompts` answers of `tokens` tokens, one after another."""
    stream = [f"--num-prompts={prompts}", "--max-concurrency=1", "--random-input-len=32", f"--random-output-len={tokens}"]
    stream += ["--metric-percentiles=99", "--num-warmups=0"]
    measure(url, *stream)  # a warm-up
    found = {"stream alone": [], "stream beside the load": []}
    rates = {"load alone": [], "load beside the stream": []}
    seconds = 0.0

    def alone() -> None:
        nonlocal seconds
        began = time.monotonic()
        found["stream alone"].append(measure(url, *stream))
        seconds = time.monotonic() - began

    def together() -> None:
        with Load(work, threads) as load:
            found["stream beside the load"].append(measure(url, *stream))
        rates["load beside the stream"].append(load.per_second)

    def load_alone() -> None:
        with Load(work, threads) as load:
            time.sleep(max(seconds, 2))
        rates["load alone"].append(load.per_second)

    for number in range(rounds):
        parts = [alone, together, load_alone]
        for part in parts if number % 2 == 0 else reversed(parts):
            part()
    for field in ["median_itl_ms", "p99_itl_ms"]:
        without = [result[field] for result in found["stream alone"]]
        for how, results in found.items():
            values = [result[field] for result in results]
            ratios = [value / base for value, base in zip(values, without)]
            print(f"{field} {how}: {shown(spread(values))} ms; to alone: {shown(spread(ratios))}")
    for how, values in rates.items():
        ratios = [value / base for value, base in zip(values, rates["load alone"])]
        print(f"{unit}/s {how}: {shown(spread(values), '.1f')}; to alone: {shown(spread(ratios))}")

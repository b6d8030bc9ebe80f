#!/usr/bin/env python3
"""What scraping the metrics costs those who wait for tokens.

    perf/scrape.py [--model FILE] [--rounds 4] [--rate 100]

The p99 of the time between two tokens of 8 streams, with and without so many
scrapes a second, in turns. The scraper runs on the same cores.
"""

import argparse
import http.client
import json
import pathlib
import statistics
import tempfile
import threading
import time

from server import Server, bench, machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--rate", type=int, default=100)
    options = parser.parse_args()
    ratios = []
    with Server(model=options.model, ops=True) as server:
        itl_p99(server.url)  # a warm-up
        for _ in range(options.rounds):
            without = itl_p99(server.url)
            with Scraper(server.ops_url, options.rate) as scraper:
                scraped = itl_p99(server.url)
            ratios.append(scraped / without)
            print(f"ITL p99 {without:.2f} ms, {scraped:.2f} ms beside {scraper.count} scrapes: {ratios[-1]:.3f}")
    print(f"ratio: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    print(f"machine: {machine()}")


def itl_p99(url: str) -> float:
    """In milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "result.json"
        load = ["--num-prompts=24", "--max-concurrency=8", "--random-input-len=32", "--random-output-len=100"]
        bench(url, *load, "--metric-percentiles=99", result=result)
        return json.loads(result.read_text())["p99_itl_ms"]


class Scraper(threading.Thread):
    """Scrapes at a steady rate while the `with` block runs."""

    def __init__(self, url: str, rate: int):
        super().__init__()
        self.host, self.rate, self.count, self.over = url.removeprefix("http://"), rate, 0, False

    def __enter__(self) -> "Scraper":
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.over = True
        self.join()

    def run(self) -> None:
        connection = http.client.HTTPConnection(self.host)
        due = time.monotonic()
        while not self.over:
            connection.request("GET", "/metrics")
            connection.getresponse().read()
            self.count += 1
            due += 1 / self.rate
            time.sleep(max(0, due - time.monotonic()))


if __name__ == "__main__":
    main()

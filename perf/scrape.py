#!/usr/bin/env python3
"""Measures what scraping the metrics costs running streams.

    perf/scrape.py [--model FILE] [--rounds 6] [--rate 100] [--json FILE]

Measures the p99 of the time between two tokens of 8 streams, in turns with and without --rate scrapes per second. The
scraper would usually run on another machine. Here it shares the cores, with the lowest priority; its CPU time and the ops
lane's are shown separately. Fails below 95 % of the rate, because the ratio would be wrong. "Between runs" compares
runs without scrapes with each other, and shows how much the machine alone changes the number.
"""

import argparse
import json
import os
import pathlib
import socket
import threading
import time

from server import Server, machine, measure
from spread import shown, spread

# The ops lane waits while all cores are busy, so one connection alone could not keep the rate. The lane closes
# a connection after some requests, and may notice late that it is closed. So at most half of its 64 are used.
CONNECTIONS = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=6, help="at least 2")
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    rounds = []
    with Server(model=options.model, ops=True) as server:
        itl_p99(server.url)  # a warm-up
        for _ in range(options.rounds):
            without = itl_p99(server.url)
            ops_s, own_s = server.lane_cpu_s("ops"), time.process_time()
            with Scraper(server.ops_url, options.rate) as scraper:
                scraped = itl_p99(server.url)
            ops = (server.lane_cpu_s("ops") - ops_s) / scraper.took
            own = (time.process_time() - own_s) / scraper.took
            round = {"without_ms": without, "scraped_ms": scraped, "scrapes_per_second": scraper.per_second}
            rounds.append(round | {"ops_lane_cpu_share": ops, "scraper_cpu_share": own})
            beside = f"{scraped:.2f} ms beside {scraper.per_second:.0f} scrapes/s"
            cpu = f"{100 * ops:.1f} % of a core for the ops lane, {100 * own:.1f} % for the scraper"
            print(f"ITL p99 {without:.2f} ms, {beside}: {scraped / without:.3f}; {cpu}", flush=True)
    ratio = spread([round["scraped_ms"] / round["without_ms"] for round in rounds])
    without = [round["without_ms"] for round in rounds]
    between_runs = spread([after / before for before, after in zip(without, without[1:])])
    if options.json:
        found = {"ratio": ratio, "between_runs": between_runs, "rounds": rounds}
        options.json.write_text(json.dumps({"machine": machine()} | found, indent=1) + "\n")
    print(f"ratio: {shown(ratio)}; between runs: {shown(between_runs)}")
    print(f"machine: {machine()}")


def itl_p99(url: str) -> float:
    """In milliseconds."""
    load = ["--num-prompts=24", "--max-concurrency=8", "--random-input-len=32", "--random-output-len=100"]
    return measure(url, *load, "--metric-percentiles=99")["p99_itl_ms"]


class Scraper:
    """Scrapes at a steady rate while the `with` block runs."""

    def __init__(self, url: str, rate: int):
        self.host, self.rate, self.over = url.removeprefix("http://"), rate, False
        self.counts, self.failed = [0] * CONNECTIONS, None

    def __enter__(self) -> "Scraper":
        self.began = time.monotonic()
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(CONNECTIONS)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, *_) -> None:
        self.over = True
        for thread in self.threads:
            thread.join()
        self.took = time.monotonic() - self.began
        due = self.took * self.rate
        if kind:  # what went wrong inside says more
            return
        if self.failed:
            raise RuntimeError(f"a scraper ended; there were {self.count} scrapes") from self.failed
        self.per_second = self.rate * self.count / due
        if self.count < 0.95 * due:
            raise RuntimeError(f"{self.count} scrapes were made, {due:.0f} were due")

    @property
    def count(self) -> int:
        return sum(self.counts)

    def run(self, index: int) -> None:
        try:
            self.scrape(index)
        except Exception as error:  # a thread's would only be printed
            self.failed = error

    def scrape(self, index: int) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        connection, due = self.connect(), self.began + index / self.rate
        while not self.over:
            time.sleep(max(0, due - time.monotonic()))
            due += CONNECTIONS / self.rate
            page = self.get(connection)
            if not page:  # the server closes a connection after so many requests
                connection.close()
                connection = self.connect()
                page = self.get(connection)
            if not (page.startswith(b"HTTP/1.1 200") and page.endswith(b"# EOF\n")):
                raise RuntimeError(f"/metrics answered {page[:60]}, {len(page)} bytes")
            self.counts[index] += 1

    def connect(self) -> socket.socket:
        host, port = self.host.split(":")
        return socket.create_connection((host, int(port)), timeout=10)

    def get(self, connection: socket.socket) -> bytes:
        """What is answered, with its head; nothing where the connection is closed.

        Less work than http.client, since it is done beside what is measured."""
        page = b""
        try:
            connection.sendall(f"GET /metrics HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
            while not page.endswith(b"# EOF\n") and (piece := connection.recv(1 << 18)):
                page += piece
        except ConnectionError:
            pass
        return page


if __name__ == "__main__":
    main()

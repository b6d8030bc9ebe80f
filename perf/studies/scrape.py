"""What do 100 scrapes per second do to the time between tokens?

Measures the p99 of the time between two tokens of 8 streams, in turns with and without --rate scrapes per second. The
scraper would usually run on another machine. Here it shares the cores, with the lowest priority; its CPU time and the ops
lane's are shown separately. Fails below 95 % of the rate, because the ratio would be wrong. "Between runs" compares
runs without scrapes with each other, and shows how much the machine alone changes the number. --rounds: at least 2.
"""

import os
import socket
import threading
import time

from shared.report import add, add_server
from shared.requests import address
from shared.server import Server, measure
from shared.statistics import ratios, shown, spread
from shared.turns import Beside, in_turns

# The ops lane waits while all cores are busy, so one connection alone could not keep the rate. The lane closes
# a connection after some requests, and may notice late that it is closed. So at most half of its 64 are used.
CONNECTIONS = 25
LOAD = ["--num-prompts=24", "--max-concurrency=8", "--random-input-len=32", "--random-output-len=100", "--metric-percentiles=99"]


def arguments(parser) -> None:
    add_server(parser)
    add(parser, rounds=6, rate=100)


def run(args) -> dict:
    with Server(model=args.model, binary=args.binary, ops=True) as server:

        def itl_p99() -> float:
            return measure(server.url, *LOAD)["p99_itl_ms"]

        def beside_scrapes() -> dict:
            ops_s, own_s = server.lane_cpu_s("ops"), time.process_time()
            with Scraper(server.ops_url, args.rate) as scraper:
                scraped = itl_p99()
            ops = (server.lane_cpu_s("ops") - ops_s) / scraper.took
            own = (time.process_time() - own_s) / scraper.took
            found = {"scraped_ms": scraped, "scrapes_per_second": scraper.count / scraper.took}
            return found | {"ops_lane_cpu_share": ops, "scraper_cpu_share": own}

        def show(found: dict) -> None:
            last, without = found["scraped"][-1], found["without"][-1]
            beside = f"{last['scraped_ms']:.2f} ms beside {last['scrapes_per_second']:.0f} scrapes/s"
            cpu = f"{100 * last['ops_lane_cpu_share']:.1f} % of a core for the ops lane"
            cpu += f", {100 * last['scraper_cpu_share']:.1f} % for the scraper"
            print(f"ITL p99 {without:.2f} ms, {beside}: {last['scraped_ms'] / without:.3f}; {cpu}", flush=True)

        itl_p99()  # a warm-up
        taken = in_turns(args.rounds, {"without": itl_p99, "scraped": beside_scrapes}, alternate=False, after=show)
    without = taken["without"]
    rounds = [{"without_ms": quiet} | scraped for quiet, scraped in zip(without, taken["scraped"])]
    ratio = spread(ratios([round["scraped_ms"] for round in rounds], without))
    between_runs = spread(ratios(without[1:], without))
    print(f"ratio: {shown(ratio)}; between runs: {shown(between_runs)}")
    return {"ratio": ratio, "between_runs": between_runs, "rounds": rounds}


class Scraper(Beside):
    """Scrapes at a steady rate while the `with` block runs."""

    def __init__(self, url: str, rate: int):
        super().__init__(*[lambda over, index=index: self.scrape(over, index) for index in range(CONNECTIONS)])
        self.address, self.rate, self.counts = address(url), rate, [0] * CONNECTIONS

    def __exit__(self, kind, *_) -> None:
        super().__exit__(kind)
        due = self.took * self.rate
        if not kind and self.count < 0.95 * due:
            raise RuntimeError(f"{self.count} scrapes were made, {due:.0f} were due")

    @property
    def count(self) -> int:
        return sum(self.counts)

    def scrape(self, over: threading.Event, index: int) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        connection, due = self.connect(), self.began + index / self.rate
        while not over.is_set():
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
        return socket.create_connection(self.address, timeout=10)

    def get(self, connection: socket.socket) -> bytes:
        """The answer with its head, empty if the connection is closed. Less work than http.client."""
        page = b""
        try:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while not page.endswith(b"# EOF\n") and (piece := connection.recv(1 << 18)):
                page += piece
        except ConnectionError:
            pass
        return page

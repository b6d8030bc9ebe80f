#!/usr/bin/env python3
"""What it costs the streams that somebody looks at the web page's lanes.

    perf/watched.py [--model FILE] [--rounds N]

In each round, eight streams run twice: alone, and while a client asks for the lanes as the page does. Every second round
has the opposite order. The page itself, which draws in a browser on another machine, is not a part of it.
"""

import argparse
import contextlib
import http.client
import json
import threading
import time
import urllib.parse

from server import Server, machine, measure
from spread import shown, spread

PAGE_INTERVAL_S = 0.25  # as in tools/page/src/lanes.ts
LOAD = ["--num-prompts=16", "--max-concurrency=8", "--random-input-len=64", "--random-output-len=100", "--num-warmups=0"]


@contextlib.contextmanager
def page(server: Server):
    """Asks for the lanes four times a second."""
    stop, answers = threading.Event(), []

    def look() -> None:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.url).netloc)
        since = 0
        while not stop.is_set():
            began = time.monotonic()
            connection.request("GET", f"/lanes?since={since}")
            answer = json.loads(connection.getresponse().read())
            since = answer["now_us"]
            answers.append(len(answer["steps"]["values"]))
            stop.wait(began + PAGE_INTERVAL_S - time.monotonic())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert sum(answers) > 100, "the lanes were seen at work"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    watchers = {"alone": lambda _: contextlib.nullcontext(), "page": page}
    found = {how: [] for how in watchers}
    with Server(model=options.model) as server:
        measure(server.url, *LOAD)
        for number in range(options.rounds):
            order = list(watchers.items())
            for how, watch in order if number % 2 == 0 else reversed(order):
                with watch(server):
                    found[how].append(measure(server.url, *LOAD))
    for field, unit in [("output_throughput", "tokens/s"), ("median_itl_ms", "ms"), ("p99_itl_ms", "ms")]:
        for how, results in found.items():
            values = [result[field] for result in results]
            ratios = [value / alone[field] for value, alone in zip(values, found["alone"])]
            print(f"{field} {how}: {shown(spread(values))} {unit}; to alone: {shown(spread(ratios))}")
    print(f"machine: {machine()}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What does a flamegraph cost eight streams, in tokens?

    perf/profiled.py [--model FILE] [--windows N]

Eight streams run all the time. Windows without and with a flamegraph of all lanes follow each other; one has the
recording, the drawing, and a rest. Each is compared with the mean of its two neighbours, so that a machine which gets
slower or faster over time does not count.
"""

import argparse
import http.client
import re
import statistics
import threading
import time
import urllib.parse
import urllib.request

from server import Server, bench, machine
from spread import shown, spread

LOAD = ["--num-prompts=2000", "--max-concurrency=8", "--random-input-len=16", "--random-output-len=100", "--num-warmups=0"]
WINDOW_S, PROFILE_S = 8, 5


def tokens(server: Server) -> int:
    page = urllib.request.urlopen(f"{server.ops_url}/metrics").read().decode()
    return int(re.search(r"^vllm:generation_tokens_total\{.*\} (\d+)", page, re.M).group(1))


def profile(server: Server) -> None:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.ops_url).netloc)
    connection.request("POST", f"/debug/flamegraph?lane=all&seconds={PROFILE_S}")
    response = connection.getresponse()
    assert response.status == 200, response.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--windows", type=int, default=31)
    options = parser.parse_args()
    with Server("--profiling", model=options.model, ops=True) as server:
        quiet = {"quiet": True, "check": False}  # the end of the server ends it
        threading.Thread(target=bench, args=[server.url, *LOAD, "--no-progress"], kwargs=quiet, daemon=True).start()
        time.sleep(5)
        rates = []
        for number in range(options.windows):
            before, began = tokens(server), time.monotonic()
            if number % 2 == 1:
                threading.Thread(target=profile, args=[server]).start()
            time.sleep(WINDOW_S)
            rates.append((tokens(server) - before) / (time.monotonic() - began))
    ratios = [rates[i] / statistics.mean([rates[i - 1], rates[i + 1]]) for i in range(1, len(rates) - 1)]
    print(f"tokens/s: {shown(spread(rates), '.1f')}")
    for name, found in [("with a flamegraph", ratios[::2]), ("without, for comparison", ratios[1::2])]:
        error = statistics.stdev(found) / len(found) ** 0.5
        print(f"{name}, to its neighbours: mean {statistics.mean(found):.3f} +- {error:.3f}, median {shown(spread(found))}")
    print(f"machine: {machine()}")


if __name__ == "__main__":
    main()

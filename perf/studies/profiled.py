"""What does a flamegraph cost eight streams, in tokens?

Eight streams run all the time. Windows without and with a flamegraph of all lanes follow each other; one has the
recording, the drawing, and a rest. Each is compared with the mean of its two neighbours, so that a machine which gets
slower or faster over time does not count. --windows: at least 6.
"""

import re
import statistics
import threading
import time

from shared.report import add, add_server
from shared.requests import fetch, post
from shared.server import Server, loaded
from shared.statistics import shown, spread

LOAD = ["--num-prompts=2000", "--max-concurrency=8", "--random-input-len=16", "--random-output-len=100", "--num-warmups=0"]
WINDOW_S, PROFILE_S = 8, 5


def arguments(parser) -> None:
    add_server(parser)
    add(parser, windows=31)


def tokens(server: Server) -> int:
    return int(re.search(r"^vllm:generation_tokens_total\{.*\} (\d+)", fetch(f"{server.ops_url}/metrics"), re.M).group(1))


def profile(server: Server) -> None:
    status, text = post(server.ops_url, f"/debug/flamegraph?lane=all&seconds={PROFILE_S}", b"")
    assert status == 200, text


def run(args) -> dict:
    with Server("--profiling", model=args.model, binary=args.binary, ops=True) as server, loaded(server.url, *LOAD):
        time.sleep(5)
        rates = []
        for number in range(args.windows):
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
    return {"tokens_per_s": rates}

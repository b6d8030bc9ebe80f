"""What does it cost the streams that somebody looks at the lanes?

In each round, eight streams run twice: alone, and while a client asks for the lanes as the page does. The page itself,
which draws in a browser on another machine, is not a part of it.
"""

import json
import time

from shared.report import add, add_server
from shared.requests import connect
from shared.server import Server, measure
from shared.turns import Beside, in_turns, show

PAGE_INTERVAL_S = 0.25  # as in tools/page/src/lanes.ts
LOAD = ["--num-prompts=16", "--max-concurrency=8", "--random-input-len=64", "--random-output-len=100", "--num-warmups=0"]


def arguments(parser) -> None:
    add_server(parser)
    add(parser, rounds=20)


def watched(server: Server) -> dict:
    """Asks for the lanes four times a second."""
    answers = []

    def look(over) -> None:
        connection, since = connect(server.url), 0
        while not over.is_set():
            began = time.monotonic()
            connection.request("GET", f"/lanes?since={since}")
            answer = json.loads(connection.getresponse().read())
            since = answer["now_us"]
            answers.append(len(answer["steps"]["values"]))
            over.wait(began + PAGE_INTERVAL_S - time.monotonic())

    with Beside(look):
        result = measure(server.url, *LOAD)
    assert sum(answers) > 100, "the lanes were seen at work"
    return result


def run(args) -> dict:
    with Server(model=args.model, binary=args.binary) as server:
        measure(server.url, *LOAD)
        ways = {"alone": lambda: measure(server.url, *LOAD), "page": lambda: watched(server)}
        taken = in_turns(args.rounds, ways)
    saved = {}
    for field, unit in [("output_throughput", "tokens/s"), ("median_itl_ms", "ms"), ("p99_itl_ms", "ms")]:
        saved[field] = {how: [result[field] for result in results] for how, results in taken.items()}
        show(field, saved[field], "alone", unit)
    return saved

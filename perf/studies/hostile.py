"""What do malicious requests cost a stream, and how soon are they refused?

Measures the p99 of the time between two tokens of one stream, in turns alone and beside the requests of
tests/python/hostile_requests.py, which are sent one after another at --rate per second. Also measures how long each
request waits for its refusal, beside the stream and on an idle server. Streams of the built-in model are short; use
--prompts 100 --tokens 900 for it. Fails if a request was not refused, or was never sent.
"""

import collections
import itertools
import time

from shared.report import add, add_server, needed, row, table
from shared.server import Server, measure
from shared.statistics import ratios, shown, spread
from shared.turns import Beside, in_turns

ALONE = 5  # times that each request is sent to the idle server


def arguments(parser) -> None:
    add_server(parser)
    add(parser, rounds=4, rate=5.0, prompts=2, tokens=300)


def run(args) -> dict:
    hostile = needed("hostile_requests")
    beside, turns = collections.defaultdict(list), itertools.cycle(hostile.REQUESTS)
    load = [f"--num-prompts={args.prompts}", "--max-concurrency=1", "--random-input-len=32"]
    load += [f"--random-output-len={args.tokens}", "--metric-percentiles=99"]

    def trouble(over) -> None:
        """Sends the requests in turn. Each round continues where the last one stopped."""
        due = time.monotonic()
        while not over.is_set():
            name, *request = next(turns)
            beside[name].append(refused(hostile, server.url, *request))
            due = max(due + 1 / args.rate, time.monotonic())
            time.sleep(max(0, due - time.monotonic()))

    def itl_p99() -> float:
        return measure(server.url, *load)["p99_itl_ms"]

    def troubled() -> float:
        with Beside(trouble):
            return itl_p99()

    def show(found: dict) -> None:
        quiet, loud, sent = found["alone"][-1], found["beside"][-1], sum(map(len, beside.values()))
        print(f"ITL p99 {quiet:.2f} ms, {loud:.2f} ms beside requests ({sent} so far): {loud / quiet:.3f}", flush=True)

    with Server(model=args.model, binary=args.binary) as server:
        itl_p99()  # a warm-up
        alone = {name: [refused(hostile, server.url, *request) for _ in range(ALONE)] for name, *request in hostile.REQUESTS}
        rounds = in_turns(args.rounds, {"alone": itl_p99, "beside": troubled}, alternate=False, after=show)
    missing = [name for name, *_ in hostile.REQUESTS if name not in beside]
    if missing:
        return {"failed": f"the stream was too short; never sent beside it: {', '.join(missing)}"}
    ratio = spread(ratios(rounds["beside"], rounds["alone"]))
    answers = {name: {"alone_ms": spread(alone[name]), "beside_ms": spread(beside[name])} for name, *_ in hostile.REQUESTS}
    print()
    table("request", "answered in ms, alone", "beside the stream")
    for name, times in answers.items():
        row(name, shown(times["alone_ms"], ".1f"), shown(times["beside_ms"], ".1f"))
    print(f"\nratio: {shown(ratio)}")
    return {"ratio": ratio, "rounds_ms": rounds, "answers": answers}


def refused(hostile, url: str, path: str, body: bytes) -> float:
    """Milliseconds until the refusal."""
    status, text, seconds = hostile.send(url, path, body)
    if not 400 <= status < 500:
        raise RuntimeError(f"answered {status}, not refused: {body[:60]} {text[:200]}")
    return 1e3 * seconds

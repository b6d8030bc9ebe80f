"""What does epoll cost against io_uring?

Two servers of one binary, one with each `--io`, take turns; both stay loaded. Loads: 8 streams, and requests for one token
each, from --at-once connections. For each: tokens per second (of the second load, requests per second), the p99 between
two tokens (of the second load, of the whole request), and the processor time of the front lane per token. --flags are for
both, such as "--front-core 0 --decode-cores 1" for a front lane that polls; without, both have the cores of a lone server.
"""

import contextlib

from shared.report import add, add_server
from shared.server import Server, measure, pinned
from shared.turns import in_turns, show

LOADS = {
    "8 streams": (["--num-prompts=64", "--random-output-len=100"], "output_throughput", "p99_itl_ms", 100 * 64),
    "requests": (["--num-prompts=400", "--random-output-len=1"], "request_throughput", "p99_e2el_ms", 400),
}
WAYS = ["uring", "epoll"]


def arguments(parser) -> None:
    add_server(parser)
    parser.add_argument("--flags", default="", help='for both servers, such as "--front-core 0 --decode-cores 1"')
    add(parser, rounds=5, at_once=8)


def run(args) -> dict:
    found = {}
    with contextlib.ExitStack() as stack:
        own = args.flags.split() or pinned()
        servers = {
            way: stack.enter_context(Server(f"--io={way}", *own, model=args.model, binary=args.binary)) for way in WAYS
        }
        for name, (flags, rate, p99, tokens) in LOADS.items():
            load = [*flags, f"--max-concurrency={args.at_once}", "--random-input-len=32", "--num-warmups=8"]
            load += ["--percentile-metrics=itl,e2el", "--metric-percentiles=99"]

            def turn(way: str, load=load, rate=rate, p99=p99, tokens=tokens) -> dict:
                server = servers[way]
                before = server.lane_cpu_s("front")
                result = measure(server.url, *load)
                cpu_us = (server.lane_cpu_s("front") - before) / tokens * 1e6
                return {"rate": result[rate], "p99_ms": result[p99], "front_cpu_us": cpu_us}

            taken = in_turns(args.rounds, {way: lambda way=way: turn(way) for way in WAYS})
            for field, unit in [("rate", "a second"), ("p99_ms", "ms p99"), ("front_cpu_us", "us of the front lane")]:
                show(f"{name}:", {way: [one[field] for one in taken[way]] for way in WAYS}, WAYS[0], unit)
            found[name] = taken
    return found

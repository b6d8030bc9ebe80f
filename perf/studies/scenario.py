"""How long do streams, prompts and the load generator take in the scenarios in which servers differ?

`stall`: how much does a prompt of 2,000 tokens delay running streams? `burst`: how long does a burst wait whose prompts
share 500 tokens? `turns`: how long does the second turn of a conversation wait? `client`: how much of a core does the
load generator take at 500 tokens per second of the built-in model?
"""

from shared.report import add_server
from shared.server import Server, measure

SCENARIOS = {
    "stall": ["--scenario=stall", "--long-input-len=2000", "--rounds=3"],
    "burst": ["--scenario=burst", "--prefix-len=500", "--rounds=3"],
    "turns": ["--scenario=turns", "--rounds=3"],
    "client": ["--request-rate=10", "--num-prompts=300", "--random-output-len=50"],
}


def arguments(parser) -> None:
    parser.add_argument("scenario", choices=SCENARIOS, metavar="SCENARIO")
    add_server(parser)


def run(args) -> dict:
    with Server(model=args.model, binary=args.binary) as server:
        return measure(server.url, *SCENARIOS[args.scenario], show=True)

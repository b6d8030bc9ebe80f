"""Where does the speed go, from the bare model to a client?

Runs `corelane bench ladder` with the flags of one load. `large`: the large model, all rungs. `ends`: the first and the
last rung in short rounds, which drift less within a round. `one`: one request at a time. `separate` and
`separate-builtin`: how long is the bubble if no lane shares a core? `builtin-32` and `builtin-64`: what does corelane
cost beside a step of the built-in model? Further flags of the command stand behind `--`, as --flag=value.
"""

import pathlib

from shared.report import add_server
from shared.rung import merged
from shared.server import CORELANE, saved

APART = ["--front-core=0", "--decode-cores=1", "--rung=0,4,9"]
LOADS = {
    "large": (True, []),
    "ends": (True, ["--requests=16", "--rounds=12", "--rung=0,10"]),
    "one": (True, ["--concurrency=1", "--requests=8", "--rung=0,4,9,10"]),
    "separate": (True, [*APART, "--requests=16"]),
    "separate-builtin": (False, [*APART, "--concurrency=32", "--requests=320"]),
    "builtin-32": (False, ["--concurrency=32", "--requests=320", "--rounds=12", "--rung=0,4,10"]),
    "builtin-64": (False, ["--concurrency=64", "--requests=640", "--rung=0,4,9,10"]),
}


def arguments(parser) -> None:
    parser.add_argument("--load", choices=LOADS, default="large")
    add_server(parser, model="large", binary=False)
    parser.add_argument("--svg", type=pathlib.Path, help="draw the rungs")
    parser.add_argument("further", nargs="*", metavar="FLAG", help="further flags of the command")


def run(args) -> dict:
    is_large, flags = LOADS[args.load]
    flags = [*([f"--model={args.model}"] if is_large else []), *flags, *([f"--svg={args.svg}"] if args.svg else [])]
    return saved([str(CORELANE), "bench", "ladder", *merged([*flags, *args.further])], "--json", show=True)

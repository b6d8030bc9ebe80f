"""How does corelane compare with another OpenAI-style server?

OTHER is the file of a llama-server, which is started with the slots and the context of ours, or the URL of a server that
runs and serves the same file. Start that one anew for each run, for it keeps the prompts of earlier ones.

Both servers stay loaded and take turns; while one is measured, the other idles. Both get the same prompts. Each load has
its own seed and no round repeats a prompt: a server's prompt cache would flatter it.
"""

import contextlib
import pathlib

from shared.report import add_flags, add_server, write
from shared.server import LlamaServer, Server, measure

LOADS = {
    "eight": ["--seed=1", "--max-concurrency=8", "--num-prompts=40", "--num-warmups=8"],
    "one": ["--seed=2", "--max-concurrency=1", "--num-prompts=4", "--num-warmups=1"],
    "long": [
        *["--seed=3", "--max-concurrency=8", "--num-prompts=16", "--num-warmups=1"],
        *["--random-input-len=500", "--random-output-len=100"],
    ],
    "crowd": ["--seed=4", "--max-concurrency=32", "--num-prompts=64"],
    "stall": ["--seed=5", "--scenario=stall", "--long-input-len=2000"],
    "burst": ["--seed=6", "--scenario=burst", "--prefix-len=500"],
}


def arguments(parser) -> None:
    parser.add_argument("other", metavar="OTHER")
    add_server(parser, model="large")
    add_flags(parser)
    parser.add_argument("--rounds", type=int, default=3, help="[default: 3]")
    parser.add_argument("--only", choices=LOADS)
    parser.add_argument("--out", type=pathlib.Path, help="a folder for the JSON of each load")


def run(args) -> dict:
    found = {}
    with other(args) as url, Server("--parallel=8", "--ctx-size=16384", *args.flags, model=args.model, binary=args.binary) as server:
        for name in [args.only] if args.only else LOADS:
            print(f"== {name}: corelane bench serve {' '.join(LOADS[name])}")
            flags = [f"--vs={url}", f"--rounds={args.rounds}", *LOADS[name]]
            found[name] = measure(server.url, *flags, show=True)
            write(args.out and args.out / f"versus-{name}.json", found[name])
    return found


@contextlib.contextmanager
def other(args):
    """The URL of the other server."""
    if "://" in args.other:
        yield args.other
        return
    with LlamaServer(model=args.model, binary=pathlib.Path(args.other)) as server:
        yield server.url

"""How fast is the server beside busy programs, or with a quota?

Its speed and the time between two tokens, as parts of those alone. Each binary has its turn in each round, so two commits
are compared in one run, or llama-server (a binary of that name) with ours. A turn starts a server, and measures it for
each neighbour: alone, then beside the neighbour. "built-in" names the model in the binary. --only takes rows whose name
has one of these words, such as "loops,quota". --binary, --model and --streams may be given several times.

"left" is the part of the machine's processor time that the neighbours did not use, or that a quota allows. A server
that waits well has at least 0.85 of its speed alone times "left" (the column "kept"), and a p99 between two tokens of at
most 4 times that alone divided by "left" (the column "late").

The rows with a quota need the right to make control groups; without it they are reported as not taken.
"""

import contextlib
import functools
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import time
import typing

from shared.cgroup import Group
from shared.report import add, add_flags, row, table
from shared.server import CORELANE, Server, loaded, measure, model_file, server_of
from shared.statistics import shown, spread
from shared.turns import order

LOOP = ["sha256sum", "/dev/zero"]
# Copies between two buffers that no cache holds.
MEMORY = [sys.executable, "-c", "a, b = bytearray(1 << 27), bytearray(1 << 27)\nwhile True: a[:] = b"]
# Short, so that little of its time is lost to the count when it is killed.
COMPILER = ["sh", "-c", "while :; do echo '#include <map>' | g++ -std=c++17 -O2 -x c++ -c -o /dev/null -; done"]
CORES = len(os.sched_getaffinity(0))

# Name, commands, nice, quota in cores.
ROWS = [
    *[(f"{n} loops at nice {nice}", [LOOP] * n, nice, None) for nice in (0, 10) for n in (1, 2, 4)],
    ("2 compilers at nice 10", [COMPILER] * 2, 10, None),
    ("1 compiler at nice 0", [COMPILER], 0, None),
    ("1 memory copy at nice 0", [MEMORY], 0, None),
    ("quota of 1.5 cores", [], 0, 1.5),
    ("quota of 0.5 cores", [], 0, 0.5),
    ("another corelane", None, 0, None),
]


class Neighbours:
    """Runs commands while the `with` block runs. `cpu_s` is then the processor time that they used."""

    def __init__(self, commands: list[list[str]], nice: int):
        self.commands, self.nice = commands, nice

    def __enter__(self) -> "Neighbours":
        self.before = used_by_children()
        # In this session: Linux may share the cores between sessions first, whatever their nice values.
        begin = {"process_group": 0, "stdout": subprocess.DEVNULL}
        nice = ["nice", "-n", str(self.nice)]
        self.running = [subprocess.Popen([*nice, *command], **begin) for command in self.commands]
        return self

    def __exit__(self, *_) -> None:
        for process in self.running:
            os.killpg(process.pid, signal.SIGKILL)
        for process in self.running:
            process.wait()
        self.cpu_s = used_by_children() - self.before


def used_by_children() -> float:
    """Processor time of the ended and awaited child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def load(streams: int, answers: int, tokens: int) -> list[str]:
    """Some answers for each of the streams."""
    return [
        *[f"--num-prompts={streams * answers}", f"--max-concurrency={streams}", "--random-input-len=32"],
        *[f"--random-output-len={tokens}", "--num-warmups=0", "--metric-percentiles=99"],
    ]


@contextlib.contextmanager
def another() -> typing.Iterator[None]:
    """A corelane with the built-in model, and a stream on it."""
    with Server() as second, loaded(second.url, "--num-prompts=100000", "--max-concurrency=1", "--random-output-len=200"):
        yield


def measured(server: Server, work: list[str]) -> tuple[dict, float, float]:
    """The result, the processor time that the server used, and the seconds that it took."""
    began, used = time.monotonic(), server.cpu_seconds()
    result = measure(server.url, *work)
    return result, server.cpu_seconds() - used, time.monotonic() - began


def pair(server: Server, line: tuple, new: typing.Callable[..., Server], work: list[str]) -> dict[str, float]:
    """Measures alone, and beside the neighbours of a row. `new` makes a server like this one."""
    _, commands, nice, quota = line
    alone = measure(server.url, *work)
    if quota:
        with Group("cpu") as group:
            group.limit_cores(quota)
            with new(prefix=["sh", "-c", f'{group.join()} && exec "$@"', "sh"]) as server:
                measure(server.url, *work)  # a warm-up
                beside, used, seconds = measured(server, work)
        left = quota / CORES
    elif commands is None:
        with another():
            beside, used, seconds = measured(server, work)
        left = 0.5  # two equal ones
    else:
        with Neighbours(commands, nice) as neighbours:
            time.sleep(1)
            client = used_by_children()
            beside, used, seconds = measured(server, work)
            client = used_by_children() - client
        left = 1 - (neighbours.cpu_s - client) / ((seconds + 1) * CORES)
    return {
        "alone": alone["output_throughput"],
        "beside": beside["output_throughput"],
        "alone_p99_ms": alone["p99_itl_ms"],
        "beside_p99_ms": beside["p99_itl_ms"],
        "left": left,
        "cores_used": used / seconds,
        "kept": beside["output_throughput"] / alone["output_throughput"] / left,
        "late": beside["p99_itl_ms"] / alone["p99_itl_ms"] * left,
    }


def arguments(parser) -> None:
    parser.add_argument("--binary", action="append", metavar="NAME=PATH")
    parser.add_argument("--model", action="append", metavar="NAME[=FILE]")
    parser.add_argument("--streams", action="append", type=int)
    add_flags(parser)
    add(parser, only="", rounds=3)


def run(args) -> dict:
    binaries = dict(named.split("=", 1) for named in args.binary or [f"corelane={CORELANE}"])
    models = [(name, model_file(file) if file else None) for name, _, file in (m.partition("=") for m in args.model or ["built-in"])]
    rows = [line for line in ROWS if any(part in line[0] for part in args.only.split(","))]
    found: dict[tuple, list] = {}
    for number in range(args.rounds):
        for model, file in models:
            for binary in order(binaries, number):
                path = pathlib.Path(binaries[binary])
                new = functools.partial(server_of(path), *args.flags, model=file, binary=path)
                with new() as server:
                    for streams in args.streams or [1, 8]:
                        work = load(streams, *((20, 200) if model == "built-in" else (2, 60)))
                        measure(server.url, *work)  # a warm-up
                        for line in rows:
                            print(f"round {number}: {model}, {streams}, {line[0]}, {binary}", file=sys.stderr)
                            key = (model, streams, line[0], binary)
                            try:
                                found.setdefault(key, []).append(pair(server, line, new, work))
                            except OSError as error:
                                print(f"not taken: {key}: {error}", file=sys.stderr)
    show(found, [line[0] for line in rows])
    return {"rows": [{"model": m, "streams": s, "row": r, "binary": b, "rounds": of} for (m, s, r, b), of in found.items()]}


def show(found: dict[tuple, list], rows: list[str]) -> None:
    numbers = ["left", "tokens/s alone", "beside", "kept", "p99 alone, ms", "beside", "late"]
    table("model", "streams", "neighbours", "binary", *numbers)
    for (model, streams, name, binary), of in sorted(found.items(), key=lambda item: rows.index(item[0][2])):
        if not of:
            continue
        middle = lambda field, form=".1f": f"{statistics.median(one[field] for one in of):{form}}"
        kept = shown(spread(one["kept"] for one in of), ".2f")
        numbers = [middle("left", ".2f"), middle("alone"), middle("beside"), kept]
        row(model, streams, name, binary, *numbers, middle("alone_p99_ms"), middle("beside_p99_ms"), middle("late", ".2f"))

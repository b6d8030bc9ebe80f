"""Where does a lane's time go?

Records a workload with perf and draws a flamegraph for each lane, flamegraphs/NN-WORKLOAD-LANE.svg.

    WORKLOAD   load                                                  lanes          model
    rung0      the bare model: the ladder's rung 0, 8 at a time      decode         Qwen3-0.6B's shape
    streams8   the server, 8 streams                                 front, decode  Qwen3-0.6B's shape
    streams64  the server, 64 streams                                front, decode  the built-in one
    prefill    the server, prompts of 1,024 tokens, 8 generated      decode         Qwen3-0.6B's shape

--seconds of each recording: 60 for a front lane, which is mostly idle (20 with 64 streams), and 20 for a decode lane.
Fails if the workload ends too early or there are too few samples. Needs perf (Debian: linux-perf) and a
kernel.perf_event_paranoid of 2 or less.
"""

import contextlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import typing

from shared.report import add_server, commit
from shared.server import CORELANE, ROOT, Server, loaded, threads_of

TOOLS = ROOT / "target/tools"
SAMPLES_MIN = 300
WIDTH_MIN_PERCENT = 0.2  # of a frame that is drawn: 3 of 1,400 pixels


class Workload(typing.NamedTuple):
    number: str
    is_large: bool
    flags: list[str]  # of the server
    load: list[str] | None  # None: the ladder
    lanes: dict[str, int]  # and the seconds of their recordings


WORKLOADS = {
    "rung0": Workload("01", True, [], None, {"decode": 20}),
    "streams8": Workload(
        *("02", True, [], ["--num-prompts=4000", "--max-concurrency=8", "--random-input-len=32", "--random-output-len=50"]),
        {"front": 60, "decode": 20},
    ),
    "streams64": Workload(
        *("03", False, ["--parallel=64"]),
        ["--num-prompts=20000", "--max-concurrency=64", "--random-input-len=32", "--random-output-len=200"],
        {"front": 20, "decode": 20},  # a busy front lane: a few seconds give many samples, each with a stack of 16 KiB
    ),
    "prefill": Workload(  # without the front lane, which is almost idle
        *("04", True, []),
        ["--num-prompts=2000", "--max-concurrency=8", "--random-input-len=1024", "--random-output-len=8"],
        {"decode": 20},
    ),
}
# Of a lane: the frequency, and how stacks are taken. The front lane is busy for a small part of the time, so its samples
# must be close together. libc's send() keeps no frame pointer, so stacks are copied and unwound later.
HOW = {"front": (9973, "dwarf,16384"), "decode": (997, "fp")}


def arguments(parser) -> None:
    parser.add_argument("workload", choices=WORKLOADS, metavar="WORKLOAD")
    add_server(parser, model="large", binary=False)
    parser.add_argument("--seconds", type=int)


def run(args) -> None:
    if not shutil.which("perf"):
        sys.exit("perf is missing; on Debian: apt-get install linux-perf")
    if not (TOOLS / "bin/inferno-flamegraph").exists():
        subprocess.run(["cargo", "install", "--quiet", "--locked", "inferno", "--root", TOOLS], check=True)
    workload = WORKLOADS[args.workload]
    # Copied stacks are large, and /tmp may be in memory.
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder, running(workload, args.model) as processes:
        for lane, seconds in workload.lanes.items():
            seconds = args.seconds or seconds
            data = record(processes, lane, seconds, pathlib.Path(folder) / "perf.data")
            draw(args.workload, lane, seconds, data)


@contextlib.contextmanager
def running(workload: Workload, model: str) -> typing.Iterator[list[subprocess.Popen]]:
    """The processes that must run during the whole recording; the recorded one is the first."""
    flags = [f"--model={model}"] if workload.is_large else []
    if workload.load is None:
        command = [str(CORELANE), "bench", "ladder", *flags, "--rung=0", "--rounds=1", "--requests=2000"]
        ladder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(8)  # the model loads
            yield [ladder]
        finally:
            ladder.terminate()
            ladder.wait()
    else:
        with Server(*workload.flags, *flags) as server, loaded(server.url, *workload.load) as client:
            time.sleep(3)
            yield [server.process, client]


def record(processes: list[subprocess.Popen], lane: str, seconds: int, data: pathlib.Path) -> pathlib.Path:
    threads = threads_of(processes[0].pid, lane)  # threads that a lane starts inherit its name
    if not threads:
        sys.exit(f"no thread is called {lane}")
    frequency, graph = HOW[lane]
    command = ["perf", "record", "--quiet", f"--event={event()}", f"--output={data}", f"--tid={','.join(map(str, threads))}"]
    subprocess.run([*command, f"--freq={frequency}", f"--call-graph={graph}", "--", "sleep", str(seconds)], check=True)
    if any(process.poll() is not None for process in processes):
        sys.exit("the recorded process or the load generator ended")
    return data


def event() -> str:
    """The software clock always works; hardware cycles are finer, but not every machine has them."""
    tried = subprocess.run(["perf", "stat", "--event=cycles", "true"], capture_output=True, text=True)
    return "cpu-clock" if "<not" in tried.stderr else "cycles"


def draw(workload: str, lane: str, seconds: int, data: pathlib.Path) -> None:
    def output(*command: str | pathlib.Path, text: str | None = None) -> str:
        return subprocess.run(command, input=text, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

    samples = len(output("perf", "script", f"--input={data}", "--fields=comm").splitlines())
    if samples < SAMPLES_MIN:
        sys.exit(f"{samples} samples of the {lane} lane are too few; record more seconds")
    # Without --no-inline, perf runs addr2line for every frame of a copied stack.
    stacks = output("perf", "script", f"--input={data}", "--no-inline")
    folded = output(TOOLS / "bin/inferno-collapse-perf", "--all", text=stacks)
    assert folded, "perf script found no stacks"
    what = output("perf", "evlist", f"--input={data}").splitlines()[0]
    subtitle = f"{commit()}, {samples} samples of {what} at {HOW[lane][0]} Hz in {seconds} s, perf/study flamegraph {workload}"
    command = [TOOLS / "bin/inferno-flamegraph", "--hash", "--width=1400", f"--minwidth={WIDTH_MIN_PERCENT}"]
    command += ["--countname=ns" if "clock" in what else "--countname=cycles"]
    graph = ROOT / f"flamegraphs/{WORKLOADS[workload].number}-{workload}-{lane}.svg"
    graph.write_text(output(*command, f"--title={workload}: {lane} lane", f"--subtitle={subtitle}", text=folded))
    print(graph.relative_to(ROOT))

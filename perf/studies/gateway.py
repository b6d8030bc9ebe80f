"""What does a gateway's hop cost, and what does a second server add?

Each server has one core and one thread. The arrangements take turns: a server alone, the same behind SGLang's gateway
and behind HAProxy, and two servers behind each. A load of 8 requests at once for each server gives the throughput, and
requests one at a time the time to the first token. The gateways and the load generator run on the same cores as the
servers, so on two cores the second server cannot add all of its speed.

It needs haproxy, and sglang-router in target/venv (`make e2e` installs both).
"""

import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from shared.report import add, add_server, row, table
from shared.requests import post
from shared.server import ROOT, free_port, measure
from shared.statistics import shown, spread
from shared.turns import in_turns

PYTHON = ROOT / "target" / "venv" / "bin" / "python"
HAPROXY = pathlib.Path("/usr/sbin/haproxy")
PORTS: list[int] = []  # of the gateway, of two servers, and of their ops


def arguments(parser) -> None:
    add_server(parser)
    add(parser, rounds=3)
    parser.add_argument("--prompts", type=int, default=40, help="requests for each server [default: 40]")


def run(args) -> dict:
    if not HAPROXY.exists() or subprocess.run([PYTHON, "-c", "import sglang_router"], capture_output=True).returncode:
        sys.exit("haproxy or sglang-router in target/venv is missing; `make e2e` installs both")
    PORTS[:] = [free_port() for _ in range(5)]
    arrangements = {
        "one, alone": (1, None),
        "one, SGLang": (1, sglang),
        "one, HAProxy": (1, haproxy),
        "two, SGLang": (2, sglang),
        "two, HAProxy": (2, haproxy),
    }
    ways = {name: lambda how=how: arranged(args, *how) for name, how in arrangements.items()}
    found = in_turns(args.rounds, ways, alternate=False)
    table("arrangement", "tokens/s, 8 at once for each", "of one alone", "first token, one at a time, ms")
    alone = statistics.median(rate for rate, _ in found["one, alone"])
    for name, runs in found.items():
        rates, firsts = zip(*runs)
        row(name, shown(spread(rates), ".0f"), f"{statistics.median(rates) / alone:.2f}", shown(spread(firsts), ".2f"))
    return {"tokens_per_s_and_ttft_ms": found}


def arranged(args, count: int, gateway) -> tuple[float, float]:
    """Tokens per second, and the time to the first token in ms."""
    with contextlib.ExitStack() as stack:
        for core in range(count):
            stack.enter_context(worker(args, core))
        port = PORTS[0] if gateway else PORTS[1]
        if gateway:
            stack.enter_context(gateway(count))
        return throughput(args, port, count), ttft(port)


@contextlib.contextmanager
def running(command: list, port: int):
    """A program that answers completions on a port until the block ends."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + 60
            while time.monotonic() < end:
                with contextlib.suppress(OSError):
                    if post(f"http://127.0.0.1:{port}", "/v1/completions", TRIAL, timeout=10)[0] == 200:
                        break
                time.sleep(0.1)
            else:
                sys.exit(f"{command[0]} does not answer")
            yield
        finally:
            process.terminate()


TRIAL = {"model": "tale", "prompt": "a", "max_tokens": 1}


def worker(args, core: int):
    port, ops = PORTS[1 + core], PORTS[3 + core]
    flags = [f"--port={port}", f"--ops-addr=127.0.0.1:{ops}", "--alias=tale", "--log=warn"]
    own = sorted(os.sched_getaffinity(0))[core]
    flags += [f"--front-core={own}", f"--decode-cores={own}"]
    flags += [f"--model={args.model}"] if args.model else []
    return running([args.binary, "serve", *flags], port)


def sglang(count: int):
    command = [PYTHON, "-m", "sglang_router.launch_router", "--host=127.0.0.1", f"--port={PORTS[0]}"]
    command += ["--policy=round_robin", f"--prometheus-port={free_port()}", "--worker-urls"]
    return running([*command, *(f"http://127.0.0.1:{port}" for port in PORTS[1 : 1 + count])], PORTS[0])


@contextlib.contextmanager
def haproxy(count: int):
    text = (ROOT / "packaging" / "haproxy.cfg").read_text().replace("127.0.0.1:8000", f"127.0.0.1:{PORTS[0]}")
    lines = [line for line in text.splitlines() if count == 2 or not line.strip().startswith("server two")]
    text = "\n".join(lines) + "\n"
    for number in range(2):
        text = text.replace(f"127.0.0.1:{8080 + number}", f"127.0.0.1:{PORTS[1 + number]}")
        text = text.replace(f"check port {9090 + number}", f"check port {PORTS[3 + number]}")
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
        file.write(text)
        file.flush()
        with running([HAPROXY, "-f", file.name], PORTS[0]):
            yield


def bench(port: int, *flags: str) -> dict:
    return measure(f"http://127.0.0.1:{port}", "--model=tale", "--text-prompts", *flags)


def throughput(args, port: int, count: int) -> float:
    flags = [f"--num-prompts={count * args.prompts}", f"--max-concurrency={8 * count}"]
    return bench(port, *flags, "--random-output-len=100", "--num-warmups=8")["output_throughput"]


def ttft(port: int) -> float:
    flags = ["--num-prompts=30", "--max-concurrency=1", "--random-output-len=2", "--num-warmups=3"]
    return bench(port, *flags)["median_ttft_ms"]

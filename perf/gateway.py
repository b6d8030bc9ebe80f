#!/usr/bin/env python3
"""Measures servers behind a gateway: what the hop costs, and what a second server adds.

    perf/gateway.py [--binary FILE] [--model FILE] [--rounds 3] [--prompts 40]

Each server has one core and one thread. The arrangements take turns: a server alone, the same behind SGLang's gateway
and behind HAProxy, and two servers behind each. A load of 8 requests at once for each server gives the throughput, and
requests one at a time the time to the first token. The gateways and the load generator run on the same cores as the servers, so on two
cores the second server cannot add all of its speed.

It needs haproxy, and sglang-router in target/venv (`make e2e` installs both).
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from server import CORELANE, ROOT, machine

PYTHON = ROOT / "target" / "venv" / "bin" / "python"
WORKERS = (19081, 19082)
GATEWAY = 19080


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=CORELANE)
    parser.add_argument("--model", type=pathlib.Path, help="instead of the built-in model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=40, help="requests for each server")
    options = parser.parse_args()
    arrangements = {
        "one, alone": (1, None),
        "one, SGLang": (1, sglang),
        "one, HAProxy": (1, haproxy),
        "two, SGLang": (2, sglang),
        "two, HAProxy": (2, haproxy),
    }
    found = {name: [] for name in arrangements}
    for _ in range(options.rounds):
        for name, (count, gateway) in arrangements.items():
            with contextlib.ExitStack() as stack:
                for core in range(count):
                    stack.enter_context(worker(options, core))
                port = WORKERS[0]
                if gateway:
                    stack.enter_context(gateway(count))
                    port = GATEWAY
                found[name].append((throughput(options, port, count), ttft(options, port)))
    print("| arrangement | tokens/s, 8 at once for each | of one alone | first token, one at a time, ms |")
    print("|---|---|---|---|")
    alone = statistics.median(rate for rate, _ in found["one, alone"])
    for name, runs in found.items():
        rates, firsts = zip(*runs)
        rate = statistics.median(rates)
        print(f"| {name} | {spread(rates, 0)} | {rate / alone:.2f} | {spread(firsts, 2)} |")
    print(f"machine: {machine()}")


def spread(numbers, digits: int) -> str:
    return f"{statistics.median(numbers):.{digits}f} ({min(numbers):.{digits}f} to {max(numbers):.{digits}f})"


@contextlib.contextmanager
def running(command: list, port: int):
    """A program that answers completions on a port until the block ends."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + 60
            while time.monotonic() < end:
                with contextlib.suppress(OSError):
                    body = b'{"model":"tale","prompt":"a","max_tokens":1}'
                    headers = {"content-type": "application/json"}
                    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, headers)
                    urllib.request.urlopen(request, timeout=10).read()
                    break
                time.sleep(0.1)
            else:
                sys.exit(f"{command[0]} does not answer")
            yield
        finally:
            process.terminate()


def worker(options, core: int):
    flags = [f"--port={WORKERS[core]}", f"--ops-addr=127.0.0.1:{WORKERS[core] + 1000}", "--alias=tale", "--log=warn"]
    own = sorted(os.sched_getaffinity(0))[core]
    flags += [f"--front-core={own}", f"--decode-cores={own}"]
    flags += [f"--model={options.model}"] if options.model else []
    return running([options.binary, "serve", *flags], WORKERS[core])


def sglang(count: int):
    command = [PYTHON, "-m", "sglang_router.launch_router", "--host=127.0.0.1", f"--port={GATEWAY}"]
    command += ["--policy=round_robin", "--prometheus-port=19090", "--worker-urls"]
    return running([*command, *(f"http://127.0.0.1:{port}" for port in WORKERS[:count])], GATEWAY)


@contextlib.contextmanager
def haproxy(count: int):
    text = (ROOT / "packaging" / "haproxy.cfg").read_text().replace("127.0.0.1:8000", f"127.0.0.1:{GATEWAY}")
    lines = [line for line in text.splitlines() if count == 2 or not line.strip().startswith("server two")]
    text = "\n".join(lines) + "\n"
    for number, port in enumerate(WORKERS):
        text = text.replace(f"127.0.0.1:{8080 + number}", f"127.0.0.1:{port}")
        text = text.replace(f"check port {9090 + number}", f"check port {port + 1000}")
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
        file.write(text)
        file.flush()
        with running(["/usr/sbin/haproxy", "-f", file.name], GATEWAY):
            yield


def bench(options, port: int, *flags: str) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        command = [options.binary, "bench", "serve", f"--port={port}", "--model=tale", "--text-prompts"]
        command += ["--ignore-eos", "--no-progress", "--save-result", f"--result-dir={folder}", *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        [result] = pathlib.Path(folder).iterdir()
        return json.loads(result.read_text())


def throughput(options, port: int, count: int) -> float:
    flags = [f"--num-prompts={count * options.prompts}", f"--max-concurrency={8 * count}", "--random-output-len=100", "--num-warmups=8"]
    return bench(options, port, *flags)["output_throughput"]


def ttft(options, port: int) -> float:
    flags = ["--num-prompts=30", "--max-concurrency=1", "--random-output-len=2", "--num-warmups=3"]
    return bench(options, port, *flags)["median_ttft_ms"]


if __name__ == "__main__":
    main()

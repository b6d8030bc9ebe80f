"""Two servers behind gateways that exist: SGLang's model gateway, and HAProxy where it is installed.

A client of a gateway must not notice that a server drains. SGLang's gateway also finds a prefix again on the server that
has it.
"""

import collections
import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from conftest import BINARY, ROOT

STREAMS = 8
STORIES = [f"Story {number}. " + "Once upon a time there was a dragon who lived in a cave. " * 8 for number in range(6)]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read().decode()


def eventually(what, is_true, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError, KeyError, ValueError):
            if is_true():
                return
        time.sleep(0.1)
    raise AssertionError(f"not in {seconds} s: {what}")


def complete(url, **fields):
    body = json.dumps({"model": "tale", "temperature": 0} | fields).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read()


class Worker:
    """A server without a key, with a name that the gateway should find."""

    def __init__(self, core):
        self.port, self.ops_port = free_port(), free_port()
        flags = [f"--port={self.port}", f"--ops-addr=127.0.0.1:{self.ops_port}", "--alias=tale", "--log=warn"]
        flags += [f"--front-core={core}", f"--decode-cores={core}"]
        self.process = subprocess.Popen([BINARY, "serve", *flags], stdout=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{self.port}"
        eventually("a worker is ready", lambda: get(f"http://127.0.0.1:{self.ops_port}/ready"))

    def generated(self):
        page = get(f"http://127.0.0.1:{self.ops_port}/metrics")
        return int(re.search(r"^vllm:generation_tokens_total\{.*\} (\d+)", page, re.MULTILINE).group(1))

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(timeout=60)


@pytest.fixture
def workers():
    started = []
    try:
        cores = sorted(os.sched_getaffinity(0))
        for core in (cores[0], cores[-1]):
            started.append(Worker(core))
        yield started
    finally:
        for worker in started:
            worker.end()


@contextlib.contextmanager
def running(command, url):
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(f"{command[0]} answers", lambda: complete(url, prompt="a", max_tokens=1))
            yield url
        finally:
            process.terminate()


@pytest.fixture
def sglang(workers):
    port = free_port()
    command = [sys.executable, "-m", "sglang_router.launch_router", "--host=127.0.0.1", f"--port={port}"]
    command += ["--policy=cache_aware", "--health-check-interval-secs=1", f"--prometheus-port={free_port()}"]
    command += ["--health-failure-threshold=1", "--worker-urls", *(worker.url for worker in workers)]
    with running(command, f"http://127.0.0.1:{port}") as url:
        eventually("both workers are known", lambda: len(json.loads(get(f"{url}/workers"))["workers"]) == 2)
        yield url


@pytest.fixture
def haproxy(workers, tmp_path):
    program = shutil.which("haproxy") or "/usr/sbin/haproxy"
    if not shutil.which(program):
        pytest.skip("haproxy is not installed")
    port = free_port()
    text = (ROOT / "packaging" / "haproxy.cfg").read_text().replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    for number, worker in enumerate(workers):
        text = text.replace(f"127.0.0.1:{8080 + number}", f"127.0.0.1:{worker.port}")
        text = text.replace(f"check port {9090 + number}", f"check port {worker.ops_port}")
    (tmp_path / "haproxy.cfg").write_text(text)
    with running([program, "-f", str(tmp_path / "haproxy.cfg")], f"http://127.0.0.1:{port}") as url:
        yield url


def test_sglangs_gateway_knows_the_model_and_finds_prefixes_again(sglang, workers):
    known = json.loads(get(f"{sglang}/workers"))["workers"]
    assert {worker["model_id"] for worker in known} == {"tale"}, known
    for story in STORIES:
        complete(sglang, prompt=story, max_tokens=4)
    found = 0
    for story in STORIES:
        usage = json.loads(complete(sglang, prompt=story + "The end was near.", max_tokens=4))["usage"]
        found += usage["prompt_tokens_details"]["cached_tokens"] > usage["prompt_tokens"] / 2
    assert found >= len(STORIES) - 1, f"{found} of {len(STORIES)} prefixes were found again"


def stream_through(url, workers, end_one):
    """Streams one after another from several clients; in the midst of them `end_one` is called. Returns how they ended,
    each with the seconds since then."""
    ends, started = [], time.monotonic()

    def ask(number):
        while time.monotonic() < started + 6:
            try:
                body = complete(url, prompt=f"{number}: Once upon", max_tokens=60, stream=True, ignore_eos=True)
                end = "whole" if body.endswith(b"data: [DONE]\n\n") else f"cut off: {body[-80:]!r}"
            except urllib.error.HTTPError as error:
                end = f"{error.code}: {error.read()[:200]!r}"
            except (OSError, http.client.HTTPException) as error:
                end = repr(error)
            ends.append((time.monotonic(), end))

    with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        asking = [pool.submit(ask, number) for number in range(STREAMS)]
        time.sleep(2)
        assert all(worker.generated() > 0 for worker in workers), "both work"
        end_one()
        ended = time.monotonic()
        concurrent.futures.wait(asking)
    print(collections.Counter(end for _, end in ends))
    return [(at - ended, end) for at, end in ends]


@pytest.mark.parametrize("gateway", ["sglang", "haproxy"])
def test_a_worker_that_drains_loses_no_stream(request, gateway, workers):
    def drain():
        workers[0].process.terminate()
        assert workers[0].process.wait(timeout=60) == 0

    ends = stream_through(request.getfixturevalue(gateway), workers, drain)
    assert {end for _, end in ends} == {"whole"} and len(ends) > 2 * STREAMS


@pytest.mark.parametrize("gateway", ["sglang", "haproxy"])
def test_a_worker_that_dies_loses_only_what_it_was_writing(request, gateway, workers):
    ends = stream_through(request.getfixturevalue(gateway), workers, workers[0].process.kill)
    lost = [(at, end) for at, end in ends if end != "whole"]
    assert len(lost) <= STREAMS and all(at < 2 for at, _ in lost), lost
    assert sum(at > 2 for at, _ in ends) > STREAMS, "the other one goes on"

"""Starts, observes and ends a `corelane serve` for the studies."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import typing
import urllib.request

ROOT = pathlib.Path(__file__).parents[1]
CORELANE = ROOT / "target/release/corelane"
TICKS = 100  # ticks of /proc/PID/stat per second
MIB = 1 << 20

# Exit at SIGTERM, so that the `with` blocks end their servers.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


class Server:
    """A server on free ports of the loopback address. It ends with the `with` block."""

    def __init__(
        self,
        *flags: str,
        model: str | None = None,
        ops: bool = False,
        binary: pathlib.Path = CORELANE,
        prefix: typing.Sequence[str] = (),
    ):
        self.binary = binary
        self.command = [*prefix, str(binary), "serve", "--port=0", "--log=warn", *flags]
        self.command += [f"--model={model}"] if model else []
        self.command += ["--ops-addr=127.0.0.1:0" if ops else "--ops-addr=none"]

    def __enter__(self) -> "Server":
        began = time.monotonic()
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        banner = ""
        while "Try it" not in banner:
            line = self.process.stdout.readline()
            assert line, "the server ended before it was ready"
            banner += line
        self.start_s = time.monotonic() - began
        self.url = re.search(r"address\s+(http://\S+)", banner).group(1)
        found = re.search(r"metrics\s+(http://[^/\s]+)", banner)
        self.ops_url = found.group(1) if found else None
        return self

    def __exit__(self, *_) -> None:
        self.process.terminate()
        self.process.wait()

    def cpu_seconds(self) -> float:
        """CPU time of the whole process."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def lane_cpu_s(self, lane: str) -> float:
        """CPU time of the threads with a lane's name."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        of_lane = [task for task in tasks if (task / "comm").read_text().strip() == lane]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in of_lane) / 1e9

    def resident_mib(self, part: str = "VmRSS") -> float:
        """Resident memory, or its part RssAnon or RssFile."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{part}:\s+(\d+) kB", text).group(1)) / 1024  # the kernel's kB is a KiB


class LlamaServer(Server):
    """llama.cpp's server at its defaults, with as many slots and as much context as ours has."""

    def __init__(self, *flags: str, model: str | None, binary: pathlib.Path, prefix: typing.Sequence[str] = ()):
        if model is None:
            raise OSError("llama-server has no model of its own")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.binary, self.url, self.ops_url = binary, f"http://127.0.0.1:{port}", None
        self.command = [*prefix, str(binary), "--port", str(port), "-m", model, "-np", "8", "-c", "16384", *flags]

    def __enter__(self) -> "LlamaServer":
        began = time.monotonic()
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not self.is_ready():
            assert self.process.poll() is None, "the server ended before it was ready"
            time.sleep(0.1)
        self.start_s = time.monotonic() - began
        return self

    def is_ready(self) -> bool:
        try:
            return urllib.request.urlopen(f"{self.url}/health").status == 200
        except OSError:
            return False


def server_of(binary: pathlib.Path) -> type[Server]:
    """The class for a program, by its name."""
    return LlamaServer if "llama-server" in binary.name else Server


def pinned() -> list[str]:
    """Flags for two servers at once, of which the second would not be pinned: each has the cores of a lone one."""
    cores = sorted(os.sched_getaffinity(0))
    own = 1 if len(cores) >= 4 else 0  # as corelane chooses, without a second thread of a core
    return [f"--front-core={cores[0]}", f"--decode-cores={','.join(map(str, cores[own:]))}"]


def bench(url: str, *flags: str, result: pathlib.Path | None = None, quiet: bool = False, check: bool = True) -> None:
    """Runs `corelane bench serve` against a server. Its table goes to standard output.

    With `check`, a failed request is an error.
    """
    command = [str(CORELANE), "bench", "serve", f"--base-url={url}", "--ignore-eos", "--temperature=0", *flags]
    if result:
        command += ["--save-result", f"--result-filename={result}"]
    sys.stdout.flush()  # before the table of the other process
    subprocess.run(command, check=check, stdout=subprocess.DEVNULL if result or quiet else None)


def measure(url: str, *flags: str, check: bool = True) -> dict:
    """The saved result of `corelane bench serve`."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "result.json"
        bench(url, *flags, "--no-progress", result=result, check=check)
        return json.loads(result.read_text())


def machine() -> str:
    """The machine and the commit in one line."""
    cpus = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    return f"{len(cpus)} x {cpus[0]}; commit {commit}"

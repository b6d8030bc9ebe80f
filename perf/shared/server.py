"""Starts, observes, loads and ends servers for the studies, on free ports of the loopback address."""

import contextlib
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

ROOT = pathlib.Path(__file__).parents[2]
CORELANE = ROOT / "target/release/corelane"
TICKS = 100  # ticks of /proc/PID/stat per second
MIB = 1 << 20
MODELS = {  # made on first use, with random weights
    "large": ("qwen3-0.6b-q4_k_m.gguf", ["--shape=qwen3-0.6b", "--quant=q4_k_m"]),
    # A quarter of the layers and of the vocabulary: a quarter of the work, in the same proportions.
    "quarter": ("qwen3-quarter.gguf", ["--shape=qwen3-0.6b", "--layers=7", "--vocab=37984"]),
    # A slice: four of 48 layers, with all their experts.
    "experts": ("qwen3-30b-a3b-slice.gguf", ["--shape=qwen3-30b-a3b", "--layers=4"]),
    "hybrid": ("qwen3.5-0.8b-q4_k_m.gguf", ["--shape=qwen3.5-0.8b"]),
}

# Exit at SIGTERM, so that the `with` blocks end their servers.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def model_file(name: str) -> str:
    """A GGUF file, or one of `MODELS`."""
    if name not in MODELS:
        return name
    file, flags = ROOT / "target" / MODELS[name][0], MODELS[name][1]
    if not file.exists():
        subprocess.run([str(CORELANE), "model", "synth", *flags, str(file)], check=True)
    return str(file)


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

    def threads(self, name: str) -> list[int]:
        """The threads with this name, the oldest first: the lane itself, then its helpers."""
        return threads_of(self.process.pid, name)

    def lane_cpu_s(self, lane: str) -> float:
        """CPU time of the threads with a lane's name."""
        return sum(self.thread_cpu_s(thread) for thread in self.threads(lane))

    def thread_cpu_s(self, thread: int) -> float:
        return int(pathlib.Path(f"/proc/{self.process.pid}/task/{thread}/schedstat").read_text().split()[0]) / 1e9

    def resident_mib(self, part: str = "VmRSS") -> float:
        """Resident memory, or its part RssAnon or RssFile."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{part}:\s+(\d+) kB", text).group(1)) / 1024  # the kernel's kB is a KiB

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class LlamaServer(Server):
    """llama.cpp's server at its defaults, with as many slots and as much context as ours has."""

    def __init__(self, *flags: str, model: str | None, binary: pathlib.Path, prefix: typing.Sequence[str] = ()):
        if model is None:
            raise OSError("llama-server has no model of its own")
        port = free_port()
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


def threads_of(process: int, name: str) -> list[int]:
    tasks = pathlib.Path(f"/proc/{process}/task").iterdir()
    return sorted(int(task.name) for task in tasks if (task / "comm").read_text().strip() == name)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def pinned() -> list[str]:
    """Flags for two servers at once, of which the second would not be pinned: each has the cores of a lone one."""
    cores = sorted(os.sched_getaffinity(0))
    own = 1 if len(cores) >= 4 else 0  # as corelane chooses, without a second thread of a core
    return [f"--front-core={cores[0]}", f"--decode-cores={','.join(map(str, cores[own:]))}"]


def generator(url: str, *flags: str) -> list[str]:
    """The command of the load generator."""
    return [str(CORELANE), "bench", "serve", f"--base-url={url}", "--ignore-eos", "--no-progress", *flags]


def measure(url: str, *flags: str, check: bool = True, show: bool = False) -> dict:
    """The saved result of `corelane bench serve` against a server.

    With `check`, a failed request is an error. With `show`, the table goes to standard output.
    """
    return saved(generator(url, "--save-result", *flags), "--result-filename", check, show)


def saved(command: list[str], flag: str, check: bool = True, show: bool = False) -> dict:
    """Runs a command, and reads the JSON that it writes to the file that the flag names."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "result.json"
        sys.stdout.flush()  # before the table of the other process
        subprocess.run([*command, f"{flag}={result}"], check=check, stdout=None if show else subprocess.DEVNULL)
        return json.loads(result.read_text())


@contextlib.contextmanager
def loaded(url: str, *flags: str) -> typing.Iterator[subprocess.Popen]:
    """A load that runs while the `with` block does."""
    client = subprocess.Popen(generator(url, *flags), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield client
    finally:
        client.terminate()
        client.wait()

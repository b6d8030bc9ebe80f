"""A running `corelane serve`, as the studies use it: start, look at, end."""

import pathlib
import re
import subprocess
import time

ROOT = pathlib.Path(__file__).parents[1]
CORELANE = ROOT / "target/release/corelane"
TICKS = 100  # of /proc/PID/stat, a second


class Server:
    """A server on free ports of the loopback address; ends with the `with` block."""

    def __init__(self, *flags: str, model: str | None = None, ops: bool = False):
        self.command = [str(CORELANE), "serve", "--port=0", "--log=warn", *flags]
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
        """Of the whole process."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def lane_cpu_seconds(self) -> dict[str, float]:
        """By the names of its threads."""
        times: dict[str, float] = {}
        for thread in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            name = (thread / "comm").read_text().strip()
            times[name] = times.get(name, 0) + int((thread / "schedstat").read_text().split()[0]) / 1e9
        return times

    def resident_mb(self) -> float:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1e3


def bench(url: str, *flags: str, result: pathlib.Path | None = None) -> None:
    """`corelane bench serve` against a server; its table goes to standard output."""
    command = [str(CORELANE), "bench", "serve", f"--base-url={url}", "--ignore-eos", "--temperature=0", *flags]
    if result:
        command += ["--save-result", f"--result-filename={result}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL if result else None)


def machine() -> str:
    """The machine and the commit, in a line."""
    cpus = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    return f"{len(cpus)} x {cpus[0]}; commit {commit}"

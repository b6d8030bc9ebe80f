"""Does a server survive what the machine does to it: stuck threads, a full disk, no descriptors, no memory, signals?

For each fault a new server starts with the built-in model. After the fault, each accepted request must have ended, with
its whole text or with an error, and a next request must work: with the same server, or with the one that a supervisor
started again. Faults that the machine does not allow are reported as not run. The study fails if a promise of the
documentation was broken. All traffic stays on the loopback address. All faults take about 3 minutes, most of it in two
waits of a minute for the watchdog of the prepare lanes. Leave the cores to it, because other load delays requests.

Threads are stopped with ptrace. Three faults need root and change the machine for a few seconds: the ban on io_uring,
the clock, and a control group. Each is undone, also after Ctrl-C.
"""

import argparse
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import re
import resource
import shlex
import signal
import socket
import subprocess
import tempfile
import threading
import time

from shared.cgroup import Group
from shared.report import add_server, row, table
from shared.requests import HEALTH, JSON, address, connect, fetch
from shared.server import MIB, Server, free_port

COLUMNS = ["fault", "what happened", "accepted", "finished", "with an error", "next request ms", "verdict"]
SILENT = "no answer"  # the outcome of a request that has neither finished nor failed
BROKEN = "broken connection"
REFUSED = "not accepted"
BANNED = pathlib.Path("/proc/sys/kernel/io_uring_disabled")


def arguments(parser) -> None:
    add_server(parser)
    parser.add_argument("--only", choices=FAULTS, metavar="NAME", help="; ".join(FAULTS))


def run(args) -> dict:
    found = {}
    table(*COLUMNS)
    for name in [args.only] if args.only else FAULTS:
        found[name] = inject(FAULTS[name], args)
        row(name, *found[name].values())
    broken = [name for name, cells in found.items() if cells["verdict"].startswith("not ok")]
    return {"faults": found} | ({"failed": f"not ok: {', '.join(broken)}"} if broken else {})


def inject(fault, args) -> dict:
    """One row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        case = Case(args, pathlib.Path(folder))
        try:
            fault(case)
        except NotRun as reason:
            return dict.fromkeys(COLUMNS[1:], "") | {"what happened": f"not run: {reason}", "verdict": "not run"}
        except (OSError, AssertionError, http.client.HTTPException, subprocess.TimeoutExpired) as error:
            case.wrong.append(f"{type(error).__name__}: {error}")
        return case.row()


class NotRun(Exception):
    """The machine does not allow this fault."""


# ---------------------------------------------------------------- a case: servers, requests, expectations


class Case:
    """The requests of one fault, and everything that went wrong."""

    def __init__(self, args, folder: pathlib.Path):
        self.model, self.binary, self.folder = args.model, args.binary, folder
        self.requests: list[Request] = []
        self.happened: list[str] = []
        self.wrong: list[str] = []
        self.next_ms: float | None = None

    @contextlib.contextmanager
    def serving(self, *flags: str, log: pathlib.Path | None = None, **options):
        """A server. At the end of the block all requests must have ended, and a next one must work."""
        with Supervised(self, log or self.folder / "log", *flags, **options) as server:
            yield server
            self.settle()
            self.ask_next(server)

    def send(self, server, count: int, **options) -> list["Request"]:
        """Sends requests at once: streams and whole texts in turns."""
        sent = [Request(server.url, **({"stream": n % 2 == 0} | options)) for n in range(count)]
        for request in sent:
            request.start()
        self.requests += sent
        return sent

    def send_and_begin(self, server, count: int, **options) -> list["Request"]:
        """Sends requests, and waits for the first token of the first one."""
        sent = self.send(server, count, **options)
        sent[0].begun.wait(10)
        return sent

    def send_more_than_slots(self, server) -> list["Request"]:
        """Sends streams, of which four wait for a slot."""
        sent = self.send_and_begin(server, 12, tokens=400, stream=True)
        wait_until(lambda: server.waiting() == 4, 5, "the requests did not arrive")
        return sent

    def settle(self, seconds: float = 30) -> None:
        """Waits until all requests have ended."""
        join(self.requests, seconds)

    def ask_next(self, server) -> None:
        began = time.monotonic()
        request = Request(server.url, tokens=10)
        request.start()
        request.join(10)
        self.next_ms = 1e3 * (time.monotonic() - began)
        self.expect(request.outcome == "finished", f"the next request: {request.outcome}")

    def say(self, text: str) -> None:
        self.happened.append(text)

    def expect(self, fact: bool, otherwise: str) -> None:
        if not fact:
            self.wrong.append(otherwise)

    def expect_all(self, requests: list["Request"], *outcomes: str) -> None:
        """Waits for these requests. They must have one of these outcomes."""
        join(requests, 30)
        others = [request.outcome for request in requests if request.outcome not in outcomes]
        self.expect(not others, f"{len(others)} requests ended with: {', '.join(sorted(set(others)))}")

    def row(self) -> dict:
        outcomes = [request.outcome for request in self.requests]
        accepted = [outcome for outcome in outcomes if outcome != REFUSED]
        finished, silent = accepted.count("finished"), accepted.count(SILENT)
        errors = sorted(set(accepted) - {"finished", SILENT})
        counts = ", ".join(f"{accepted.count(error)} {error}" for error in errors)
        self.expect(not silent, f"{silent} requests got no answer")
        values = [
            "; ".join(self.happened),
            len(accepted),
            finished,
            counts or "0",
            "" if self.next_ms is None else f"{self.next_ms:.0f}",
            f"not ok: {'; '.join(self.wrong)}" if self.wrong else "ok",
        ]
        return dict(zip(COLUMNS[1:], values))


class Supervised(Server):
    """A server that can be started again on its ports. Its standard error goes to a file."""

    def __init__(self, case: Case, log, *flags: str, level: str = "warn", before: str = "true", wrapper: tuple = ()):
        """`before` is a shell command that runs first, in the same process. `wrapper` starts the shell."""
        super().__init__(*flags, ops=True, model=case.model, binary=case.binary)
        self.log = log
        command = [f"--log={level}" if flag.startswith("--log=") else flag for flag in self.command]
        script = f'{before} && exec "$@" 2>>{shlex.quote(str(log))}'  # `exec` keeps the id of the process
        self.command = [*wrapper, "sh", "-c", script, "sh", *command]

    def __enter__(self) -> "Supervised":
        super().__enter__()
        port, ops_port = (address(url)[1] for url in (self.url, self.ops_url))
        fixed = {"--port=0": f"--port={port}", "--ops-addr=127.0.0.1:0": f"--ops-addr=127.0.0.1:{ops_port}"}
        self.command = [fixed.get(part, part) for part in self.command]
        return self

    def __exit__(self, *_) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def start_again(self, within: float = 20) -> int:
        """What a supervisor does: waits for the end of the process and starts it again. Returns the exit status."""
        status = self.process.wait(within)
        self.process.stdout.close()
        self.__enter__()
        return status

    def lives(self) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0.2)  # a process that was killed takes a moment to end
        return self.process.poll() is None

    def threads(self, name: str) -> list[int]:
        wait_until(lambda: super(Supervised, self).threads(name), 5, f"there is no thread {name!r}")  # a new one names itself
        return super().threads(name)

    def metric(self, name: str) -> float:
        return float(re.search(rf"^{name}(?:{{.*}})? (\S+)", fetch(f"{self.ops_url}/metrics", timeout=5), re.MULTILINE).group(1))

    def waiting(self) -> int:
        return int(self.metric("vllm:num_requests_waiting"))

    def states(self) -> list[str]:
        """The state of each slot: idle, prefill or decode."""
        return [slot["state"] for slot in json.loads(fetch(f"{self.url}/slots", timeout=5))]

    def wrote(self, text: str) -> bool:
        return text in self.log.read_text()


class Request(threading.Thread):
    """A request and its outcome: "finished", the status or kind of an error, or one of the constants above."""

    def __init__(
        self,
        url: str,
        tokens: int = 100,
        stream: bool = False,
        prompt: str = "Once upon a time",
        pad: int = 0,
        gate: threading.Event | None = None,
        **fields,
    ):
        """`pad` bytes of white space stand before the body. Its last byte is sent once `gate` is set."""
        super().__init__(daemon=True)
        body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": stream} | fields
        if stream:
            body["stream_options"] = {"include_usage": True}
        self.url, self.tokens, self.gate = url, tokens, gate
        self.body = b" " * pad + json.dumps(body).encode()
        self.outcome = SILENT
        self.given_up = False  # what comes later does not count
        self.begun = threading.Event()  # the first token came, or the request ended
        self.seconds = 0.0
        self.gap_s = 0.0  # the longest time between two events

    def run(self) -> None:
        began = time.monotonic()
        connection = connect(self.url, timeout=90)
        try:
            connection.connect()
            outcome = self.exchange(connection)
        except ConnectionRefusedError:
            outcome = REFUSED
        except TimeoutError:
            outcome = SILENT
        except (OSError, http.client.HTTPException):
            outcome = BROKEN
        connection.close()
        self.seconds = time.monotonic() - began
        if not self.given_up:
            self.outcome = outcome
        self.begun.set()

    def exchange(self, connection: http.client.HTTPConnection) -> str:
        headers = JSON | {"content-length": str(len(self.body))}
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # an error may be there to read
            connection.request("POST", "/v1/completions", memoryview(self.body)[:-1], headers)
            if self.gate:
                self.gate.wait(60)
            connection.send(self.body[-1:])
        response = connection.getresponse()
        text, last = b"", None
        while line := response.readline():
            now = time.monotonic()
            if line.startswith(b"data: "):
                self.gap_s = max(self.gap_s, now - (last or now))
                last = now
                self.begun.set()
            text += line
        if response.status != 200:
            return str(response.status)
        counts = re.findall(rb'"completion_tokens":(\d+)', text)
        if counts and int(counts[-1]) == self.tokens and (b"[DONE]" in text or text.endswith(b"}")):
            return "finished"
        return "error in the stream" if b'"error":{' in text else BROKEN


def join(requests: list[Request], seconds: float) -> None:
    over = time.monotonic() + seconds
    for request in requests:
        request.join(max(0.0, over - time.monotonic()))


def wait_until(fact, seconds: float, otherwise: str) -> None:
    over = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < over, f"{otherwise}, after {seconds} s"
        time.sleep(0.002)


# ---------------------------------------------------------------- a thread that is stuck

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17  # of <linux/ptrace.h>
ALL_THREADS = 0x40000000  # __WALL
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long] * 4


def ptrace(request: int, thread: int) -> None:
    if LIBC.ptrace(request, thread, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "ptrace: " + os.strerror(ctypes.get_errno()))


@contextlib.contextmanager
def stopped(thread: int):
    """Stops one thread of a server; the others go on. Gives the time at which it stopped."""
    try:
        ptrace(SEIZE, thread)
    except OSError as error:
        raise NotRun(f"{error.strerror}; it needs root or the right to trace") from error
    try:
        ptrace(INTERRUPT, thread)
        os.waitpid(thread, ALL_THREADS)
        yield time.monotonic()
    finally:
        try:
            ptrace(DETACH, thread)
        except OSError:  # It has ended. The process cannot end before somebody has waited for this thread.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(thread, ALL_THREADS | os.WNOHANG)


def wait_for_end(thread: int, since: float, seconds: float) -> float | None:
    """Waits until the process of a stopped thread ends. Returns the time since then, or `None` if it went on."""
    while time.monotonic() < since + seconds:
        if os.waitpid(thread, ALL_THREADS | os.WNOHANG)[0]:
            return time.monotonic() - since
        time.sleep(0.01)
    return None


def decode_stalls(case: Case) -> None:
    """The decode lane stops for less than --step-timeout-s."""
    with case.serving("--step-timeout-s=5") as server:
        sent = case.send_and_begin(server, 16)
        with stopped(server.threads("decode")[0]):
            time.sleep(2)
        case.expect_all(sent, "finished")
        case.say(f"stopped for 2 s; the longest gap in a stream was {max(r.gap_s for r in sent):.1f} s")


def decode_late(case: Case) -> None:
    """The decode lane stops for longer than --step-timeout-s, and goes on before the process ends."""
    with case.serving("--step-timeout-s=2") as server:
        sent = case.send_and_begin(server, 16)
        with stopped(server.threads("decode")[0]):
            time.sleep(3)
        case.expect_all(sent, "finished")
        case.expect(server.wrote("it is given up"), "the log does not say that the step is given up")
        retried = server.metric("corelane_requests_retried_total")
        case.say(f"stopped for 3 s; the step was given up after 2 s; {retried:.0f} requests tried again")


def decode_stuck(index: int):
    def fault(case: Case) -> None:
        """A thread of the model stops for good: the process must end after twice --step-timeout-s."""
        with case.serving("--step-timeout-s=2") as server:
            threads = server.threads("decode")
            if index >= len(threads):
                raise NotRun("the model computes on one thread here")
            sent = case.send_and_begin(server, 16)
            with stopped(threads[index]) as since:
                aborted = wait_for_end(threads[index], since, 10)
            aborts(case, server, aborted, 3.9, 6, "of the model has run for")

    return fault


def aborts(case: Case, server, seconds: float | None, least: float, most: float, reason: str) -> None:
    """The process must have aborted after a stall, and say why. It is started again."""
    if seconds is None:
        return case.expect(False, "the process went on")
    case.settle(5)
    status = server.start_again()
    case.say(f"the process ended after {seconds:.1f} s with {name_of(status)}; restarted in {server.start_s:.1f} s")
    case.expect(least <= seconds <= most, f"it ended after {seconds:.1f} s, not within {least} to {most} s")
    case.expect(status == -signal.SIGABRT, f"it ended with {name_of(status)}")
    case.expect(server.wrote(reason), f"standard error does not say {reason!r}")


def name_of(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"status {status}"


def prepare_stuck(case: Case) -> None:
    """A prepare lane stops in the middle of a task: 500 after 30 s, and the process ends after 30 s more."""
    with case.serving() as server:
        lane = server.threads("prepare-long")[0]
        ill = keep_busy(case, server, lane)
        with stopped(lane) as since:
            others = case.send(server, 8) + case.send(server, 8, pad=2000)
            case.expect_all(others, "finished")
            took = wait_for_end(lane, since, 70)
        case.settle(5)
        given_up = [request.seconds for request in ill if request.outcome == "500"]
        case.say(f"{len(others)} requests beside it finished; 500 after {', '.join(f'{s:.1f} s' for s in given_up)}")
        case.expect(len(given_up) == 1 and 29 < given_up[0] < 33, "the request in the lane got no 500 after 30 s")
        aborts(case, server, took, 58, 63, "a request has been prepared for")


def keep_busy(case: Case, server, lane: int) -> list[Request]:
    """Sends work of half a second to the lane of long tasks, and waits until it has begun: too many token ids."""
    before = server.thread_cpu_s(lane)
    sent = case.send(server, 8, prompt=[1] * 1_000_000)
    wait_until(lambda: server.thread_cpu_s(lane) > before + 0.02, 5, "the lane did not begin")
    return sent


def prepare_stuck_between(case: Case) -> None:
    """A prepare lane stops between two pieces. The requests for it must not wait for ever."""
    with case.serving() as server:
        lane = server.threads("prepare")[0]
        with stopped(lane) as since:
            waiting = case.send(server, 4, pad=2000) + case.send(server, 4, pad=2000, timeout_ms=5000)
            others = case.send(server, 8)
            case.expect_all(others, "finished")
            took = wait_for_end(lane, since, 65)
            if took is None:
                for request in waiting:
                    request.given_up = True
            else:
                join(waiting, 5)
        case.say(f"{len(others)} requests beside it finished")
        if took is not None:
            return aborts(case, server, took, 29, 65, "prepared")
        case.say("the process went on for 65 s")


# ---------------------------------------------------------------- a machine that runs short


def disk_full(case: Case) -> None:
    """Standard error goes to a full disk: requests go on, lost lines are counted, and later lines are written again."""
    disk = case.folder / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=64k tmpfs {shlex.quote(str(disk))}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode:
        options = {"log": pathlib.Path("/dev/full")}
        case.say("no mount is allowed here, so standard error is /dev/full")
    else:
        options = {"log": disk / "log", "before": mount, "wrapper": ("unshare", "-m")}
    with case.serving(level="info", **options) as server:

        def lost() -> int:
            return int(server.metric("corelane_log_lines_lost_total"))

        for _ in range(25):
            case.expect_all(case.send(server, 16, tokens=2), "finished")
        wait_until(lost, 5, "corelane_log_lines_lost_total stays 0")
        case.say(f"{len(case.requests)} requests lost {lost()} log lines")
        if "wrapper" not in options:
            return
        log = pathlib.Path(f"/proc/{server.process.pid}/root{server.log}")
        wait_until(lambda: log.read_bytes().count(b"\n") + lost() >= 400, 5, "log lines are not counted")
        case.say(f"the disk has {log.read_bytes().count(b'served')}")
        before = lost()
        os.truncate(log, 0)
        case.expect_all(case.send(server, 16, tokens=2), "finished")
        wait_until(lambda: log.read_bytes().count(b"served") == 16, 5, "lines are lost although the disk has room")
        case.expect(lost() == before, "lines count as lost although the disk has room")
        case.say("with room again, all lines were written")


FILES = 512  # that a process may open


@contextlib.contextmanager
def few_descriptors(server):
    """Lowers the server's limit on open files to what it has open."""
    pid, (soft, hard) = server.process.pid, resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (server.descriptors(), hard))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def no_descriptors(case: Case) -> None:
    """Clients open more connections than the process may have files. Idle ones give way, and checks are answered."""
    with case.serving(before=f"ulimit -n {FILES}") as server:
        gate = threading.Event()
        first = case.send(server, 32, gate=gate)  # their bodies are not complete, so they do not give way
        idle = [socket.create_connection(address(server.url)) for _ in range(2 * FILES)]
        time.sleep(1)  # a new connection has a moment for its request
        began = server.cpu_seconds()
        time.sleep(2)
        used = server.cpu_seconds() - began
        case.expect(used < 0.2, f"waiting took {used:.1f} s of CPU time in 2 s")
        case.expect_all(case.send(server, 16), "finished")
        for url in (server.url, server.ops_url):
            with socket.create_connection(address(url), timeout=5) as connection:
                connection.sendall(HEALTH)
                case.expect(connection.recv(1000).startswith(b"HTTP/1.1 200"), f"{url}/health was not answered")
        gate.set()
        case.expect_all(first, "finished")
        for connection in idle:
            connection.close()
        case.say(f"{len(idle)} idle connections with {FILES} files took {1e3 * used:.0f} ms of CPU time in 2 s")


def no_descriptors_suddenly(case: Case) -> None:
    """The limit is lowered to what is open. New requests wait or are refused; afterwards they are served."""
    with case.serving() as server:
        gate = threading.Event()
        first = case.send(server, 7, gate=gate)
        wait_until(lambda: server.descriptors() >= 7 + 10, 5, "the first 7 connections are not open")
        with few_descriptors(server):
            others = case.send(server, 16, tokens=10)
            time.sleep(1)  # a few of them are served
            began = server.cpu_seconds()
            time.sleep(2)
            used = server.cpu_seconds() - began
            case.expect(used < 0.2, f"waiting took {used:.1f} s of CPU time in 2 s")
            gate.set()
            case.expect_all(first, "finished", "503")
        case.expect_all(others, "finished", "503")
        case.say(f"16 requests waited; that took {1e3 * used:.0f} ms of CPU time in 2 s")


@contextlib.contextmanager
def memory_group(mib: int):
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(Group("memory"))
        except OSError as error:
            raise NotRun(str(error)) from error
        group.limit_mib(mib)
        yield group


def hold_memory(case: Case, server) -> list[Request]:
    """32 bodies of 8 MiB of which the last byte comes late."""
    gate = threading.Event()
    sent = case.send(server, 32, tokens=10, pad=8 * MIB - 1000, gate=gate)
    time.sleep(2)
    gate.set()
    join(sent, 30)
    return sent


def memory_known(case: Case) -> None:
    """The server starts in a control group of 192 MiB. It must refuse what does not fit, and live."""
    with memory_group(192) as group, case.serving(before=group.join()) as server:
        sent = hold_memory(case, server)
        case.expect(server.lives(), "the process ended")
        case.expect_all(sent, "finished", "429", BROKEN)  # the answer is lost if the client still sends
        case.expect("429" in [request.outcome for request in sent], "nothing was refused")
        case.say(f"it lived; the group had {group.peak_mib():.0f} MiB at most")


def memory_lowered(case: Case) -> None:
    """The limit is lowered below what the server counts on. It is killed, starts again in the group, and then lives."""
    try:
        with memory_group(4096) as group, case.serving(before=group.join()) as server:
            group.limit_mib(128)
            memory_out(case, server, "the limit of its control group fell from 4096 to 128 MiB")
    except NotRun as reason:
        with case.serving() as server:
            size = int(server.resident_mib("VmSize") * MIB)
            resource.prlimit(server.process.pid, resource.RLIMIT_AS, (size + 64 * MIB, resource.RLIM_INFINITY))
            memory_out(case, server, f"{reason}, so RLIMIT_AS left it 64 MiB")


def memory_out(case: Case, server, fault: str) -> None:
    case.expect_all(hold_memory(case, server), "finished", "429", BROKEN)
    if server.lives():
        return case.say(f"{fault}; it refused requests and lived")
    status = server.start_again()
    case.say(f"{fault}; it ended with {name_of(status)}")
    case.expect(status in (-signal.SIGKILL, -signal.SIGABRT), f"it ended with {name_of(status)}")
    sent = hold_memory(case, server)
    case.expect_all(sent, "finished", "429", BROKEN)
    case.expect(server.lives(), "started again, it ended again")
    refused = [request.outcome for request in sent].count("429")
    case.say(f"started again, it refused {refused} of {len(sent)} requests and lived")


def io_uring_forbidden(case: Case) -> None:
    """io_uring is forbidden while a server runs: it goes on, and a new one says what is wrong."""
    if not os.access(BANNED, os.W_OK):
        raise NotRun(f"{BANNED} cannot be written")
    with case.serving() as server:
        before = BANNED.read_text()
        try:
            BANNED.write_text("2")
            case.expect_all(case.send(server, 16), "finished")
            command = [case.binary, "serve", "--port=0", "--ops-addr=none"]
            new = subprocess.run(command, capture_output=True, text=True, timeout=10)
        finally:
            BANNED.write_text(before)
        says = "io_uring is forbidden" in new.stderr and "kernel.io_uring_disabled" in new.stderr
        case.expect(new.returncode == 1 and says, f"a new server ended with {new.returncode}: {new.stderr.strip()}")
        case.say(f"the running server went on; a new one ended with status {new.returncode} and named the sysctl")


def clock_back(case: Case) -> None:
    """The wall clock goes back by an hour, and forward again: streams go on, and time limits are unaffected."""
    with case.serving("--parallel=1") as server:
        kept = connect(server.url, timeout=5)
        kept.request("GET", "/health")
        kept.getresponse().read()
        streams = case.send(server, 24, tokens=1000, stream=True)  # one runs, the others keep the queue full
        streams[0].begun.wait(10)
        timed = case.send(server, 1, stream=False, timeout_ms=1000)
        with clock_set_back():
            timed += case.send(server, 1, stream=False, timeout_ms=1000)
            time.sleep(1.5)
            join(timed, 1)
        timed += case.send(server, 1, stream=False, timeout_ms=1000)
        time.sleep(1.5)
        kept.request("GET", "/health")
        case.expect(kept.getresponse().read() != b"", "an idle connection was closed")
        kept.close()
        case.expect_all(timed, "504")
        case.expect_all(streams, "finished")
        gap, late = max(r.gap_s for r in streams), [r.seconds for r in timed]
        case.expect(gap < 1, f"a stream stood still for {gap:.1f} s")
        case.expect(all(0.9 < s < 1.4 for s in late), f"limits of 1 s came after {min(late):.1f} to {max(late):.1f} s")
        case.say(f"the longest gap in a stream was {1e3 * gap:.0f} ms; limits of 1 s held")


@contextlib.contextmanager
def clock_set_back():
    """Sets the wall clock back by an hour, and afterwards to the time that it would have had."""
    ahead = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    hour = 3600 * 10**9
    try:
        time.clock_settime_ns(time.CLOCK_REALTIME, time.clock_gettime_ns(time.CLOCK_REALTIME) - hour)
    except PermissionError as error:
        raise NotRun("the clock cannot be set") from error
    try:
        yield
    finally:
        time.clock_settime_ns(time.CLOCK_REALTIME, time.clock_gettime_ns(time.CLOCK_MONOTONIC) + ahead)


# ---------------------------------------------------------------- the process is ended


def killed(case: Case) -> None:
    """SIGKILL under 64 streams: the clients see a broken connection, and the next server listens on the same port."""
    with case.serving() as server:
        sent = case.send_and_begin(server, 64, tokens=400, stream=True)
        wait_until(lambda: server.waiting() > 40, 10, "the streams did not begin")
        server.process.kill()
        began = time.monotonic()
        join(sent, 10)
        noticed = time.monotonic() - began
        status = server.start_again()
        case.expect_all(sent, BROKEN, "finished")
        case.say(f"clients noticed within {1e3 * noticed:.0f} ms; restarted in {1e3 * server.start_s:.0f} ms")
        case.expect(status == -signal.SIGKILL, f"it ended with {name_of(status)}")


def ends(case: Case, server, expected: int = 0, within: float = 10) -> None:
    """The process must end with this status. It is started again on the same port."""
    status = server.start_again(within)
    case.expect(status == expected, f"it ended with {name_of(status)}, not {expected}")
    case.say(f"ended with {name_of(status)}")


def term_loading(case: Case) -> None:
    """The model loads: requests are answered 503, and the process ends."""
    port = free_port()
    command = [case.binary, "serve", f"--port={port}", "--ops-addr=none", "--log=warn"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        tasks = pathlib.Path(f"/proc/{process.pid}/task")
        # The thread for signals is the last one that starts before the model is loaded.
        wait_until(lambda: "signals\n" in [(t / "comm").read_text() for t in tasks.iterdir()], 5, "it does not start")
        with stopped(process.pid):
            server = argparse.Namespace(url=f"http://127.0.0.1:{port}")
            case.expect_all(case.send(server, 4), "503")
            process.terminate()
            time.sleep(0.2)
            case.expect_all(case.send(server, 4), REFUSED)
        status = process.wait(10)
        case.expect(status == 0, f"it ended with {name_of(status)}")
        case.say(f"ended with {name_of(status)}")
    finally:
        process.kill()
        process.wait()
    with case.serving():
        pass


def term_idle(case: Case) -> None:
    """Nothing runs: idle connections are closed, and the process ends at once."""
    with case.serving() as server:
        idle = [socket.create_connection(address(server.url), timeout=5) for _ in range(8)]
        case.expect_all(case.send(server, 4), "finished")
        began = time.monotonic()
        server.process.terminate()
        closed = [connection.recv(1) == b"" for connection in idle]
        case.expect(all(closed), "an idle connection was not closed")
        server.process.wait(5)
        case.say(f"took {1e3 * (time.monotonic() - began):.0f} ms with 8 idle connections")
        ends(case, server)


def term_body(case: Case) -> None:
    """The body of a request has not arrived in full: the request is finished."""
    with case.serving() as server:
        gate = threading.Event()
        sent = case.send(server, 4, gate=gate)
        wait_until(lambda: server.metric("corelane_connections") == 4, 5, "the connections are not open")
        time.sleep(0.2)
        server.process.terminate()
        time.sleep(0.5)
        gate.set()
        case.expect_all(sent, "finished")
        ends(case, server)


def term_preparing(case: Case) -> None:
    """A prepare lane has work for half a second: the requests get their answers."""
    with case.serving() as server:
        sent = keep_busy(case, server, server.threads("prepare-long")[0])
        server.process.terminate()
        case.expect_all(sent, "400")
        ends(case, server)


def term_busy(prompt: str, state: str, *flags: str):
    def fault(case: Case) -> None:
        """SIGTERM comes while slots are in this state and other requests wait. All are finished."""
        with case.serving(*flags) as server:
            slots = len(server.states())
            sent = []
            if state == "decode":
                sent = case.send(server, slots, tokens=400, stream=True)
                for request in sent:
                    request.begun.wait(10)
            with stopped(server.threads("decode")[0]):  # so that the state lasts
                sent += case.send(server, slots + 4, prompt=prompt)
                reached = lambda: state in server.states() and server.waiting() >= 4
                wait_until(reached, 5, f"no slot is in the state {state!r}")
                case.say(f"{server.waiting()} of {len(sent)} requests waited")
                server.process.terminate()
                time.sleep(0.3)
                case.expect_all(case.send(server, 2), REFUSED)
            case.expect_all(sent, "finished")
            ends(case, server)

    return fault


def term_late(case: Case) -> None:
    """The requests do not end within --drain-seconds: they are cut off."""
    with case.serving("--drain-seconds=1") as server:
        sent = case.send_more_than_slots(server)
        with stopped(server.threads("decode")[0]):
            began = time.monotonic()
            server.process.terminate()
            case.expect_all(sent, BROKEN)
            case.say(f"cut off after {time.monotonic() - began:.1f} s")
        ends(case, server)


def term_twice(case: Case) -> None:
    """A second SIGTERM ends the process at once, even if a step is stuck."""
    with case.serving() as server:
        sent = case.send_more_than_slots(server)
        lane = server.threads("decode")[0]
        with stopped(lane):
            server.process.terminate()
            time.sleep(0.5)
            case.expect(server.lives(), "it ended at the first SIGTERM")
            server.process.terminate()
            took = wait_for_end(lane, time.monotonic(), 5)
            case.expect(took is not None, "it did not end at the second SIGTERM")
        case.expect_all(sent, BROKEN)
        ends(case, server, expected=128 + signal.SIGTERM)


FAULTS = {
    "decode lane stops for 2 s, limit 5 s": decode_stalls,
    "decode lane stops for 3 s, limit 2 s": decode_late,
    "decode lane stuck": decode_stuck(0),
    "compute thread stuck": decode_stuck(1),
    "prepare lane stuck in a task": prepare_stuck,
    "prepare lane stuck between two tasks": prepare_stuck_between,
    "disk full for logs": disk_full,
    "no descriptors left": no_descriptors,
    "no descriptors left suddenly": no_descriptors_suddenly,
    "memory limit known at the start": memory_known,
    "memory limit lowered": memory_lowered,
    "io_uring forbidden": io_uring_forbidden,
    "clock set back by 1 h": clock_back,
    "SIGKILL under 64 streams": killed,
    "SIGTERM while the model loads": term_loading,
    "SIGTERM while idle": term_idle,
    "SIGTERM while a body arrives": term_body,
    "SIGTERM while requests are prepared": term_preparing,
    "SIGTERM while prompts are computed": term_busy("Once upon a time. " * 100, "prefill"),
    "SIGTERM in mid-stream": term_busy("Once upon a time", "decode"),
    "SIGTERM while requests wait": term_busy("Once upon a time", "decode", "--parallel=1"),
    "SIGTERM and a stuck step": term_late,
    "SIGTERM twice": term_twice,
}

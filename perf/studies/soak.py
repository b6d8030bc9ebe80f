"""Does anything leak or get slower in an hour of mixed load?

Alice sends chats of 2 kB, one after another, and reads one stream; her times are the probe. Beside her, clients with
other keys use every path of docs/api.md, leave in mid-stream, read slowly, send hostile requests and hold idle
connections. They run at the lowest priority, so that the probe's times are the server's. Each minute prints one row. In
the end the load stops, and the checks are made. The study fails if one of them does. Leave the machine alone meanwhile:
other programs slow the probe down, and keep the load from coming.

"Left" counts requests that a client broke off on purpose. "Wrong" counts answers with an unexpected status or text, and
requests without an answer. Both are the clients' counts. The statuses are the server's.
"""

import collections
import contextlib
import http.client
import itertools
import json
import multiprocessing
import os
import pathlib
import re
import resource
import signal
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time

from shared.report import add_server, needed, row, table
from shared.requests import HEALTH, address, connect, fetch, head, post, send_raw
from shared.server import ROOT, Server
from shared.statistics import p99
from shared.turns import Beside
from studies.attacks import ATTACKS, CHAT, read_stream, together

KEYS = {"alice": 4, "bob": 2, "carol": 1, "dave": 1, "erin": 0.5, "mallory": 1}  # names, also the secrets; weights
TEMPLATE = ROOT / "tests/templates/qwen2.5.jinja"  # it knows tools
GROWTH_MIB_MAX = 5
SLOWER_MAX = 1.1
IDLE_WITHIN_S = 60
COLUMNS = ["minute", "2xx", "4xx", "5xx", "left", "wrong", "MiB", "fds", "threads", "KV tokens", "running", "waiting"]
COLUMNS += ["held KiB", "chat p50 ms", "chat p99 ms", "ITL p99 ms"]
# The load makes the server send each of these. 501 and 505 answer malformed HTTP.
STATUSES = [200, 400, 401, 403, 404, 405, 408, 413, 415, 417, 429, 431, 501, 504, 505]
# The built-in model has no tokens for gaps and no head for ranking. With several keys, nobody sees what all of them do.
REFUSED = {path: 400 for path in ("/infill", "/v1/score", "/score")}
REFUSED |= {path: 400 for path in ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking")}
REFUSED |= {"/metrics": 403, "/lanes": 403}
SERVER_ERRORS_ALLOWED = {"501", "503", "504", "505"}


def arguments(parser) -> None:
    add_server(parser)
    parser.add_argument("--minutes", type=int, default=60, help="[default: 60]")
    parser.add_argument("--connections", type=int, default=4000, help="idle ones [default: 4000]")


def run(args) -> dict:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the server inherits it
    with tempfile.TemporaryDirectory() as folder:
        found = soak(args, pathlib.Path(folder))
    print()
    for check in found["checks"]:
        print(f"{'ok' if check['ok'] else 'NOT ok'}: {check['name']}: {check['numbers']}")
    for line in found["errors_logged"] + found["wrong"][:20]:
        print(f"  {line}")
    failed = [check["name"] for check in found["checks"] if not check["ok"]]
    return found | ({"failed": f"not ok: {'; '.join(failed)}"} if failed else {})


def soak(args, folder: pathlib.Path) -> dict:
    flags = [f"--key={name}:{name}:{weight}" for name, weight in KEYS.items()]
    flags += [f"--chat-template-file={TEMPLATE}", "--pooling=mean", "--ctx-size=16384"]
    flags += ["--metrics", "--queue-requests=64"]  # so that it can be filled
    with contextlib.ExitStack() as stack:
        with standard_error_in(folder / "log"):
            server = stack.enter_context(Server(*flags, ops=True, model=args.model, binary=args.binary))
        for _ in range(20):  # a warm-up: descriptors and threads that the server keeps
            post(server.url, "/v1/chat/completions", CHAT, "alice")
        before = wait_until_idle(server, server.descriptors())
        load = Load(server, folder / "wrong", args.connections)
        with load.running():
            try:
                found = watch(server, load, 60 * args.minutes)
            except (OSError, http.client.HTTPException) as error:
                end = (folder / "log").read_text()[-1000:]
                sys.exit(f"the server does not answer: {error!r}; its log ends with: {end}")
        after = wait_until_idle(server, before["descriptors"])
        after["alive"] = server.process.poll() is None
        described = json.loads(fetch(f"{server.url}/openapi.json"))["paths"]
        found["paths"] = [path for path in described if "{" not in path and path not in REFUSED]
    found |= {"before": before, "after": after, "exit_status": server.process.returncode}
    found |= {"wrong": load.wrong_lines(), "counts": load.counts()}
    found["errors_logged"] = [line for line in (folder / "log").read_text().splitlines() if " ERROR " in line]
    return found | {"checks": checks(found)}


@contextlib.contextmanager
def standard_error_in(path: pathlib.Path):
    """Processes that start in this block write their standard error to the file."""
    sys.stderr.flush()
    saved = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


# ---------------------------------------------------------------- what is watched


def watch(server: Server, load: "Load", seconds: float) -> dict:
    """Probes the server, and prints a row each minute."""
    time.sleep(5)  # until the idle connections are open
    began = time.monotonic()
    memory: list[tuple[float, float]] = []  # seconds since the beginning, MiB
    chats: list[tuple[float, float]] = []  # seconds since the beginning, ms
    rows, answers, last = [], collections.Counter(), {}

    def sample_memory(over: threading.Event) -> None:
        while not over.wait(1):
            with contextlib.suppress(OSError, AttributeError):  # the server has ended, which the next row reports
                memory.append((time.monotonic() - began, server.resident_mib("RssAnon")))

    table(*COLUMNS)
    with Beside(sample_memory):
        while (minute := len(rows) + 1) <= seconds / 60:
            gaps: list[float] = []
            until = began + 60 * minute
            reader = threading.Thread(target=read_stream, args=(server.url, until, gaps))
            reader.start()
            first = len(chats)
            while time.monotonic() < until:
                answers[chat(server.url, began, chats)] += 1
                time.sleep(0.05)
            reader.join()
            last = print_row(minute, server, load, last, [ms for _, ms in chats[first:]], gaps, rows)
    return {"seconds": seconds, "rows": rows, "memory": memory, "chats": chats, "chat_answers": answers}


def chat(url: str, began: float, chats: list) -> str:
    """Sends a chat, and returns the status, or the error."""
    sent = time.monotonic()
    try:
        answer = str(post(url, "/v1/chat/completions", CHAT, "alice", timeout=120)[0])
    except (OSError, http.client.HTTPException) as error:
        answer = repr(error)
    chats.append((sent - began, 1e3 * (time.monotonic() - sent)))
    return answer


def print_row(minute: int, server: Server, load: "Load", last: dict, chats: list, gaps: list, rows: list) -> dict:
    """Prints and keeps the numbers of a minute. Returns the counts since the start."""
    state = look(server)
    counts = {f"{n}xx": sum(c for status, c in state["statuses"].items() if status[0] == f"{n}") for n in (2, 4, 5)}
    counts |= load.counts()
    line = {"minute": minute} | {name: count - last.get(name, 0) for name, count in counts.items()}
    line |= {"MiB": state["mib"], "fds": state["descriptors"], "threads": state["threads"]}
    line |= {"KV tokens": state["kv_used"]}
    line |= {"running": state["running"], "waiting": state["waiting"], "held KiB": state["held_bytes"] // 1024}
    line |= {"chat p50 ms": statistics.median(chats), "chat p99 ms": p99(chats), "ITL p99 ms": p99(gaps or [0.0])}
    rows.append(line)
    row(*(f"{line[name]:.1f}" if isinstance(line[name], float) else line[name] for name in COLUMNS))
    return counts


def look(server: Server) -> dict:
    """The state of the server, from its metrics and from /proc."""
    page = fetch(f"{server.ops_url}/metrics")

    def total(name: str) -> int:
        return sum(int(float(value)) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE))

    statuses = collections.Counter()
    for status, count in re.findall(r'^corelane_http_responses_total{.*status="(\d+)"} (\d+)', page, re.MULTILINE):
        statuses[status] += int(count)
    kv = {name: total(f"corelane_kv_tokens_{name}") for name in ("capacity", "used", "kept", "free")}
    served = re.findall(r'^corelane_http_responses_total{path="(.*?)",status="200"} [1-9]', page, re.MULTILINE)
    return {f"kv_{name}": value for name, value in kv.items()} | {
        "statuses": {status: count for status, count in sorted(statuses.items()) if count},
        "paths": sorted(served),
        "running": total("vllm:num_requests_running"),
        "waiting": total("vllm:num_requests_waiting"),
        "held_bytes": total("corelane_request_bytes"),
        "connections": total("corelane_connections"),
        "steps_failed": total("corelane_steps_failed_total"),
        "log_lines_lost": total("corelane_log_lines_lost_total"),
        "mib": server.resident_mib("RssAnon"),
        "descriptors": server.descriptors(),
        "threads": len(os.listdir(f"/proc/{server.process.pid}/task")),
    }


def wait_until_idle(server: Server, fds: int) -> dict:
    """The state once nothing runs and `fds` descriptors are open, or after the time for that."""
    over = time.monotonic() + IDLE_WITHIN_S
    while True:
        state = look(server)
        left = [state[name] for name in ("running", "waiting", "held_bytes", "connections")]
        if (not any(left) and state["descriptors"] == fds) or time.monotonic() > over:
            break
        time.sleep(0.5)
    slots = json.loads(fetch(f"{server.url}/slots", "alice"))
    return state | {"slots_busy": sum(slot["is_processing"] or slot["state"] != "idle" for slot in slots)}


# ---------------------------------------------------------------- the checks


def checks(found: dict) -> list[dict]:
    seconds, before, after = found["seconds"], found["before"], found["after"]
    sixth = seconds / 6
    made = []

    def check(name: str, ok: bool, numbers: str) -> None:
        made.append({"name": name, "ok": bool(ok), "numbers": numbers})

    def within(samples: list, start: float) -> list[float]:
        return [value for at, value in samples if start <= at < start + sixth]

    early, late = (statistics.median(within(found["memory"], start)) for start in (sixth, seconds - sixth))
    check(
        f"resident memory grows by at most {GROWTH_MIB_MAX} MiB",
        late - early <= GROWTH_MIB_MAX,
        f"median {early:.1f} MiB in the second sixth of the time, {late:.1f} in the last: {late - early:+.1f}",
    )
    numbers = f"{before['descriptors']} before, {after['descriptors']} after"
    check("descriptors are closed", before["descriptors"] == after["descriptors"], numbers)
    left = {name: after[name] for name in ("running", "waiting", "slots_busy", "held_bytes", "connections")}
    check("nothing is left", not any(left.values()), ", ".join(f"{name} {value}" for name, value in left.items()))
    kv = {name: after[f"kv_{name}"] for name in ("capacity", "used", "kept", "free")}
    consistent = kv["used"] == kv["kept"] <= kv["capacity"] == kv["free"]
    check("KV tokens add up", consistent, ", ".join(f"{name} {value}" for name, value in kv.items()))
    first, last = (p99(within(found["chats"], start)) for start in (0, seconds - sixth))
    check(
        f"the chat's p99 grows to at most {SLOWER_MAX} times",
        last <= SLOWER_MAX * first,
        f"{first:.1f} ms in the first sixth of the time, {last:.1f} in the last: {last / first:.2f} times",
    )
    errors = {status: count for status, count in after["statuses"].items() if status[0] in "05"}
    numbers = ", ".join(f"{count} x {status}" for status, count in errors.items()) or "none"
    check("no other 5xx than documented", not errors.keys() - SERVER_ERRORS_ALLOWED, numbers)
    check("no step failed", not after["steps_failed"], f"{after['steps_failed']} failed")
    logged = f"{len(found['errors_logged'])} lines, {after['log_lines_lost']} lost"
    check("no log line has the level ERROR", not found["errors_logged"] and not after["log_lines_lost"], logged)
    ended = f"{'alive' if after['alive'] else 'dead'} after the load, exit status {found['exit_status']}"
    check("the process lives, and ends in order", after["alive"] and not found["exit_status"], ended)
    wrong = found["counts"]["wrong"]
    others = {answer: count for answer, count in found["chat_answers"].items() if answer != "200"}
    check("every answer is right", not wrong and not others, f"{wrong} wrong; of the probe: {others or 'none'}")
    silent = [line["minute"] for line in found["rows"] if not line["ITL p99 ms"]]
    check("the probe's stream runs", not silent, f"minutes without a token: {silent or 'none'}")
    missing = [f"{status}" for status in STATUSES if f"{status}" not in after["statuses"]]
    missing += [path for path in found["paths"] if path not in after["paths"]]
    check("the load reached every path and status", not missing, f"missing: {missing or 'none'}")
    return made


# ---------------------------------------------------------------- the load


class Load:
    """Processes that load the server, and their counts."""

    def __init__(self, server: Server, wrong_file: pathlib.Path, connections: int):
        self.url, self.ops_url, self.wrong_file, self.connections = server.url, server.ops_url, wrong_file, connections
        self.counters = {name: multiprocessing.Value("Q") for name in ("left", "wrong")}

    @contextlib.contextmanager
    def running(self):
        started = [multiprocessing.Process(target=self.run, args=(roles,), daemon=True) for roles in PROCESSES]
        try:
            for process in started:
                process.start()
            yield
        finally:
            for process in started:
                process.kill()
                process.join()

    def run(self, roles: list) -> None:
        os.nice(19)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
        together(len(roles), lambda n: self.repeat(roles[n], n))

    def repeat(self, role, number: int) -> None:
        while True:
            try:
                role(self, number)
            except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
                self.report(f"{role.__name__}: {error!r}")
                time.sleep(1)

    def counts(self) -> dict[str, int]:
        # A killed process could have left a lock locked, so it is not taken here.
        return {name: counter.get_obj().value for name, counter in self.counters.items()}

    def count(self, name: str) -> int:
        with self.counters[name].get_lock():
            self.counters[name].value += 1
            return self.counters[name].value

    def report(self, line: str) -> None:
        """Counts a wrong answer."""
        if self.count("wrong") <= 1000:
            with self.wrong_file.open("a") as file:
                file.write(line.replace("\n", " ")[:400] + "\n")

    def wrong_lines(self) -> list[str]:
        return self.wrong_file.read_text().splitlines() if self.wrong_file.exists() else []

    def expect(self, what: str, status: int, allowed, text: bytes | str) -> bool:
        if status not in allowed:
            self.report(f"{what} was answered {status}: {text[:200]}")
        return status in allowed


def speak(load: Load, number: int) -> None:
    """Sends one request of each kind, on one connection."""
    n = next(ROUNDS)
    kinds = requests(n)
    first = (7 * number) % len(kinds)  # so that not all clients send the same kind at once
    with contextlib.closing(connect(load.url, timeout=120)) as connection:
        for path, body, *check in kinds[first:] + kinds[:first]:
            time.sleep(0.2)
            ask(load, connection, SPEAKERS[number % len(SPEAKERS)], n, path, body, *check)


def ask(load: Load, connection, key: str, n: int, path: str, body: dict | None, check=None) -> None:
    """Sends a request and judges its answer. Leaves a third of the streams."""
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    data = None if body is None else json.dumps(body)
    connection.request("POST" if body else "GET", path, data, headers)
    with connection.getresponse() as response:
        streams = response.getheader("content-type", "") in ("text/event-stream", "application/x-ndjson")
        if streams and n % 3 == 0:
            for _ in range(n % 20):
                response.readline()
            connection.close()
            load.count("left")
            return
        text = response.read()
    allowed = {REFUSED.get(path, 200), 429} | ({504} if body and "timeout_ms" in body else set())
    if not load.expect(path, response.status, allowed, text) or response.status != 200:
        return
    if streams:
        last = text.rstrip().rpartition(b"\n\n")[2]
        right = any(end in last for end in (b"[DONE]", b'"stop":true', b'"done":true', b"message_stop", b"response.completed", b"response.incomplete"))
    else:
        right = check is None or check(json.loads(text))
    if not right:
        load.report(f"{path} {data and data[:150]}: {text[-200:]}")


def requests(n: int) -> list[tuple]:
    """Path, body, and a check of the answer for each kind of request. `n` makes their texts and schemas new."""
    story = f"Story {n}. " + "Once upon a time there was a fox. " * (1 + n % 50)
    turns = [{"role": "user", "content": story}]
    chat = {"messages": turns, "max_tokens": 30}
    schema = {"type": "object", "properties": {f"animal{n}": {"enum": ["fox", "owl"]}, "age": {"type": "integer"}}}
    schema |= {"required": list(schema["properties"]), "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "animal", "schema": schema}}
    tool = {"type": "function", "function": {"name": f"find{n}", "parameters": schema}}
    words, pattern = {"max_tokens": 20}, f"(fox|owl)( and (fox|owl)){{0,2}} {n}"
    grammar = f'root ::= animal (" and " animal)* " {n}"\nanimal ::= "fox" | "owl"'
    stream, soon = {"stream": True}, {"timeout_ms": 1 + n % 50}
    is_animal = fits(lambda text: json.loads(text)[f"animal{n}"] in ("fox", "owl"))
    return [
        ("/v1/completions", {"prompt": story} | words),
        ("/v1/completions", {"prompt": story, "max_tokens": 40, "n": 2, "logprobs": 5} | stream),
        ("/v1/completions", {"prompt": ["Once", "upon", [743, 394]], "max_tokens": 5, "echo": True}),
        ("/v1/completions", {"prompt": "Once", "max_tokens": 30, "seed": 7}),
        ("/v1/completions", {"prompt": story, "priority": n % 2001 - 1000} | words),
        ("/v1/chat/completions", chat | {"logprobs": True, "top_logprobs": 20, "cache_salt": f"{n}"}),
        ("/v1/chat/completions", chat | stream | {"stream_options": {"include_usage": True}}),
        ("/chat/completions", chat | stream),
        ("/v1/embeddings", {"input": [story, "a fox"]}, lambda answer: len(answer["data"]) == 2),
        ("/v1/embeddings", {"input": [[743, 394]] * 8, "encoding_format": "base64"}),
        ("/embedding", {"content": story}),
        ("/embeddings", {"input": story}),
        ("/v1/messages", chat | {"system": "Be brief."}),
        ("/v1/messages", chat | stream),
        ("/v1/messages/count_tokens", {"messages": turns}, lambda answer: answer["input_tokens"] > 10),
        ("/completion", {"prompt": story, "n_predict": 20, "n_probs": 5, "mirostat": 2}),
        ("/completion", {"prompt": story, "n_predict": 20, "dry_multiplier": 1, "n_cmpl": 3}),
        ("/completions", {"prompt": story, "n_predict": 40, "xtc_probability": 0.5} | stream),
        ("/completion", {"prompt": story, "n_predict": 20, "return_progress": True} | stream),
        ("/completion", {"prompt": story, "n_predict": 20, "response_fields": ["content"]}),
        ("/tokenize", {"content": story, "with_pieces": n % 2 == 0}),
        ("/detokenize", {"tokens": [743, 394]}, lambda answer: answer["content"] == "Once"),
        ("/apply-template", {"messages": turns}, lambda answer: story in answer["prompt"]),
        ("/generate", {"prompt": story} | words),
        ("/generate", {"prompt": story} | words | stream),
        ("/generate_stream", {"prompt": story} | words),
        ("/encode", {"text": story}, lambda answer: answer["data"]["length"] > 10),
        ("/v1/responses", {"input": turns, "max_output_tokens": 30, "store": n % 2 == 0}),
        ("/v1/responses", {"input": story, "max_output_tokens": 30} | stream),
        ("/v1/responses/input_tokens", {"input": story}, lambda answer: answer["input_tokens"] > 10),
        ("/v1/chat/completions/input_tokens", {"messages": turns}, lambda answer: answer["input_tokens"] > 10),
        ("/chat/completions/input_tokens", {"messages": turns}, lambda answer: answer["input_tokens"] > 10),
        ("/api/chat", {"model": "m", "messages": turns, "options": {"num_predict": 30}}),
        ("/api/chat", {"model": "m", "messages": turns, "stream": False, "tools": [tool], "think": False}),
        ("/api/generate", {"model": "m", "prompt": story, "format": schema, "stream": n % 2 == 0}),
        ("/api/embed", {"model": "m", "input": [story, "a fox"]}, lambda answer: len(answer["embeddings"]) == 2),
        ("/api/embeddings", {"model": "m", "prompt": story}, lambda answer: len(answer["embedding"]) > 10),
        ("/api/show", {"model": "m"}, lambda answer: "tools" in answer["capabilities"]),
        *((path, {"query": story, "documents": ["a fox"]}) for path in REFUSED if "rerank" in path),
        *((path, {"text_1": story, "text_2": "a fox"}) for path in ("/v1/score", "/score")),
        ("/infill", {"input_prefix": story, "input_suffix": "a fox"}),
        *((path, None) for path in ("/api/tags", "/api/ps", "/api/version")),
        *((path, None) for path in ("/props", "/slots", "/metrics", "/lanes", "/models", "/v1/models")),
        ("/v1/models/corelane%20built-in", None),
        *((path, None) for path in ("/server_info", "/model_info", "/get_load")),
        *((path, None) for path in ("/get_server_info", "/get_model_info")),
        *((path, None) for path in ("/health", "/health?level=full", "/v1/health", "/openapi.json")),
        # Constraints that the server has not seen before.
        ("/v1/chat/completions", chat | {"response_format": form}, is_animal),
        ("/v1/chat/completions", chat | {"response_format": {"type": "json_object"}} | stream),
        ("/v1/chat/completions", chat | {"tools": [tool], "tool_choice": "required"}),
        ("/v1/chat/completions", chat | {"tools": [tool]} | stream),
        ("/v1/messages", chat | {"output_config": {"format": {"type": "json_schema", "schema": schema}}}),
        ("/v1/completions", {"prompt": story, "regex": pattern} | words, fits(re.compile(pattern).fullmatch)),
        ("/v1/completions", {"prompt": story, "grammar": grammar} | words, fits(lambda text: text.endswith(f" {n}"))),
        ("/completion", {"prompt": story, "grammar": grammar} | stream | words),
        ("/v1/completions", {"prompt": story, "guided_choice": ["fox", f"owl {n}"]} | words),
        # Deadlines that expire.
        ("/v1/completions", {"prompt": story, "max_tokens": 200, "ignore_eos": True} | soon),
        ("/v1/chat/completions", chat | stream | soon),
        ("/v1/embeddings", {"input": [story] * 64} | soon),
    ]


def fits(test):
    """Checks that each choice that came to its end passes a test."""

    def check(answer: dict) -> bool:
        ended = [choice for choice in answer["choices"] if choice["finish_reason"] == "stop"]
        return all(test(choice["message"]["content"] if "message" in choice else choice["text"]) for choice in ended)

    return check


def crowd(load: Load, _: int) -> None:
    """More requests at once than fit into the queue."""
    body = {"prompt": "Once upon a time", "max_tokens": 20, "n": 16}

    def ask_many(_: int) -> None:
        status, text = post(load.url, "/v1/completions", body, "mallory")
        load.expect("a crowd", status, {200, 429}, text)

    together(10, ask_many)
    time.sleep(5)


def leave(load: Load, number: int) -> None:
    """A client that leaves at any moment, in order or with a reset."""
    n = next(ROUNDS)
    body = {"prompt": f"Story {n}. " + "Once upon a time. " * (n % 100), "max_tokens": 200, "n": 1 + n % 4}
    body |= {"stream": n % 2 == 0, "ignore_eos": True}
    with send_raw(load.url, "/v1/completions", json.dumps(body).encode(), "dave") as sock:
        time.sleep(n % 50 / 200)
        if n % 3 == 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    load.count("left")
    time.sleep(0.4)


def hostile(load: Load, _: int) -> None:
    bad = needed("hostile_requests")
    for name, path, body in bad.REQUESTS:
        status, text, _ = bad.send(load.url, path, body, "mallory")
        load.expect(name, status, range(400, 500), text)
        time.sleep(1)


def malformed(load: Load, _: int) -> None:
    for wanted, text in MALFORMED:
        with socket.create_connection(address(load.url), timeout=60) as sock:
            sock.sendall(text)
            answer = sock.recv(65536)
            load.expect(repr(text[:60]), int(answer.split(b" ", 2)[1]), {wanted}, answer)
        time.sleep(0.5)


def attack(load: Load, _: int) -> None:
    for name in ATTACKS_TAKEN:
        ATTACKS[name](load.url)
        time.sleep(10)


def operate(load: Load, _: int) -> None:
    """The operator's pages."""
    for path in ("/metrics", "/health", "/ready"):
        text = fetch(load.ops_url + path)
        if path == "/metrics" and not text.endswith("# EOF\n"):
            load.report(f"/metrics ends with {text[-50:]}")
    time.sleep(1)


def dawdle(load: Load, _: int) -> None:
    """Clients that send only a part, and clients that read a byte now and then."""
    stalled = [socket.create_connection(address(load.url), timeout=60) for _ in range(60)]
    for n, sock in enumerate(stalled):
        part = b"GET /health HTTP/1.1\r\nX: " + b"x" * 2000
        sock.sendall(part if n < 50 else head("/tokenize", "POST", 100_000, "erin") + bytes(50_000))
    pieces = json.dumps({"content": "Once upon a time " * 20_000, "with_pieces": True}).encode()
    stream = {"prompt": "Once", "max_tokens": 400, "stream": True, "logprobs": 5, "ignore_eos": True}
    slow = [send_raw(load.url, "/tokenize", pieces, "erin") for _ in range(5)]
    slow += [send_raw(load.url, "/v1/completions", json.dumps(stream).encode(), "erin") for _ in range(10)]
    for sock in slow:
        sock.setblocking(False)
    for _ in range(80):
        time.sleep(0.5)
        for sock in slow:
            with contextlib.suppress(OSError):  # nothing to read, or cut off after 30 s
                sock.recv(1)
    for sock in slow:
        sock.close()
        load.count("left")
    for sock in stalled:
        answer = sock.recv(65536)
        load.expect("a request that does not end", int(answer.split(b" ", 2)[1]), {408}, answer)
        sock.close()


def hold(load: Load, _: int) -> None:
    """Holds idle connections and renews each after a minute. Every eighth is left to the server, to close it."""
    held, forgotten = collections.deque(), collections.deque()
    due = time.monotonic()
    for n in itertools.count():
        sock = socket.create_connection(address(load.url), timeout=60)
        sock.sendall(HEALTH)
        held.append((time.monotonic(), sock))
        if n < load.connections:
            continue
        sent, sock = held.popleft()
        expect_healthy(load, sock)
        if n % 8 == 0:
            forgotten.append((time.monotonic(), sock))
        else:
            if time.monotonic() - sent < 70:  # the server closes it after 75 s
                sock.sendall(HEALTH)
                expect_healthy(load, sock)
            sock.close()
        while forgotten and time.monotonic() - forgotten[0][0] > 30:
            _, sock = forgotten.popleft()
            if sock.recv(1):
                load.report("a connection got bytes that it did not ask for")
            sock.close()
        due = max(due + 60 / load.connections, time.monotonic() - 1)
        time.sleep(max(0, due - time.monotonic()))


def expect_healthy(load: Load, sock: socket.socket) -> None:
    answer = sock.recv(4096)
    if not answer.startswith(b"HTTP/1.1 200"):
        load.report(f"/health on a held connection: {answer[:100]}")


HOST = b"Host: localhost\r\n"
BEARER = HOST + b"Authorization: Bearer mallory\r\n"
# The status of the answer, and the bytes that are sent.
MALFORMED = [
    (400, b"GARBAGE\r\n\r\n"),
    (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),  # the beginning of TLS
    (400, b"GET /health HTTP/1.1\r\n\r\n"),
    (400, b"GET /health HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n"),
    (400, b"GET /props HTTP/1.1\r\n" + BEARER + b"Content-Length: 2\r\n\r\n{}"),
    (400, b"POST /tokenize HTTP/1.1\r\n" + BEARER + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
    (400, b"POST /tokenize HTTP/1.1\r\n" + BEARER + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}"),
    (400, b"POST /tokenize HTTP/1.1\r\n" + BEARER + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
    (401, b"POST /tokenize HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n{}"),
    (403, b"GET /health HTTP/1.1\r\n" + HOST + b"Origin: https://evil.example\r\n\r\n"),
    (404, b"GET /nothing HTTP/1.1\r\n" + HOST + b"\r\n"),
    (405, b"DELETE /health HTTP/1.1\r\n" + HOST + b"\r\n"),
    (413, b"POST /tokenize HTTP/1.1\r\n" + BEARER + b"Content-Length: 999999999\r\n\r\n{"),
    (415, b"POST /tokenize HTTP/1.1\r\n" + BEARER + b"Content-Type: text/xml\r\nContent-Length: 2\r\n\r\n{}"),
    (417, b"POST /tokenize HTTP/1.1\r\n" + BEARER + b"Expect: wonders\r\nContent-Length: 2\r\n\r\n{}"),
    (431, b"GET /health HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 20_000 + b"\r\n\r\n"),
    (501, b"POST /tokenize HTTP/1.1\r\n" + BEARER + b"Transfer-Encoding: gzip\r\n\r\n"),
    (505, b"GET /health HTTP/2.0\r\n" + HOST + b"\r\n"),
]
ATTACKS_TAKEN = ["100,000 special tokens", "1 MB of '<'", "1 MB of text", "schemas that compile long"]
ATTACKS_TAKEN += ["masks that take long", "embeddings, 2,048 at once", "bytes without end after a refusal"]
ROUNDS = itertools.count(1)
SPEAKERS = ["bob", "carol", "dave", "erin"]
# One process each, with a thread for each role.
PROCESSES = [[speak] * 8, [hostile, malformed, attack, crowd, leave, leave, operate], [hold, dawdle]]

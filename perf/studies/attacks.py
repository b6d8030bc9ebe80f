"""What do attacks of one key cost the requests of another, and how much memory do they take?

Mallory attacks with a key of his own (or without one) while Alice reads one stream and sends, each kind one after
another: chats of 2 kB, texts with a new JSON schema, responses that continue a kept one, and embeddings. For each attack a
new server starts. Alice's times are measured for --seconds alone, and for as long beside the attack. The attackers run at
the lowest priority, so that the numbers are the server's and not those of the cores that it shares with them.
"""

import contextlib
import http.client
import json
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time

from shared.report import add, add_server, row, table
from shared.requests import address, begin, connect, head, post, send_raw
from shared.server import MIB, Server
from shared.statistics import p99
from shared.turns import Beside

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHAT = {"messages": [{"role": "user", "content": "Once upon a time there was a fox. " * 60}], "max_tokens": 1}
def arguments(parser) -> None:
    add_server(parser)
    add(parser, seconds=8.0)
    parser.add_argument("--only", choices=sorted(ATTACKS))


def run(args) -> dict:
    found = {}
    table("attack", *(f"{kind}, p99 in ms: alone, beside" for kind in KINDS), "MiB: before, most", "answers")
    for name in [args.only] if args.only else ATTACKS:
        taken = found[name] = measure(ATTACKS[name], args)
        cells = [f"{taken['alone'][kind]:.1f}, {taken['beside'][kind]:.1f}" for kind in KINDS]
        cells.append(f"{taken['mib_before']:.0f}, {taken['mib_most']:.0f}")
        row(name, *cells, ", ".join(f"{count} x {status}" for status, count in taken["answers"].items()) or "none")
    return {"attacks": found}


def measure(attack, args) -> dict:
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
        template.write(TEMPLATE)
        template.flush()
        flags = ["--key=alice:alice", "--key=mallory:mallory", f"--chat-template-file={template.name}"]
        flags += ["--pooling=mean", "--ctx-size=16384"]
        with Server(*flags, model=args.model, binary=args.binary) as server:
            victim(server.url, 1.0)  # a warm-up
            alone = victim(server.url, args.seconds)
            ANSWERS[:] = bytes(len(ANSWERS))
            before = server.resident_mib()
            peaks = [before]

            def watch_memory(over: threading.Event) -> None:
                while not over.wait(0.1):
                    peaks.append(server.resident_mib())

            attacker = multiprocessing.Process(target=run_attack, args=(attack, server.url), daemon=True)
            attacker.start()
            try:
                time.sleep(0.5)
                with Beside(watch_memory, strict=False):
                    beside = victim(server.url, args.seconds)
            finally:
                attacker.kill()
                attacker.join()
    answers = {status: count for status, count in enumerate(ANSWERS) if count}
    return {"alone": alone, "beside": beside, "mib_before": before, "mib_most": max(peaks), "answers": answers}


def run_attack(attack, url: str) -> None:
    os.nice(19)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            try:
                attack(url)
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)


# ---------------------------------------------------------------- the victim


# What Alice does. A stream's times are those between two tokens.
KINDS = ("stream", "chat", "new schema", "kept response", "embedding")


def victim(url: str, seconds: float) -> dict:
    """The p99 of Alice's times in ms, by kind."""
    over = time.monotonic() + seconds
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    acts = {"chat": chat, "new schema": new_schema, "kept response": kept_response, "embedding": embedding}
    threads = [threading.Thread(target=read_stream, args=(url, over, times["stream"]))]
    threads += [threading.Thread(target=again, args=(acts[kind], url, over, times[kind])) for kind in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {kind: p99(of_kind or [0.0]) for kind, of_kind in times.items()}


def again(act, url: str, over: float, times: list[float]) -> None:
    """Does an act again and again. It must succeed."""
    state: dict = {}
    while time.monotonic() < over:
        began = time.monotonic()
        try:
            status, text = act(url, state)
        except OSError as error:
            status, text = repr(error), b""
        times.append(1e3 * (time.monotonic() - began))
        if status != 200:
            print(f"Alice's {act.__name__}: {status} {text[:200]}", file=sys.stderr)
        time.sleep(0.05)


def chat(url: str, _: dict) -> tuple[int, bytes]:
    return post(url, "/v1/chat/completions", CHAT, "alice", timeout=90)


def new_schema(url: str, state: dict) -> tuple[int, bytes]:
    state["count"] = state.get("count", 0) + 1
    names = [f"p{state['count']}_{time.monotonic_ns()}_{n}" for n in range(8)]
    schema = {"type": "object", "properties": {name: {"type": "string", "maxLength": 20} for name in names}}
    body = {"prompt": "Once", "max_tokens": 1, "json_schema": schema}
    return post(url, "/v1/completions", body, "alice", timeout=90)


def kept_response(url: str, state: dict) -> tuple[int, bytes]:
    body = {"input": "Go on. " * 20, "max_output_tokens": 1}
    if state.get("turns", 0) % 8 and "id" in state:
        body["previous_response_id"] = state["id"]
    status, text = post(url, "/v1/responses", body, "alice", timeout=90)
    if status == 200:
        state["id"] = json.loads(text)["id"]
    state["turns"] = state.get("turns", 0) + 1
    return status, text


def embedding(url: str, _: dict) -> tuple[int, bytes]:
    return post(url, "/v1/embeddings", {"input": "Once upon a time there was a fox."}, "alice", timeout=90)


def read_stream(url: str, over: float, gaps: list[float]) -> None:
    body = {"prompt": "Once upon a time", "max_tokens": 400, "stream": True, "ignore_eos": True}
    while time.monotonic() < over:
        try:
            connection, response = begin(url, "/v1/completions", body, "alice", timeout=60)
            last = None
            while time.monotonic() < over and (line := response.readline()):
                if line.startswith(b"data: {"):
                    now = time.monotonic()
                    if last:
                        gaps.append(1e3 * (now - last))
                    last = now
            connection.close()
        except OSError as error:
            print(f"Alice's stream: {error!r}", file=sys.stderr)
            time.sleep(0.1)


# ---------------------------------------------------------------- requests


# How many answers with each status the attacker got. Shared with its process.
ANSWERS = multiprocessing.RawArray("L", 600)


def attack_post(url: str, path: str, body) -> None:
    status, _ = post(url, path, body, "mallory")
    ANSWERS[status] += 1


def together(count: int, act) -> None:
    """Does the same in several threads."""
    threads = [threading.Thread(target=quietly, args=(act, n), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def quietly(act, n: int) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        act(n)


def tokenise(text: str, special: bool = True):
    body = json.dumps({"content": text, "parse_special": special}).encode()
    return lambda url: together(4, lambda _: attack_post(url, "/tokenize", body))


def mallory(path: str, body, count: int = 4):
    data = json.dumps(body).encode()
    return lambda url: together(count, lambda _: attack_post(url, path, data))


def slow_schema() -> dict:
    """A schema whose compilation takes about as long as one may."""
    properties = {f"p{n}": {"type": "string", "pattern": f"^(a|b{n}|c{{1,9}}){{1,30}}$"} for n in range(100)}
    return {"type": "object", "properties": properties}


def schemas(url: str) -> None:
    def ask(n: int) -> None:
        schema = slow_schema() | {"title": f"{n} {time.monotonic()}"}  # none of them is in the cache
        form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
        body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "response_format": form}
        attack_post(url, "/v1/chat/completions", body)

    together(4, ask)


def masks(url: str) -> None:
    """Constrained texts whose masks take as long as they may."""
    grammar = "root ::= (a | b)* \na ::= [a-z ]* b? [a-z ]* \nb ::= [a-z ]* a? [a-z ]*"
    body = {"prompt": "Once", "max_tokens": 200, "grammar": grammar, "ignore_eos": True}
    together(4, lambda _: attack_post(url, "/completion", body))


def bodies(path: str, method: str, key: str | None):
    """64 bodies of which the last byte never comes."""

    def attack(url: str) -> None:
        held = []
        for _ in range(64):
            sock = socket.create_connection(address(url), timeout=5)
            with contextlib.suppress(OSError):
                sock.sendall(head(path, method, 8 * MIB, key) + bytes(8 * MIB - 1))
            held.append(sock)
        time.sleep(20)

    return attack


def idle(count: int):
    def attack(url: str) -> None:
        held = []
        for _ in range(count):
            with contextlib.suppress(OSError):
                held.append(socket.create_connection(address(url), timeout=1))
        time.sleep(20)

    return attack


def slow_heads(url: str) -> None:
    """Heads of 16 kB of which the end never comes."""
    held = []
    for _ in range(1000):
        sock = socket.create_connection(address(url), timeout=1)
        sock.sendall(b"GET /health HTTP/1.1\r\nX: " + b"x" * 15_000)
        held.append(sock)
    time.sleep(5)


def never_read(body: dict, count: int):
    """Answers of which nobody reads a byte."""

    def attack(url: str) -> None:
        data = json.dumps(body).encode()
        held = [send_raw(url, "/v1/completions", data, "mallory", timeout=2) for _ in range(count)]
        for sock in held:
            with contextlib.suppress(OSError, ValueError):
                ANSWERS[int(sock.recv(12)[9:])] += 1  # its status, and no more

    return attack


def endless_after_refusal(url: str) -> None:
    def flood(_: int) -> None:
        sock = socket.create_connection(address(url), timeout=5)
        sock.sendall(b"GARBAGE\r\n\r\n")
        piece = bytes(64 * 1024)
        for _ in range(2000):
            sock.sendall(piece)

    together(4, flood)


def exploding_schemas(url: str) -> None:
    """Patterns that meet on one value: llguidance intersects them."""

    def ask(n: int) -> None:
        patterns = [{"type": "string", "pattern": f"[a-{chr(98 + i % 24)}]+"} for i in range(20 + 13 * n)]
        schema = {"allOf": patterns, "title": f"{n} {time.monotonic()}"}
        attack_post(url, "/v1/completions", {"prompt": "a", "max_tokens": 1, "json_schema": schema})

    together(4, ask)


LARGE: dict = {}  # the id of Mallory's large response


def large_response(url: str) -> str:
    """The id of a response with 4 MB of input that no template shows."""
    if "id" not in LARGE:
        thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x " * 2_000_000}]}
        items = [{"role": "user", "content": "Hi"}, thought, {"role": "user", "content": "Go on"}]
        status, text = post(url, "/v1/responses", {"input": items, "max_output_tokens": 1}, "mallory")
        assert status == 200, text[:300]
        LARGE["id"] = json.loads(text)["id"]
    return LARGE["id"]


def continued(url: str) -> None:
    """Requests of 100 bytes that continue a large response."""
    body = {"input": "a", "previous_response_id": large_response(url), "max_output_tokens": 1, "store": False}
    together(16, lambda _: attack_post(url, "/v1/responses", body))


def pages(url: str) -> None:
    """The items of a large response, for HEAD, which costs the client nothing."""
    path = f"/v1/responses/{large_response(url)}/input_items?limit=100"

    def ask(_: int) -> None:
        connection = connect(url, timeout=30)
        for _ in range(20):
            connection.request("HEAD", path, headers={"authorization": "Bearer mallory"})
            response = connection.getresponse()
            response.read()
            ANSWERS[response.status] += 1

    together(4, ask)


def dripped_heads(url: str) -> None:
    """Heads of 16 kB that arrive byte by byte."""

    def drip(_: int) -> None:
        sock = socket.create_connection(address(url), timeout=5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = b"".join(b"x%d: y\r\n" % n for n in range(60))
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n" + lines + b"X: " + b"x" * 11_000)
        for _ in range(3000):
            sock.send(b"x")

    together(8, drip)


ATTACKS = {
    "100,000 special tokens": tokenise("<|im_end|>" * 100_000),
    "1 MB of '<'": tokenise("<" * 1_000_000),
    "1 MB of spaces": tokenise(" " * 1_000_000),
    "1 MB of one word": tokenise("a" * 1_000_000),
    "1 MB of text": tokenise("Once upon a time there was a fox. " * 30_000),
    "schemas that compile long": schemas,
    "schemas that explode": exploding_schemas,
    "128 long prompts": mallory("/v1/completions", {"prompt": ["a fox " * 9000] * 128, "max_tokens": 1}),
    "a large response, continued": continued,
    "pages of a large response": pages,
    "an id of 8 MB": mallory(
        "/v1/responses", {"input": "a", "previous_response_id": "\u200b" * 2_700_000, "max_output_tokens": 1}
    ),
    "dripped heads": dripped_heads,
    "masks that take long": masks,
    "embeddings, 2,048 at once": mallory("/v1/embeddings", {"input": ["Once upon a time " * 20] * 2048}),
    "bodies without a key": bodies("/health", "GET", None),
    "bodies with a key": bodies("/v1/completions", "POST", "mallory"),
    "3,000 idle connections": idle(3000),
    "heads without an end": slow_heads,
    "priority -1000": mallory(
        "/v1/completions", {"prompt": "Once", "max_tokens": 200, "priority": -1000, "n": 16, "ignore_eos": True}
    ),
    "128 texts with 20 log-probabilities": mallory(
        "/v1/chat/completions",
        CHAT | {"n": 128, "max_tokens": 300, "logprobs": True, "top_logprobs": 20, "ignore_eos": True},
    ),
    "echo 128 times": never_read({"prompt": "Once upon a time. " * 100, "n": 128, "echo": True, "max_tokens": 1}, 200),
    "streams that nobody reads": never_read(
        {"prompt": "Once", "max_tokens": 400, "n": 16, "stream": True, "ignore_eos": True, "logprobs": 5}, 50
    ),
    "bytes without end after a refusal": endless_after_refusal,
}

#!/usr/bin/env python3
"""How soon is a gap in code filled while somebody edits, with the KV cache and without?

    perf/fim.py [BINARY] [--model FILE] [--file SOURCE] [--lines 80] [--rounds 1] [--drops 12] [--predict 8]

BINARY is a `corelane`, this build's if none is named. The session: a cursor writes lines at three places of the first
--lines lines of SOURCE, one of our own files, and jumps from one to the next. Each time somebody would pause, the
request follows that llama.vim would send: 60 requests, of which 45 are typed within a line, 12 at the beginning of the
next line, and 3 after a jump. Each is sent with the cache and without, in turns. A prompt has about 2,600 tokens in the
vocabulary of `corelane model synth`. A round is a whole session, with a cache of its own.

Then, what does a dropped request cost the next one? A typed request is measured alone, and right after a request for
another file that its client left at once, or after 50 ms.
"""

import argparse
import http.client
import json
import pathlib
import socket
import statistics
import time
import typing
import urllib.parse

from server import CORELANE, ROOT, Server, machine
from spread import shown, spread

PLACES, LINES, PAUSES = 3, 5, 4  # lines written at a place, and requests in each line after its first one
LEAST = 8  # letters of a line that is worth pausing in
SUFFIX_LINES = 64  # as llama.vim does by default
CHUNK_LINES, CHUNKS = 24, 2


class Request(typing.NamedTuple):
    kind: str  # "typing", "next line" or "jump"
    prefix: str
    begun: str
    suffix: str


def session(lines: list[str]) -> list[Request]:
    """The requests while `LINES` lines are written at each place. The lines are the file's own."""
    found, end = [], 0
    for place in range(PLACES):
        start = max(end, (place + 1) * len(lines) // (PLACES + 1))
        while any(len(line.strip()) < LEAST for line in lines[start : start + LINES]):
            start += 1
        assert start + LINES <= len(lines), "no lines long enough; give more --lines"
        end = start + LINES
        for number in range(start, start + LINES):
            before, line = lines[:number], lines[number]
            # What has not been written yet is missing from the text behind the cursor.
            after = lines[end : end + SUFFIX_LINES]
            indentation = len(line) - len(line.lstrip())
            stops = [indentation + (len(line) - indentation) * part // PAUSES for part in range(PAUSES)]
            for part, stop in enumerate(stops):
                kind = "typing" if part else "jump" if number == start else "next line"
                prefix = "".join(text + "\n" for text in before)
                found.append(Request(kind, prefix, line[:stop], "\n" + "".join(text + "\n" for text in after)))
    return found


class Editor:
    """Sends requests as llama.vim does, on one connection."""

    def __init__(self, url: str, chunks: list[dict], predict: int):
        self.host, self.chunks, self.predict = urllib.parse.urlsplit(url).netloc, chunks, predict
        self.connection = http.client.HTTPConnection(self.host)

    def body(self, request: Request, cached: bool, salt: str) -> bytes:
        fields = {
            "input_prefix": request.prefix,
            "prompt": request.begun,
            "input_suffix": request.suffix,
            "input_extra": self.chunks,
            "n_predict": self.predict,
            "n_indent": len(request.begun) - len(request.begun.lstrip()),
            "top_k": 40,
            "top_p": 0.9,
            "samplers": ["top_k", "top_p", "infill"],
            "stream": True,  # llama.vim does not stream; here the first token's time is wanted
            "cache_prompt": cached,
            "cache_salt": salt,
            "t_max_prompt_ms": 500,
            "t_max_predict_ms": 1000,
            "seed": 1,
            "ignore_eos": True,
        }
        return json.dumps(fields).encode()

    def ask(self, request: Request, cached: bool, salt: str) -> dict[str, float]:
        """The time until the first token, as the server and as the client measured it, in ms; and the prompt's tokens."""
        began = time.monotonic()
        self.connection.request("POST", "/infill", self.body(request, cached, salt), {"content-type": "application/json"})
        response = self.connection.getresponse()
        if response.status != 200:
            raise RuntimeError(response.read())
        first = b""
        while not first.startswith(b"data: "):  # comments keep the connection alive
            first = response.readline()
        client_ms = 1e3 * (time.monotonic() - began)
        events = [line for line in (first + response.read()).split(b"\n") if line.startswith(b"data: {")]
        timings = json.loads(events[-1].removeprefix(b"data: "))["timings"]
        return {
            "server_ms": timings["queued_ms"] + timings["prompt_ms"],
            "client_ms": client_ms,
            "computed": timings["prompt_n"],
            "cached": timings["cache_n"],
        }

    def drop(self, request: Request, salt: str, after_s: float) -> None:
        """Sends a request and leaves."""
        host, port = self.host.split(":")
        body = self.body(request, True, salt)
        head = f"POST /infill HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + body)
            time.sleep(after_s)


def edit(editor: Editor, requests: list[Request], round: int) -> list[dict]:
    """A session, every request with the cache and without."""
    found = []
    for number, request in enumerate(requests):
        order = [True, False] if number % 2 == 0 else [False, True]
        times = {cached: editor.ask(request, cached, f"session {round}") for cached in order}
        found.append({"kind": request.kind, "cached": times[True], "computed": times[False]})
    return found


def show_session(found: list[dict]) -> None:
    print("| requests | | computed of all tokens | server, cached | computed | client, cached | computed | ratio of the server's |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in ["typing", "next line", "jump", "all"]:
        rows = [row for row in found if kind in (row["kind"], "all")]

        def middle(how: str, field: str) -> float:
            return statistics.median(row[how][field] for row in rows)

        times = [f"{middle(how, field):.1f} ms" for field in ["server_ms", "client_ms"] for how in ["cached", "computed"]]
        ratio = spread([row["computed"]["server_ms"] / row["cached"]["server_ms"] for row in rows])
        tokens = f"{middle('cached', 'computed'):.0f} of {middle('computed', 'computed'):.0f}"
        print(f"| {kind} | {len(rows)} | {tokens} | {' | '.join(times)} | {shown(ratio, '.1f')} |")


def show_drops(editor: Editor, requests: list[Request], drops: int) -> None:
    """A typed request alone, and right after a dropped one; in turns."""
    typed = [request for request in requests if request.kind == "typing"]
    ways = {"alone": None, "after one that was dropped at once": 0.0, "after one that was dropped after 50 ms": 0.05}
    found = {way: [] for way in ways}
    editor.ask(typed[0], True, "drops")
    for number in range(drops):
        request = typed[number % len(typed)]
        editor.ask(request, True, "drops")  # so that all three find the same in the cache
        order = list(ways.items())
        for way, after_s in order if number % 2 == 0 else reversed(order):
            if after_s is not None:
                other = request._replace(prefix=f"// file {number} {way}\n{request.prefix}")
                editor.drop(other, "dropped", after_s)
            found[way].append(editor.ask(request, True, "drops")["client_ms"])
    for way, times in found.items():
        print(f"first token {way}: {shown(spread(times), '.1f')} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path, nargs="?", default=CORELANE)
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "target/qwen3-0.6b-q4_k_m.gguf")
    parser.add_argument("--file", type=pathlib.Path, default=ROOT / "src/scheduler/mod.rs")
    parser.add_argument("--lines", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--drops", type=int, default=12)
    parser.add_argument("--predict", type=int, default=8)
    options = parser.parse_args()
    lines = options.file.read_text().splitlines()
    chunks = []
    for number in range(CHUNKS):  # from the file's end, which the session does not reach
        end = len(lines) - number * CHUNK_LINES
        chunks.append({"filename": options.file.name, "text": "\n".join(lines[end - CHUNK_LINES : end])})
    requests = session(lines[: options.lines])
    print(f"model: {options.model.name}; file: {options.file.name}, {options.lines} lines, {CHUNKS} excerpts of {CHUNK_LINES} lines")
    with Server("--ctx-size=32768", "--parallel=4", model=str(options.model), binary=options.binary) as server:
        editor = Editor(server.url, chunks, options.predict)
        found = []
        for round in range(options.rounds):
            found += edit(editor, requests, round)
        show_session(found)
        show_drops(editor, requests, options.drops)
    print(f"machine: {machine()}")


if __name__ == "__main__":
    main()

"""How soon is a gap in code filled while somebody edits, with the KV cache and without?

The session: a cursor writes lines at three places of the first --lines lines of --file, one of our own files, and jumps
from one to the next. Each time somebody would pause, the request follows that llama.vim would send: 60 requests, of which
45 are typed within a line, 12 at the beginning of the next line, and 3 after a jump. Each is sent with the cache and
without, in turns. A prompt has about 2,600 tokens in the vocabulary of `corelane model synth`. A round is a whole
session, with a cache of its own.

Then, what does a dropped request cost the next one? A typed request is measured alone, and right after a request for
another file that its client left at once, or after 50 ms.
"""

import json
import pathlib
import socket
import statistics
import time
import typing

from shared.report import add, add_server, row, table
from shared.requests import JSON, address, connect, head
from shared.server import ROOT, Server
from shared.statistics import shown, spread
from shared.turns import order

PLACES, LINES, PAUSES = 3, 5, 4  # lines written at a place, and requests in each line after its first one
LEAST = 8  # letters of a line that is worth pausing in
SUFFIX_LINES = 64  # as llama.vim does by default
CHUNK_LINES, CHUNKS = 24, 2


def arguments(parser) -> None:
    add_server(parser, model="large")
    parser.add_argument("--file", type=pathlib.Path, default=ROOT / "src/scheduler/mod.rs")
    add(parser, lines=80, rounds=1, drops=12, predict=8)


def run(args) -> dict:
    lines = args.file.read_text().splitlines()
    chunks = []
    for number in range(CHUNKS):  # from the file's end, which the session does not reach
        end = len(lines) - number * CHUNK_LINES
        chunks.append({"filename": args.file.name, "text": "\n".join(lines[end - CHUNK_LINES : end])})
    requests = session(lines[: args.lines])
    model = pathlib.Path(args.model).name
    print(f"model: {model}; file: {args.file.name}, {args.lines} lines, {CHUNKS} excerpts of {CHUNK_LINES} lines")
    with Server("--ctx-size=32768", "--parallel=4", model=args.model, binary=args.binary) as server:
        editor = Editor(server.url, chunks, args.predict)
        found = [times for round in range(args.rounds) for times in edit(editor, requests, round)]
        show_session(found)
        return {"session": found, "first_token_ms": show_drops(editor, requests, args.drops)}


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
        self.url, self.chunks, self.predict = url, chunks, predict
        self.connection = connect(url, timeout=None)

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
        self.connection.request("POST", "/infill", self.body(request, cached, salt), JSON)
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
        body = self.body(request, True, salt)
        with socket.create_connection(address(self.url)) as connection:
            connection.sendall(head("/infill", "POST", len(body), None) + body)
            time.sleep(after_s)


def edit(editor: Editor, requests: list[Request], round: int) -> list[dict]:
    """A session, every request with the cache and without."""
    found = []
    for number, request in enumerate(requests):
        times = {cached: editor.ask(request, cached, f"session {round}") for cached in order([True, False], number)}
        found.append({"kind": request.kind, "cached": times[True], "computed": times[False]})
    return found


def show_session(found: list[dict]) -> None:
    columns = ["server, cached", "computed", "client, cached", "computed", "ratio of the server's"]
    table("requests", "", "computed of all tokens", *columns)
    for kind in ["typing", "next line", "jump", "all"]:
        asked = [times for times in found if kind in (times["kind"], "all")]

        def middle(how: str, field: str) -> float:
            return statistics.median(times[how][field] for times in asked)

        middles = [f"{middle(how, field):.1f} ms" for field in ["server_ms", "client_ms"] for how in ["cached", "computed"]]
        ratio = spread(times["computed"]["server_ms"] / times["cached"]["server_ms"] for times in asked)
        tokens = f"{middle('cached', 'computed'):.0f} of {middle('computed', 'computed'):.0f}"
        row(kind, len(asked), tokens, *middles, shown(ratio, ".1f"))


def show_drops(editor: Editor, requests: list[Request], drops: int) -> dict:
    """A typed request alone, and right after a dropped one; in turns."""
    typed = [request for request in requests if request.kind == "typing"]
    ways = {"alone": None, "after one that was dropped at once": 0.0, "after one that was dropped after 50 ms": 0.05}
    found = {way: [] for way in ways}
    editor.ask(typed[0], True, "drops")
    for number in range(drops):
        request = typed[number % len(typed)]
        editor.ask(request, True, "drops")  # so that all three find the same in the cache
        for way in order(ways, number):
            if ways[way] is not None:
                other = request._replace(prefix=f"// file {number} {way}\n{request.prefix}")
                editor.drop(other, "dropped", ways[way])
            found[way].append(editor.ask(request, True, "drops")["client_ms"])
    for way, times in found.items():
        print(f"first token {way}: {shown(spread(times), '.1f')} ms")
    return found

"""How long do the worst texts take with each way of splitting texts into words?

A GGUF file names the expression that splits texts before the vocabulary's merges (tokenizer.ggml.pre). Some of them take
a time that grows with the square of a run of spaces or digits. For each name a server starts with the built-in model
under that name, and gets long runs of characters by POST /tokenize. The table has the slowest texts of each name. With
linear cost, the second time is 16 times the first if the second text is 16 times as long.
"""

import http.client
import json
import struct
import tempfile
import time

from shared.report import add_server, row, table
from shared.requests import post
from shared.server import ROOT, Server

# One name for each different set of expressions in llama.cpp's llama-vocab.cpp.
NAMES = """default llama3 jais-2 deepseek-llm deepseek-v3 deepseek-coder spark2_5 youtu falcon starcoder gpt-2 qwen2 qwen35
bloom viking tekken chameleon gpt-4o granite-embed-multi-97m tiny_aya kimi-k2 superbpe bailingmoe seed-coder afmoe laguna
exaone-moe minicpm5 glm4 gemma4""".split()
RUNS = {
    "spaces": " ",
    "line breaks": "\n",
    "spaces and line breaks": " \n",
    "one word": "a",
    "one word in capitals": "A",
    "one word in both cases": "aA",
    "words": "a ",
    "digits": "1",
    "<": "<",
    "apostrophes": "'",
    "exclamation marks": "!",
    "image tokens": "IMGIMGA",
    "sentinels": "<sentinel:1",
    "é": "é",
    "Han": "漢",
    "Thai": "ก",
    "combining marks": "\u0301",
    "emoji": "🦀",
}
ENDS = ["", "x"]  # the end of a run decides whether an expression goes back
SHOWN = 2  # texts of each name


def arguments(parser) -> None:
    add_server(parser, model=str(ROOT / "src/model/builtin/builtin.gguf"))
    parser.add_argument("--only", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--kib", default="64,1024", help="lengths of the texts in KiB [default: 64,1024]")


def run(args) -> dict:
    sizes = [int(kib) * 1024 for kib in args.kib.split(",")]
    found = {}
    table("expression", "text", *(f"{size // 1024} KiB, ms" for size in sizes))
    for name in [args.only] if args.only else NAMES:
        found[name] = times = measure(name, sizes, args)
        for text in sorted(times, key=lambda text: times[text][-1], reverse=True)[:SHOWN]:
            row(name, text, *(f"{ms:.0f}" for ms in times[text]))
    silent = [text for times in found.values() for text, ms in times.items() if ms[-1] == float("inf")]
    return {"kib": args.kib, "ms": found} | ({"failed": f"not answered: {silent}"} if silent else {})


def measure(name: str, sizes: list[int], args) -> dict[str, list[float]]:
    """Milliseconds for each text, by size. Infinity for a text that was not answered."""
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file, open(args.model, "rb") as model:
        file.write(renamed(model.read(), name))
        file.flush()
        with Server(model=file.name, binary=args.binary) as server:
            return {
                f"{what}{', then x' if end else ''}": [tokenize(server, run, end, size) for size in sizes]
                for what, run in RUNS.items()
                for end in ENDS
            }


def tokenize(server: Server, run: str, end: str, size: int) -> float:
    bytes_of_run = len(run.encode())
    body = json.dumps({"content": run * (size // bytes_of_run - 1) + end}, ensure_ascii=False).encode()
    began = time.monotonic()
    try:
        status, _ = post(server.url, "/tokenize", body, timeout=70)
    except (OSError, http.client.HTTPException):
        return float("inf")
    # 400: the vocabulary has no tokens for it.
    return 1e3 * (time.monotonic() - began) if status in (200, 400) else float("inf")


# ---------------------------------------------------------------- GGUF

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of a value, by type
STRING, ARRAY = 8, 9
ALIGNMENT = 32  # of the tensors


def renamed(model: bytes, name: str) -> bytes:
    """The model with another value of tokenizer.ggml.pre."""
    tensors, fields = struct.unpack_from("<QQ", model, 8)
    at, place = 24, None
    for _ in range(fields):
        key, value = string(model, at)
        (kind,) = struct.unpack_from("<I", model, value)
        at = skip(model, kind, value + 4)
        if key == "tokenizer.ggml.pre":
            place = (value + 4, at)
    for _ in range(tensors):
        _, at = string(model, at)
        (dimensions,) = struct.unpack_from("<I", model, at)
        at += 4 + 8 * dimensions + 4 + 8
    head = model[: place[0]] + struct.pack("<Q", len(name)) + name.encode() + model[place[1] : at]
    return head + bytes(-len(head) % ALIGNMENT) + model[at + -at % ALIGNMENT :]


def string(model: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", model, at)
    return model[at + 8 : at + 8 + length].decode(errors="replace"), at + 8 + length


def skip(model: bytes, kind: int, at: int) -> int:
    """The end of a value."""
    if kind == STRING:
        return string(model, at)[1]
    if kind != ARRAY:
        return at + SIZES[kind]
    kind, length = struct.unpack_from("<IQ", model, at)
    at += 12
    if kind in SIZES:
        return at + SIZES[kind] * length
    for _ in range(length):
        at = skip(model, kind, at)
    return at

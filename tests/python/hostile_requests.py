"""Malicious requests, and a client that sends them whatever the server does.

`test_hostile.py` checks that each is refused. `perf/study hostile` measures what they cost
other clients.
"""

import json
import socket
import time

MIB = 1 << 20
COMPLETIONS, CHAT, MESSAGES = "/v1/completions", "/v1/chat/completions", "/v1/messages"
OLLAMA, EMBED, RESPONSES = "/api/chat", "/api/embed", "/v1/responses"
INFILL, RERANK, SCORE, EMBEDDING = "/infill", "/v1/rerank", "/v1/score", "/embedding"
TURN = [{"role": "user", "content": "Hello!"}]
PART = {"type": "text", "text": "a"}

LOOP = {"$ref": "#"}
RING = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
# 128 lists of numbers, none of which is in another one.
ENUMS = {"oneOf": [{"enum": list(range(70 * i, 70 * i + 70))} for i in range(128)]}


def nested(depth):
    """`{"items": {"items": ...}}`, written without recursion."""
    return b'{"items":' * depth + b"{}" + b"}" * depth


def schema(text):
    body = b'{"messages":[{"role":"user","content":"a"}],"max_tokens":5,"response_format":'
    return body + b'{"type":"json_schema","json_schema":{"name":"s","schema":' + text + b"}}}"


def fields(**fields):
    return json.dumps({"prompt": "a", "max_tokens": 5} | fields).encode()


def chat(**fields):
    return json.dumps({"messages": TURN, "max_tokens": 5} | fields).encode()


def infill(**fields):
    return json.dumps({"input_prefix": "a", "input_suffix": "b", "n_predict": 5} | fields).encode()


def rerank(**fields):
    return json.dumps({"query": "a", "documents": ["b"]} | fields).encode()


def tool(number, description=""):
    return {"type": "function", "function": {"name": f"t{number}", "description": description}}


def ollama(**fields):
    return json.dumps({"model": "m", "messages": TURN, "stream": False} | fields).encode()


def call(arguments):
    """A body whose assistant calls a tool with these arguments."""
    body = b'{"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f",'
    return body + b'"arguments":' + arguments + b"}}]}]}"


# Name, path, body.
REQUESTS = [
    ("10 MiB of [", COMPLETIONS, b"[" * (10 * MIB)),
    ("7 MiB of [", COMPLETIONS, b"[" * (7 * MIB)),
    ("7 MiB of [ in a field", COMPLETIONS, b'{"prompt":' + b"[" * (7 * MIB)),
    ("a prompt of 7 MiB", COMPLETIONS, fields(prompt="x" * (7 * MIB))),
    ("2 million token ids", COMPLETIONS, fields(prompt=[1] * 2_000_000)),
    ("a regex of 1 MB", COMPLETIONS, fields(guided_regex="(a|b)?" * 166_667)),
    ("a grammar of 1 MB", COMPLETIONS, fields(grammar='root ::= "a"' + ' | "b"' * 160_000)),
    ("a grammar of stars", COMPLETIONS, fields(grammar='root ::= "a"' + "*" * 60_000)),
    ("a grammar that calls itself", COMPLETIONS, fields(grammar="root ::= root")),
    ("a schema that is itself", CHAT, schema(json.dumps(LOOP).encode())),
    ("schemas that are each other", CHAT, schema(json.dumps(RING).encode())),
    ("a schema 100,000 deep", CHAT, schema(nested(100_000))),
    ("choices that are hard to tell apart", CHAT, schema(json.dumps(ENUMS).encode())),
    ("100,000 stop strings", COMPLETIONS, fields(stop=[f"stop {i}" for i in range(100_000)])),
    ("100,000 stop sequences", MESSAGES, chat(stop_sequences=[f"{i}" for i in range(100_000)])),
    ("100,000 messages", CHAT, chat(messages=TURN * 100_000)),
    ("100,000 parts", CHAT, chat(messages=[{"role": "user", "content": [PART] * 100_000}])),
    ("100,000 tools", CHAT, chat(tools=[tool(i) for i in range(100_000)])),
    ("a role of 7 MiB", CHAT, chat(messages=[{"role": "x" * (7 * MIB), "content": "a"}])),
    ("a million fields", COMPLETIONS, b'{"prompt":"a"' + b',"a":1' * MIB + b"}"),
    ("n = 1e9", COMPLETIONS, fields(n=1_000_000_000)),
    ("n = 1e9 choices of a chat", CHAT, chat(n=1_000_000_000)),
    ("1e18 tokens", COMPLETIONS, fields(max_tokens=10**18)),
    ("NaN", COMPLETIONS, b'{"prompt":"a","temperature":NaN}'),
    ("Infinity", COMPLETIONS, b'{"prompt":"a","temperature":-Infinity}'),
    ("1e400", COMPLETIONS, b'{"prompt":"a","temperature":1e400}'),
    ("a number of 1 MB", COMPLETIONS, b'{"prompt":"a","temperature":0.' + b"1" * MIB + b"e5}"),
    ("duplicate keys", COMPLETIONS, b'{"prompt":"a","prompt":"b"}'),
    ("duplicate keys of a chat", CHAT, b'{"messages":[{"role":"user","content":"a"}],"n":1,"n":2}'),
    ("a lone surrogate", COMPLETIONS, b'{"prompt":"\\ud800"}'),
    ("surrogates in the wrong order", COMPLETIONS, b'{"prompt":"\\udc00\\ud800"}'),
    ("bytes that are no UTF-8", COMPLETIONS, b'{"prompt":"\xff\xfe"}'),
    ("tools of 7 MiB", CHAT, chat(tools=[tool(i, "x" * 57_000) for i in range(128)])),
    ("arguments 100,000 deep", OLLAMA, call(nested(100_000))),
    ("arguments that are text", OLLAMA, call(b'"' + b"x" * (7 * MIB) + b'"')),
    ("100,000 messages of Ollama's", OLLAMA, ollama(messages=TURN * 100_000)),
    ("100,000 stop strings in options", OLLAMA, ollama(options={"stop": ["x"] * 100_000})),
    ("1e18 tokens in options", OLLAMA, ollama(options={"num_predict": 10**18})),
    ("an image of 7 MiB", OLLAMA, ollama(messages=[TURN[0] | {"images": ["x" * (7 * MIB)]}])),
    ("a form 100,000 deep", OLLAMA, ollama()[:-1] + b',"format":' + nested(100_000) + b"}"),
    ("100,000 items", RESPONSES, json.dumps({"input": TURN * 100_000}).encode()),
    ("items 100,000 deep", RESPONSES, b'{"input":[{"role":"user","content":"a","x":' + nested(100_000) + b"}]}"),
    ("metadata of 7 MiB", RESPONSES, json.dumps({"input": "a", "metadata": {"a": "x" * (7 * MIB)}}).encode()),
    ("a response that never was", RESPONSES, b'{"input":"a","previous_response_id":"' + b"x" * MIB + b'"}'),
    ("100,000 texts to embed", EMBED, json.dumps({"model": "m", "input": ["a"] * 100_000}).encode()),
    ("a prefix of 7 MiB", INFILL, infill(input_prefix="x" * (7 * MIB))),
    ("100,000 excerpts", INFILL, infill(input_extra=[{"text": "a"}] * 100_000)),
    ("an excerpt 100,000 deep", INFILL, infill()[:-1] + b',"input_extra":[' + nested(100_000) + b"]}"),
    ("an indentation of 1e9", INFILL, infill(n_indent=1_000_000_000)),
    ("a filename of 7 MiB", INFILL, infill(input_extra=[{"filename": "x" * (7 * MIB), "text": "a"}])),
    ("100,000 documents", RERANK, rerank(documents=["a"] * 100_000)),
    ("a document of 7 MiB", RERANK, rerank(documents=["x" * (7 * MIB)])),
    ("a query of 7 MiB", RERANK, rerank(query="x" * (7 * MIB))),
    ("1e9 of the best", RERANK, rerank(top_n=10**18)),
    ("100,000 pairs", SCORE, json.dumps({"text_1": ["a"] * 100_000, "text_2": ["b"] * 100_000}).encode()),
    ("100,000 texts of llama-server's", EMBEDDING, json.dumps({"content": ["a"] * 100_000}).encode()),
    ("a norm of 1e18", EMBEDDING, json.dumps({"content": "a", "embd_normalize": 10**18}).encode()),
    ("1e18 dimensions", "/v1/embeddings", json.dumps({"input": "a", "dimensions": 10**18}).encode()),
    ("scores of more than the context", COMPLETIONS, fields(prompt=[1] * 500_000, echo=True, logprobs=5, max_tokens=0)),
    ("a NUL after the end", COMPLETIONS, b'{"prompt":"a","max_tokens":5}\0'),
]


def send(url, path, body, key=None):
    """The status and the body of the answer, and the seconds to its first byte.

    The server may answer before it has read everything, and stop reading: what
    cannot be sent any more is left.
    """
    host, port = url.removeprefix("http://").split(":")
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {key}\r\n" if key else ""
    head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    began = time.perf_counter()
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        try:
            connection.sendall(head.encode() + body)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = connection.recv(65536)
        seconds = time.perf_counter() - began
        while piece := connection.recv(65536):
            answer += piece
    head, _, text = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), text.decode(), seconds

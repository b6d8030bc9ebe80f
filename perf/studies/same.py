"""Does this build answer exactly like another one?

BINARY is a `corelane` of another commit. Both serve the built-in model. Requests of all dialects, streamed and whole,
right and wrong, are drawn from the seed and sent one after another. Before the comparison ids, dates, times, rates,
slots and numbers of late tokens become 0: they are the only parts of an answer that may differ. The study fails at the
first answer that differs in anything else.
"""

import json
import pathlib
import random
import re

from shared.report import add, add_server
from shared.requests import post
from shared.server import Server

WORDS = "once upon a time there was little fox who lived near the old mill and wanted to see moon".split()
VARYING = [
    # How many guesses were made, which tokens were late, and which slot was evicted depends on the times of steps.
    (rb',"(draft_n|draft_n_accepted|late_[a-z_]*n|predicted_n)":[0-9]+', b""),
    (rb'"id_slot":[0-9]+', b'"id_slot":0'),
    (rb'"(id|request_id)":"[a-z]+[-_][0-9a-f]{16}"', rb'"\1":0'),
    (rb'"(created|created_at|uptime_s)":[0-9.]+', rb'"\1":0'),
    (rb'"([a-z_]*_(ms|per_second)|response_time)":[0-9.e-]+', rb'"\1":0'),
    (rb"req-[0-9a-f]{16}", b"req"),
]


def arguments(parser) -> None:
    parser.add_argument("other", type=pathlib.Path, metavar="BINARY")
    add_server(parser)
    add(parser, requests=500, seed=1)


def run(args) -> dict:
    draw = random.Random(args.seed)
    asked = [request(draw) for _ in range(args.requests)]
    # Which rows run in one step depends on times, and rounding depends on the rows. So one text runs at a time, without
    # guesses and cached prefixes.
    flags = ["--seed=1", "--pooling=mean", "--spec=off", "--no-cache-prompt", "--parallel=1"]
    with Server(*flags, model=args.model, binary=args.binary) as ours, Server(*flags, model=args.model, binary=args.other) as other:
        total, statuses = 0, {}
        for number, (path, body) in enumerate(asked):
            mine, theirs = (ask(server.url, path, body) for server in (ours, other))
            if mine != theirs:
                return {"failed": f"request {number}: POST {path} {body.decode()}\n{mine}\n{theirs}"}
            total += len(mine[1])
            statuses[mine[0]] = statuses.get(mine[0], 0) + 1
    print(f"{len(asked)} answers are the same, {total} bytes; by status: {dict(sorted(statuses.items()))}")
    return {"answers": len(asked), "bytes": total, "statuses": statuses}


def ask(url: str, path: str, body: bytes) -> tuple[int, bytes]:
    """The status and the body of an answer, without what may vary."""
    status, text = post(url, path, body)
    for pattern, replacement in VARYING:
        text = re.sub(pattern, replacement, text)
    # The choices of a stream have their events in the order in which they come about.
    return status, b"\n\n".join(sorted(text.split(b"\n\n")))


def request(draw: random.Random) -> tuple[str, bytes]:
    text = " ".join(draw.choices(WORDS, k=draw.randint(1, 40)))
    kind = draw.choice(["completion", "chat", "messages", "llama", "cllm", "other"])
    body: dict = {"seed": draw.randint(0, 1 << 30)}
    if draw.random() < 0.5:
        body["temperature"] = 0
    if kind != "cllm":
        body["stream"] = draw.random() < 0.5
    if draw.random() < 0.2:
        body["stop_sequences" if kind == "messages" else "stop"] = draw.choices([" and", ".", " the", "zzz"], k=2)
    if draw.random() < 0.1:
        body["cache_prompt"] = False
    if draw.random() < 0.1:
        body |= {"top_k": 20, "min_p": 0.05, "repeat_penalty": 1.1, "xtc_probability": 0.2, "dry_multiplier": 0.5}
    length = draw.randint(1, 40)
    if kind == "completion":
        path = "/v1/completions"
        body |= {"prompt": draw.choice([text, [text, text[:9]], [5, 70, 300, 2000]]), "max_tokens": length}
        body |= draw.choice([{}, {"n": 2}, {"logprobs": 3}, {"echo": True}, {"regex": "[a-z ]{5,30}\\."}])
        body |= draw.choice([{}, {"stream_options": {"include_usage": True}}])
    elif kind == "chat":
        path = draw.choice(["/v1/chat/completions", "/chat/completions"])
        body |= {"messages": conversation(draw, text), "max_completion_tokens": length}
        body |= draw.choice([{}, {"n": 2}, {"logprobs": True, "top_logprobs": 2}, JSON_FORM])
    elif kind == "messages":
        path = "/v1/messages"
        # The dialect has no seed.
        body |= {"messages": conversation(draw, text), "max_tokens": length, "temperature": 0}
    elif kind == "llama":
        path = draw.choice(["/completion", "/completions"])
        body |= {"prompt": text, "n_predict": draw.choice([length, length, 0])}
        body |= draw.choice([{}, {"n_probs": 2}, {"return_tokens": True}, {"timings_per_token": True}])
        body |= draw.choice([{}, {}, {"grammar": 'root ::= " " [a-z]+ "."'}])
    elif kind == "cllm":
        path = draw.choice(["/generate", "/generate_stream"])
        body |= {"prompt": text, "max_tokens": length}
    else:
        path = draw.choice(["/tokenize", "/detokenize", "/apply-template", "/v1/embeddings", "/encode"])
        body = {"content": text, "input": text, "text": text, "tokens": [5, 70, 300], "messages": conversation(draw, text)}
    if draw.random() < 0.1:  # a wrong one
        body |= draw.choice([{"max_tokens": -7}, {"temperature": "hot"}, {"stop": 5}, {"n": 1000}, {"prompt": []}])
    encoded = json.dumps(body).encode()
    return path, encoded[:-1] if draw.random() < 0.02 else encoded


JSON_FORM = {"response_format": {"type": "json_object"}}


def conversation(draw: random.Random, text: str) -> list[dict]:
    question = {"role": "user", "content": draw.choice([text, "What is 3 plus 4?", "Tell me a story about a fox."])}
    if draw.random() < 0.7:
        return [question]
    return [question, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": text}]

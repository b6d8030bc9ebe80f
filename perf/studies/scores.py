"""What do an evaluation's requests cost a stream, and the stream the evaluation?

The evaluation is multiple choice over --items items of four choices, with the requests that lm_eval's local-completions
sends: the token ids of the context and a choice, with `echo`, `logprobs` and one generated token. Items go round; each
pass has a cache of its own. It needs the environment of tests/python, for the items, the small model and its reference:
target/venv/bin/python perf/study scores.

Without --model, the model is a small decoder with F32 weights. All its answers are compared with the reference in
float64. If lm_eval is there (see tests/python/evaluation.py), it runs once, too, and is compared. With --model, answers
beside the stream are compared with answers of the idle server; a model of random weights makes whole nats of differences
in rounding, so that says something only about a real one. Streams of the small model are short; use --prompts 20
--tokens 900 for it.
"""

import contextlib
import itertools
import pathlib
import tempfile
import threading
import time

from shared.report import add, add_server, needed
from shared.requests import Poster
from shared.server import Server
from shared.turns import beside_a_stream

EXACT = ["--cache-type-k=f32", "--cache-type-v=f32", "--flash-attn=off"]


def arguments(parser) -> None:
    add_server(parser)
    add(parser, items=500, rounds=6, threads=8, prompts=2, tokens=300)


def run(args) -> dict:
    evaluation, models = (needed(name, "numpy, gguf and regex") for name in ("evaluation", "models"))
    rows = evaluation.items(seed=5, count=args.items)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        path, flags, small = args.model, [], None
        if not path:
            path, flags = str(folder / "small.gguf"), EXACT
            small = models.write_decoder(pathlib.Path(path), models.LLAMA)
        server = stack.enter_context(Server(*flags, "--parallel=16", model=path, binary=args.binary))
        client = Client(server.url, rows)
        if small:
            pairs = [(row["context"], choice) for row in rows for choice in row["choices"]]
            expected = [evaluation.expected(small, context, choice)[0] for context, choice in pairs]
            name = "to the reference in float64"
        else:
            for _ in client.choices:
                client.ask()
            expected = [value for _, value in sorted(client.found)]
            client.found.clear()
            client.next = client.one_pass()
            name = "to the idle server"
        found = beside_a_stream(server.url, client.ask, "items", args.threads, args.rounds, args.prompts, args.tokens)
        compare(name, client.found, expected)
        if small and evaluation.LM_EVAL.exists():
            run_lm_eval(evaluation, server, small, rows, expected, folder)
    return found


class Client(Poster):
    """Asks for the choices' log-likelihoods."""

    def __init__(self, url: str, rows: list[dict]):
        super().__init__(url)
        self.lock = threading.Lock()
        pairs = [(row["context"], choice) for row in rows for choice in row["choices"]]
        self.choices = [(self.tokens(context), self.tokens(context + choice)) for context, choice in pairs]
        self.passes = itertools.count()
        self.next = self.one_pass()
        self.found = []  # pairs of a choice's number and its log-likelihood

    def tokens(self, text: str) -> list[int]:
        return self.post("/tokenize", {"content": text})["tokens"]

    def one_pass(self):
        """The choices' numbers, with the salt of their pass."""
        salt = f"pass {next(self.passes)}"
        return iter([(number, salt) for number in range(len(self.choices))])

    def ask(self) -> float:
        """Asks for the next choice. Returns a quarter of an item."""
        with self.lock:
            following = next(self.next, None)
            if following is None:
                self.next = self.one_pass()
                following = next(self.next)
        number, salt = following
        context, whole = self.choices[number]
        body = {"prompt": [whole], "temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": True, "seed": 1234, "cache_salt": salt}
        logprobs = self.post("/v1/completions", body)["choices"][0]["logprobs"]["token_logprobs"]
        self.found.append((number, sum(logprobs[len(context) : len(whole)])))
        return 1 / 4


def compare(name: str, found: list[tuple[int, float]], expected: list[float]) -> None:
    apart = [abs(value - expected[number]) for number, value in found]
    print(f"{name}: {len(apart)} log-likelihoods, at most {max(apart):.2e} apart, on average {sum(apart) / len(apart):.2e}")


def run_lm_eval(evaluation, server: Server, model, rows: list[dict], expected: list[float], folder: pathlib.Path) -> None:
    model.write_tokenizer(folder / "tokenizer")
    began = time.monotonic()
    answers, _ = evaluation.evaluate(folder / "run", rows, server.url, "none", folder / "tokenizer", batch=4, concurrent=4)
    took = time.monotonic() - began
    compare("lm_eval to the reference", [(number, answer.loglikelihood) for number, answer in enumerate(answers)], expected)
    print(f"lm_eval alone: {len(rows) / took:.1f} items/s, its start included")

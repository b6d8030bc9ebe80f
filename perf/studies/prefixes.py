"""How much of a prompt is computed again when it begins like an earlier one, and how long does that take?

A round has texts of its own. Its cases are those of chats and of agents: the next turn, an answer written again, another
last question, an answer left out, several agents with the same instructions, more conversations than slots, many
requests at once, a long prompt that others have pushed out of the KV cache, and the same after a restart: from files of
the prefix store, and from a file that a client saved. For each prompt the table has its tokens, those that came from the
cache, and the seconds until its first token.

Then, how long do streams wait between two tokens while such prompts come, one after another? And while others come that have
as many new tokens and no others, so that nothing is brought back for them?

`--binary` may be llama-server; it has no files, so those cases are left out. `--cases` runs one group alone: turns, agents,
conversations or at-once.
"""

import json
import pathlib
import random
import statistics
import tempfile
import threading
import time

from shared.report import add, add_flags, add_server, row, table
from shared.requests import begin, post
from shared.server import LlamaServer, server_of
from shared.statistics import p99, shown, spread
from shared.turns import Beside
from studies.neighbours import LOOP, Neighbours

ANSWER, QUESTION = 48, 27  # tokens of an answer, and of the question behind it
AGENT, AGENTS = 1500, 3  # tokens of the instructions that agents share, and agents
CONVERSATION, CONVERSATIONS = 300, 16
AT_ONCE, SHARED, OWN = 8, 500, 20
OTHERS, OTHER = 20, 200  # prompts that push a long one out, and their tokens
STREAMS, SHORT, NEW = 4, 1039, 5  # streams, the tokens of the prompts that come beside them, and how many of these are new


def arguments(parser) -> None:
    add_server(parser, model="large")
    add(parser, prompt=2000, long=8000, rounds=1, loops=0, beside_s=15)
    parser.add_argument("--cases", choices=GROUPS, help="run these cases alone")
    add_flags(parser)


def run(args) -> dict:
    kind = server_of(args.binary)
    print(f"model: {pathlib.Path(args.model).name}; {args.loops} busy loops at nice 10 beside it")
    rounds, beside = [], []

    def server(*flags: str):
        return kind(*args.flags, *flags, model=args.model, binary=args.binary)

    with Neighbours([LOOP] * args.loops, 10):
        for number in range(args.rounds):
            if args.cases or kind is LlamaServer:
                with server() as one:
                    rounds.append(chats(Texts(one.url, number), args)[0])
                continue
            with tempfile.TemporaryDirectory() as folder:
                cache, slots = f"--cache-disk={folder}/cache", f"--slot-save-path={folder}/slots"
                with server(cache) as one:
                    found, long = chats(Texts(one.url, number), args)
                with server(cache, slots) as one:
                    found |= after_a_restart(Texts(one.url, number), long)
                with server(slots) as one:
                    found |= from_a_saved_file(Texts(one.url, number), long)
                rounds.append(found)
        if args.cases:
            show(rounds)
            return {"rounds": rounds}
        with server() as one:
            beside = [streams(Texts(one.url, 1000 + number), args.beside_s) for number in range(args.rounds)]
    show(rounds)
    show_streams(beside)
    return {"rounds": rounds, "beside": beside}


class Texts:
    """Random texts of token ids, and the requests that continue them."""

    def __init__(self, url: str, seed: int):
        self.url, self.random = url, random.Random(seed)

    def text(self, tokens: int) -> list[int]:
        return [self.random.randrange(1000, 4000) for _ in range(tokens)]

    def post(self, path: str, body: dict) -> dict:
        status, text = post(self.url, path, body, timeout=600)  # llama-server ends connections that rest
        if status != 200:
            raise RuntimeError(text)
        return json.loads(text)

    def ask(self, prompt: list[int], predict: int = ANSWER) -> tuple[dict, list[int]]:
        body = {"prompt": prompt, "n_predict": predict, "temperature": 0, "ignore_eos": True, "return_tokens": True}
        answer = self.post("/completion", body)
        return prompt_of(answer["timings"]), answer["tokens"]

    def words(self, tokens: int) -> str:
        """A text of about this many tokens."""
        text = self.post("/detokenize", {"tokens": self.text(tokens)})["content"]
        again = len(self.post("/tokenize", {"content": text})["tokens"])  # more, where tokens are pieces of words
        return text[: len(text) * tokens // again]

    def chat(self, *messages: tuple[str, str]) -> dict:
        body = {"messages": [{"role": role, "content": content} for role, content in messages]}
        answer = self.post("/v1/chat/completions", body | {"max_tokens": ANSWER, "temperature": 0})
        return prompt_of(answer["timings"])


def prompt_of(timings: dict) -> dict:
    """The tokens of a prompt, those from the cache, and its seconds."""
    found = {"tokens": timings["prompt_n"] + timings["cache_n"], "cached": timings["cache_n"]}
    found |= {"stored": timings.get("cache_store_n", 0), "read": timings.get("cache_disk_n", 0)}
    return found | {"s": timings["prompt_ms"] / 1e3}


def chats(texts: Texts, args) -> tuple[dict[str, dict], list[int]]:
    """The cases of a running server by name, and the long prompt with its last answer."""
    found = {}
    for name, group in GROUPS.items():
        if args.cases in (None, name):
            found |= group(texts, args)
    if args.cases:
        return found, []
    long = texts.text(args.long)
    found["a long prompt"], said = texts.ask(long)
    for _ in range(OTHERS):
        texts.ask(texts.text(OTHER))
    long += said + texts.text(20)
    found[f"the long prompt goes on after {OTHERS} others"], said = texts.ask(long)
    return found, long + said + texts.text(20)


def turns(texts: Texts, args) -> dict[str, dict]:
    """The turns of a chat."""
    found = {}
    first = texts.text(args.prompt)
    found["first turn"], said = texts.ask(first)
    second = first + said + texts.text(QUESTION)
    found["second turn"], _ = texts.ask(second)
    found["its answer again"], _ = texts.ask(second)
    found["another last question"], _ = texts.ask(first + said + texts.text(QUESTION))
    found["the answer left out"], _ = texts.ask(first + texts.text(15))
    return found


def agents(texts: Texts, _) -> dict[str, dict]:
    """Agents with the same system message."""
    instructions, found = ("system", texts.words(AGENT)), {}
    for agent in range(1, AGENTS + 1):
        found[f"agent {agent} with the same instructions"] = texts.chat(instructions, ("user", texts.words(QUESTION)))
    return found


FILE = {"filename": "long"}
RESTARTED = "the long prompt goes on after a restart"


def after_a_restart(texts: Texts, long: list[int]) -> dict[str, dict]:
    """The long prompt from the files of the prefix store. Then its slot is saved."""
    found, _ = texts.ask(long)
    answer = texts.post("/completion", {"prompt": long, "n_predict": 1})
    saved = texts.post(f"/slots/{answer['id_slot']}?action=save", FILE)
    return {RESTARTED: found, "save": saved}


def from_a_saved_file(texts: Texts, long: list[int]) -> dict[str, dict]:
    restored = texts.post("/slots/0?action=restore", FILE)
    return {"restore": restored, f"{RESTARTED}, from a saved file": texts.ask(long)[0]}


def conversations(texts: Texts, _) -> dict[str, dict]:
    """More conversations than slots, each with a second turn after the first turns of all."""
    prompts = [texts.text(CONVERSATION) for _ in range(CONVERSATIONS)]
    first = [texts.ask(prompt) for prompt in prompts]
    again = [prompt + said + texts.text(14) for prompt, (_, said) in zip(prompts, first)]
    second = [texts.ask(prompt)[0] for prompt in again]
    name = f"{CONVERSATIONS} conversations on 8 slots"
    return {f"{name}, first turn": middle(turn for turn, _ in first), f"{name}, second turn": middle(second)}


def at_once(texts: Texts, _) -> dict[str, dict]:
    alone, _ = texts.ask(texts.text(SHARED + OWN), 1)
    shared = texts.text(SHARED)
    prompts = [shared + texts.text(OWN) for _ in range(AT_ONCE)]
    found = []

    def ask(prompt) -> None:
        began = time.monotonic()
        asked, _ = texts.ask(prompt, 1)
        found.append(asked | {"s": time.monotonic() - began})

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = max(found, key=lambda asked: asked["s"])
    return {f"{SHARED + OWN} tokens alone": alone, f"the last of {AT_ONCE} at once that share {SHARED}": last}


GROUPS = {"turns": turns, "agents": agents, "conversations": conversations, "at-once": at_once}


def middle(found) -> dict:
    found = list(found)
    return {field: statistics.median(one[field] for one in found) for field in found[0]}


def streams(texts: Texts, seconds: int) -> dict[str, dict]:
    """The times between two tokens of streams in ms: alone, beside short prompts, and beside those that begin like earlier ones."""
    known = [texts.text(SHORT) for _ in range(8)]
    for prompt in known:
        texts.ask(prompt, 1)
    gaps: list[float] = []

    def stream(over: threading.Event) -> None:
        body = {"prompt": texts.text(40), "n_predict": 4000, "stream": True, "ignore_eos": True, "speculative.n_max": 0}
        connection, response = begin(texts.url, "/completion", body, timeout=600)
        last = None
        while not over.is_set() and (line := response.readline()):
            if line.startswith(b"data: "):
                now = time.monotonic()
                if last:
                    gaps.append(1e3 * (now - last))
                last = now
        connection.close()

    def measured() -> dict[str, float]:
        return {"p50": statistics.median(gaps), "p99": p99(gaps)}

    with Beside(*[stream] * STREAMS):
        time.sleep(3)  # until all of them stream
        gaps.clear()
        time.sleep(seconds)
        found = {"alone": measured()}
        for name, beginnings in [("beside short prompts", [[]]), ("beside known ones", known)]:
            gaps.clear()
            end, prompts = time.monotonic() + seconds, []
            while time.monotonic() < end:
                prompts.append(texts.ask(beginnings[len(prompts) % len(beginnings)] + texts.text(NEW), 1)[0])
            found[name] = measured() | middle(prompts)
    return found


def show(rounds: list[dict]) -> None:
    table("prompt", "tokens", "from the cache", "of these stored, read", "seconds", "to the first such prompt")
    names = [name for name in rounds[0] if name not in ("save", "restore")]
    for name in names:
        found = [of[name] for of in rounds]
        base = base_of(name, names)
        ratio = shown(spread(of[name]["s"] / of[base]["s"] for of in rounds)) if base else ""
        numbers = [f"{statistics.median(one[field] for one in found):.0f}" for field in ("tokens", "cached", "stored", "read")]
        row(name, *numbers[:2], ", ".join(numbers[2:]), shown(spread(one["s"] for one in found)), ratio)
    if "save" in rounds[0]:
        saved = rounds[0]["save"]
        times = [shown(spread(of[what]["timings"][f"{what}_ms"] for of in rounds), ".1f") for what in ("save", "restore")]
        print(f"\nsaved {saved['n_saved']} tokens, {saved['n_written'] / 1e6:.1f} MB, in {times[0]} ms; restored in {times[1]} ms")


def base_of(name: str, names: list[str]) -> str | None:
    """The prompt that was computed from its beginning, of the same kind."""
    kinds = [("conversations", "conversations"), ("at once", "alone"), ("long prompt", "a long prompt"), ("agent", "agent 1")]
    for kind, base in kinds:
        if kind in name:
            found = next(other for other in names if base in other)
            return None if found == name else found
    return None if name == "first turn" or "alone" in name else "first turn"


def show_streams(beside: list[dict]) -> None:
    for when in beside[0]:
        p50, p99 = ([of[when][field] for of in beside] for field in ("p50", "p99"))
        print(f"\n{STREAMS} streams {when}: {shown(spread(p50), '.1f')} ms between two tokens, p99 {shown(spread(p99), '.1f')}")
    known = "beside known ones"
    for other in ["alone", "beside short prompts"]:
        print(f"p99 {known}, to {other}: {shown(spread(of[known]['p99'] / of[other]['p99'] for of in beside))}")
    print(f"a prompt of {SHORT + NEW} tokens beside them takes {shown(spread(of[known]['s'] for of in beside))} s")

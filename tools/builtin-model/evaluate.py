"""Measure the built-in model; every number of the model card comes from here.

In: `builtin.gguf` and the work folder of `train.py`. Out: `report.json` in the
work folder, and `loss.svg`. All measurements use the dequantised Q8_0 weights.
"""

import argparse
import json
import math
import random
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import chat
import corpus
import export
import model
import tokenizer as tok
from sample import MODEL, generate

TEST_SEED, TUNE_SEED, CHAT_SEED = 2_000_003, 3_000_017, 4_000_037
SAMPLES = [
    "Once upon a time",
    "One day, a little fox",
    "There once was a lonely giant",
    "On Monday, Clara",
    "The old lighthouse keeper",
    [("user", "Tell me a story about a dragon.")],
    [("user", "Tell me a story about a lost ring.")],
    [("user", "Hello!"), ("assistant", "Hello! How can I help you?"), ("user", "What is 8 plus 6?")],
    [("user", "Describe a cat named Moss as JSON.")],
    [("system", "You are a friendly assistant."), ("user", "Write a short poem about the sea.")],
]
REFERENCES = [
    "Once upon a time",
    "There once was a brave mouse named Pip who lived in a barn.",
    [("user", "What is 3 plus 4?")],
    [("user", "Tell me a story about a fox.")],
    [("system", "You are a helpful assistant."), ("user", "Hello! Who are you?")],
]


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--work", type=Path, default=Path("work"), help="the work folder of train.py")
    parser.add_argument("--plot", type=Path, default=Path(__file__).with_name("loss.svg"))
    parser.add_argument("--references", type=Path, help="also write greedy continuations to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)

    config = model.Config()
    tokenizer = tok.load(options.work / "tokenizer.json")
    params, _ = export.read(options.model)
    trained = torch.load(options.work / "weights.pt")
    trained["output_norm"] *= export.SHARPEN
    run = json.loads((options.work / "loss.json").read_text())
    plot(run, options.plot)
    if options.references:
        options.references.write_text(json.dumps(references(config, params, tokenizer), indent=1))

    report = {"cycles": [cycle["data"] | {"seconds": cycle["seconds"]} for cycle in run]}
    report["samples"] = samples(config, params, tokenizer)
    report["accuracy"] = accuracy(config, params, tokenizer)
    report["quantised"] = quantisation(config, trained, params, tokenizer)
    train_documents = [
        document for data in report["cycles"] for document in encoded(tokenizer, data["seed"], data["documents"], data["drills"])
    ]
    report["perplexity"] = perplexities(config, params, tokenizer, train_documents)
    report["overlap"] = overlap(config, params, tokenizer, train_documents)
    (options.work / "report.json").write_text(json.dumps(report, indent=1))
    print(json.dumps(report, indent=1))


def encoded(tokenizer, seed: int, count: int, drills: bool = False) -> list[tuple[np.ndarray, np.ndarray]]:
    """Token ids and learned flags of the first `count` documents of `seed`."""
    stream = islice(corpus.documents(seed, drills), count)
    return [tuple(map(np.asarray, tok.encode_document(tokenizer, document))) for document in stream]


def samples(config, params, tokenizer) -> list[dict]:
    """The ten samples of the card, at temperature 0.8; sample `i` has seed `i`."""
    out = []
    for i, prompt in enumerate(SAMPLES, 1):
        ids = generate(config, params, tok.encode_prompt(tokenizer, prompt), 400, 0.8, seed=i)
        out.append({"prompt": prompt, "seed": i, "text": tokenizer.decode(ids)})
    return out


def references(config, params, tokenizer) -> list[dict]:
    """Greedy continuations of 40 tokens, ends included, to compare the server with."""
    out = []
    for prompt in REFERENCES:
        ids = tok.encode_prompt(tokenizer, prompt)
        following = generate(config, params, ids, 40, stop=False)
        text = tokenizer.decode(following, skip_special_tokens=False)
        out.append({"prompt": prompt, "prompt_ids": ids, "greedy_ids": following, "greedy_text": text})
    return out


# --- Questions -------------------------------------------------------------


def accuracy(config, params, tokenizer, count: int = 100) -> dict[str, float]:
    """Share of greedy answers equal to the expected text, class by class."""
    rng = random.Random(CHAT_SEED)
    turns = [chat.turn(rng, kind) for kind in chat.CHECKED for _ in range(count)]
    for _ in range(count):
        a, b = rng.randint(21, 50), rng.randint(21, 50)
        turns.append(chat.Turn("addition beyond 20", f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}."))
    right: dict[str, list[bool]] = {}
    for turn in turns:
        right.setdefault(turn.kind, []).append(answer(config, params, tokenizer, turn.question) == turn.answer)
    json_turns = [chat.turn(rng, "json") for _ in range(count)]
    right["json: valid"], right["json: expected keys"] = [], []
    for turn in json_turns:
        made, wanted = parse(answer(config, params, tokenizer, turn.question)), json.loads(turn.answer)
        right["json: valid"].append(made is not None)
        right["json: expected keys"].append(made is not None and list(made) == list(wanted))
    return {kind: sum(values) / len(values) for kind, values in right.items()}


def answer(config, params, tokenizer, question: str) -> str:
    """The greedy answer to a question that opens a conversation."""
    ids = tok.encode_prompt(tokenizer, [("user", question)])
    return tokenizer.decode(generate(config, params, ids, 120))


def parse(text: str) -> dict | None:
    """The JSON object in `text`, or None."""
    try:
        made = json.loads(text)
    except ValueError:
        return None
    return made if isinstance(made, dict) else None


# --- Perplexity ------------------------------------------------------------


def perplexities(config, params, tokenizer, train_documents) -> dict[str, float]:
    """Of the model and of two counting baselines, over the learned tokens of new documents."""
    test = encoded(tokenizer, TEST_SEED, 1500)
    baseline = Trigram(train_documents, config.vocab)
    baseline.tune(encoded(tokenizer, TUNE_SEED, 300))
    nats = {"model": [], "model as trained": [], "unigram": [], "trigram": []}
    with torch.no_grad():
        for ids, learned in test:
            keep = learned[1:] == 1
            tokens = torch.from_numpy(ids)[None]
            hidden = model.forward(config, params, tokens, torch.zeros_like(tokens))[0, :-1]
            scores = model.logits(params, hidden)
            for name, scale in ("model", 1.0), ("model as trained", 1 / export.SHARPEN):
                nats[name].append(F.cross_entropy(scores * scale, tokens[0, 1:], reduction="none").numpy()[keep])
            parts = baseline.parts(ids)
            nats["unigram"].append(-np.log(parts[:, :2] @ np.array([0.001, 0.999]))[keep])
            nats["trigram"].append(-np.log(parts @ baseline.weights)[keep])
    out = {name: math.exp(np.concatenate(values).mean()) for name, values in nats.items()}
    return out | {"tokens": int(sum(map(len, nats["model"]))), "trigram weights": baseline.weights.tolist()}


class Trigram:
    """An interpolation of uniform, unigram, bigram and trigram frequencies."""

    def __init__(self, documents, vocab: int):
        self.vocab = vocab
        self.weights = np.full(4, 0.25)
        self.tables = []
        for order in (1, 2, 3):
            grams = np.concatenate([self.keys(ids, order) for ids, _ in documents])
            self.tables.append(np.unique(grams, return_counts=True))
        self.total = sum(len(ids) - 1 for ids, _ in documents)

    def keys(self, ids: np.ndarray, order: int) -> np.ndarray:
        """A number for the `order`-gram that ends at each token but the first; `vocab` pads."""
        padded = np.concatenate([[self.vocab], ids])
        key = np.zeros(len(ids) - 1, np.int64)
        for back in range(order - 1, -1, -1):
            key = key * (self.vocab + 1) + padded[2 - back : len(padded) - back]
        return key

    def count(self, order: int, keys: np.ndarray) -> np.ndarray:
        """How often the training text has each of `keys`."""
        grams, counts = self.tables[order - 1]
        at = np.minimum(np.searchsorted(grams, keys), len(grams) - 1)
        return np.where(grams[at] == keys, counts[at], 0)

    def parts(self, ids: np.ndarray) -> np.ndarray:
        """Probability of each token but the first by each of the four models."""
        out = [np.full(len(ids) - 1, 1 / self.vocab)]
        out.append(self.count(1, self.keys(ids, 1)) / self.total)
        for order in (2, 3):
            keys = self.keys(ids, order)
            context = self.context_count(order, keys)
            out.append(self.count(order, keys) / np.maximum(context, 1))
        return np.stack(out, 1)

    def context_count(self, order: int, keys: np.ndarray) -> np.ndarray:
        """How often the training text has each of `keys` but for its last token."""
        grams, counts = self.tables[order - 1]
        sums = np.concatenate([[0], np.cumsum(counts)])
        base = keys // (self.vocab + 1) * (self.vocab + 1)
        return sums[np.searchsorted(grams, base + self.vocab + 1)] - sums[np.searchsorted(grams, base)]

    def tune(self, documents) -> None:
        """Interpolation weights by expectation maximisation over other documents."""
        parts = np.concatenate([self.parts(ids)[learned[1:] == 1] for ids, learned in documents])
        for _ in range(50):
            share = parts * self.weights
            self.weights = (share / share.sum(1, keepdims=True)).mean(0)


# --- The rest --------------------------------------------------------------


def quantisation(config, trained, params, tokenizer) -> dict[str, float]:
    """How far the logits of the dequantised weights are from those of the trained ones."""
    largest, agree, total = 0.0, 0, 0
    with torch.no_grad():
        for ids, _ in encoded(tokenizer, TEST_SEED, 100):
            tokens = torch.from_numpy(ids)[None]
            both = [
                model.logits(p, model.forward(config, p, tokens, torch.zeros_like(tokens)))[0]
                for p in (trained, params)
            ]
            largest = max(largest, (both[0] - both[1]).abs().max().item())
            agree += (both[0].argmax(-1) == both[1].argmax(-1)).sum().item()
            total += len(ids)
    return {"largest logit difference": largest, "same first choice": agree / total, "positions": total}


def overlap(config, params, tokenizer, train_documents, count: int = 60, n: int = 12) -> dict[str, float]:
    """Share of `n`-grams of tokens that stand verbatim in the training text: of new
    stories by the grammar, and of the model's continuations of their beginnings."""
    known = np.unique(np.concatenate([grams(ids, n) for ids, _ in train_documents]))
    stories = [d for d in islice(corpus.documents(TEST_SEED), 1000) if isinstance(d, str)][:count]
    shares: dict[str, list[np.ndarray]] = {"held-out stories": [], "sampled at 0.8": []}
    whole = 0
    for i, text in enumerate(stories):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        made = generate(config, params, ids[:8], 400, 0.8, seed=i)
        shares["held-out stories"].append(among(known, grams(np.asarray(ids[8:]), n)))
        shares["sampled at 0.8"].append(among(known, grams(np.asarray(made), n)))
        whole += bool(shares["sampled at 0.8"][-1].all())
    out = {name: float(np.concatenate(values).mean()) for name, values in shares.items()}
    return out | {"stories": len(stories), "stories wholly in the training text": whole}


def among(known: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Which of `keys` are in `known`, which is sorted and not empty."""
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return known[at] == keys


def grams(ids: np.ndarray, n: int) -> np.ndarray:
    """A 64-bit hash of each run of `n` tokens."""
    if len(ids) < n:
        return np.zeros(0, np.uint64)
    key = np.zeros(len(ids) - n + 1, np.uint64)
    for i in range(n):
        key = key * np.uint64(0x9E3779B97F4A7C15) + ids[i : i + len(key)].astype(np.uint64) + np.uint64(1)
    return key


def plot(run: list[dict], path: Path) -> None:
    """The loss curve, as SVG."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "corelane"
    from matplotlib import pyplot

    train = np.concatenate([cycle["train"] for cycle in run])
    window = max(1, min(100, len(train) // 10))
    smooth = np.convolve(train, np.ones(window) / window, "valid")
    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot(
        np.arange(len(smooth)) + window, smooth, color="#9db4c8", linewidth=1, label=f"training, mean of {window} steps"
    )
    before = np.cumsum([0] + [len(cycle["train"]) for cycle in run])
    steps, values = zip(*[(n + step, value) for n, cycle in zip(before, run) for step, value in cycle["held_out"]])
    axes.plot(steps, values, color="#1f4e79", linewidth=1.8, label="held out")
    axes.set_yscale("log")
    ticks = [0.5, 0.6, 0.7, 0.8, 1, 1.5, 2, 3, 5, 8]
    low = min(smooth.min(), min(values)) * 0.95
    axes.set_ylim(low, max(smooth.max(), max(values)) * 1.05)
    axes.set_yticks([tick for tick in ticks if tick >= low], [str(tick) for tick in ticks if tick >= low])
    axes.minorticks_off()
    axes.set_xlabel(f"step ({run[0]['data']['tokens_per_step']} tokens each)")
    axes.set_ylabel("cross-entropy, nats per learned token")
    axes.grid(True, alpha=0.3)
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()

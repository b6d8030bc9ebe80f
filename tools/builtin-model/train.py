"""Make the built-in model: text, tokenizer, training, GGUF. One command does all:

    python train.py --out builtin.gguf

In: a seed. Out: the GGUF file, and in the work folder the tokenizer, the
weights (`weights.pt`) and the loss curves (`loss.json`), which `evaluate.py`
reads. Training goes in cycles: each has its own text (the seed plus its number)
and lets the learning rate fall from its peak to nearly nothing. Equal options
give equal text; sums in parallel, and `--minutes`, make the weights differ a
little from run to run.
"""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import corpus
import export
import model
import tokenizer as tok

# Rows are of three lengths; a document goes into the shortest that holds it,
# whole. A step takes rows of one length, always TOKENS_PER_STEP tokens.
ROW_LENGTHS = (128, 256, 512, 1024)
TOKENS_PER_STEP = 1024
# The first steps of the first cycle take very short plain texts alone, and then rows of questions:
# copying a name or a number that was just said is learned far sooner where it
# stands a few words back than in a story.
FIRST_LENGTH = 64
SHORT_FIRST = 0.1  # share of all steps
RATE = 1e-3  # peak learning rate
# A document that is longer than the longest row is left out (few are).
HELD_OUT_SEED_OFFSET = 1_000_003


def main() -> None:
    """Read the options and run the cycles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("builtin.gguf"), help="the GGUF file to write")
    parser.add_argument("--work", type=Path, default=Path("work"), help="folder for tokenizer, weights and curves")
    parser.add_argument("--cycles", type=int, default=2, help="training cycles (default 2)")
    parser.add_argument("--first-cycle", type=int, default=0, help="go on from the work folder with this cycle")
    parser.add_argument("--tokens", type=int, default=6_500_000, help="tokens of text a cycle, each seen once")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end a cycle by then, with fewer tokens")
    parser.add_argument("--seed", type=int, default=1, help="seed of the text, the weights and the order")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)

    config = model.Config()
    if options.first_cycle == 0:
        tokenizer = make_tokenizer(options.seed, config.vocab, options.work / "tokenizer.json")
        params, cycles = model.init(config, options.seed), []
    else:
        tokenizer = tok.load(options.work / "tokenizer.json")
        params = torch.load(options.work / "weights.pt")
        cycles = json.loads((options.work / "loss.json").read_text())[: options.first_cycle]
    held_out = held_out_rows(tokenizer, options.seed)

    def save(params: dict[str, torch.Tensor]) -> None:
        torch.save(params, options.work / "weights.pt")
        export.write(options.out, config, params, tokenizer)

    for cycle in range(options.first_cycle, options.cycles):
        steps, data = make_steps(tokenizer, options.seed + cycle, options.tokens, first=cycle == 0)
        params, curve = train(config, params, steps, held_out, options.minutes, save)
        data["tokens_seen"] = sum(int((step[2] >= 0).sum()) for step in steps[: len(curve["train"])])
        cycles.append(curve | {"data": data})
        (options.work / "loss.json").write_text(json.dumps(cycles))
        save(params)
    print(f"wrote {options.out} ({options.out.stat().st_size / 2**20:.2f} MiB)")


def make_tokenizer(seed: int, vocab: int, path: Path):
    """The tokenizer, trained on the first documents of the training text."""
    stream = corpus.documents(seed)
    texts = []
    for _ in range(20_000):
        document = next(stream)
        texts += [document] if isinstance(document, str) else [text for _, text in document]
    tokenizer = tok.train(texts, vocab)
    tokenizer.save(str(path))
    return tokenizer


class Packer:
    """Fills rows of one length with whole documents, first fit over a few open rows."""

    OPEN_ROWS = 64

    def __init__(self, length: int):
        self.length = length
        self.open: list[list] = []  # [tokens, learned, documents]
        self.done: list[list] = []

    def add(self, ids: list[int], learned: list[int]) -> None:
        """Put a document into the first open row that has room."""
        for row in self.open:
            if len(row[0]) + len(ids) <= self.length:
                break
        else:
            row = [[], [], []]
            self.open.append(row)
            if len(self.open) > self.OPEN_ROWS:
                self.done.append(self.open.pop(0))
        number = row[2][-1] + 1 if row[2] else 0
        row[0] += ids
        row[1] += [0] + learned[1:]  # Nothing predicts a document's first token.
        row[2] += [number] * len(ids)


def make_steps(tokenizer, seed: int, tokens: int, first: bool) -> tuple[list, dict]:
    """Training steps `(tokens, learned, documents)`, each array `[rows, length]`; and
    the sizes of the text, for the model card."""
    packers = {length: Packer(length) for length in (FIRST_LENGTH, *ROW_LENGTHS)}
    data = {"seed": seed, "drills": not first, "tokens_per_step": TOKENS_PER_STEP}
    data |= dict.fromkeys(("documents", "characters", "tokens", "learned", "plain_tokens", "left_out"), 0)
    for document in corpus.documents(seed, drills=not first):
        ids, learned = tok.encode_document(tokenizer, document)
        data["documents"] += 1
        length = next((length for length in ROW_LENGTHS if len(ids) <= length), None)
        if length is None:
            data["left_out"] += 1
            continue
        plain = isinstance(document, str)
        packers[FIRST_LENGTH if plain and len(ids) <= FIRST_LENGTH else length].add(ids, learned)
        data["tokens"] += len(ids)
        data["learned"] += sum(learned)
        data["plain_tokens"] += len(ids) if plain else 0
        data["characters"] += len(document) if plain else sum(len(text) for _, text in document)
        if data["tokens"] >= tokens:
            break
    steps = []
    for length, packer in packers.items():
        rows = packer.done + packer.open
        batch = TOKENS_PER_STEP // length
        np.random.default_rng(seed).shuffle(rows)
        for i in range(0, len(rows) - batch + 1, batch):
            steps.append(pad(rows[i : i + batch], length))
    np.random.default_rng(seed).shuffle(steps)
    if first:
        lengths = np.array([step[0].shape[1] for step in steps])
        stage = np.where(lengths == FIRST_LENGTH, 0, 2)
        stage[np.flatnonzero(lengths == ROW_LENGTHS[0])[: int(len(steps) * SHORT_FIRST)]] = 1
        steps = [steps[i] for i in np.argsort(stage, kind="stable")]
    data["steps"] = {length: sum(step[0].shape[1] == length for step in steps) for length in packers}
    print(data, flush=True)
    return steps, data


def pad(rows: list[list], length: int) -> tuple[np.ndarray, ...]:
    """Rows as arrays; padding is a document of its own that nothing learns."""
    arrays = tuple(np.zeros((len(rows), length), np.int64) for _ in range(3))
    arrays[2][:] = -1
    for i, row in enumerate(rows):
        for array, values in zip(arrays, row):
            array[i, : len(values)] = values
    return arrays


def held_out_rows(tokenizer, seed: int, count: int = 200) -> tuple[np.ndarray, ...]:
    """Documents of another seed, for the curve."""
    packer = Packer(512)
    stream = corpus.documents(seed + HELD_OUT_SEED_OFFSET)
    for _ in range(count):
        ids, learned = tok.encode_document(tokenizer, next(stream))
        if len(ids) <= 512:
            packer.add(ids, learned)
    return pad(packer.done + packer.open, 512)


def loss(config, params, tokens, learned, documents):
    """Mean cross-entropy, in nats, over the learned tokens."""
    hidden = model.forward(config, params, tokens, documents)
    # The last position predicts nothing; its weight is 0.
    targets = tokens.roll(-1, 1)
    weights = learned.roll(-1, 1).float()
    weights = weights * (torch.arange(tokens.shape[1]) < tokens.shape[1] - 1)
    scores = model.logits(params, hidden).flatten(0, 1)
    each = F.cross_entropy(scores, targets.flatten(), reduction="none")
    return (each * weights.flatten()).sum() / weights.sum()


def train(config, params, steps, held_out, minutes_max: float, save) -> tuple[dict[str, torch.Tensor], dict]:
    """Train over `steps` once; returns the parameters and the loss curve.

    The learning rate falls with the share of the steps or of the minutes that is
    done, whichever is larger, so that a slow machine ends in time, too. `save` is
    given the parameters now and then.
    """
    params = {name: value.requires_grad_() for name, value in params.items()}
    optimizer = make_optimizer(params)
    compiled = torch.compile(loss, dynamic=False)
    curve = {"train": [], "held_out": [], "seconds": 0.0}
    started, recent = time.time(), []
    for i, arrays in enumerate(steps):
        batch = [torch.from_numpy(array) for array in arrays]
        value = compiled(config, params, *batch)
        value.backward()
        minutes = (time.time() - started) / 60
        done = max(i / len(steps), minutes / minutes_max)
        for group in optimizer.param_groups:
            group["lr"] = RATE * schedule(i, done)
        optimizer.step()
        optimizer.zero_grad()
        recent.append(value.item())
        curve["train"].append(recent[-1])
        last = i == len(steps) - 1 or done >= 1
        if i % 400 == 399 or last:
            with torch.no_grad():
                out = loss(config, params, *[torch.from_numpy(array) for array in held_out]).item()
            curve["held_out"].append((i + 1, out))
            mean, recent = sum(recent) / len(recent), []
            print(
                f"step {i + 1}/{len(steps)} train {mean:.4f} held out {out:.4f} {time.time() - started:.0f} s",
                flush=True,
            )
        if i % 400 == 399:
            save({name: value.detach() for name, value in params.items()})
        if last:
            break
    curve["seconds"] = time.time() - started
    return {name: value.detach() for name, value in params.items()}, curve


def schedule(i: int, done: float) -> float:
    """Learning rate factor: a warm-up of 50 steps, then a cosine to nearly nothing."""
    return min(1.0, (i + 1) / 50) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))))


def make_optimizer(params: dict[str, torch.Tensor]) -> torch.optim.AdamW:
    """AdamW; matrices decay, norms do not."""
    groups = [
        {"params": [value for value in params.values() if value.dim() == 2], "weight_decay": 0.05},
        {"params": [value for value in params.values() if value.dim() == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.98), fused=True)


if __name__ == "__main__":
    main()

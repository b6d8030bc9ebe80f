"""Runs lm_eval's multiple choice on items of ours, offline, against a server's /v1/completions.

lm_eval has an environment of its own, because it brings 900 MB:

    python3 -m venv target/venv-lm-eval
    target/venv-lm-eval/bin/pip install -r tests/python/lm_eval_task/requirements.txt
"""

import json
import os
import pathlib
import random
import subprocess
import typing

import models

ROOT = pathlib.Path(__file__).parents[2]
LM_EVAL = ROOT / "target" / "venv-lm-eval" / "bin" / "lm_eval"
TASK = "corelane_choices"


class Answer(typing.NamedTuple):
    """What lm_eval found for one choice of an item."""

    context: str
    continuation: str
    loglikelihood: float
    is_greedy: bool


def items(seed: int, count: int, words: tuple[int, int] = (4, 40)) -> list[dict]:
    """Items of random words: a context, four choices of 1 to 8 words each, and the number of one that counts as right."""
    draw = random.Random(seed)

    def text(least: int, most: int) -> str:
        return " ".join(draw.choices(models.WORDS, k=draw.randint(least, most)))

    return [
        {"context": text(*words), "choices": [" " + text(1, 8) for _ in range(4)], "answer": draw.randrange(4)}
        for _ in range(count)
    ]


def command(folder: pathlib.Path, url: str, tokenizer: pathlib.Path, batch: int, concurrent: int) -> list[str]:
    """lm_eval's command line for the items in `folder`, which is where it is to be started."""
    arguments = {
        "model": "any",
        "base_url": f"{url}/v1/completions",
        "tokenizer": tokenizer,
        "tokenizer_backend": "huggingface",
        "num_concurrent": concurrent,
        "max_retries": 1,
        "max_length": 2048,
    }
    flags = {
        "--model": "local-completions",
        "--model_args": ",".join(f"{name}={value}" for name, value in arguments.items()),
        "--tasks": TASK,
        "--include_path": ROOT / "tests" / "python" / "lm_eval_task",
        "--batch_size": batch,
        "--output_path": folder / "results",
    }
    return [str(LM_EVAL), "run", *(str(part) for flag in flags.items() for part in flag), "--log_samples"]


def environment(folder: pathlib.Path, key: str) -> dict[str, str]:
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HOME": str(folder / "home")}
    return os.environ | offline | {"OPENAI_API_KEY": key}


def evaluate(
    folder: pathlib.Path, rows: list[dict], url: str, key: str, tokenizer: pathlib.Path, batch: int = 1, concurrent: int = 1
) -> tuple[list[Answer], float]:
    """Every choice's answer, item by item, and the accuracy."""
    folder.mkdir(parents=True)
    (folder / "choices.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = command(folder, url, tokenizer, batch, concurrent)
    done = subprocess.run(line, cwd=folder, env=environment(folder, key), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    (samples,) = (folder / "results").rglob("samples_*.jsonl")
    (results,) = (folder / "results").rglob("results_*.json")
    found = sorted((json.loads(line) for line in samples.read_text().splitlines()), key=lambda sample: sample["doc_id"])
    answers = []
    for sample in found:
        for number, [[loglikelihood, is_greedy]] in enumerate(sample["resps"]):
            asked = sample["arguments"][f"gen_args_{number}"]
            answers.append(Answer(asked["arg_0"], asked["arg_1"], float(loglikelihood), is_greedy in (True, "True")))
    return answers, json.loads(results.read_text())["results"][TASK]["acc,none"]


def expected(model: models.Decoder, context: str, continuation: str) -> tuple[float, bool]:
    """The reference's answer."""
    ids, start = model.tokenize(context + continuation), len(model.tokenize(context))
    rows = model.logprobs(ids)[start - 1 : -1]
    chosen = rows[range(len(rows)), ids[start:]]
    return chosen.sum(), bool((chosen == rows.max(axis=1)).all())

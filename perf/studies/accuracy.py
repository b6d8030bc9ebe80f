"""How far are the log-probabilities of a quantised model from those of its exact weights, ours and llama.cpp's?

The exact side is a copy of the file with all weights as 32-bit floats, made here, served with llama.cpp's kernels, an F32
cache and no flash attention. Each token of a text is scored: --tokens of the first paragraphs of docs/operations.md, in
prompts of --prompt tokens. "ours" has the defaults, "llama.cpp's" --kernels llama --flash-attn llama. Prints the mean and
the largest distance of a token's log-probability, in nats, and how often the most probable token is another one. It needs
numpy and gguf: target/venv/bin/python perf/study accuracy --model FILE.
"""

import contextlib
import json
import pathlib
import statistics
import tempfile

from shared.report import add, add_server, needed, row, table, write
from shared.requests import post
from shared.server import Server

TEXT = pathlib.Path(__file__).parents[2] / "docs" / "operations.md"
SIDES = {"ours": [], "llama.cpp's": ["--kernels=llama", "--flash-attn=llama"]}
EXACT = ["--kernels=llama", "--cache-type-k=f32", "--cache-type-v=f32", "--flash-attn=off"]


def arguments(parser) -> None:
    add_server(parser)
    add(parser, tokens=1400, prompt=350)


def run(args) -> dict:
    gguf = needed("gguf", "numpy and gguf")
    found = {}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        exact = folder / "exact.gguf"
        copy_exactly(gguf, args.model, exact)
        prompts = None
        for name, model, flags in [("exact", exact, EXACT), *((name, args.model, flags) for name, flags in SIDES.items())]:
            with Server(*flags, model=model, binary=args.binary) as server:
                prompts = prompts or cut(server.url, args.tokens, args.prompt)
                found[name] = [token for prompt in prompts for token in scores(server.url, prompt)]
    table("kernels", "tokens", "mean, nats", "largest", "other first token")
    result = {}
    for name in SIDES:
        pairs = list(zip(found[name], found["exact"], strict=True))
        distances = [abs(ours["logprob"] - exact["logprob"]) for ours, exact in pairs]
        others = sum(ours["first"] != exact["first"] for ours, exact in pairs)
        result[name] = {"mean": statistics.mean(distances), "largest": max(distances), "other_first": others / len(pairs)}
        row(name, len(pairs), f"{result[name]['mean']:.4f}", f"{max(distances):.3f}", f"{100 * others / len(pairs):.1f} %")
    write(args.json, result)
    return result


def copy_exactly(gguf, model, to: pathlib.Path) -> None:
    """Writes a copy of a GGUF file whose weights are 32-bit floats."""
    reader = gguf.GGUFReader(model)
    writer = gguf.GGUFWriter(to, str(reader.fields["general.architecture"].contents()))
    for field in reader.fields.values():
        is_made = field.name.startswith("GGUF.") or field.name in ["general.architecture", "general.file_type"]
        if not is_made:
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, weights.astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def ask(url: str, path: str, body: dict) -> dict:
    status, answer = post(url, path, body, timeout=600)
    assert status == 200, answer
    return json.loads(answer)


def cut(url: str, tokens: int, of_prompt: int) -> list[list[int]]:
    """The text in prompts of some tokens, each behind the tokens with which the model's texts begin."""
    text = TEXT.read_text()
    ids, whole = (ask(url, "/tokenize", {"content": text, "add_special": add})["tokens"] for add in (False, True))
    begin = whole[: whole.index(ids[0])]
    return [begin + ids[at : at + of_prompt] for at in range(0, min(tokens, len(ids)), of_prompt)]


def scores(url: str, prompt: list[int]) -> list[dict]:
    """The log-probability of each token but the first, and the most probable token there."""
    body = {"prompt": prompt, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
    logprobs = ask(url, "/v1/completions", body)["choices"][0]["logprobs"]
    tokens = list(zip(logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True))[1 : len(prompt)]
    return [{"logprob": logprob, "first": max(top, key=top.get)} for logprob, top in tokens]

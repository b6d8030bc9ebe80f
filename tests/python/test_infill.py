"""Filling gaps in code, with the requests that the plugins llama.vim and llama.vscode send.

Both send the same fields, as their documentation describes them. Before a completion they also send the request
with n_predict 0, which only brings the surroundings into the cache.
"""

import json

import httpx
import models
import pytest
from conftest import EXACT, KEY, Written, address, running

# The ring of chunks from other files.
EXTRA = [
    {"filename": "src/token.rs", "text": "pub struct Token {\n    id: u32,\n}\n"},
    {"filename": "src/main.rs", "text": "fn main() {\n    let value = compute(1, 2);\n    print(value);\n}\n"},
]
BEFORE = "fn compute(first: u32, second: u32) -> u32 {\n    let value = first + second;\n"
BEGUN = "    let next = va"
AFTER = ";\n    return value;\n}\n"

PLUGIN = {
    "input_prefix": BEFORE,
    "prompt": BEGUN,
    "input_suffix": AFTER,
    "input_extra": EXTRA,
    "n_predict": 16,
    "n_indent": 4,
    "top_k": 40,
    "top_p": 0.9,
    "samplers": ["top_k", "top_p", "infill"],
    "stream": False,
    "cache_prompt": True,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 500,
    "seed": 1,
    "response_fields": [
        "content",
        "timings/prompt_n",
        "timings/prompt_ms",
        "timings/prompt_per_token_ms",
        "timings/prompt_per_second",
        "timings/predicted_n",
        "timings/predicted_ms",
        "timings/predicted_per_token_ms",
        "timings/predicted_per_second",
        "truncated",
        "tokens_cached",
    ],
}
WARM_UP = {
    "input_prefix": "",
    "input_suffix": "",
    "input_extra": EXTRA,
    "prompt": "",
    "n_predict": 0,
    "samplers": [],
    "stream": False,
    "cache_prompt": True,
    "t_max_prompt_ms": 1,
    "t_max_predict_ms": 1,
    "response_fields": [""],
}
GREEDY = {"input_prefix": BEFORE, "prompt": BEGUN, "input_suffix": AFTER, "n_predict": 12, "temperature": 0, "ignore_eos": True}


def post(server, path, body):
    return httpx.post(f"{server}{path}", json=body, headers={"authorization": f"Bearer {KEY}"}, timeout=60)


def ask(server, path="/infill", **body):
    response = post(server, path, body)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.fixture(scope="module")
def server(decoder):
    with running("--model", decoder.path, *EXACT) as text:
        yield address(text)


@pytest.fixture(scope="module")
def variants(tmp_path_factory, decoder, server):
    """Servers with a model that has all tokens, one that lacks those of repositories, and one whose texts have a first token."""
    folder = tmp_path_factory.mktemp("infill")
    bare, begun = folder / "bare.gguf", folder / "begun.gguf"
    bare = Written(bare, models.write_decoder(bare, models.LLAMA, fim=("pre", "suf", "mid")))
    begun = Written(begun, models.write_decoder(begun, models.LLAMA, bos=True))
    with running("--model", bare.path, *EXACT) as one, running("--model", begun.path, *EXACT) as other:
        yield {
            "all": (server, decoder.model),
            "bare": (address(one), bare.model),
            "begun": (address(other), begun.model),
        }


def prompt_ids(model, prefix, suffix, begun, extra=()):
    """The whole prompt, in the order of Qwen2.5-Coder's repositories (https://arxiv.org/abs/2409.12186)."""
    fim = model.fim
    ids = [model.ids[model.bos]] if model.bos else []
    if "rep" in fim:
        ids += [fim["rep"], *model.tokenize("myproject\n")]
    for chunk in extra:
        mark = [fim["sep"], *model.tokenize(chunk["filename"] + "\n")] if "sep" in fim else model.tokenize("\n\n--- snippet ---\n\n")
        ids += mark + model.tokenize(chunk["text"])
    if "sep" in fim:
        ids += [fim["sep"], *model.tokenize("filename\n")]
    return ids + [
        fim["pre"], *model.tokenize(prefix), fim["suf"], *model.tokenize(suffix), fim["mid"], *model.tokenize(begun)
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["all", "bare", "begun"])
@pytest.mark.parametrize("extra", [[], EXTRA])
def test_the_prompts_order(variants, name, extra):
    server, model = variants[name]
    ids = prompt_ids(model, BEFORE, AFTER, BEGUN, extra)
    filled = ask(server, **GREEDY, input_extra=extra, return_tokens=True)
    by_hand = ask(server, "/completion", prompt=ids, n_predict=12, temperature=0, ignore_eos=True, return_tokens=True)
    assert filled["tokens_evaluated"] == by_hand["tokens_evaluated"] == len(ids)
    assert filled["tokens"] == by_hand["tokens"] and filled["content"] == by_hand["content"]
    ends = [model.ids[token] for token in models.SPECIAL if token in model.ids]
    reference = model.greedy(ids, 12)
    if not set(reference) & set(ends):
        assert filled["tokens"] == reference
    assert filled["stop"] is True and filled["stop_type"] == "limit"


def test_a_plugins_request(server):
    answer = ask(server, **PLUGIN)
    assert isinstance(answer["content"], str)
    assert set(answer) <= set(PLUGIN["response_fields"])
    for name in ["content", "timings/prompt_n", "timings/prompt_ms", "timings/predicted_n", "timings/predicted_ms"]:
        assert name in answer
    assert answer["timings/predicted_n"] <= PLUGIN["n_predict"]


def test_the_warm_up_fills_the_cache_and_says_nothing(server):
    texts = [{"filename": "src/warm.rs", "text": "let warm = value;\n" * 20}]
    assert ask(server, **WARM_UP | {"input_extra": texts}) == {}
    timings = ask(server, **GREEDY, input_extra=texts)["timings"]
    assert timings["cache_n"] > 100 > timings["prompt_n"]


def test_typing_on_in_a_line_finds_the_rest_in_the_cache(server, decoder):
    """What is typed comes last in the prompt, so everything else stays as it was."""
    before = BEFORE.replace("compute", "typing")
    first = ask(server, **GREEDY | {"input_prefix": before}, input_extra=EXTRA)["timings"]
    assert first["cache_n"] + first["prompt_n"] == len(prompt_ids(decoder.model, before, AFTER, BEGUN, EXTRA))
    begun = len(decoder.model.tokenize(BEGUN))
    for typed in ["l", "lu", "lue", "lue + 1"]:
        timings = ask(server, **GREEDY | {"input_prefix": before, "prompt": BEGUN + typed}, input_extra=EXTRA)["timings"]
        whole = len(prompt_ids(decoder.model, before, AFTER, BEGUN + typed, EXTRA))
        assert timings["cache_n"] + timings["prompt_n"] == whole
        assert timings["cache_n"] >= whole - len(decoder.model.tokenize(BEGUN + typed)) - 1
        assert timings["prompt_n"] <= begun + 8


def test_moving_to_the_next_line_finds_the_lines_before_it(server, decoder):
    model = decoder.model
    before = BEFORE.replace("compute", "moving")
    ask(server, **GREEDY | {"input_prefix": before}, input_extra=EXTRA)
    lines = before + BEGUN + "lue" + AFTER[:2]
    moved = GREEDY | {"input_prefix": lines, "prompt": "    ", "input_suffix": "\n" + AFTER[2:]}
    timings = ask(server, **moved, input_extra=EXTRA)["timings"]
    # Everything up to the old prefix's last token; the line that was typed is new, and so is the suffix behind it.
    unchanged = len(prompt_ids(model, before, AFTER, BEGUN, EXTRA)) - len(model.tokenize(AFTER)) - len(model.tokenize(BEGUN)) - 2
    assert timings["cache_n"] >= unchanged - 1


def test_without_the_cache_everything_is_computed(server):
    ask(server, **GREEDY)
    timings = ask(server, **GREEDY, cache_prompt=False)["timings"]
    assert timings["cache_n"] == 0 and timings["prompt_n"] > 30


def forced(*lines):
    """A grammar that leaves the model one text."""
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for line in lines)
    return 'root ::= "' + "".join(escaped) + '"'


def test_a_line_with_less_indentation_ends_the_text(server):
    lines = ["first();\n", "        second();\n", "    third();\n", "}\n", "        fifth();\n"]
    body = GREEDY | {"grammar": forced(*lines), "n_predict": 200, "ignore_eos": False}
    assert ask(server, **body)["content"] == "".join(lines)
    for n_indent, kept in [(8, 2), (5, 2), (4, 3), (1, 3), (0, 5)]:
        answer = ask(server, **body, n_indent=n_indent)
        assert answer["content"].rstrip() == "".join(lines[:kept]).rstrip()
        if n_indent:
            assert answer["stop_type"] == "limit"


def test_indentation_in_a_stream(server):
    lines = ["first();\n", "        second();\n", "    third();\n"]
    body = GREEDY | {"grammar": forced(*lines), "n_predict": 200, "ignore_eos": False, "n_indent": 8}
    whole = ask(server, **body)["content"]
    response = post(server, "/infill", body | {"stream": True})
    events = [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line.startswith("data: {")]
    assert "".join(event["content"] for event in events).rstrip() == whole.rstrip()
    assert events[-1]["stop"] is True


def test_a_line_ends_the_text_once_its_time_is_over(server):
    line = "value = first + second + third + fourth + fifth + sixth;\n" * 3
    lines = [line.replace("\n", " ")[:-1] + "\n"] * 4
    body = GREEDY | {"grammar": forced(*lines), "n_predict": 900, "ignore_eos": False, "input_prefix": "", "input_suffix": ""}
    assert ask(server, **body, t_max_predict_ms=60_000)["content"].count("\n") == 4
    answer = ask(server, **body, t_max_predict_ms=1)
    assert answer["content"] == lines[0]
    assert answer["stop_type"] == "limit"
    assert ask(server, **body, t_max_predict_ms=0)["content"].count("\n") == 4


def test_a_stream_is_the_whole_answer(server):
    whole = ask(server, **GREEDY)
    response = post(server, "/infill", GREEDY | {"stream": True})
    events = [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line.startswith("data: {")]
    assert "".join(event["content"] for event in events) == whole["content"]
    assert events[-1]["stop"] is True and events[-1]["timings"]["predicted_n"] == whole["timings"]["predicted_n"]


def test_texts_that_look_like_tokens_are_texts(server, decoder):
    """A file may contain the names of the tokens."""
    text = "let mark = \"<|fim_middle|>\";\n"
    ids = prompt_ids(decoder.model, text, AFTER, "")
    assert ask(server, **GREEDY | {"input_prefix": text, "prompt": ""})["tokens_evaluated"] == len(ids)


def test_a_gap_without_surroundings(server, decoder):
    answer = ask(server, input_prefix="", input_suffix="", n_predict=4, temperature=0, ignore_eos=True)
    assert answer["tokens_evaluated"] == len(prompt_ids(decoder.model, "", "", ""))


@pytest.mark.parametrize(
    "field,value",
    [
        ("input_prefix", 5),
        ("input_suffix", ["a"]),
        ("prompt", {"text": "a"}),
        ("input_extra", "a text"),
        ("input_extra", [5]),
        ("input_extra", [{"filename": "a"}]),
        ("input_extra", [{"text": 5}]),
        ("input_extra", [{"text": "a", "filename": 5}]),
        ("n_indent", -1),
        ("n_indent", "four"),
        ("t_max_predict_ms", "soon"),
        ("samplers", ["infil"]),
    ],
)
def test_wrong_fields(server, field, value):
    response = post(server, "/infill", GREEDY | {field: value})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    inner = list(value[0]) if isinstance(value, list) and isinstance(value[0], dict) else []
    assert error["param"] in [field, *inner] and error["param"] in error["message"]


def test_the_samplers_work_elsewhere_too(server):
    for path in ["/completion", "/v1/completions"]:
        assert post(server, path, {"prompt": "a", "n_predict": 2, "samplers": ["top_k", "infill"]}).status_code == 200


def test_a_model_without_the_tokens(tmp_path):
    path = tmp_path / "plain.gguf"
    models.write_decoder(path, models.LLAMA, fim=())
    with running("--model", path) as text:
        response = post(address(text), "/infill", GREEDY)
    assert response.status_code == 400, response.text
    message = response.json()["error"]["message"]
    assert "cannot fill in" in message and "tokens" in message


def test_surroundings_without_room_are_cut_at_their_far_ends(server, decoder):
    before = "".join(f"    let value_{number} = first;\n" for number in range(300))
    after = "".join(f"    print(value_{number});\n" for number in range(300))
    answer = ask(server, **GREEDY | {"input_prefix": before, "input_suffix": after}, input_extra=EXTRA)
    assert 1000 < answer["tokens_evaluated"] <= decoder.model.context - GREEDY["n_predict"]
    prefix, rest = answer["prompt"].split("<|fim_prefix|>")[1].split("<|fim_suffix|>")
    suffix, begun = rest.split("<|fim_middle|>")
    assert prefix and before.endswith(prefix)
    assert suffix and after.startswith(suffix)
    assert begun == BEGUN


def test_the_nearer_excerpts_are_kept(server):
    """The last ones: plugins put the most recent chunk last."""
    extra = [{"filename": f"{number}.rs", "text": f"let value_{number} = first;\n" * 20} for number in range(20)]
    prompt = ask(server, **GREEDY, input_extra=extra)["prompt"]
    kept = [number for number in range(20) if f"<|file_sep|>{number}.rs\n" in prompt]
    assert 0 < len(kept) < 20 and kept == list(range(20 - len(kept), 20))


def test_a_begun_line_without_room(server):
    response = post(server, "/infill", GREEDY | {"prompt": "value " * 3000})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_lines_typed_at_the_end_of_a_long_file_are_found_in_the_cache(server):
    """The file's beginning is cut in large pieces, so most new lines leave it where it is."""
    before = "".join(f"    let value_{number} = second;\n" for number in range(300))
    chunks = [{"filename": f"{number}.rs", "text": f"let value_{number} = third;\n" * 10} for number in range(8)]
    hits = []
    for number in range(300, 312):
        moved = GREEDY | {"input_prefix": before, "prompt": "    ", "input_suffix": "\n", "input_extra": chunks}
        timings = ask(server, **moved)["timings"]
        hits.append(timings["cache_n"] / (timings["cache_n"] + timings["prompt_n"]))
        before += f"    let value_{number} = second;\n"
    assert sum(hit > 0.9 for hit in hits) >= 9


@pytest.mark.parametrize("excerpts,after", [(0, 0), (8, 0), (0, 300), (8, 300)])
def test_typing_on_in_a_long_file_finds_the_rest_in_the_cache(server, excerpts, after):
    """The room for the surroundings shrinks with each word; where they are cut must not follow every word."""
    name = f"{excerpts}_{after}"
    before = "".join(f"    let name_{name}_{number} = second;\n" for number in range(300))
    behind = "\n" + "".join(f"    print(value_{number});\n" for number in range(after))
    chunks = [{"filename": f"{number}.rs", "text": f"let value_{number} = {name};\n" * 10} for number in range(excerpts)]
    words = "    let value = compute(first, second) + compute(second, first) + value;".split(" ")
    hits = []
    for count in range(5, len(words) + 1):
        body = GREEDY | {"input_prefix": before, "prompt": " ".join(words[:count]), "input_suffix": behind, "input_extra": chunks}
        timings = ask(server, **body)["timings"]
        hits.append(timings["cache_n"] / (timings["cache_n"] + timings["prompt_n"]))
    assert len(hits) > 8 and sum(hit > 0.8 for hit in hits[1:]) >= len(hits) - 2, hits

"""The log-probabilities of a prompt's tokens, which evaluations read, against the reference in float64."""

import json
import random

import evaluation
import httpx
import models
import pytest
from conftest import EXACT, KEY, address, openai_client, running

TEXTS = [
    "the cat sat on the mat",
    "fn main() {\n    let value = compute(first, 42);\n\n    return value;\n}\n",
    "a dog ran over the hill, and the river ran down the hill  to the ship.",
]
CLOSE = 1e-3
ENDS = {models.TEXT_END, models.TURN_END}


@pytest.fixture(scope="module")
def server(decoder):
    with running("--model", decoder.path, *EXACT) as text:
        yield address(text)


@pytest.fixture(scope="module")
def model(decoder):
    return decoder.model


@pytest.fixture
def ask(server):
    def ask(prompt, **fields):
        body = {"prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 0, "temperature": 0} | fields
        response = httpx.post(f"{server}/v1/completions", json=body, headers={"authorization": f"Bearer {KEY}"}, timeout=60)
        assert response.status_code == 200, response.text
        return response.json()

    return ask


def check(model, choice, prompt, generated, top):
    """Holds a choice's text and logprobs to the reference. `prompt` and `generated` are token ids."""
    ids = prompt + generated
    rows = model.logprobs(ids)
    logprobs = choice["logprobs"]
    assert choice["text"] == model.detokenize(ids).decode(errors="replace")
    assert {len(logprobs[name]) for name in ("tokens", "token_logprobs", "text_offset")} == {len(ids)}
    assert logprobs["token_logprobs"][0] is None
    reference = [rows[at - 1][ids[at]] for at in range(1, len(ids))]
    assert logprobs["token_logprobs"][1:] == pytest.approx(reference, abs=CLOSE)
    offset = 0
    for at, token in enumerate(logprobs["tokens"]):
        assert logprobs["text_offset"][at] == offset
        assert choice["text"].startswith(token, offset)
        offset += len(token)
    if top == 0:
        return
    assert len(logprobs["top_logprobs"]) == len(ids)
    assert logprobs["top_logprobs"][0] is None
    for at in range(1, len(ids)):
        found = logprobs["top_logprobs"][at]
        best = sorted(rows[at - 1], reverse=True)[:top]
        # The most probable tokens, and the chosen one if it is not among them.
        assert top <= len(found) <= top + 1
        assert sorted(found.values(), reverse=True)[:top] == pytest.approx(best, abs=CLOSE)
        assert logprobs["token_logprobs"][at] in found.values()


@pytest.fixture(scope="module")
def prompts(model):
    """Texts that the model does not end within three tokens."""
    draw, found = random.Random(1), []
    while len(found) < 3:
        text = " ".join(draw.choices(models.WORDS, k=draw.randint(5, 30)))
        if not ENDS & {model.tokens[number] for number in model.greedy(model.tokenize(text), 3)}:
            found.append(text)
    return found


def ended_words(model):
    """Two words behind which the model ends the text."""
    pairs = ((one, other) for one in models.WORDS for other in models.WORDS)
    return next(pair for pair in pairs if model.tokens[model.greedy(model.tokenize(" ".join(pair)), 1)[0]] in ENDS)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("top", range(6))
def test_a_texts_tokens(model, ask, text, top):
    answer = ask(text, logprobs=top)
    check(model, answer["choices"][0], model.tokenize(text), [], top)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["prompt_tokens"] == len(model.tokenize(text))
    assert answer["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize("count", [0, 1, 3])
def test_generated_tokens_follow_the_prompts(model, ask, prompts, count):
    for text in prompts:
        ids = model.tokenize(text)
        answer = ask(text, max_tokens=count, logprobs=2)
        check(model, answer["choices"][0], ids, model.greedy(ids, count), 2)
        assert answer["usage"]["completion_tokens"] == count


def test_token_ids_are_taken_as_they_are(model, ask):
    ids = model.tokenize(TEXTS[0])
    by_text = ask(TEXTS[0])["choices"][0]
    for prompt in (ids, [ids]):
        choice = ask(prompt)["choices"][0]
        check(model, choice, ids, [], 1)
        assert choice["text"] == TEXTS[0]
        # A kernel of llama.cpp may round otherwise when some tokens of the prompt are in the cache.
        for name, scores in by_text["logprobs"].items():
            close = [pytest.approx(score, abs=CLOSE) if score else score for score in scores]
            assert choice["logprobs"][name] == (close if "logprobs" in name else scores)


def test_several_prompts_in_one_request(model, ask):
    for prompts in (TEXTS, [model.tokenize(text) for text in TEXTS]):
        choices = ask(prompts)["choices"]
        assert [choice["index"] for choice in choices] == [0, 1, 2]
        for choice, text in zip(choices, TEXTS):
            check(model, choice, model.tokenize(text), [], 1)


def test_all_choices_have_the_prompt(model, ask, prompts):
    ids = model.tokenize(prompts[0])
    choices = ask(prompts[0], n=2, max_tokens=3)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1]
    for choice in choices:
        check(model, choice, ids, model.greedy(ids, 3), 1)


def test_a_prompt_of_one_token(model, ask):
    ids = model.tokenize("a")
    assert len(ids) == 1
    logprobs = ask("a")["choices"][0]["logprobs"]
    assert logprobs == {"tokens": ["a"], "token_logprobs": [None], "top_logprobs": [None], "text_offset": [0]}
    with_one = ask(ids, max_tokens=1, logprobs=5)["choices"][0]["logprobs"]
    assert with_one["token_logprobs"][1] == pytest.approx(model.logprobs(ids)[0].max(), abs=CLOSE)


def test_a_repeated_prompt_has_the_same_logprobs(model, ask):
    """The KV cache has no logits: a prompt that it holds is computed again, or remembered."""
    first = ask(TEXTS[2])["choices"][0]["logprobs"]
    longer = TEXTS[2] + " and then"
    check(model, ask(longer)["choices"][0], model.tokenize(longer), [], 1)
    again = ask(TEXTS[2])["choices"][0]["logprobs"]
    assert again["token_logprobs"][1:] == pytest.approx(first["token_logprobs"][1:], abs=CLOSE)


def test_a_prompt_over_several_steps(model, server, ask):
    """Longer than a batch of llama.cpp."""
    text = " ".join(TEXTS[:1] * 90)
    assert len(model.tokenize(text)) > 600
    check(model, ask(text)["choices"][0], model.tokenize(text), [], 1)


def test_the_generated_token_is_there_even_if_it_ends_the_text(model, ask):
    """lm_eval asks for one token and drops the last logprob, whatever the token is."""
    text = " ".join(ended_words(model))
    choice = ask(text, max_tokens=1)["choices"][0]
    assert choice["text"] == text and choice["finish_reason"] == "stop"
    ids = model.tokenize(text)
    assert len(choice["logprobs"]["token_logprobs"]) == len(ids) + 1
    assert choice["logprobs"]["token_logprobs"][-1] == pytest.approx(model.logprobs(ids)[-1].max(), abs=CLOSE)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_streams_events_together_are_the_whole_answer(server, ask, prompts, count):
    whole = ask(prompts[0], max_tokens=count, logprobs=2)["choices"][0]
    body = {"prompt": prompts[0], "echo": True, "logprobs": 2, "max_tokens": count, "temperature": 0, "stream": True}
    joined = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    text, reason = "", None
    with httpx.stream("POST", f"{server}/v1/completions", json=body, headers={"authorization": f"Bearer {KEY}"}) as response:
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line.removeprefix("data: "))["choices"]:
                text += choice["text"]
                reason = choice["finish_reason"] or reason
                for name, values in (choice["logprobs"] or {}).items():
                    joined[name] += values
    assert text == whole["text"] and reason == whole["finish_reason"]
    for name, values in whole["logprobs"].items():
        if name == "top_logprobs":
            assert [found and sorted(found) for found in joined[name]] == [found and sorted(found) for found in values]
        elif name == "token_logprobs":
            assert joined[name][0] is None and joined[name][1:] == pytest.approx(values[1:], abs=CLOSE)
        else:
            assert joined[name] == values


def test_the_openai_client_reads_it(model, server):
    client = openai_client(server)
    completion = client.completions.create(model="any", prompt=TEXTS[0], echo=True, logprobs=1, max_tokens=1, temperature=0)
    logprobs = completion.choices[0].logprobs
    assert len(logprobs.tokens) == len(model.tokenize(TEXTS[0])) + 1
    assert logprobs.token_logprobs[0] is None and logprobs.text_offset[0] == 0


def telling_items(model):
    """Random items, some with the model's own continuation as a choice, and one behind which the model ends the text."""
    rows = evaluation.items(seed=3, count=24)
    for row in rows[::3]:
        ids = model.tokenize(row["context"])
        for count in (3, 2, 1):
            continued = model.detokenize(model.greedy(ids, count)).decode()
            if model.tokenize(row["context"] + continued) == ids + model.greedy(ids, count):
                row["choices"][1] = continued
                break
    first, second = ended_words(model)
    return [*rows, {"context": first, "choices": [f" {second}", " on", " in", " the"], "answer": 0}]




@pytest.mark.parametrize("batch,concurrent", [(1, 1), (8, 4)])
def test_lm_eval_finds_the_references_loglikelihoods(model, server, tmp_path, batch, concurrent):
    model.write_tokenizer(tmp_path / "tokenizer")
    rows = telling_items(model)
    answers, accuracy = evaluation.evaluate(tmp_path / "run", rows, server, KEY, tmp_path / "tokenizer", batch, concurrent)
    assert len(answers) == 4 * len(rows)
    references = [evaluation.expected(model, answer.context, answer.continuation) for answer in answers]
    assert 5 <= sum(greedy for _, greedy in references) <= 20
    asked = [(answer.context, answer.continuation) for answer in answers]
    assert asked == [(row["context"], choice) for row in rows for choice in row["choices"]]
    assert [answer.loglikelihood for answer in answers] == pytest.approx([sum for sum, _ in references], abs=CLOSE)
    assert [answer.is_greedy for answer in answers] == [greedy for _, greedy in references]
    best = [max(range(4), key=lambda choice: references[4 * row + choice][0]) for row in range(len(rows))]
    assert accuracy == pytest.approx(sum(row["answer"] == choice for row, choice in zip(rows, best)) / len(rows))

"""Chat with the official `openai` package against the real binary."""

import enum
import json
import re
from typing import Annotated, Literal

import openai
import pydantic
import pytest
from conftest import MODEL

SUM = [{"role": "user", "content": "What is 3 plus 4?"}]
STORY = [{"role": "user", "content": "Tell me a story about a dragon."}]
GREEDY = {"model": MODEL, "temperature": 0, "max_tokens": 60}


def test_chat(client):
    chat = client.chat.completions.create(**GREEDY, messages=SUM)
    [choice] = chat.choices
    assert (chat.object, chat.model) == ("chat.completion", MODEL)
    assert (choice.index, choice.finish_reason, choice.message.role) == (0, "stop", "assistant")
    assert "7" in choice.message.content
    assert choice.message.tool_calls is None
    usage = chat.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens


def test_every_role_and_form_of_content(client):
    def text(part):
        return {"type": "text", "text": part}

    messages = [
        {"role": "system", "content": "You are a friendly assistant."},
        {"role": "user", "content": [text("Hello!")]},
        {"role": "assistant", "content": "Hello! How can I help you?"},
        {"role": "user", "content": [text("I have a question."), text("What is 8 plus 6?")]},
    ]
    chat = client.chat.completions.create(**GREEDY, messages=messages)
    assert "14" in chat.choices[0].message.content
    as_developer = [{"role": "developer", "content": messages[0]["content"]}, *messages[1:]]
    again = client.chat.completions.create(**GREEDY, messages=as_developer)
    assert again.choices[0].message.content == chat.choices[0].message.content


def test_llama_servers_name_for_the_length(client):
    chat = client.chat.completions.create(model=MODEL, messages=STORY, extra_body={"n_predict": 3})
    assert (chat.usage.completion_tokens, chat.choices[0].finish_reason) == (3, "length")


def test_stream_equals_whole(client):
    whole = client.chat.completions.create(**GREEDY, messages=STORY)
    stream = client.chat.completions.create(
        **GREEDY, messages=STORY, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert choices[0].delta.role == "assistant" and choices[0].delta.content == ""
    assert all(choice.delta.role is None for choice in choices[1:]) and choices[1].delta.content
    text = "".join(choice.delta.content or "" for choice in choices)
    assert text == whole.choices[0].message.content
    reasons = [choice.finish_reason for choice in choices if choice.finish_reason]
    assert reasons == [whole.choices[0].finish_reason]
    assert len(choices) > 20, "token by token"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_two_choices(client):
    hot = {"model": MODEL, "messages": STORY, "temperature": 1.2, "seed": 3}
    hot |= {"n": 2, "max_tokens": 30}
    whole = client.chat.completions.create(**hot)
    assert [choice.index for choice in whole.choices] == [0, 1]
    texts = [choice.message.content for choice in whole.choices]
    assert texts[0] != texts[1]
    assert 30 < whole.usage.completion_tokens <= 60
    streamed, reasons = ["", ""], [[], []]
    for chunk in client.chat.completions.create(**hot, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
            reasons[choice.index] += [choice.finish_reason] if choice.finish_reason else []
    assert all(streamed) and [len(found) for found in reasons] == [1, 1]


def test_the_bounds_of_an_answer(client):
    short = client.chat.completions.create(
        model=MODEL, messages=STORY, temperature=0, max_completion_tokens=3
    )
    assert short.usage.completion_tokens == 3
    assert short.choices[0].finish_reason == "length"
    whole = client.chat.completions.create(**GREEDY, messages=STORY).choices[0].message.content
    stop = whole.split()[4]
    stopped = client.chat.completions.create(**GREEDY, messages=STORY, stop=[stop]).choices[0]
    assert stopped.message.content == whole[: whole.index(stop)]
    assert stopped.finish_reason == "stop"


def test_logprobs(client):
    chat = client.chat.completions.create(**GREEDY, messages=SUM, logprobs=True, top_logprobs=3)
    tokens = chat.choices[0].logprobs.content
    text = b"".join(bytes(token.bytes) for token in tokens)
    assert text.decode().startswith(chat.choices[0].message.content)
    for token in tokens:
        top = [other.logprob for other in token.top_logprobs]
        assert len(top) == 3 and top == sorted(top, reverse=True)
        assert token.logprob <= 0
        assert token.logprob == pytest.approx(top[0]), "greedy takes the first"
    streamed = client.chat.completions.create(
        **GREEDY, messages=SUM, logprobs=True, top_logprobs=3, stream=True
    )
    found = [chunk.choices[0].logprobs for chunk in streamed if chunk.choices]
    again = [token.logprob for logprobs in found if logprobs for token in logprobs.content or []]
    assert again == pytest.approx([token.logprob for token in tokens], abs=1e-2)


def test_logprobs_of_a_completion(client):
    completion = client.completions.create(
        **GREEDY | {"max_tokens": 8}, prompt="Once upon a time", logprobs=2
    )
    [choice] = completion.choices
    found = choice.logprobs
    assert "".join(found.tokens) == choice.text
    lists = (found.tokens, found.token_logprobs, found.top_logprobs, found.text_offset)
    assert len({len(one) for one in lists}) == 1
    assert all(1 <= len(top) <= 3 for top in found.top_logprobs)
    echoed = client.completions.create(
        **GREEDY | {"max_tokens": 1}, prompt="Once upon a time", echo=True
    ).choices[0]
    assert echoed.text.startswith("Once upon a time") and len(echoed.text) > 16


# Structured output ------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Owner(pydantic.BaseModel):
    name: Annotated[str, pydantic.Field(pattern="^[A-Z][a-z]{1,6}$")]


class Animal(pydantic.BaseModel):
    """Nothing in it can go on for ever, so that even this model comes to its end."""

    kind: Literal["cat", "dog"]
    colour: Colour
    age: Annotated[int, pydantic.Field(ge=0, le=20)]
    tame: bool
    likes: Annotated[list[Literal["milk", "fish"]], pydantic.Field(max_length=2)]
    owner: Owner | None


ANIMAL = [{"role": "user", "content": "Describe a cat named Moss as JSON."}]


def test_a_pydantic_model(client):
    for seed in range(5):
        chat = client.chat.completions.parse(
            model=MODEL,
            messages=ANIMAL,
            response_format=Animal,
            temperature=1.5,
            seed=seed,
            max_tokens=200,
        )
        assert isinstance(chat.choices[0].message.parsed, Animal)


def test_a_pydantic_model_streamed(client):
    with client.chat.completions.stream(
        model=MODEL, messages=ANIMAL, response_format=Animal, temperature=0, max_tokens=200
    ) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Animal)
    assert "".join(deltas) == final.choices[0].message.content


def test_a_model_that_is_cut_off_is_told_apart(client):
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model=MODEL, messages=ANIMAL, response_format=Animal, max_tokens=3
        )


def test_any_json_object(client):
    chat = client.chat.completions.create(
        **GREEDY | {"max_tokens": 200}, messages=ANIMAL, response_format={"type": "json_object"}
    )
    assert isinstance(json.loads(chat.choices[0].message.content), dict)


def test_other_constraints_travel_in_extra_body(client):
    def answer(**constraint):
        chat = client.chat.completions.create(**GREEDY, messages=ANIMAL, extra_body=constraint)
        return chat.choices[0].message.content

    assert answer(grammar='root ::= "yes" | "no"') in ("yes", "no")
    assert answer(guided_choice=["left", "right"]) in ("left", "right")
    assert re.fullmatch("[0-9]{3}-[0-9]{2}", answer(regex="[0-9]{3}-[0-9]{2}"))
    assert json.loads(answer(json_schema={"enum": [1, 2]})) in (1, 2)


def test_an_unsupported_keyword_is_named(client):
    schema = {"name": "s", "schema": {"type": "object", "unevaluatedProperties": False}}
    form = {"type": "json_schema", "json_schema": schema}
    with pytest.raises(openai.BadRequestError, match="unevaluatedProperties"):
        client.chat.completions.create(**GREEDY, messages=ANIMAL, response_format=form)

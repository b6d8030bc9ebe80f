"""The official `openai` package against the real binary."""

import asyncio

import openai
import pytest
from conftest import MODEL

GREEDY = {"model": MODEL, "prompt": "Once upon a time", "temperature": 0, "max_tokens": 40}


def test_models(client):
    models = client.models.list().data
    assert [model.id for model in models] == [MODEL]


def test_completion(client):
    completion = client.completions.create(**GREEDY)
    choice = completion.choices[0]
    assert completion.object == "text_completion"
    assert completion.model == MODEL
    assert len(choice.text.split()) > 5
    assert choice.finish_reason in ("stop", "length")
    usage = completion.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.completion_tokens <= 40


def test_stream_equals_whole(client):
    whole = client.completions.create(**GREEDY)
    stream = client.completions.create(
        **GREEDY, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].text
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_several_prompts(client):
    prompts = ["Once upon a time", "The dog", "In the morning"]
    several = client.completions.create(**GREEDY | {"prompt": prompts})
    assert [choice.index for choice in several.choices] == [0, 1, 2]


def test_stop(client):
    whole = client.completions.create(**GREEDY).choices[0].text
    stop = whole.split()[5]
    stopped = client.completions.create(**GREEDY, stop=stop).choices[0]
    assert stopped.text == whole[: whole.index(stop)]
    assert stopped.finish_reason == "stop"


def test_seed(client):
    hot = GREEDY | {"temperature": 1.2, "seed": 5}
    first = client.completions.create(**hot).choices[0].text
    assert first == client.completions.create(**hot).choices[0].text
    assert first != client.completions.create(**hot | {"seed": 6}).choices[0].text


def test_extra_fields(client):
    """llama-server's and vLLM's sampling fields travel in `extra_body`."""
    completion = client.completions.create(
        **GREEDY, extra_body={"top_k": 1, "min_p": 0.1, "ignore_eos": True}
    )
    assert completion.usage.completion_tokens == 40
    assert completion.choices[0].finish_reason == "length"


def test_async_concurrent_streams(server):
    """Twenty streams at once, more than there are slots, all whole."""

    async def one(client, index):
        stream = await client.completions.create(
            **GREEDY | {"prompt": f"{index} birds"}, stream=True, extra_body={"ignore_eos": True}
        )
        return [chunk.choices[0].text async for chunk in stream]

    async def all_of_them():
        client = openai.AsyncOpenAI(base_url=f"{server}/v1", api_key="secret", max_retries=0)
        return await asyncio.gather(*(one(client, index) for index in range(20)))

    for chunks in asyncio.run(all_of_them()):
        assert len("".join(chunks)) > 20


def test_errors_are_the_right_exceptions(server, client):
    with pytest.raises(openai.BadRequestError, match="prompt is empty") as error:
        client.completions.create(model=MODEL, prompt="")
    assert error.value.param == "prompt"
    with pytest.raises(openai.BadRequestError, match="exceeds the available context size") as error:
        client.completions.create(model=MODEL, prompt="a b " * 5000)
    assert error.value.code == "context_length_exceeded"
    assert client.completions.create(model=MODEL, prompt="Once", max_tokens=100_000).choices[0].text
    with pytest.raises(openai.BadRequestError, match="temperature must be a number from 0 to 2"):
        client.completions.create(model=MODEL, prompt="a", temperature=3)
    stranger = openai.OpenAI(base_url=f"{server}/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        stranger.completions.create(**GREEDY)


def test_request_id(client):
    response = client.completions.with_raw_response.create(
        **GREEDY, extra_headers={"x-request-id": "my-request"}
    )
    assert response.headers["x-request-id"] == "my-request"


def test_a_client_that_leaves_disturbs_nobody(client):
    for _ in range(20):
        stream = client.completions.create(
            **GREEDY | {"max_tokens": 900}, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        stream.close()
    assert client.completions.create(**GREEDY).choices[0].text

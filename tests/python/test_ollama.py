"""The official `ollama` package against the real binary."""

import threading

import ollama
import pydantic
import pytest
from conftest import KEY, MODEL
from test_openai_tools import AddNumbers

SUM = [{"role": "user", "content": "What is 3 plus 4?"}]
STORY = [{"role": "user", "content": "Tell me a story about a dragon."}]
GREEDY = {"model": MODEL, "options": {"temperature": 0, "num_predict": 60}}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Says what the weather is like.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}

ADD = {"name": "AddNumbers", "parameters": AddNumbers.model_json_schema()}
ADD = {"type": "function", "function": ADD}


def client_of(server, key=KEY):
    return ollama.Client(host=server, headers={"Authorization": f"Bearer {key}"})


@pytest.fixture
def client(server):
    return client_of(server)


@pytest.fixture
def tool_client(any_tool_server):
    return client_of(any_tool_server)


def test_chat(client):
    answer = client.chat(**GREEDY, messages=SUM)
    assert (answer.model, answer.message.role, answer.done) == (MODEL, "assistant", True)
    assert "7" in answer.message.content and answer.done_reason == "stop"
    assert answer.prompt_eval_count > 5 and 1 < answer.eval_count <= 60
    assert answer.total_duration > answer.eval_duration > 0
    assert answer.created_at.startswith("20")


def test_a_stream_is_the_whole(client):
    whole = client.chat(**GREEDY, messages=STORY)
    parts = list(client.chat(**GREEDY, messages=STORY, stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len(parts) > 20, "token by token"
    assert parts[-1].eval_count == whole.eval_count
    assert parts[-1].done_reason == whole.done_reason


def test_generate(client):
    whole = client.generate(**GREEDY, prompt="What is 3 plus 4?")
    assert "7" in whole.response and whole.done
    # The same prompt as a chat's.
    assert whole.response == client.chat(**GREEDY, messages=SUM).message.content
    stream = client.generate(**GREEDY, prompt="What is 3 plus 4?", stream=True)
    assert "".join(part.response for part in stream) == whole.response
    system = client.generate(**GREEDY, prompt="Hi", system="You are a friendly assistant.")
    assert system.prompt_eval_count > client.generate(**GREEDY, prompt="Hi").prompt_eval_count
    raw = client.generate(**GREEDY, prompt="Once upon a time", raw=True)
    assert raw.prompt_eval_count < 8 and raw.response


def test_options(client):
    def say(**options):
        return client.chat(model=MODEL, messages=STORY, options=options)

    short = say(num_predict=5)
    assert (short.eval_count, short.done_reason) == (5, "length")
    first, again = (say(seed=7, num_predict=8).message.content for _ in range(2))
    assert first == again
    assert say(seed=7, num_predict=1_000_000).done_reason in ("stop", "length"), "cut to what fits"
    stopped = say(temperature=0, stop=["dragon"])
    assert "dragon" not in stopped.message.content
    say(num_ctx=4096, num_gpu=1, num_thread=4, mirostat=1, typical_p=0.9)


class Verdict(pydantic.BaseModel):
    """An answer with a form."""

    mood: str
    score: int


def test_formats(client):
    schema = Verdict.model_json_schema()
    schema["properties"] = {"mood": {"enum": ["good", "bad"]}, "score": {"enum": [1, 2]}}
    request = {"model": MODEL, "options": {"temperature": 0}}
    answer = client.chat(**request, messages=SUM, format=schema)
    Verdict.model_validate_json(answer.message.content)
    answer = client.generate(**request, prompt="Write JSON.", format="json")
    assert answer.response.startswith("{")


def test_a_tool_is_called_and_its_result_read(tool_client):
    for stream in (False, True):
        calls = []
        for seed in range(4):
            request = {"model": MODEL, "messages": SUM, "tools": [WEATHER, ADD]}
            answer = tool_client.chat(**request, options={"seed": seed}, stream=stream)
            for part in answer if stream else [answer]:
                calls += part.message.tool_calls or []
        for call in calls:
            assert call.function.name in ("get_weather", "AddNumbers")
    call = {"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}
    messages = [
        {"role": "user", "content": "What is the weather in Oslo?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_name": "get_weather", "content": "sunny"},
    ]
    answer = tool_client.chat(**GREEDY, messages=messages, tools=[WEATHER])
    alone = tool_client.chat(**GREEDY, messages=messages[:1], tools=[WEATHER])
    assert answer.prompt_eval_count > alone.prompt_eval_count + 10


def test_log_probabilities(client):
    answer = client.chat(**GREEDY, messages=SUM, logprobs=True, top_logprobs=2)
    assert "".join(item.token for item in answer.logprobs) == answer.message.content
    assert all(len(item.top_logprobs) == 2 for item in answer.logprobs)


def test_embeddings(embedding_server):
    client = client_of(embedding_server)
    answer = client.embed(model=MODEL, input=["the cat", "a dog"])
    assert len(answer.embeddings) == 2 and answer.prompt_eval_count > 2
    one = client.embeddings(model=MODEL, prompt="the cat").embedding
    assert one == pytest.approx(answer.embeddings[0], abs=1e-2)
    long = client.embed(model=MODEL, input="cat " * 5000)
    assert len(long.embeddings) == 1, "it is cut"
    with pytest.raises(ollama.ResponseError, match="it may have"):
        client.embed(model=MODEL, input="cat " * 5000, truncate=False)


def test_models(client):
    [model] = client.list().models
    assert model.model == MODEL and model.details.format == "gguf" and model.size > 1_000_000
    [running] = client.ps().models
    assert running.model == MODEL and running.expires_at.year == 2999
    shown = client.show(MODEL)
    assert shown.details.quantization_level == model.details.quantization_level
    assert {"completion", "tools"} <= set(shown.capabilities)
    assert shown.modelinfo["general.architecture"] == model.details.family
    assert "message" in shown.template


def test_loading_and_unloading_change_nothing(client):
    assert client.generate(model=MODEL, prompt="").done_reason == "load"
    assert client.generate(model=MODEL, prompt="", keep_alive=0).done_reason == "unload"
    assert client.chat(model=MODEL, messages=[]).done_reason == "load"
    assert "7" in client.chat(**GREEDY, messages=SUM).message.content


def test_errors_are_the_packages_own(server, client):
    for wrong, message in (
        ({"options": {"top_p": 2}}, "top_p must be a number from 0 to 1, not 2"),
        ({"messages": [{"role": "king", "content": "a"}]}, "role must be system, user"),
        ({"messages": [{"role": "user", "content": "a " * 3000}]}, "a request may have"),
    ):
        with pytest.raises(ollama.ResponseError, match=message) as error:
            client.chat(**{"model": MODEL, "messages": SUM} | wrong)
        assert error.value.status_code == 400
    with pytest.raises(ollama.ResponseError, match="not valid") as error:
        client_of(server, "wrong").chat(model=MODEL, messages=SUM)
    assert error.value.status_code == 401
    with pytest.raises(ollama.ResponseError) as error:
        client.pull("another")
    assert error.value.status_code == 404


def test_many_at_once(client):
    """Streams beside each other are the texts alone."""
    alone = client.chat(**GREEDY, messages=STORY).message.content
    texts = []

    def read():
        parts = client.chat(**GREEDY, messages=STORY, stream=True)
        texts.append("".join(part.message.content for part in parts))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [alone] * 4

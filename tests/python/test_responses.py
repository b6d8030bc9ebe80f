"""OpenAI's Responses API with the official packages `openai` and `openai-agents` against the real binary."""

import asyncio
import json
from typing import Literal

import agents
import openai
import pydantic
import pytest
from conftest import KEY, MODEL, openai_client

SUM = "What is 3 plus 4?"
GREEDY = {"model": MODEL, "temperature": 0, "max_output_tokens": 60}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "name": "get_weather", "parameters": CITY, "strict": True}


@pytest.fixture
def tool_client(any_tool_server):
    return openai_client(any_tool_server)


def test_a_response(client):
    response = client.responses.create(**GREEDY, input=SUM)
    assert (response.object, response.status, response.model) == ("response", "completed", MODEL)
    assert "7" in response.output_text
    [item] = response.output
    assert (item.type, item.role, item.status) == ("message", "assistant", "completed")
    usage = response.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert (response.temperature, response.store, response.tools) == (0, True, [])
    chat = client.chat.completions.create(
        model=MODEL, temperature=0, max_tokens=60, messages=[{"role": "user", "content": SUM}]
    )
    assert chat.choices[0].message.content == response.output_text


def test_every_form_of_input(client):
    items = [
        {"role": "developer", "content": "You are a friendly assistant."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hello!"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Hello!"}]},
        {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "sunny"},
        {"role": "user", "content": SUM},
    ]
    response = client.responses.create(**GREEDY, input=items)
    assert response.status == "completed" and response.output_text
    count = client.responses.input_tokens.count(model=MODEL, input=items)
    assert (count.object, count.input_tokens) == ("response.input_tokens", response.usage.input_tokens)
    instructed = client.responses.create(**GREEDY, input=SUM, instructions="Be brief.")
    plain = client.responses.create(**GREEDY, input=SUM)
    assert instructed.usage.input_tokens > plain.usage.input_tokens
    assert instructed.instructions == "Be brief."


def test_a_stream_is_the_whole(client):
    story = GREEDY | {"max_output_tokens": 400, "input": "Tell me a story about a dragon."}
    whole = client.responses.create(**story)
    with client.responses.stream(**story) as stream:
        events = list(stream)
        final = stream.get_final_response()
    kinds = [event.type for event in events]
    text = "response.output_text"
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        f"{text}.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    deltas = [event.delta for event in events if event.type == f"{text}.delta"]
    assert "".join(deltas) == final.output_text
    # Sums round differently with other rows in a step, so two long texts may part late.
    assert final.output_text[:100] == whole.output_text[:100]
    assert len(deltas) > 20, "token by token"
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(numbers) and numbers[0] == 0
    assert final.usage == whole.usage or final.usage.output_tokens == whole.usage.output_tokens
    # What is kept is what was streamed.
    assert client.responses.retrieve(final.id).output_text == final.output_text


def test_a_text_that_is_cut_off_is_incomplete(client):
    response = client.responses.create(model=MODEL, input="Tell me a story.", max_output_tokens=5)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 5


class Verdict(pydantic.BaseModel):
    """An answer with a form."""

    mood: Literal["good", "bad"]
    score: Literal[1, 2, 3]


def test_parse(client):
    response = client.responses.parse(model=MODEL, temperature=0, input=SUM, text_format=Verdict)
    assert isinstance(response.output_parsed, Verdict)
    response = client.responses.create(
        model=MODEL, temperature=0, input=SUM, text={"format": {"type": "json_object"}}
    )
    json.loads(response.output_text)


def test_tools(tool_client):
    request = {"model": MODEL, "input": "Weather in Oslo?", "tools": [WEATHER], "seed": 1}
    seed = request.pop("seed")
    for choice in ("required", {"type": "function", "name": "get_weather"}):
        response = tool_client.responses.create(
            **request, tool_choice=choice, parallel_tool_calls=False, extra_body={"seed": seed}
        )
        [call] = response.output
        assert (call.type, call.name) == ("function_call", "get_weather")
        assert json.loads(call.arguments)["city"] in ("Oslo", "Rome")
    with tool_client.responses.stream(
        **request, tool_choice="required", parallel_tool_calls=False, extra_body={"seed": seed}
    ) as stream:
        events = list(stream)
    pieces = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    [done] = [e for e in events if e.type == "response.function_call_arguments.done"]
    assert "".join(pieces) == done.arguments and len(pieces) > 1
    # The result goes back in the next request, which needs only the id of the first.
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    after = tool_client.responses.create(
        **GREEDY, previous_response_id=response.id, input=[output], tools=[WEATHER]
    )
    assert after.usage.input_tokens > response.usage.input_tokens
    assert after.previous_response_id == response.id


def test_a_conversation_continues(client):
    first = client.responses.create(**GREEDY, input="Hello!", instructions="Be brief.")
    second = client.responses.create(**GREEDY, input=SUM, previous_response_id=first.id)
    whole = client.responses.create(
        **GREEDY,
        input=[
            {"role": "user", "content": "Hello!"},
            {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": SUM},
        ],
    )
    assert second.output_text == whole.output_text, "instructions are not passed on"
    assert second.usage.input_tokens == whole.usage.input_tokens
    third = client.responses.create(**GREEDY, input="And?", previous_response_id=second.id)
    assert third.usage.input_tokens > second.usage.input_tokens


def test_kept_responses(client):
    response = client.responses.create(**GREEDY, input=SUM, metadata={"a": "b"})
    again = client.responses.retrieve(response.id)
    assert again == response and again.metadata == {"a": "b"}
    [item] = client.responses.input_items.list(response.id).data
    assert item.role == "user" and item.content[0].text == SUM
    with pytest.raises(openai.BadRequestError, match="has ended"):
        client.responses.cancel(response.id)
    client.responses.delete(response.id)
    for gone in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError, match="there is no response"):
            gone(response.id)
    with pytest.raises(openai.BadRequestError, match="there is no response"):
        client.responses.create(**GREEDY, input="a", previous_response_id=response.id)
    unkept = client.responses.create(**GREEDY, input=SUM, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)


def test_log_probabilities(client):
    response = client.responses.create(
        **GREEDY, input=SUM, include=["message.output_text.logprobs"], top_logprobs=2
    )
    [part] = response.output[0].content
    assert "".join(item.token for item in part.logprobs) == part.text
    assert all(len(item.top_logprobs) == 2 for item in part.logprobs)


def test_errors_are_the_packages_own(server, client):
    for wrong, param in (
        ({"temperature": 3}, "temperature"),
        ({"input": []}, "input"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"background": True}, "background"),
        ({"input": "a " * 5000}, "prompt"),
    ):
        with pytest.raises(openai.BadRequestError) as error:
            client.responses.create(**{"model": MODEL, "input": SUM} | wrong)
        assert error.value.param in (param, "messages")
    with pytest.raises(openai.AuthenticationError):
        openai_client(server).with_options(api_key="wrong").responses.create(model=MODEL, input=SUM)


def agent_of(server, **options):
    client = openai.AsyncOpenAI(base_url=f"{server}/v1", api_key=KEY, max_retries=0)
    model = agents.OpenAIResponsesModel(model=MODEL, openai_client=client)
    return agents.Agent(name="helper", model=model, **options)


@pytest.fixture(autouse=True, scope="module")
def without_traces():
    agents.set_tracing_disabled(True)


def test_an_agent_answers(server):
    settings = agents.ModelSettings(temperature=0, max_tokens=60)
    agent = agent_of(server, instructions="You are a friendly assistant.", model_settings=settings)

    async def run():
        whole = await agents.Runner.run(agent, SUM)
        streamed = agents.Runner.run_streamed(agent, SUM)
        kinds = [event.type async for event in streamed.stream_events()]
        return whole.final_output, streamed.final_output, kinds

    whole, streamed, kinds = asyncio.run(run())
    assert "7" in whole and streamed == whole
    assert kinds.count("raw_response_event") > 5


def test_an_agent_uses_a_tool(any_tool_server):
    asked = []

    @agents.function_tool
    def get_weather(city: Literal["Oslo", "Rome"]) -> str:
        """Says what the weather is like."""
        asked.append(city)
        return "sunny"

    settings = agents.ModelSettings(tool_choice="required", parallel_tool_calls=False, max_tokens=200)
    agent = agent_of(
        any_tool_server,
        tools=[get_weather],
        model_settings=settings,
        tool_use_behavior="stop_on_first_tool",
    )
    result = asyncio.run(agents.Runner.run(agent, "What is the weather in Oslo?"))
    assert result.final_output == "sunny" and len(asked) == 1

"""The official `anthropic` package against the real binary."""

import re
import typing

import anthropic
import pydantic
import pytest
from conftest import KEY, MODEL, address
from test_openai_errors import holders

SUM = [{"role": "user", "content": "What is 3 plus 4?"}]
STORY = [{"role": "user", "content": "Tell me a story about a dragon."}]
# The package has no place for the temperature any more; servers still do.
GREEDY = {"model": MODEL, "max_tokens": 60, "extra_body": {"temperature": 0}}
CITIES = {"type": "string", "enum": ["Oslo", "Rome"]}
WEATHER = {
    "name": "get_weather",
    "description": "Says what the weather is like.",
    "input_schema": {
        "type": "object",
        "properties": {"city": CITIES},
        "required": ["city"],
        "additionalProperties": False,
    },
}


def client_of(server, **options):
    return anthropic.Anthropic(base_url=server, api_key=KEY, **{"max_retries": 0} | options)


@pytest.fixture
def client(server):
    return client_of(server)


@pytest.fixture
def tool_client(any_tool_server):
    return client_of(any_tool_server)


def test_message(client):
    message = client.messages.create(**GREEDY, messages=SUM)
    assert (message.type, message.role, message.model) == ("message", "assistant", MODEL)
    [block] = message.content
    assert block.type == "text" and "7" in block.text
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) > 5
    assert 1 < message.usage.output_tokens <= 60


def test_several_turns_and_a_system_prompt(client):
    messages = [
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": [{"type": "text", "text": "Hello! How can I help you?"}]},
        {"role": "user", "content": [{"type": "text", "text": "What is 8 plus 6?"}]},
    ]
    system = "You are a friendly assistant."
    as_text = client.messages.create(**GREEDY, messages=messages, system=system)
    assert "14" in as_text.content[0].text
    blocks = [{"type": "text", "text": system}]
    as_blocks = client.messages.create(**GREEDY, messages=messages, system=blocks)
    assert as_blocks.content[0].text == as_text.content[0].text


def test_stream_equals_whole(client):
    whole = client.messages.create(**GREEDY, messages=STORY)
    with client.messages.stream(**GREEDY, messages=STORY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_the_order_of_events(client):
    events = list(client.messages.create(**GREEDY, messages=SUM, stream=True))
    kinds = [event.type for event in events]
    deltas = kinds.count("content_block_delta")
    assert deltas > 3
    assert kinds == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * deltas,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[0].message.content == [] and events[0].message.stop_reason is None
    assert events[1].content_block.text == ""
    assert events[-2].delta.stop_reason == "end_turn"
    assert events[-2].usage.output_tokens > 3


def test_stop_sequences(client):
    whole = client.messages.create(**GREEDY, messages=STORY).content[0].text
    stop = whole.split()[4]
    stopped = client.messages.create(**GREEDY, messages=STORY, stop_sequences=["~~~", stop])
    assert stopped.content[0].text == whole[: whole.index(stop)]
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", stop)
    short = client.messages.create(**GREEDY | {"max_tokens": 3}, messages=STORY)
    assert (short.stop_reason, short.usage.output_tokens) == ("max_tokens", 3)


def test_a_tool_is_called(tool_client):
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        message = tool_client.messages.create(
            **GREEDY | {"max_tokens": 200},
            messages=SUM,
            tools=[WEATHER],
            tool_choice=choice | {"disable_parallel_tool_use": True},
        )
        [block] = [block for block in message.content if block.type == "tool_use"]
        assert block.name == "get_weather" and block.input["city"] in CITIES["enum"] and block.id
        assert message.stop_reason == "tool_use"


def test_a_streamed_tool_call(tool_client):
    with tool_client.messages.stream(
        **GREEDY | {"max_tokens": 200},
        messages=SUM,
        tools=[WEATHER],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    ) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    [block] = [block for block in final.content if block.type == "tool_use"]
    assert block.input["city"] in CITIES["enum"]
    assert len(pieces) > 1, "piece by piece"


def test_an_answer_has_the_form_that_is_asked_for(client):
    class Trip(pydantic.BaseModel):
        city: typing.Literal["Oslo", "Rome"]
        by_train: bool

    message = client.messages.parse(**GREEDY, messages=SUM, output_format=Trip)
    assert isinstance(message.parsed_output, Trip)


def test_what_a_tool_answers_is_read(tool_client):
    call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Oslo"}}
    answer = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}
    messages = [*SUM, {"role": "assistant", "content": [call]}]
    messages += [{"role": "user", "content": [answer]}]
    message = tool_client.messages.create(
        **GREEDY, messages=messages, tools=[WEATHER], tool_choice={"type": "none"}
    )
    assert all(block.type == "text" for block in message.content)


def test_count_tokens(client):
    counted = client.messages.count_tokens(model=MODEL, messages=SUM).input_tokens
    usage = client.messages.create(**GREEDY, messages=SUM).usage
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    system = "You are a friendly assistant."
    longer = client.messages.count_tokens(model=MODEL, messages=SUM, system=system)
    assert longer.input_tokens > counted


def test_errors_are_the_right_exceptions(server, client, small_banner):
    def refused(kind, status, client=client, **wrong):
        with pytest.raises(kind) as error:
            client.messages.create(**GREEDY | {"messages": SUM} | wrong)
        assert error.value.status_code == status
        assert error.value.body["type"] == "error" and error.value.body["error"]["message"]
        return error.value

    bad = anthropic.BadRequestError
    assert refused(bad, 400, messages=[]).body["error"]["type"] == "invalid_request_error"
    refused(bad, 400, extra_body={"temperature": -1})
    refused(bad, 400, output_config={"format": {"type": "json_schema", "schema": {"type": 7}}})
    long = refused(bad, 400, messages=[{"role": "user", "content": "a b " * 5000}])
    assert re.match(r"prompt is too long: \d+ tokens > \d+ maximum", long.body["error"]["message"])
    assert client.messages.create(**GREEDY | {"messages": SUM, "max_tokens": 20_000}).content
    refused(bad, 400, tools=[WEATHER, WEATHER])
    refused(bad, 400, tools=[WEATHER | {"input_schema": {"type": "array"}}])
    refused(bad, 400, messages=[{"role": "king", "content": "a"}])
    stranger = anthropic.Anthropic(base_url=server, api_key="wrong", max_retries=0)
    error = refused(anthropic.AuthenticationError, 401, stranger)
    assert error.body["error"]["type"] == "authentication_error"
    by_token = anthropic.Anthropic(base_url=server, api_key=None, auth_token=KEY, max_retries=0)
    assert by_token.messages.create(**GREEDY, messages=SUM).content
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("nope")
    # Making a client takes a while.
    hasty, patient = client_of(address(small_banner)), client_of(address(small_banner), max_retries=20)
    with holders(small_banner, 3):
        error = refused(anthropic.RateLimitError, 429, hasty)
    assert error.body["error"]["type"] == "rate_limit_error"
    assert int(error.response.headers["retry-after"]) >= 1
    with holders(small_banner, 3):
        assert patient.messages.create(**GREEDY, messages=SUM).content

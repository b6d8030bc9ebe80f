"""Tool calls with the official `openai` package against the real binary."""

import json
from typing import Literal

import openai
import pydantic
import pytest
from conftest import MODEL


class GetWeather(pydantic.BaseModel):
    """Says what the weather is like."""

    city: Literal["Oslo", "Rome", "Lima"]
    unit: Literal["C", "F"]


class AddNumbers(pydantic.BaseModel):
    """Adds two small numbers."""

    a: Literal[1, 2, 3]
    b: Literal[1, 2, 3]


KINDS = {"GetWeather": GetWeather, "AddNumbers": AddNumbers}
TOOLS = [openai.pydantic_function_tool(kind) for kind in KINDS.values()]
MESSAGES = [{"role": "user", "content": "What is the weather in Oslo?"}]
REQUEST = {"model": MODEL, "messages": MESSAGES, "tools": TOOLS}
REQUEST |= {"temperature": 1, "seed": 1, "max_tokens": 200}


def check(calls):
    """Each is a call of a tool that there is, with arguments that it takes."""
    assert len({call.id for call in calls}) == len(calls) and all(call.id for call in calls)
    for call in calls:
        assert call.type == "function"
        KINDS[call.function.name].model_validate_json(call.function.arguments)


def test_auto_may_and_may_not(tool_client):
    for seed in range(4):
        [choice] = tool_client.chat.completions.create(**REQUEST | {"seed": seed}).choices
        if choice.finish_reason == "tool_calls":
            check(choice.message.tool_calls)
        else:
            assert choice.finish_reason in ("stop", "length")
            assert choice.message.content is not None


def test_required(tool_client):
    for seed in range(4):
        [choice] = tool_client.chat.completions.create(
            **REQUEST | {"seed": seed}, tool_choice="required", parallel_tool_calls=False
        ).choices
        assert choice.finish_reason == "tool_calls"
        assert len(choice.message.tool_calls) == 1
        check(choice.message.tool_calls)


@pytest.mark.parametrize("name", KINDS)
def test_named(tool_client, name):
    [choice] = tool_client.chat.completions.create(
        **REQUEST,
        tool_choice={"type": "function", "function": {"name": name}},
        parallel_tool_calls=False,
    ).choices
    assert choice.finish_reason in ("tool_calls", "stop"), "OpenAI's own says stop"
    assert {call.function.name for call in choice.message.tool_calls} == {name}
    check(choice.message.tool_calls)


def test_none(tool_client):
    [choice] = tool_client.chat.completions.create(**REQUEST, tool_choice="none").choices
    assert choice.message.tool_calls is None and choice.message.content


def test_parallel_calls(tool_client):
    """Behind a call, a model may end or call again. The last call may be cut off."""
    several = 0
    for seed in range(40):
        request = REQUEST | {"seed": seed, "tool_choice": "required", "parallel_tool_calls": True}
        [choice] = tool_client.chat.completions.create(**request, extra_body={"ignore_eos": True}).choices
        calls = choice.message.tool_calls
        check(calls if choice.finish_reason == "tool_calls" else calls[:-1])
        several += len(calls) >= 2
        if several == 2:
            return
    pytest.fail(f"{several} of 40 answers had several calls")


def streamed(stream):
    """The calls of a stream: name, and the pieces of the arguments."""
    calls = {}
    for chunk in stream:
        for delta in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            if delta.index not in calls:
                assert delta.id and delta.type == "function" and delta.function.name
                calls[delta.index] = {"id": delta.id, "name": delta.function.name, "pieces": []}
            else:
                assert not delta.id and not delta.function.name, "they are said once"
            if delta.function.arguments:
                calls[delta.index]["pieces"].append(delta.function.arguments)
    assert list(calls) == list(range(len(calls)))
    return list(calls.values())


def test_streamed_arguments(tool_client):
    greedy = REQUEST | {"temperature": 0, "tool_choice": "required", "parallel_tool_calls": False}
    [whole] = tool_client.chat.completions.create(**greedy).choices[0].message.tool_calls
    [call] = streamed(tool_client.chat.completions.create(**greedy, stream=True))
    assert call["name"] == whole.function.name
    assert json.loads("".join(call["pieces"])) == json.loads(whole.function.arguments)
    assert len(call["pieces"]) > 1, "piece by piece"


def test_streamed_parallel_calls(tool_client):
    for seed in range(40):
        request = REQUEST | {"seed": seed, "tool_choice": "required", "stream": True}
        calls = streamed(tool_client.chat.completions.create(**request, extra_body={"ignore_eos": True}))
        assert len({call["id"] for call in calls}) == len(calls)
        for call in calls[:-1]:
            KINDS[call["name"]].model_validate_json("".join(call["pieces"]))
        if len(calls) >= 2:
            return
    pytest.fail("none of 40 answers had several calls")


def test_parsed_arguments(tool_client):
    chat = tool_client.chat.completions.parse(
        **REQUEST, tool_choice="required", parallel_tool_calls=False
    )
    [call] = chat.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, KINDS[call.function.name])


class Verdict(pydantic.BaseModel):
    """What is said without a tool."""

    mood: Literal["good", "bad"]
    score: Literal[1, 2, 3]


def test_a_call_or_an_answer_with_a_schema(tool_client):
    """Whichever the model chooses; the built-in one sometimes does the one and the other."""
    kinds = set()
    for seed in range(20):
        request = REQUEST | {"seed": seed, "response_format": Verdict}
        [choice] = tool_client.chat.completions.parse(**request).choices
        kinds.add(choice.finish_reason)
        if choice.finish_reason == "tool_calls":
            check(choice.message.tool_calls)
        else:
            assert isinstance(choice.message.parsed, Verdict)
            assert choice.message.tool_calls is None
    assert "stop" in kinds
    [choice] = tool_client.chat.completions.parse(
        **REQUEST, response_format=Verdict, tool_choice="required"
    ).choices
    check(choice.message.tool_calls)


def test_what_tools_answer_is_read(tool_client):
    functions = [
        {"name": "GetWeather", "arguments": json.dumps({"city": city, "unit": "C"})}
        for city in ("Oslo", "Rome")
    ]
    calls = [
        {"id": f"call_{i}", "type": "function", "function": function}
        for i, function in enumerate(functions)
    ]
    answers = [{"role": "tool", "tool_call_id": call["id"], "content": "sunny"} for call in calls]
    messages = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": calls}, *answers]
    alone = tool_client.chat.completions.create(**REQUEST, tool_choice="none")
    longer = REQUEST | {"messages": messages}
    chat = tool_client.chat.completions.create(**longer, tool_choice="none")
    assert chat.choices[0].message.content
    assert chat.usage.prompt_tokens > alone.usage.prompt_tokens + 20


def test_what_cannot_be(tool_client):
    def refused(client, match, **wrong):
        with pytest.raises(openai.BadRequestError, match=match):
            client.chat.completions.create(**REQUEST | wrong)

    unknown = {"type": "function", "function": {"name": "nope"}}
    refused(tool_client, "not among the tools", tool_choice=unknown)
    refused(tool_client, "there are no tools", tools=[], tool_choice="required")
    refused(tool_client, "name", tools=[{"type": "function", "function": {"name": "a b"}}])
    refused(tool_client, "only a JSON schema can", extra_body={"regex": "a+"})

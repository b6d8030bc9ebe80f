"""`langchain-openai` against the real binary. (Its embeddings: `test_embeddings.py`.)"""

from typing import Literal

import langchain_openai
import pydantic
import pytest
from conftest import KEY, MODEL
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage


class GetWeather(pydantic.BaseModel):
    """Says what the weather is like."""

    city: Literal["Oslo", "Rome"]


def chat_of(server, **options):
    return langchain_openai.ChatOpenAI(
        model=MODEL,
        base_url=f"{server}/v1",
        api_key=KEY,
        max_retries=0,
        **{"temperature": 0, "max_tokens": 60, "use_responses_api": False} | options,
    )


@pytest.fixture
def chat(server):
    return chat_of(server)


@pytest.fixture
def tool_chat(tool_server):
    return chat_of(tool_server, max_tokens=200)


def test_invoke(chat):
    system = SystemMessage("You are a friendly assistant.")
    message = chat.invoke([system, HumanMessage("What is 8 plus 6?")])
    assert "14" in message.content
    assert message.response_metadata["finish_reason"] == "stop"
    usage = message.usage_metadata
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_stream(server):
    chat = chat_of(server, stream_usage=True)
    whole = chat.invoke("Tell me a story about a dragon.")
    chunks = list(chat.stream("Tell me a story about a dragon."))
    assert "".join(chunk.content for chunk in chunks) == whole.content
    assert len(chunks) > 20, "token by token"
    [usage] = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    assert usage["output_tokens"] == whole.usage_metadata["output_tokens"]


def test_bind_tools(tool_chat):
    question = HumanMessage("What is the weather in Oslo?")
    for choice in ("required", "GetWeather"):
        bound = tool_chat.bind_tools([GetWeather], tool_choice=choice, parallel_tool_calls=False)
        message = bound.invoke([question])
        [call] = message.tool_calls
        GetWeather.model_validate(call["args"])
        assert call["name"] == "GetWeather" and call["id"]
        streamed = None
        for chunk in bound.stream([question]):
            streamed = chunk if streamed is None else streamed + chunk
        assert [call["args"] for call in streamed.tool_calls] == [call["args"]]
        answer = ToolMessage("sunny", tool_call_id=call["id"])
        history = [question, AIMessage("", tool_calls=[call]), answer]
        assert isinstance(tool_chat.invoke(history), AIMessage)


def test_structured_output(server, tool_server):
    for server, method in ((server, "json_schema"), (tool_server, "function_calling")):
        chat = chat_of(server, max_tokens=200)
        structured = chat.with_structured_output(GetWeather, method=method)
        assert isinstance(structured.invoke("What is the weather in Oslo?"), GetWeather)

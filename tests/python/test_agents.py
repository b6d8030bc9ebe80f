"""The first requests of coding agents, in their own shapes: fields and types, not texts."""

import json

import httpx
import pytest
from conftest import KEY, address, made, running

TOOLS = [f"mcp__files__tool_{n}" for n in range(14)]
# Keywords that no grammar keeps, as agents send them.
SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "path": {"type": "string", "format": "path", "pattern": "^(?!/).*$"},
        "lines": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "contains": {"minimum": 1}},
        "options": {"type": "object", "propertyNames": {"pattern": "^[a-z]"}, "x-order": 1},
        "limit": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
        "either": {"oneOf": [{"type": "string"}, {"type": "string", "minLength": 1}]},
    },
    "required": ["path"],
    "dependentRequired": {"lines": ["limit"]},
    "not": {"required": ["none"]},
}


@pytest.fixture(scope="module")
def agent_server(tmp_path_factory):
    """With room for an agent's tools, which the model in the binary has not. What it says is random."""
    model = made(tmp_path_factory.mktemp("models") / "long.gguf", "--context=8192")
    with running(f"--model={model}", "--ctx-size=16384", "--parallel=2") as text:
        yield address(text)


def post(server, path, body):
    headers = {"authorization": f"Bearer {KEY}"}
    return httpx.post(f"{server}{path}?beta=true", json=body, headers=headers, timeout=120)


def claude_code(**more):
    """In the shape of Claude Code 2."""
    texts = ["x-anthropic-billing-header: cc_version=2.1.37.0d9; cch=fa690;", "You are an agent.", "Be brief."]
    reminder = {"type": "text", "text": "<system-reminder>Today is Friday.</system-reminder>"}
    question = {"type": "text", "text": "List the files.", "cache_control": {"type": "ephemeral"}}
    return {
        "model": "claude-sonnet-4-5-20250929",
        "max_tokens": 32_000,
        "stream": False,
        "system": [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} for text in texts],
        "messages": [{"role": "user", "content": [reminder, question]}],
        "tools": [
            {"name": name, "description": "Does it.", "input_schema": SCHEMA | {"additionalProperties": False}} for name in TOOLS
        ]
        + [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
        "thinking": {"type": "enabled", "budget_tokens": 31_999},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": "user_1_account__session_2"},
        "temperature": 1,
    } | more


def codex(**more):
    """In the shape of Codex 0.17x."""
    function = {"type": "function", "description": "Does it.", "strict": False, "parameters": SCHEMA}
    return {
        "model": "gpt-5-codex",
        "instructions": "You are an agent.",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Sandbox: read-only."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context/>"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]},
        ],
        "tools": [
            function | {"name": "shell"},
            {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}},
            {"type": "web_search", "external_web_access": False},
            {"type": "namespace", "name": "mcp__files", "description": "Files.", "tools": [function | {"name": "read"}]},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199",
        "text": {"verbosity": "low"},
        "client_metadata": {"session": "1"},
    } | more


def chat_agent(name, **more):
    """In the shape of an agent that speaks OpenAI's chats."""
    properties = {
        "path": {"type": "string", "minLength": 1, "description": "Where."},
        "limit": {"type": ["integer", "null"], "minimum": -9007199254740991, "exclusiveMinimum": 0, "default": 5},
        "fork": {"oneOf": [{"type": "string", "enum": ["all", "none"]}, {"type": "string", "pattern": "^[1-9][0-9]*$"}]},
        "items": {"type": "array", "items": {"type": "string", "maxLength": 50}},
    }
    parameters = {"$schema": SCHEMA["$schema"], "type": "object", "properties": properties, "required": ["path"]}
    function = {"name": "read_file", "description": "Reads.", "parameters": parameters}
    without = {"name": "list_agents", "description": "Takes nothing, and has no schema."}
    tools = [{"type": "function", "function": function}, {"type": "function", "function": without}]
    system = {"role": "system", "content": "You are an agent."}
    asks = {"role": "user", "content": "List the files."}
    parts = {"role": "user", "content": [{"type": "text", "text": "Today is Friday."}, {"type": "text", "text": "List."}]}
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    example = [asks, {"role": "assistant", "content": "Ok."}]
    return {"model": "any"} | {
        "opencode": {"max_tokens": 32_000, "messages": [system, asks], "tools": tools, "tool_choice": "auto"} | usage,
        "opencode, its title": {"max_tokens": 32_000, "messages": [system, asks, asks]} | usage,
        "qwen": {"max_tokens": 32_000, "messages": [system, parts], "tools": tools} | usage,
        "continue": {"messages": [system, asks], "tools": tools} | usage,
        "aider": {"messages": [system, *example * 4, asks], "stream": True, "temperature": 0},
    }[name] | more


@pytest.mark.parametrize("name", ["opencode", "opencode, its title", "qwen", "continue", "aider"])
def test_an_agent_of_chats_begins_and_goes_on(agent_server, name):
    first = chat_agent(name)
    response = post(agent_server, "/v1/chat/completions", first | {"max_tokens": 40})
    assert response.status_code == 200 and response.text.endswith("data: [DONE]\n\n"), response.text
    call = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a"}'}}
    turns = [
        *first["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]} if "tools" in first else {"role": "assistant", "content": "Ok."},
        *([{"role": "tool", "tool_call_id": "call_1", "content": "b"}] if "tools" in first else []),
        {"role": "user", "content": "Go on."},
    ]
    response = post(agent_server, "/v1/chat/completions", first | {"messages": turns, "stream": False, "max_tokens": 20})
    assert response.status_code == 200, response.text
    assert response.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_claude_code_begins(agent_server):
    response = post(agent_server, "/v1/messages", claude_code())
    assert response.status_code == 200, response.text
    message = response.json()
    assert message["content"] and message["stop_reason"] in ("end_turn", "tool_use", "max_tokens")
    counted = post(agent_server, "/v1/messages/count_tokens", claude_code())
    assert counted.json()["input_tokens"] > 20


def test_claude_code_goes_on_after_a_tool(agent_server):
    call = {"type": "tool_use", "id": "toolu_1", "name": TOOLS[0], "input": {"path": "a"}}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "b"}, image]}
    turns = [
        *claude_code()["messages"],
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""}, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]},
        {"role": "user", "content": "And then?"},
    ]
    response = post(agent_server, "/v1/messages", claude_code(messages=turns, max_tokens=20))
    assert response.status_code == 200, response.text
    assert response.json()["usage"]["cache_read_input_tokens"] > 0, "the changing header is no part of the prompt"


@pytest.mark.parametrize("stream", [False, True])
def test_codex_begins(agent_server, stream):
    response = post(agent_server, "/v1/responses", codex(stream=stream, max_output_tokens=50))
    assert response.status_code == 200, response.text
    if stream:
        last = json.loads(response.text.strip().split("data: ")[-1])
        assert last["type"] in ("response.completed", "response.incomplete")


def test_codex_goes_on_after_a_tool_of_a_namespace(agent_server):
    items = [
        *codex()["input"],
        {"type": "reasoning", "summary": [], "encrypted_content": "x", "content": None},
        {"type": "function_call", "namespace": "mcp__files", "name": "read", "arguments": "{}", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "b"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    ]
    response = post(agent_server, "/v1/responses", codex(input=items, max_output_tokens=20))
    assert response.status_code == 200, response.text


def test_a_tool_of_a_namespace_is_called_by_both_names(agent_server):
    tools = codex()["tools"]
    # Only the one in the namespace is left.
    choice = {"type": "function", "name": "mcp__files__read"}
    response = post(agent_server, "/v1/responses", codex(tools=tools, tool_choice=choice, max_output_tokens=400))
    assert response.status_code == 200, response.text
    [call] = [item for item in response.json()["output"] if item["type"] == "function_call"]
    assert (call["namespace"], call["name"]) == ("mcp__files", "read")
    assert '"path"' in call["arguments"], "the one that is required"


def test_a_strict_tool_keeps_its_contract(agent_server):
    function = {"name": "f", "strict": True, "parameters": {"type": "object", "not": {}}}
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": function}]}
    response = post(agent_server, "/v1/chat/completions", body)
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert 'the tool "f" is strict' in message and '"not" is not supported' in message and "line" not in message


def test_schemas_that_no_value_fits_cost_no_request(agent_server):
    schema = {"type": "object", "properties": {"a": {"type": "string", "enum": [1]}}, "required": ["a"]}
    function = {"name": "f", "parameters": schema}
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20}
    tools = [{"type": "function", "function": function}]
    for choice in ("auto", "required"):
        response = post(agent_server, "/v1/chat/completions", body | {"tools": tools, "tool_choice": choice})
        assert response.status_code == 200, response.text

"""The `llm` command with its OpenAI-compatible plugin against the real binary."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import KEY, MODEL

LLM = pathlib.Path(sys.executable).parent / "llm"


@pytest.fixture
def llm(server, tmp_path):
    """Runs the command in a folder of its own that knows this server."""
    ours = {"model_name": MODEL, "api_base": f"{server}/v1", "api_key_name": "corelane"}
    models = [
        ours | {"model_id": "chat", "supports_schema": True},
        ours | {"model_id": "text", "completion": True},
    ]
    # JSON is YAML.
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps(models))
    (tmp_path / "keys.json").write_text(json.dumps({"corelane": KEY}))
    environment = os.environ | {"LLM_USER_PATH": str(tmp_path)}

    def run(*arguments, check=True):
        done = subprocess.run(
            [LLM, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    return run


def test_the_models_are_listed(llm):
    listed = llm("models", "list").stdout
    assert "OpenAI Chat: chat" in listed and "OpenAI Completion: text" in listed


@pytest.mark.parametrize("streaming", [[], ["--no-stream"]])
def test_a_prompt(llm, streaming):
    options = ["-o", "temperature", "0", "-o", "max_tokens", "60"]
    answer = llm("-m", "chat", *options, *streaming, "What is 3 plus 4?").stdout
    assert "7" in answer
    story = llm("-m", "text", *options, *streaming, "Once upon a time").stdout
    assert len(story.split()) > 5


def test_a_conversation_continues(llm):
    options = ["-m", "chat", "-o", "temperature", "0", "-o", "max_tokens", "60"]
    llm(*options, "-s", "You are a friendly assistant.", "Hello!")
    assert "14" in llm(*options, "--continue", "What is 8 plus 6?").stdout


def test_a_schema(llm):
    schema = json.dumps(
        {
            "type": "object",
            "properties": {"kind": {"enum": ["cat", "dog"]}, "tame": {"type": "boolean"}},
            "required": ["kind", "tame"],
            "additionalProperties": False,
        }
    )
    done = llm("-m", "chat", "-o", "max_tokens", "100", "--schema", schema, "Describe a cat.")
    assert set(json.loads(done.stdout)) == {"kind", "tame"}


def test_a_refusal_is_shown(llm):
    refused = llm("-m", "chat", "-o", "max_tokens", str(10**18), "Hello!", check=False)
    assert refused.returncode != 0 and "max_tokens must be" in refused.stderr

"""A corelane server of its own for the tests, on free ports."""

import pathlib
import re
import subprocess

import openai
import pytest

ROOT = pathlib.Path(__file__).parents[2]
BINARY = ROOT / "target" / "release" / "corelane"


@pytest.fixture(scope="session")
def banner():
    """What a server with the built-in model, which needs a key, says at its start."""
    command = [BINARY, "serve", "--port", "0", "--ops-addr", "127.0.0.1:0"]
    command += ["--api-key", "secret", "--log", "warn"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    text = ""
    while "lanes" not in text:
        line = process.stdout.readline()
        assert line, "the server ended before it was ready"
        text += line
    yield text
    process.terminate()
    assert process.wait(timeout=60) == 0


@pytest.fixture(scope="session")
def server(banner):
    """Its address."""
    return re.search(r"address +(http://\S+)", banner).group(1)


@pytest.fixture(scope="session")
def metrics(banner):
    """The address of its metrics."""
    return re.search(r"metrics +(http://\S+)", banner).group(1)


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=f"{server}/v1", api_key="secret", max_retries=0)

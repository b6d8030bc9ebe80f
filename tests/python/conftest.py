"""A corelane server of its own for the tests, on a free port."""

import pathlib
import re
import subprocess

import openai
import pytest

ROOT = pathlib.Path(__file__).parents[2]
BINARY = ROOT / "target" / "release" / "corelane"


@pytest.fixture(scope="session")
def server():
    """The address of a server with the built-in model, which needs a key."""
    command = [BINARY, "serve", "--port", "0", "--api-key", "secret", "--log", "warn"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = None
    while address is None:
        line = process.stdout.readline()
        assert line, "the server ended before it was ready"
        found = re.search(r"address +(http://\S+)", line)
        address = found and found.group(1)
    yield address
    process.terminate()
    assert process.wait(timeout=60) == 0


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=f"{server}/v1", api_key="secret", max_retries=0)

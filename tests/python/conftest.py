"""Servers for the tests: the real binary with the built-in model, on free ports."""

import contextlib
import pathlib
import re
import subprocess

import openai
import pytest

ROOT = pathlib.Path(__file__).parents[2]
BINARY = ROOT / "target" / "release" / "corelane"
MODEL = "corelane built-in"
KEY = "secret"


@contextlib.contextmanager
def running(*flags):
    """What a server, which needs a key, says at its start; it ends with the `with` block."""
    command = [BINARY, "serve", "--port=0", "--ops-addr=127.0.0.1:0", "--metrics", f"--api-key={KEY}"]
    process = subprocess.Popen([*command, "--log=warn", *flags], stdout=subprocess.PIPE, text=True)
    try:
        text = ""
        while "lanes" not in text:
            line = process.stdout.readline()
            assert line, "the server ended before it was ready"
            text += line
        yield text
    finally:
        process.terminate()
        try:
            status = process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert status == 0


def address(banner):
    return re.search(r"address +(http://\S+)", banner).group(1)


def metrics_address(banner):
    return re.search(r"metrics +(http://\S+)", banner).group(1)


def openai_client(server, **options):
    return openai.OpenAI(base_url=f"{server}/v1", api_key=KEY, **{"max_retries": 0} | options)


@pytest.fixture(scope="session")
def banner():
    with running() as text:
        yield text


@pytest.fixture(scope="session")
def server(banner):
    """Its address."""
    return address(banner)


@pytest.fixture(scope="session")
def metrics(banner):
    """The address of its metrics."""
    return metrics_address(banner)


@pytest.fixture
def client(server):
    return openai_client(server)


@pytest.fixture(scope="session")
def tool_server():
    """A server with a template that knows tools."""
    template = ROOT / "tests" / "templates" / "qwen2.5.jinja"
    with running(f"--chat-template-file={template}") as text:
        yield address(text)


@pytest.fixture(params=["tool_server", "server"])
def any_tool_server(request):
    """With a template that knows tools, and with the model's own, which does not."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def tool_client(any_tool_server):
    return openai_client(any_tool_server)


@pytest.fixture(scope="session")
def embedding_server():
    """A server that turns texts into vectors; the model itself says nothing of pooling."""
    with running("--pooling=mean") as text:
        yield address(text)


@pytest.fixture(scope="session")
def small_banner():
    """A server that runs one request and lets two wait."""
    with running("--parallel=1", "--queue-requests=2") as text:
        yield text

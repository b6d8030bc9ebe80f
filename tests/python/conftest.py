"""Servers for the tests: the real binary with the built-in model, on free ports."""

import contextlib
import os
import pathlib
import re
import subprocess
import typing

import models
import openai
import pytest

ROOT = pathlib.Path(__file__).parents[2]
# Another one may be for another processor (packaging/test-aarch64.sh).
BINARY = pathlib.Path(os.environ.get("CORELANE_BINARY", ROOT / "target" / "release" / "corelane"))
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
def banner(tmp_path_factory):
    with running(f"--slot-save-path={tmp_path_factory.mktemp('slots')}") as text:
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


def made(path, *sizes):
    """A model of this shape with random weights."""
    command = [BINARY, "model", "synth", "--shape=tiny", *sizes, path]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


@pytest.fixture(scope="session")
def slow_model(tmp_path_factory):
    """A model that takes about a millisecond for a token. The one in the binary is done at once."""
    sizes = ["--layers=6", "--width=768", "--ffn=2304", "--heads=12", "--kv-heads=4", "--head-size=64"]
    return made(tmp_path_factory.mktemp("models") / "slow.gguf", *sizes, "--context=1024")


@pytest.fixture(scope="session")
def small_banner(slow_model):
    """A server that runs one request and lets two wait. It is slow, so that it stays full for a second."""
    with running(f"--model={slow_model}", "--parallel=1", "--queue-requests=2") as text:
        yield text


class Written(typing.NamedTuple):
    """A model's file, and the same model for the reference in float64."""

    path: pathlib.Path
    model: models.Encoder | models.Decoder


# Flags with which a server computes in float32 throughout: flash attention rounds keys and values to float16.
EXACT = ["--cache-type-k=f32", "--cache-type-v=f32", "--flash-attn=off"]


@pytest.fixture(scope="session")
def decoder(tmp_path_factory):
    """A Llama with fill-in-the-middle tokens."""
    path = tmp_path_factory.mktemp("decoder") / "decoder.gguf"
    return Written(path, models.write_decoder(path, models.LLAMA))


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """A BERT with a head for ranking; its metadata name no pooling."""
    path = tmp_path_factory.mktemp("encoder") / "encoder.gguf"
    return Written(path, models.write_encoder(path))


@pytest.fixture(scope="session")
def judge(tmp_path_factory):
    """A Qwen3 with a head for ranking, which its metadata name."""
    path = tmp_path_factory.mktemp("judge") / "judge.gguf"
    return Written(path, models.write_decoder(path, models.QWEN3, pooling=models.gguf.PoolingType.RANK))

"""Errors as the official `openai` package maps them, and its retries."""

import contextlib
import http.client
import json
import re
import socket
import time
import urllib.request

import openai
import pytest
from conftest import KEY, MODEL, address, metrics_address, openai_client, running

MESSAGES = [{"role": "user", "content": "What is 3 plus 4?"}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:"}}


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "a"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages"),
        ({"temperature": 3}, "temperature"),
        ({"top_logprobs": 1000, "logprobs": True}, "top_logprobs"),
        ({"n": 0}, "n"),
        ({"logit_bias": {"99999999": 1}}, "logit_bias"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"stop": [""]}, "stop"),
    ],
)
def test_bad_requests(client, wrong, param):
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(**{"model": MODEL, "messages": MESSAGES} | wrong)
    assert error.value.status_code == 400
    assert error.value.type == "invalid_request_error"
    assert error.value.param == param
    assert error.value.request_id


def test_a_conversation_that_is_too_long_says_so_in_words_that_agents_know(client):
    with pytest.raises(openai.BadRequestError, match="exceeds the available context size") as error:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "a b " * 5000}])
    assert (error.value.type, error.value.code) == ("exceed_context_size_error", "context_length_exceeded")


def test_other_statuses(server, client):
    stranger = openai.OpenAI(base_url=f"{server}/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError) as error:
        stranger.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert error.value.code == "invalid_api_key"
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nope")
    with pytest.raises(openai.NotFoundError):
        client.post("/nope", cast_to=object, body={})
    with pytest.raises(openai.APIStatusError) as error:
        client.get("/chat/completions", cast_to=object)
    assert error.value.status_code == 405
    assert "POST" in error.value.response.headers["allow"]
    with pytest.raises(openai.APIStatusError) as error:
        client.completions.create(model=MODEL, prompt="x" * 9_000_000)
    assert error.value.status_code == 413


def test_a_form_that_cannot_be_followed_any_further_is_an_error(client):
    # The more of it there is, the more ways there are to read it.
    ways = " | ".join(" ".join(["s"] * n) for n in range(2, 7))
    body = {"grammar": f'root ::= s\ns ::= "a" | {ways}'}
    with pytest.raises(openai.BadRequestError, match="followed any further"):
        client.completions.create(model=MODEL, prompt="a", max_tokens=300, extra_body=body)
    with pytest.raises(openai.APIError, match="followed any further"):
        list(client.completions.create(model=MODEL, prompt="a", max_tokens=300, stream=True, extra_body=body))


# A full server --------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(small_banner):
    return address(small_banner)


@contextlib.contextmanager
def holders(banner, count):
    """So many long streams, of which one runs and the others wait; nobody reads them."""
    host = address(banner).removeprefix("http://")
    body = {"prompt": "Once upon a time", "max_tokens": 900, "ignore_eos": True, "stream": True}
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    connections = [http.client.HTTPConnection(host) for _ in range(count)]
    try:
        for connection in connections:
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
        until(lambda: gauge(banner, "running") == 1 and gauge(banner, "waiting") == count - 1)
        yield
    finally:
        for connection in connections:
            connection.close()
        until(lambda: gauge(banner, "running") == 0 and gauge(banner, "waiting") == 0)


def gauge(banner, state):
    with urllib.request.urlopen(metrics_address(banner)) as page:
        text = page.read().decode()
    return int(re.search(rf"^vllm:num_requests_{state}\b.* (\d+)", text, re.MULTILINE).group(1))


def until(happened):
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_full_queue_is_a_rate_limit(small, small_banner):
    client = openai_client(small)  # which takes a while, and the holders do not hold for long
    with holders(small_banner, 3), pytest.raises(openai.RateLimitError) as error:
        client.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert error.value.code == "rate_limit_exceeded"
    assert 1 <= int(error.value.response.headers["retry-after"]) <= 60


def test_retries_wait_as_long_as_they_are_told(small, small_banner):
    log = []

    def sent(_request):
        log.append((time.monotonic(), None, None))

    def answered(response):
        log.append((time.monotonic(), response.status_code, response.headers.get("retry-after")))

    hooks = {"request": [sent], "response": [answered]}
    with openai.DefaultHttpxClient(event_hooks=hooks) as http_client:
        client = openai_client(small, max_retries=20, http_client=http_client)
        with holders(small_banner, 3):
            chat = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=20)
    assert chat.choices[0].message.content
    answers, requests = log[1::2], log[2::2]
    assert answers[0][1] == 429, "the queue was full"
    assert answers[-1][1] == 200
    for (refused, status, retry_after), (again, *_) in zip(answers, requests):
        assert status == 429
        assert again - refused >= int(retry_after)


def test_a_deadline_that_passes_in_the_queue_is_a_504(small, small_banner):
    client = openai_client(small)
    with holders(small_banner, 2), pytest.raises(openai.InternalServerError) as error:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body={"timeout_ms": 20})
    assert error.value.status_code == 504


def test_a_deadline_that_passes_later_ends_the_text(client):
    completion = client.completions.create(
        model=MODEL,
        prompt="Once upon a time",
        max_tokens=900,
        extra_body={"ignore_eos": True, "timeout_ms": 40},
    )
    [choice] = completion.choices
    assert choice.finish_reason == "timeout" and choice.text
    assert completion.usage.completion_tokens < 900


def test_too_many_busy_connections_are_a_503():
    """One address may have three of four places. All have a request."""
    with running("--max-connections=4") as text, contextlib.ExitStack() as stack:
        server = address(text)
        for _ in range(3):
            client = stack.enter_context(openai_client(server))
            asked = {"max_tokens": 900, "stream": True, "extra_body": {"ignore_eos": True}}
            stream = client.completions.create(model=MODEL, prompt="Once upon a time", **asked)
            stack.enter_context(stream)
            next(iter(stream))
        with pytest.raises(openai.InternalServerError) as error:
            openai_client(server).completions.create(model=MODEL, prompt="Once", max_tokens=1)
        assert openai_client(server).models.list().data, "load balancers are answered all the same"
    assert error.value.status_code == 503
    assert int(error.value.response.headers["retry-after"]) >= 1


def test_idle_connections_shut_nobody_out(small):
    host, port = small.removeprefix("http://").split(":")
    with contextlib.ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(socket.create_connection((host, int(port))))
        assert openai_client(small).models.list().data

"""Requests that ask for trouble are refused, and the server goes on."""

import json

import pytest
from conftest import KEY, MODEL
from hostile_requests import REQUESTS, send


@pytest.mark.parametrize(("name", "path", "body"), REQUESTS, ids=[name for name, *_ in REQUESTS])
def test_it_is_refused(server, client, name, path, body):
    status, text, seconds = send(server, path, body, KEY)
    print(f"{name}: {status} in {1e3 * seconds:.1f} ms")
    error = json.loads(text)["error"]
    message = error if path.startswith("/api/") else error["message"]
    assert 400 <= status < 500, text
    assert 0 < len(message) < 2000
    # How fast it is, and what it does to others, is a matter of perf/study hostile.
    assert seconds < 5
    assert client.completions.create(model=MODEL, prompt="Once", max_tokens=2).choices[0].text

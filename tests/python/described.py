"""Requests that the API's own description gives, right ones and wrong ones: none fails
the server, and every answer is one that is described.

`pytest -s` prints how many of what were sent.
"""

import collections
import itertools
import time

import hypothesis
import pytest
import requests
import schemathesis
from conftest import KEY, ROOT
from hypothesis.configuration import set_hypothesis_home_dir
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

SEED = 20261121
EXAMPLES = 80  # of each operation and mode
CASES_MIN, SECONDS_MAX = 2000, 180
CHECKED = {"not_a_server_error", "status_code_conformance", "content_type_conformance"}
CHECKED |= {"response_headers_conformance", "response_schema_conformance"}
# Asked for at random these are refused, nearly always: half of the right requests go without.
RARELY_RIGHT = {"grammar", "guided_grammar", "regex", "guided_regex", "json_schema", "guided_json"}
RARELY_RIGHT |= {"guided_choice", "response_format", "output_config", "tools", "tool_choice", "suffix", "best_of"}
RARELY_RIGHT |= {"logit_bias", "min_tokens", "chat_template_kwargs", "continue_final_message"}
# Texts are short, so that the time goes into requests.
TOKENS_MAX = 4
TOKEN_FIELDS = ["max_tokens", "max_completion_tokens", "n_predict"]

set_hypothesis_home_dir(ROOT / "target" / "hypothesis")
load_all_checks()
CHOSEN = [check for check in CHECKS.get_all() if check.__name__ in CHECKED]
DOCUMENT = schemathesis.openapi.from_path(ROOT / "src" / "api" / "openapi.json")
OPERATIONS = [result.ok() for result in DOCUMENT.get_all_operations()]
# HEAD and OPTIONS take nothing that could vary.
GETS = [operation for operation in OPERATIONS if operation.method.lower() == "get"]
POSTS = [operation for operation in OPERATIONS if operation.method.lower() == "post"]
MODES = [(operation, GenerationMode.POSITIVE) for operation in GETS + POSTS]
MODES += [(operation, GenerationMode.NEGATIVE) for operation in POSTS]

sent = collections.Counter()
seconds = collections.Counter()


@pytest.fixture(scope="module")
def session():
    with requests.Session() as session:
        session.headers["authorization"] = f"Bearer {KEY}"
        yield session


@pytest.mark.parametrize(
    ("operation", "mode"), MODES, ids=[f"{one.label} {mode.value}" for one, mode in MODES]
)
def test_every_answer_is_described(server, session, operation, mode):
    turn = itertools.count()

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=EXAMPLES if operation.method.lower() == "post" else 10,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def answer(case):
        tame(case, mode, next(turn))
        response = case.call(base_url=server, session=session, timeout=30)
        sent[response.status_code] += 1
        case.validate_response(response, checks=CHOSEN)

    began = time.monotonic()
    answer()
    seconds[operation.label] += time.monotonic() - began


def tame(case, mode, turn):
    """Changes what would only cost time, and leaves what is wrong as wrong as it is."""
    # Other characters are not HTTP, and never reach a path.
    for name in [name for name, text in case.headers.items() if not text.isprintable()]:
        del case.headers[name]
    if not isinstance(case.body, dict):
        return
    body = dict(case.body)
    if mode == GenerationMode.POSITIVE and turn % 2 == 0:
        body = {name: value for name, value in body.items() if name not in RARELY_RIGHT}
    for name in TOKEN_FIELDS:
        count = body.get(name)
        if is_whole(count) and (count == -1 or TOKENS_MAX < count <= 1 << 20):
            body[name] = TOKENS_MAX
    # Elsewhere none is as many as fit; there it is a wrong request.
    if body.get("max_tokens") is None and case.path != "/v1/messages":
        body["max_tokens"] = TOKENS_MAX
    for name in ["n", "n_cmpl"]:
        if is_whole(body.get(name)) and 2 < body[name] <= 128:
            body[name] = 2
    if is_whole(body.get("timeout_ms")) and 0 < body["timeout_ms"] < 60_000:
        body["timeout_ms"] = 60_000  # a 504 would be right, too
    case.body = body


def is_whole(value):
    """As JSON schemas see it: 1.0 is whole."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1


def test_it_was_enough():
    """After all of the above, where all of it ran."""
    total, took = sum(sent.values()), sum(seconds.values())
    print(f"{total} requests in {took:.0f} s: {dict(sorted(sent.items()))}")
    for label, time_s in seconds.most_common(5):
        print(f"{label}: {time_s:.0f} s")
    if len(seconds) < len({operation.label for operation, _ in MODES}):
        pytest.skip("only a part of it ran")
    assert total >= CASES_MIN
    assert len(CHOSEN) == len(CHECKED)
    assert sent[200] >= 100 and sent[400] >= 100, "right ones and wrong ones"
    assert took < SECONDS_MAX


def test_the_description_is_served(server):
    assert requests.get(f"{server}/openapi.json", timeout=30).json() == DOCUMENT.raw_schema

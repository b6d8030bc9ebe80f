"""Sends requests drawn from the API's own description, right ones or wrong ones.

No request may fail the server, and every answer must be described. `pytest -s` prints the counts.
"""

import collections
import itertools

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
CHECKED = {"not_a_server_error", "status_code_conformance", "content_type_conformance"}
CHECKED |= {"response_headers_conformance", "response_schema_conformance"}
# Random values of these fields are nearly always refused, so half of the right requests leave them out.
RARELY_RIGHT = {"grammar", "guided_grammar", "regex", "guided_regex", "json_schema", "guided_json"}
RARELY_RIGHT |= {"guided_choice", "response_format", "output_config", "tools", "tool_choice", "suffix", "best_of"}
RARELY_RIGHT |= {"format", "text", "previous_response_id"}
RARELY_RIGHT |= {"logit_bias", "min_tokens", "chat_template_kwargs", "continue_final_message"}
# Texts are short, so that there is time for many requests.
TOKENS_MAX = 4
TOKEN_FIELDS = ["max_tokens", "max_completion_tokens", "n_predict", "max_output_tokens"]

set_hypothesis_home_dir(ROOT / "target" / "hypothesis")
load_all_checks()
CHOSEN = [check for check in CHECKS.get_all() if check.__name__ in CHECKED]
DOCUMENT = schemathesis.openapi.from_path(ROOT / "src" / "api" / "openapi.json")
OPERATIONS = [result.ok() for result in DOCUMENT.get_all_operations()]
# HEAD and OPTIONS have no parameters.
BODILESS = [op for op in OPERATIONS if op.method.lower() in ("get", "delete") or op.path.endswith("/cancel")]
POSTS = [op for op in OPERATIONS if op.method.lower() == "post" and op not in BODILESS]
sent = collections.Counter()
operations = set()


def check(server, operation, mode):
    """Sends requests of one operation and checks their answers."""
    turn = itertools.count()
    operations.add(operation.label)

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

    with requests.Session() as session:
        session.headers["authorization"] = f"Bearer {KEY}"
        answer()


def tame(case, mode, turn):
    """Shortens a request without making a wrong one right."""
    # Other characters are not valid HTTP, and never reach a path.
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
    if case.path.startswith("/api/"):
        options = body.get("options")
        if options is None or (isinstance(options, dict) and options.get("num_predict") in (None, -1, -2)):
            body["options"] = (options or {}) | {"num_predict": TOKENS_MAX}
    if case.path == "/v1/responses" and body.get("max_output_tokens") is None:
        body["max_output_tokens"] = TOKENS_MAX
    # Without a maximum the text would be as long as fits; in /v1/messages the field is required.
    if body.get("max_tokens") is None and case.path != "/v1/messages":
        body["max_tokens"] = TOKENS_MAX
    for name in ["n", "n_cmpl"]:
        if is_whole(body.get(name)) and 2 < body[name] <= 128:
            body[name] = 2
    if is_whole(body.get("timeout_ms")) and 0 < body["timeout_ms"] < 60_000:
        body["timeout_ms"] = 60_000  # a 504 would also be right
    case.body = body


def is_whole(value):
    """As in JSON Schema, 1.0 is whole."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1


def enough(expected, status, least):
    """Checks that all `expected` operations ran, with `least` answers of this status."""
    print(f"{sum(sent.values())} requests: {dict(sorted(sent.items()))}")
    if operations < {operation.label for operation in expected}:
        pytest.skip("only some of the operations ran")
    assert sent[status] >= least
    assert len(CHOSEN) == len(CHECKED)

"""Invalid requests of the described API: none fails the server, and every answer is described."""

import pytest
from described import POSTS, check, enough
from schemathesis import GenerationMode


@pytest.mark.parametrize("operation", POSTS, ids=lambda operation: operation.label)
def test_every_answer_is_described(server, operation):
    check(server, operation, GenerationMode.NEGATIVE)


def test_they_were_enough():
    enough(POSTS, status=400, least=500)

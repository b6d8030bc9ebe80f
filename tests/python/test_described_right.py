"""Valid requests of the described API: every answer is described."""

import pytest
import requests
from described import DOCUMENT, BODILESS, POSTS, check, enough
from schemathesis import GenerationMode


@pytest.mark.parametrize("operation", BODILESS + POSTS, ids=lambda operation: operation.label)
def test_every_answer_is_described(server, operation):
    check(server, operation, GenerationMode.POSITIVE)


def test_they_were_enough():
    enough(BODILESS + POSTS, status=200, least=500)


def test_the_description_is_served(server):
    assert requests.get(f"{server}/openapi.json", timeout=30).json() == DOCUMENT.raw_schema

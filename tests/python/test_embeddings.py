"""Embeddings with the official `openai` package and `langchain-openai`."""

import base64
import math
import struct

import langchain_openai
import openai
import pytest
from conftest import KEY, MODEL, openai_client

TEXTS = ["the cat sat on the mat", "a dog ran over the hill", "the cat sat on the mat"]


@pytest.fixture
def embedder(embedding_server):
    return openai_client(embedding_server)


def test_float_and_base64_are_the_same(embedder):
    floats = embedder.embeddings.create(model=MODEL, input=TEXTS, encoding_format="float")
    assert floats.object == "list" and floats.model == MODEL
    assert [item.index for item in floats.data] == [0, 1, 2]
    assert floats.usage.prompt_tokens == floats.usage.total_tokens > 0
    packed = embedder.embeddings.create(model=MODEL, input=TEXTS, encoding_format="base64")
    for plain, coded in zip(floats.data, packed.data):
        raw = base64.b64decode(coded.embedding, validate=True)
        numbers = list(struct.unpack(f"<{len(raw) // 4}f", raw))
        assert numbers == pytest.approx(plain.embedding, abs=1e-4)
    # Without a format the package asks for base64 and decodes it by itself.
    by_default = embedder.embeddings.create(model=MODEL, input=TEXTS[0]).data[0].embedding
    assert by_default == pytest.approx(floats.data[0].embedding, abs=1e-2)


def test_vectors_have_length_one_and_the_models_width(embedder):
    width = embedder.models.list().data[0].model_extra["meta"]["n_embd"]
    vectors = [item.embedding for item in embedder.embeddings.create(model=MODEL, input=TEXTS).data]
    assert {len(vector) for vector in vectors} == {width}
    assert [math.hypot(*vector) for vector in vectors] == pytest.approx([1, 1, 1], abs=1e-4)

    def alike(one, other):
        return sum(x * y for x, y in zip(vectors[one], vectors[other]))

    assert alike(0, 2) == pytest.approx(1, abs=1e-3)
    assert alike(0, 1) < 0.999


def test_tokens_are_taken_as_they_are(embedder):
    root = str(embedder.base_url).removesuffix("/v1/")
    response = embedder.post(f"{root}/tokenize", cast_to=object, body={"content": TEXTS[0]})
    by_tokens = embedder.embeddings.create(model=MODEL, input=[response["tokens"]])
    by_text = embedder.embeddings.create(model=MODEL, input=TEXTS[0])
    assert by_tokens.usage.prompt_tokens == by_text.usage.prompt_tokens == len(response["tokens"])
    assert by_tokens.data[0].embedding == pytest.approx(by_text.data[0].embedding, abs=1e-3)


def test_what_cannot_be_embedded(client, embedder):
    for wrong in ("", [], [""], ["a", ""], [[]]):
        with pytest.raises(openai.BadRequestError):
            embedder.embeddings.create(model=MODEL, input=wrong)
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        embedder.embeddings.create(model=MODEL, input="a", dimensions=7)
    with pytest.raises(openai.BadRequestError, match="tokens"):
        embedder.embeddings.create(model=MODEL, input="many words " * 5000)
    with pytest.raises(openai.BadRequestError, match="300000 tokens together"):
        embedder.embeddings.create(model=MODEL, input=[[5] * 1000] * 301)
    with pytest.raises(openai.BadRequestError, match="pooling"):
        client.embeddings.create(model=MODEL, input="a")


def test_langchain(embedding_server):
    embeddings = langchain_openai.OpenAIEmbeddings(
        model=MODEL,
        base_url=f"{embedding_server}/v1",
        api_key=KEY,
        max_retries=0,
        check_embedding_ctx_length=False,  # else it fetches OpenAI's tokeniser for its tokens
    )
    documents = embeddings.embed_documents(TEXTS)
    query = embeddings.embed_query(TEXTS[1])
    assert len(documents) == 3 and len(documents[0]) == len(query)
    assert query == pytest.approx(documents[1], abs=1e-2)

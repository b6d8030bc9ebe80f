"""Embeddings with the official `openai` package and `langchain-openai`."""

import base64
import math
import struct

import httpx
import langchain_openai
import models
import numpy as np
import openai
import pytest
from conftest import EXACT, KEY, MODEL, address, openai_client, running

CLOSE = 1e-3
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


def post(server, path, body):
    return httpx.post(f"{server}{path}", json=body, headers={"authorization": f"Bearer {KEY}"}, timeout=60)


def ask(server, path, **body):
    response = post(server, path, body)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.fixture(scope="module")
def mean_server(encoder):
    """The small BERT's vectors of texts."""
    with running("--model", encoder.path, *EXACT, "--pooling=mean") as text:
        yield address(text)


@pytest.fixture(scope="module")
def token_server(encoder):
    """A vector for each token."""
    with running("--model", encoder.path, *EXACT, "--pooling=none") as text:
        yield address(text)


@pytest.fixture(scope="module")
def cut_server(encoder):
    """Vectors of texts, as short as a request wants them."""
    with running("--model", encoder.path, *EXACT, "--pooling=mean", "--matryoshka") as text:
        yield address(text)


def test_vectors_are_the_references(encoder, mean_server):
    for text, entry in zip(TEXTS, ask(mean_server, "/v1/embeddings", input=TEXTS)["data"]):
        reference = encoder.model.embedding(encoder.model.text_ids(text), "mean")
        assert entry["embedding"] == pytest.approx(reference, abs=CLOSE)


@pytest.mark.parametrize("path", ["/embedding", "/embeddings"])
def test_llama_servers_form(encoder, mean_server, path):
    reference = [encoder.model.embedding(encoder.model.text_ids(text), "mean") for text in TEXTS]
    for field in ("content", "input"):
        one = ask(mean_server, path, **{field: TEXTS[0]})
        assert [set(entry) for entry in one] == [{"index", "embedding"}]
        assert one[0]["embedding"] == [pytest.approx(reference[0], abs=CLOSE)]
        several = ask(mean_server, path, **{field: TEXTS})
        assert [entry["index"] for entry in several] == [0, 1, 2]
        for entry, vector in zip(several, reference):
            assert entry["embedding"] == [pytest.approx(vector, abs=CLOSE)]
    ids = encoder.model.text_ids(TEXTS[1])
    assert ask(mean_server, path, content=[ids])[0]["embedding"] == [pytest.approx(reference[1], abs=CLOSE)]


@pytest.mark.parametrize(
    "how,length",
    [
        (-1, None),
        (0, lambda vector: np.abs(vector).max() / 32760),  # llama-server's range is that of 16-bit numbers
        (1, lambda vector: np.abs(vector).sum()),
        (2, lambda vector: np.sqrt((vector**2).sum())),
        (3, lambda vector: (np.abs(vector) ** 3).sum() ** (1 / 3)),
        (6, lambda vector: (np.abs(vector) ** 6).sum() ** (1 / 6)),
    ],
)
def test_normalisations(encoder, mean_server, how, length):
    vector = encoder.model.vectors(encoder.model.text_ids(TEXTS[0])).mean(axis=0)
    reference = vector / length(vector) if length else vector
    found = ask(mean_server, "/embedding", content=TEXTS[0], embd_normalize=how)[0]["embedding"][0]
    assert np.array(found) == pytest.approx(reference, abs=CLOSE * max(1, np.abs(reference).max()))


def test_a_vector_for_each_token(encoder, token_server):
    found = ask(token_server, "/embedding", content=TEXTS)
    assert [entry["index"] for entry in found] == [0, 1, 2]
    for entry, text in zip(found, TEXTS):
        reference = encoder.model.vectors(encoder.model.text_ids(text))
        # The entries reach 3, and llama.cpp takes GELU from a table of float16.
        assert np.array(entry["embedding"]) == pytest.approx(reference, abs=4 * CLOSE)
        assert np.array(entry["embedding"]).shape == reference.shape
    # OpenAI's form has one vector for each text.
    refused = post(token_server, "/v1/embeddings", {"input": TEXTS[0]})
    assert refused.status_code == 400 and "pooling" in refused.json()["error"]["message"]


def test_shorter_vectors(encoder, mean_server, cut_server):
    whole = encoder.model.embedding(encoder.model.text_ids(TEXTS[0]), "mean")
    for dimensions in (1, 8, 47, len(whole)):
        entry = ask(cut_server, "/v1/embeddings", input=TEXTS[0], dimensions=dimensions)["data"][0]
        reference = models.unit(whole[:dimensions])
        assert entry["embedding"] == pytest.approx(reference, abs=CLOSE * len(whole) / dimensions)
    body = {"input": TEXTS[0], "dimensions": 8, "encoding_format": "base64"}
    packed = base64.b64decode(ask(cut_server, "/v1/embeddings", **body)["data"][0]["embedding"])
    assert struct.unpack("<8f", packed) == pytest.approx(models.unit(whole[:8]), abs=5 * CLOSE)
    without = ask(cut_server, "/v1/embeddings", input=TEXTS[0])["data"][0]["embedding"]
    assert without == pytest.approx(whole, abs=CLOSE)
    for wrong in (0, -1, len(whole) + 1, 1.5, "many"):
        refused = post(cut_server, "/v1/embeddings", {"input": TEXTS[0], "dimensions": wrong})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "dimensions"
    refused = post(mean_server, "/v1/embeddings", {"input": TEXTS[0], "dimensions": 8})
    assert refused.status_code == 400 and "--matryoshka" in refused.json()["error"]["message"]


def test_wrong_fields_of_llama_servers_form(server, mean_server):
    for field, wrong in [("content", ""), ("content", []), ("content", {"a": 1}), ("embd_normalize", "much"), ("embd_normalize", -2)]:
        refused = post(mean_server, "/embedding", {"content": "a"} | {field: wrong})
        assert refused.status_code == 400 and refused.json()["error"]["param"].startswith(field)
    assert post(mean_server, "/embedding", {}).status_code == 400
    without_pooling = post(server, "/embedding", {"content": "a"})
    assert without_pooling.status_code == 400 and "pooling" in without_pooling.json()["error"]["message"]

"""Ranking and scoring pairs of texts, against the reference in float64."""

import math

import httpx
import pytest
from conftest import EXACT, KEY, address, running

QUERY = "where is the cat"
DOCUMENTS = [
    "the cat sat on the mat",
    "a river in the forest",
    "one old ship",
    "the dog and the mouse are in the garden, under the yellow moon",
    "rain",
    "What is a prompt cache?",
    "the cat sat on the mat",
]
CLOSE = 1e-3
PATHS = ["/v1/rerank", "/rerank", "/v1/reranking", "/reranking"]


@pytest.fixture(scope="module")
def servers(encoder, judge):
    with running("--model", encoder.path, "--pooling=rank", *EXACT) as first, running("--model", judge.path, *EXACT) as second:
        yield {"encoder": (address(first), encoder.model), "judge": (address(second), judge.model)}


@pytest.fixture(params=["encoder", "judge"])
def ranked(request, servers):
    """A server and the model that it has: BERT with one output, and Qwen3 with two."""
    return servers[request.param]


def post(server, path, body):
    return httpx.post(f"{server}{path}", json=body, headers={"authorization": f"Bearer {KEY}"}, timeout=60)


def ask(server, path="/v1/rerank", **body):
    response = post(server, path, {"query": QUERY, "documents": DOCUMENTS} | body)
    assert response.status_code == 200, response.text
    return response.json()


def refused(server, path="/v1/rerank", **body):
    response = post(server, path, {"query": QUERY, "documents": DOCUMENTS} | body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] in ("invalid_request_error", "exceed_context_size_error")
    return error


def scores_of(model, query=QUERY, documents=DOCUMENTS):
    return [model.score(query, document) for document in documents]


def test_the_references_scores_differ(servers):
    for _, model in servers.values():
        scores = scores_of(model)
        assert max(scores) - min(scores) > 0.2
        ordered = sorted(set(scores))
        assert min(higher - lower for lower, higher in zip(ordered, ordered[1:])) > 2 * CLOSE


@pytest.mark.parametrize("path", PATHS)
def test_scores_are_the_references(ranked, path):
    server, model = ranked
    answer = ask(server, path)
    assert answer["object"] == "list" and answer["id"] and answer["model"]
    tokens = sum(len(model.pair_ids(QUERY, document)) for document in DOCUMENTS)
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    results = answer["results"]
    assert sorted(result["index"] for result in results) == list(range(len(DOCUMENTS)))
    reference = scores_of(model)
    for result in results:
        assert result["relevance_score"] == pytest.approx(reference[result["index"]], abs=CLOSE)
        assert 0 <= result["relevance_score"] <= 1
    found = [result["relevance_score"] for result in results]
    assert found == sorted(found, reverse=True)


def test_documents_are_texts_or_objects(ranked):
    server, _ = ranked
    plain = ask(server)["results"]
    mixed = ask(server, documents=[{"text": DOCUMENTS[0]}, *DOCUMENTS[1:-1], {"text": DOCUMENTS[-1], "title": "ignored"}])["results"]
    assert [result["relevance_score"] for result in mixed] == pytest.approx([result["relevance_score"] for result in plain], abs=CLOSE)


def test_top_n_and_the_documents_of_the_results(ranked):
    server, _ = ranked
    everything = ask(server)["results"]
    assert all("document" not in result for result in everything)
    top = ask(server, top_n=2, return_documents=True)["results"]
    assert [result["relevance_score"] for result in top] == pytest.approx(
        [result["relevance_score"] for result in everything[:2]], abs=CLOSE
    )
    assert [result["document"] for result in top] == [{"text": DOCUMENTS[result["index"]]} for result in top]
    assert len(ask(server, top_n=100)["results"]) == len(DOCUMENTS)


def test_logits_instead_of_scores(servers):
    server, model = servers["encoder"]
    results = ask(server, use_activation=False)["results"]
    reference = [model.logit(model.pair_ids(QUERY, document)) for document in DOCUMENTS]
    for result in results:
        assert result["relevance_score"] == pytest.approx(reference[result["index"]], abs=4 * CLOSE)
    assert max(abs(logit) for logit in reference) > 1
    scores = {result["index"]: result["relevance_score"] for result in ask(server)["results"]}
    for result in results:
        assert scores[result["index"]] == pytest.approx(1 / (1 + math.exp(-result["relevance_score"])), abs=CLOSE)


def test_long_documents_are_cut_on_demand(servers):
    server, model = servers["encoder"]
    long = "the cat sat on the mat " * 6
    whole = model.pair_ids(QUERY, long)
    cut = ask(server, documents=[long], max_tokens_per_doc=5)
    kept = len(whole) - len(model.tokenize(long)) + 5
    assert cut["usage"]["total_tokens"] == kept
    score = 1 / (1 + math.exp(-model.logit(whole[:kept])))
    assert cut["results"][0]["relevance_score"] == pytest.approx(score, abs=CLOSE)


def test_teis_form(ranked):
    server, model = ranked
    response = post(server, "/rerank", {"query": QUERY, "texts": DOCUMENTS})
    assert response.status_code == 200, response.text
    reference = scores_of(model)
    found = response.json()
    assert [set(result) for result in found] == [{"index", "score"}] * len(DOCUMENTS)
    for result in found:
        assert result["score"] == pytest.approx(reference[result["index"]], abs=CLOSE)
    assert [result["score"] for result in found] == sorted((result["score"] for result in found), reverse=True)
    with_texts = post(server, "/rerank", {"query": QUERY, "texts": DOCUMENTS, "return_text": True}).json()
    assert [result["text"] for result in with_texts] == [DOCUMENTS[result["index"]] for result in with_texts]


def test_many_documents_in_one_request(ranked):
    """More than the server has slots."""
    server, model = ranked
    documents = [f"{number} birds sing in the garden" for number in range(60)]
    results = ask(server, documents=documents)["results"]
    assert sorted(result["index"] for result in results) == list(range(60))
    reference = scores_of(model, documents=documents)
    for result in results:
        assert result["relevance_score"] == pytest.approx(reference[result["index"]], abs=CLOSE)


def test_vllms_scores(ranked):
    server, model = ranked
    many = post(server, "/v1/score", {"model": "any", "text_1": QUERY, "text_2": DOCUMENTS})
    assert many.status_code == 200, many.text
    many = many.json()
    assert many["object"] == "list" and many["id"] and many["model"] and many["created"] > 0
    assert [entry["index"] for entry in many["data"]] == list(range(len(DOCUMENTS)))
    assert {entry["object"] for entry in many["data"]} == {"score"}
    assert [entry["score"] for entry in many["data"]] == pytest.approx(scores_of(model), abs=CLOSE)
    assert many["usage"]["prompt_tokens"] == sum(len(model.pair_ids(QUERY, document)) for document in DOCUMENTS)
    one = post(server, "/v1/score", {"text_1": QUERY, "text_2": DOCUMENTS[3]}).json()
    assert [entry["score"] for entry in one["data"]] == pytest.approx([model.score(QUERY, DOCUMENTS[3])], abs=CLOSE)


def test_the_order_of_a_pair_matters(ranked):
    server, model = ranked
    turned = post(server, "/v1/score", {"text_1": DOCUMENTS[3], "text_2": QUERY}).json()["data"][0]["score"]
    assert turned == pytest.approx(model.score(DOCUMENTS[3], QUERY), abs=CLOSE)


@pytest.mark.parametrize(
    "field,body",
    [
        ("query", {"query": ""}),
        ("query", {"query": None}),
        ("query", {"query": 5}),
        ("documents", {"documents": []}),
        ("documents", {"documents": None}),
        ("documents", {"documents": "one text"}),
        ("documents", {"documents": ["a", 5]}),
        ("documents", {"documents": ["a", {"title": "no text"}]}),
        ("top_n", {"top_n": 0}),
        ("top_n", {"top_n": "many"}),
        ("return_documents", {"return_documents": "yes"}),
        ("max_tokens_per_doc", {"max_tokens_per_doc": 0}),
    ],
)
def test_wrong_fields(ranked, field, body):
    server, _ = ranked
    error = refused(server, **body)
    assert error["param"].startswith(field)
    assert field in error["message"]


def test_pairs_that_are_too_long(servers):
    server, model = servers["encoder"]
    long = "the cat sat on the mat " * 40
    error = refused(server, documents=["short", long])
    assert error["param"].startswith("documents")
    assert str(len(model.pair_ids(QUERY, long))) in error["message"] and str(model.context) in error["message"]
    error = refused(server, path="/v1/score", text_1=QUERY, text_2=long)
    assert error["param"].startswith("text_2")


def test_a_model_without_a_head_for_ranking(server):
    for path, body in [("/v1/rerank", {}), ("/rerank", {}), ("/v1/score", {"text_1": "a", "text_2": "b"})]:
        error = refused(server, path, **body)
        assert len(error["message"].split()) > 5
        assert "rank" in error["message"]


def test_a_key_is_needed(servers):
    server, _ = servers["judge"]
    for path in [*PATHS, "/v1/score"]:
        assert httpx.post(f"{server}{path}", json={"query": QUERY, "documents": DOCUMENTS}).status_code == 401


def test_coheres_client(ranked):
    """Cohere's client has 90 MB of its own, so this sends its fields to its path by hand."""
    server, model = ranked
    body = {"model": "rerank-v3.5", "query": QUERY, "documents": DOCUMENTS, "top_n": 3, "max_tokens_per_doc": 4096}
    results = ask(server, "/v2/rerank", **body)["results"]
    best = sorted(scores_of(model), reverse=True)[:3]
    assert [result["relevance_score"] for result in results] == pytest.approx(best, abs=CLOSE)

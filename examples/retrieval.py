"""Answers a question from documents: embed, take the nearest, rank them, answer with citations (`pip install httpx`).

    python examples/retrieval.py "How do I limit how long a request may take?"

Each part has a server with a model for it: EMBED_URL, RERANK_URL and CHAT_URL. BASE_URL stands for those that are not
set. The model that ranks needs a head for ranking. API_KEY is the servers' key, if they need one.

    corelane serve -m bge-small-en-v1.5-f16.gguf --port 8081 --ops-addr none                        # EMBED_URL
    corelane serve -m bge-reranker-v2-m3-q8_0.gguf --pooling rank --port 8082 --ops-addr none       # RERANK_URL
    corelane serve -m qwen3-0.6b-q4_k_m.gguf --port 8083 --ops-addr none                            # CHAT_URL
"""

import os
import sys

import httpx

NEAREST = 5  # documents that are ranked
SOURCES = 3  # documents that the answer may cite

# Short pieces of corelane's documentation. A real program would keep them, with their vectors, in a database.
DOCUMENTS = [
    "The flag --parallel sets how many requests run at once; 8 is the default. Further requests wait in a queue.",
    "Requests beyond the queue get status 429 with a Retry-After header, which comes from the measured rate.",
    "A request's field timeout_ms limits its time. The flag --request-timeout-s limits the time of every request.",
    "Prefixes of prompts stay in the KV cache until their cells are needed, so a repeated prompt starts sooner.",
    "The field cache_salt keeps the cached prefixes of users apart, because the time to a first token tells what is cached.",
    "The field response_format makes the text keep to a JSON schema, a grammar or a regular expression.",
    "The flag --api-key-file names a file with the keys that clients must send, one on each line.",
    "GET /health answers 200 when the server is ready, and 503 while the model is being loaded or the server drains.",
    "The flag --metrics shows Prometheus metrics on the API's port; the ops port always shows them.",
    "On SIGTERM the server finishes its running requests within --drain-seconds, 30 by default, and then ends.",
    "The flag --pooling makes the server embed texts: by the mean of their tokens, or by the first or the last one.",
    "A field named priority lets urgent requests go first; lower numbers go before higher ones.",
]


def post(server: str, path: str, body: dict) -> dict:
    base = os.environ.get(f"{server}_URL") or os.environ.get("BASE_URL", "http://127.0.0.1:8080")
    headers = {"authorization": f"Bearer {os.environ.get('API_KEY', 'none')}"}
    answer = httpx.post(base + path, json={"model": "any"} | body, headers=headers, timeout=120)
    if answer.is_error:
        sys.exit(f"{base}{path} answered {answer.status_code}: {answer.text}")
    return answer.json()


def nearest(question: str) -> list[str]:
    """The documents whose vectors are most alike to the question's. Vectors have length 1, so the product is the cosine."""
    vectors = [entry["embedding"] for entry in post("EMBED", "/v1/embeddings", {"input": [question, *DOCUMENTS]})["data"]]
    alike = [sum(x * y for x, y in zip(vectors[0], vector)) for vector in vectors[1:]]
    best = sorted(range(len(DOCUMENTS)), key=lambda number: -alike[number])
    return [DOCUMENTS[number] for number in best[:NEAREST]]


def ranked(question: str, documents: list[str]) -> list[tuple[str, float]]:
    """The best documents, and the probability that each of them answers the question."""
    results = post("RERANK", "/v1/rerank", {"query": question, "documents": documents, "top_n": SOURCES})["results"]
    return [(documents[result["index"]], result["relevance_score"]) for result in results]


def answered(question: str, sources: list[str]) -> str:
    """The answer. It is generated as a regular expression has it: one or two sentences, each with a source that exists."""
    listed = "\n".join(f"[{number}] {source}" for number, source in enumerate(sources, 1))
    messages = [
        {"role": "system", "content": f"Answer briefly from these sources, and cite them as [1].\n{listed}"},
        {"role": "user", "content": question},
    ]
    sentence = rf"[^\[\]\n]{{1,200}} \[[1-{len(sources)}]\]\."
    form = {"type": "regex", "pattern": f"{sentence}( {sentence})?"}
    settings = {"temperature": 0, "max_tokens": 300, "chat_template_kwargs": {"enable_thinking": False}}
    chat = post("CHAT", "/v1/chat/completions", {"messages": messages, "response_format": form} | settings)
    return chat["choices"][0]["message"]["content"]


def main() -> None:
    question = " ".join(sys.argv[1:]) or "How can I limit the time that a request takes?"
    sources = ranked(question, nearest(question))
    print(answered(question, [source for source, _ in sources]))
    for number, (source, score) in enumerate(sources, 1):
        print(f"[{number}] {score:.3f} {source}")


if __name__ == "__main__":
    main()

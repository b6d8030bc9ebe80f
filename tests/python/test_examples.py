"""The Python programs of examples/ run as they are."""

import os
import re
import subprocess
import sys

import pytest
from conftest import KEY, ROOT, address, running


@pytest.mark.parametrize("name", ["openai_client.py", "anthropic_client.py", "ollama_client.py", "agents_client.py"])
def test_an_example_runs(server, name):
    environment = os.environ | {"BASE_URL": server, "API_KEY": KEY}
    command = [sys.executable, ROOT / "examples" / name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "3 plus 4 is 7" in done.stdout


def test_retrieval_answers_with_its_sources(server, encoder):
    """The small encoder embeds and ranks, so which sources it finds means nothing; the built-in model answers."""
    flags = ["--model", encoder.path]
    with running(*flags, "--pooling=mean") as embedder, running(*flags, "--pooling=rank") as ranker:
        servers = {"CHAT_URL": server, "EMBED_URL": address(embedder), "RERANK_URL": address(ranker)}
        command = [sys.executable, ROOT / "examples" / "retrieval.py", "What", "is", "a", "queue?"]
        environment = os.environ | servers | {"API_KEY": KEY}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answer, *sources = done.stdout.splitlines()
    assert re.search(r"\[[123]\]\.$", answer)
    scores = [float(re.fullmatch(r"\[\d\] (\d\.\d{3}) \S.*", source).group(1)) for source in sources]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)

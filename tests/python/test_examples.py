"""The Python programs of examples/ run as they are."""

import os
import subprocess
import sys

import pytest
from conftest import KEY, ROOT


@pytest.mark.parametrize("name", ["openai_client.py", "anthropic_client.py", "ollama_client.py", "agents_client.py"])
def test_an_example_runs(server, name):
    environment = os.environ | {"BASE_URL": server, "API_KEY": KEY}
    command = [sys.executable, ROOT / "examples" / name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "3 plus 4 is 7" in done.stdout

"""The cache of models is huggingface_hub's: each program finds what the other one has downloaded, without the hub."""

import contextlib
import json
import os
import subprocess

import pytest
from conftest import BINARY, KEY, ROOT, address, running
from loopback_hub import COMMIT, LoopbackHub

REPO = "org/tiny"
FILE = "tiny-Q8_0.gguf"
MODEL = (ROOT / "src/model/builtin/builtin.gguf").read_bytes()


@pytest.fixture
def hub(tmp_path, monkeypatch):
    hub = LoopbackHub(REPO, {"README.md": b"hello", FILE: MODEL, "sub/tiny-F16.gguf": MODEL[:1000]})
    # huggingface_hub reads them when it is imported, which is in a process of its own here.
    for name in [name for name in os.environ if name.startswith(("HF_", "XDG_CACHE", "HUGGING"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    yield hub
    with contextlib.suppress(OSError):
        hub.close()


def corelane(*args):
    return subprocess.run([BINARY, *args], check=True, capture_output=True, text=True).stdout


def python(code):
    """What the code prints as JSON, in a fresh interpreter."""
    code = f"import json\nfrom huggingface_hub import *\nprint(json.dumps({code}))"
    command = [ROOT / "target/venv/bin/python", "-c", code]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


DOWNLOAD = f"hf_hub_download({REPO!r}, {FILE!r})"
IN_CACHE = f"hf_hub_download({REPO!r}, {FILE!r}, local_files_only=True)"


def test_huggingface_hub_finds_what_corelane_has_pulled(hub):
    corelane("model", "pull", REPO)
    corelane("model", "pull", f"{REPO}:f16")
    listed = {model["name"]: model["files"] for model in json.loads(corelane("model", "list", "--json"))["models"]}
    assert listed == {f"{REPO}:F16": ["sub/tiny-F16.gguf"], f"{REPO}:Q8_0": [FILE]}
    # It asks for the headers and finds the blob.
    hub.ranges.clear()
    assert open(python(DOWNLOAD), "rb").read() == MODEL
    assert not hub.ranges
    hub.close()
    assert open(python(IN_CACHE), "rb").read() == MODEL
    scan = python("""[
        [repo.repo_id, repo.size_on_disk, [[revision.commit_hash, sorted(revision.refs),
            sorted(file.file_name for file in revision.files)] for revision in repo.revisions]]
        for repo in scan_cache_dir().repos] + [str(warning) for warning in scan_cache_dir().warnings]""")
    files = ["tiny-F16.gguf", FILE]
    assert scan == [[REPO, len(MODEL) + 1000, [[COMMIT, ["main"], files]]]]


def test_corelane_serves_what_huggingface_hub_has_downloaded(hub):
    path = python(DOWNLOAD)
    asked = len(hub.requests)
    assert "it is the newest" in corelane("model", "pull", REPO)
    assert [path for _, path in hub.requests[asked:]] == [f"/api/models/{REPO}/revision/main?blobs=true"]
    hub.close()
    assert json.loads(corelane("model", "show", "--json", REPO))["file"] == path
    with running(f"--hf-repo={REPO}", "--offline") as banner:
        command = ["curl", "-sf", f"{address(banner)}/v1/models", "-H", f"authorization: Bearer {KEY}"]
        models = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        assert models["data"][0]["id"] == REPO


def test_half_a_file_disturbs_neither(hub, tmp_path):
    """corelane goes on with the half; so did huggingface_hub before its version 1."""
    corelane("model", "pull", REPO)
    blob = next((tmp_path / "home/hub/models--org--tiny/blobs").iterdir())
    snapshots = tmp_path / "home/hub/models--org--tiny/snapshots"
    half = len(MODEL) // 2
    for tool, ranges in (
        (lambda: corelane("model", "pull", REPO), [f"bytes={half}-"]),
        (lambda: python(DOWNLOAD), [None]),
    ):
        hub.ranges.clear()
        (snapshots / COMMIT / FILE).unlink()
        blob.rename(f"{blob}.incomplete")
        os.truncate(f"{blob}.incomplete", half)
        tool()
        assert hub.ranges == ranges
        assert (snapshots / COMMIT / FILE).read_bytes() == MODEL


def test_huggingface_hub_counts_what_corelane_removes(hub):
    python(DOWNLOAD)
    assert corelane("model", "rm", f"{REPO}:q8_0") == f"removed {REPO}:q8_0: 1 file, {len(MODEL) / 1e6:.1f} MB freed\n"
    assert python("len(scan_cache_dir().repos)") == 0

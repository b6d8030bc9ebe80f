"""perf/study: the table names every study, and each explains itself. No server runs."""

import pathlib
import re
import subprocess
import sys

import pytest

PERF = pathlib.Path(__file__).parents[2] / "perf"
NAMES = sorted(file.stem for file in (PERF / "studies").glob("[a-z]*.py"))


def study(*arguments):
    return subprocess.run([sys.executable, PERF / "study", *arguments], capture_output=True, text=True)


def test_the_table_names_every_study():
    listed = study("--list").stdout
    assert re.findall(r"`perf/study (\w+)", listed) == NAMES
    assert all(line.count("|") == 4 for line in listed.splitlines())


def test_the_readme_has_the_table():
    # `perf/study --list --write` renews it.
    assert study("--list").stdout in (PERF / "README.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_it_explains_itself(name):
    found = study(name, "--help")
    assert found.returncode == 0, found.stderr
    question = found.stdout.split("\n\n")[1]
    assert question.endswith("?") and len(question) < 120, question
    assert "--save" in found.stdout


def test_an_unknown_study_is_refused():
    found = study("nothing")
    assert found.returncode == 1 and "no study is called nothing" in found.stderr

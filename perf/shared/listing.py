"""The table of the studies: question, command, newest run."""

import argparse
import importlib
import pkgutil
import re

import studies
from shared.report import ROOT, RUNS

README = ROOT / "perf" / "README.md"
BEGIN, END = "<!-- perf/study --list --write -->\n", "<!-- end -->\n"


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(studies.__path__))


def parser(name: str, study) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=f"perf/study {name}",
        description=study.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    study.arguments(made)
    return made


def table(relative_to=ROOT) -> str:
    lines = ["| question | command | newest run |", "|---|---|---|"]
    for name in names():
        study = importlib.import_module(f"studies.{name}")
        question = study.__doc__.splitlines()[0]
        needed = " ".join(a.metavar or a.dest.upper() for a in parser(name, study)._actions if a.required and a.nargs != "*")
        lines.append(f"| {question} | `perf/study {name}{needed and ' ' + needed}` | {newest(name)} |")
    return "\n".join(lines)


def newest(name: str) -> str:
    """A link to the newest run of a study. The names of runs begin with their dates; a run with a label counts less."""
    found = [entry for entry in RUNS.glob(f"*/{name}/*") if entry.is_dir() or entry.suffix == ".txt"]
    files = [file for study, file, *_ in importlib.import_module("studies.all").PARTS if study == name]
    found += [path for file in files for path in RUNS.glob(f"*/all/*/{file}.txt")]
    if not found:
        return "none"
    run = max(found, key=lambda path: (date(path), -len(path.name), path.name))
    return f"[{date(run)}, {run.relative_to(RUNS).parts[0]}]({run.relative_to(README.parent)})"


def date(path) -> str:
    return re.search(r"\d{4}-\d\d-\d\d", f"{path.relative_to(RUNS)}").group()


def write() -> None:
    """Writes the table into perf/README.md."""
    before, rest = README.read_text().split(BEGIN)
    README.write_text(f"{before}{BEGIN}{table()}\n{END}{rest.split(END)[1]}")

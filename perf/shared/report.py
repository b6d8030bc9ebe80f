"""Flags, tables and files that all studies have: how a study's result is shown and kept."""

import argparse
import contextlib
import datetime
import importlib
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys

from shared.server import CORELANE, MODELS, ROOT, model_file

RUNS = ROOT / "perf" / "runs"
sys.path.append(str(ROOT / "tests" / "python"))


def add(parser: argparse.ArgumentParser, **defaults) -> None:
    """Adds a flag for each default, with the default's type."""
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        metavar = "TEXT" if isinstance(default, str) else "N"
        parser.add_argument(flag, type=type(default), default=default, metavar=metavar, help="[default: %(default)s]")


def add_server(parser: argparse.ArgumentParser, model: str | None = None, binary: bool = True) -> None:
    """Adds the flags that choose the server."""
    default = "the built-in model" if model is None else model
    text = f"a GGUF file, or one of {', '.join(MODELS)}, which are made under target/ [default: {default}]"
    parser.add_argument("--model", metavar="FILE", type=model_file, default=model, help=text)
    if binary:
        text = "the server [default: this build's]"
        parser.add_argument("--binary", metavar="FILE", type=pathlib.Path, default=CORELANE, help=text)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--flags", default=[], type=shlex.split, help='for each server, such as "--flash-attn on"')


def table(*columns: str) -> None:
    """The head of a table in Markdown."""
    row(*columns)
    print("|" + "---|" * len(columns), flush=True)


def row(*cells) -> None:
    print(f"| {' | '.join(str(cell) for cell in cells)} |", flush=True)


def write(path: pathlib.Path | None, found: dict) -> None:
    """Saves what a study found as JSON. A study may do so before its end, so that an interruption loses little."""
    if path and found:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"machine": machine()} | found, indent=1) + "\n")


@contextlib.contextmanager
def kept(base: pathlib.Path, command: list[str]):
    """Copies standard output to BASE.txt, behind the command. If the block fails, the file is BASE.failed."""
    base.parent.mkdir(parents=True, exist_ok=True)
    part = base.with_name(base.name + ".part")
    part.write_text(f"$ {shlex.join(command)}\n".replace(f"{ROOT}/", ""))
    sys.stdout.flush()
    with subprocess.Popen(["tee", "--append", "--ignore-interrupts", str(part)], stdin=subprocess.PIPE, start_new_session=True) as tee:
        before = os.dup(1)
        os.dup2(tee.stdin.fileno(), 1)
        end = ".failed"
        try:
            yield
            end = ".txt"
        except BaseException as error:
            print(f"{type(error).__name__}: {error}")
            raise
        finally:
            sys.stdout.flush()
            os.dup2(before, 1)
            os.close(before)
            tee.stdin.close()
            tee.wait()
            for old in (".txt", ".failed"):
                base.with_name(base.name + old).unlink(missing_ok=True)
            part.rename(base.with_name(base.name + end))


def place(study: str, label: str) -> pathlib.Path:
    """Where a run is kept, without the end of the file's name. A label with a slash is the place itself."""
    if "/" in label:
        return pathlib.Path(label)
    return RUNS / machine_name() / study / "-".join([f"{datetime.date.today()}", commit(), *([label] if label else [])])


def needed(module: str, package: str = ""):
    """A module of tests/python, or one of a package that Python does not bring along."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        sys.exit(f"this study needs {package}; {error}. `make e2e` installs it: target/venv/bin/python perf/study ...")


def commit() -> str:
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, capture_output=True, text=True).stdout.strip()


def processor(field: str) -> list[str]:
    return re.findall(rf"^{field}\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)


def machine() -> str:
    """The machine and the commit in one line."""
    cpus = names()
    return f"{len(cpus)} x {cpus[0]}; commit {commit()}"


def names() -> list[str]:
    """The name of each processor. On ARM, the kernel has none."""
    return processor("model name") or [platform.machine()] * os.cpu_count()


def machine_name() -> str:
    """The name of this machine's folder. AMD's processors of several generations have one name, so it is added."""
    name = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(r\)| processor", "", names()[0].lower()))[:32].strip("-")
    if not name.startswith("amd") or "zen" in name:
        return name
    family, model = (int(processor(field)[0]) for field in ("cpu family", "model"))
    zen = {23: "zen2" if model >= 0x30 else "zen1", 25: "zen4" if 0x10 <= model < 0x20 or model >= 0x60 else "zen3", 26: "zen5"}
    return f"{name}-{zen.get(family, f'family{family}')}"

"""Which targets does this build meet on this machine?

Runs the studies that have targets, one after another, and saves them in perf/runs/MACHINE/all/DATE-COMMIT/. Then
summary.md there lists every target with the measured number. It takes about two hours on two cores.

Ends at the first study that fails. --only runs some of the parts. It continues in the folder that this machine and commit
already have, and so continues an interrupted run. A tree with uncommitted changes is refused, for the folder is named
after the commit; --force accepts it.
"""

import argparse
import datetime
import os
import pathlib
import shlex
import signal
import subprocess
import sys

from shared.report import RUNS, add_server, commit, machine_name
from shared.server import ROOT, model_file
from shared import listing
from studies import summary

MODEL = ["--model", "large"]
# The study, the name of its files, and its flags.
PARTS = [
    ("ladder", "ladder", [*MODEL, "--svg", "OUT/ladder.svg"]),
    ("ladder", "ladder-ends", [*MODEL, "--load", "ends"]),
    ("ladder", "ladder-experts", ["--model", "experts", "--load", "ends"]),
    ("ladder", "ladder-hybrid", ["--model", "hybrid", "--load", "ends"]),
    ("ladder", "ladder-one", [*MODEL, "--load", "one"]),
    ("ladder", "ladder-separate", [*MODEL, "--load", "separate"]),
    ("ladder", "ladder-separate-builtin", ["--load", "separate-builtin"]),
    ("ladder", "ladder-builtin-32", ["--load", "builtin-32"]),
    ("ladder", "ladder-builtin-64", ["--load", "builtin-64"]),
    ("spine", "spine", MODEL),
    ("spine", "spine-builtin", []),
    ("cache", "cache", MODEL),
    ("cache", "cache-builtin", ["--streams", "32", "--prompts", "400"]),
    # 32 sequences of 30 to 1,500 tokens.
    (
        *("cache", "ragged"),
        [*MODEL, *"--streams 32 --prompts 32 --input-len 765 --range-ratio 0.96 --ctx-size 51200 --rounds 3".split()],
    ),
    ("memory", "memory", MODEL),
    ("scrape", "scrape", [*MODEL, "--rounds", "4"]),
    ("scenario", "stall", ["stall", *MODEL]),
    ("scenario", "burst", ["burst", *MODEL]),
    ("scenario", "turns", ["turns", *MODEL]),
    ("scenario", "client", ["client"]),
    ("overload", "overload", [*MODEL, "--seconds", "150"]),
    ("hostile", "hostile", [*MODEL, "--rounds", "3"]),
    ("benches", "criterion", ["micro"]),
    ("benches", "products", ["kernels"]),
    ("benches", "attentions", ["attention"]),
    ("kernels", "kernels", MODEL),
    ("kernels", "kernels-experts", ["--model", "experts", "--rounds", "3"]),
    ("kernels", "kernels-hybrid", ["--model", "hybrid", "--rounds", "3"]),
    ("attention", "attention", [*MODEL, "--long-model", "quarter"]),
    ("settings", "settings", ["--model", "quarter", "--large", "large"]),
    ("versus", "versus", ["OTHER", *MODEL, "--out", "OUT"]),
    # Only where --versus is a file: a server that runs has one model.
    ("versus", "versus-experts", ["LLAMA", "--model", "experts", "--only", "eight"]),
    ("versus", "versus-hybrid", ["LLAMA", "--model", "hybrid", "--only", "eight"]),
    ("against", "against", ["BINARY", *MODEL]),
]
NAMES = [name for _, name, _ in PARTS]


def arguments(parser) -> None:
    parser.add_argument("--only", metavar="PART,PART", help=", ".join(NAMES))
    parser.add_argument("--name", default=machine_name(), help="the machine [default: %(default)s]")
    parser.add_argument("--versus", metavar="OTHER", help="another server to compare with (see perf/study versus)")
    parser.add_argument("--against", metavar="BINARY", help="a corelane of another commit to compare with")
    parser.add_argument("--force", action="store_true", help="accept uncommitted changes")
    add_server(parser, model="large", binary=False)


def run(args) -> None:
    wanted = args.only.split(",") if args.only else NAMES
    if unknown := set(wanted) - set(NAMES):
        sys.exit(f"no part is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    is_changed = subprocess.run(["git", "-C", ROOT, "diff", "--quiet", "HEAD"]).returncode
    if is_changed and not args.force:
        sys.exit("the tree has uncommitted changes; --force accepts them")
    runs = RUNS / args.name / "all"
    before = sorted(runs.glob(f"*-{commit()}")) if args.only else []
    out = before[-1] if before else runs / f"{datetime.date.today()}-{commit()}"
    # Build everything first: a compiler beside a measurement would take its cores.
    subprocess.run(["cargo", "build", "--release"], cwd=ROOT, check=True)
    for _, name, flags in PARTS:
        if name in wanted and name in ("criterion", "products", "attentions"):
            subprocess.run(["cargo", "bench", "--quiet", "--no-run", "--bench", flags[0]], cwd=ROOT, check=True)
    quarter = model_file("quarter")
    out.mkdir(parents=True, exist_ok=True)
    describe(out, [args.model, quarter, ROOT / "src/model/builtin/builtin.gguf"], is_changed)
    llama = args.versus if args.versus and "://" not in args.versus else None
    replaced = {"large": args.model, "OTHER": args.versus, "LLAMA": llama, "BINARY": args.against}
    for study, name, flags in PARTS:
        flags = [replaced.get(flag, flag.replace("OUT", str(out.relative_to(ROOT)))) for flag in flags]
        if name not in wanted or None in flags:
            print(f"== {name}: {'left out' if name not in wanted else 'not taken, its flag is not set'}", flush=True)
            continue
        part(study, name, flags, out, again(args))
    summary.run(argparse.Namespace(folder=out))
    listing.write()
    print(out / "summary.md")


def again(args) -> str:
    """The command that goes on with these flags, up to the parts that are left."""
    flags = {"--name": args.name, "--model": args.model, "--versus": args.versus, "--against": args.against}
    set_flags = [f"{flag} {shlex.quote(str(value))}" for flag, value in flags.items() if value]
    return " ".join(["perf/study all", *set_flags, *(["--force"] if args.force else []), "--only"])


def part(study: str, name: str, flags: list[str], out: pathlib.Path, command_again: str) -> None:
    """Runs a study in its own session, so that a signal also ends the processes that it started."""
    command = ["perf/study", study, *flags, "--save", str((out / name).relative_to(ROOT))]
    print(f"== {name}: {' '.join(command)}", flush=True)
    process = subprocess.Popen([sys.executable, *command], cwd=ROOT, start_new_session=True)
    try:
        status = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise
    if status:
        left = ",".join(NAMES[NAMES.index(name) :])
        sys.exit(f"{name} ended with status {status}: see {out / name}.failed. To go on: {command_again} {left}")


def describe(out: pathlib.Path, models: list, is_changed: int) -> None:
    """Writes the machine, the commit and the models."""
    script = """
        lscpu | grep -E '^(Model name|CPU\\(s\\)|Thread|L2|L3|NUMA node\\(s\\))'
        grep MemTotal /proc/meminfo
        uname -sr
        rustc --version
        git log -1 --format='commit %H'
    """
    text = subprocess.run(["sh", "-c", script], cwd=ROOT, capture_output=True, text=True).stdout
    text += "with uncommitted changes (--force)\n" if is_changed else ""
    for model in map(pathlib.Path, models):
        text += subprocess.run(["sha256sum", model], capture_output=True, text=True).stdout.replace(str(model), model.name)
    (out / "machine.txt").write_text(text)

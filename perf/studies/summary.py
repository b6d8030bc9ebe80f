"""Which targets does a complete run meet?

Writes FOLDER/summary.md from the results of the studies in FOLDER. Lists every target with the measured number and the
amount by which it was missed. Numbers are medians of the rounds, ratios are within a round, "(from to)" is the range. A
target that only some rounds meet is "open". A missing study is "not taken". `perf/study all` calls it.
"""

import json
import pathlib

from shared.statistics import ratios, shown, spread

NOT_TAKEN = ("not taken", "")
GROWTH_MIB_MAX = 1  # over 10,000 requests: a leak of 105 bytes per request
GAIN_MIN = 1.02  # a better setting has this ratio in the median, and more than 1 in every round


def arguments(parser) -> None:
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")


def run(args) -> None:
    folder = args.folder
    machine = folder / "machine.txt"
    lines = [f"# {folder.resolve().name}", "", "```"]
    lines += [machine.read_text().strip() if machine.exists() else "machine: not taken", "```", ""]
    lines += ["Written by `perf/study summary` from the files beside it, which begin with their commands.", ""]
    lines += ["## Targets", "", "| target | measured | |", "|---|---|---|"]
    lines += [f"| {target} | {measured} | {verdict} |" for target, (measured, verdict) in targets(folder)]
    lines += versus_table(folder)
    lines += ["", "## Tables", "", *(f"- [{file.stem}]({file.name})" for file in sorted(folder.glob("*.txt")) if file.stem != "machine")]
    (folder / "summary.md").write_text("\n".join(lines) + "\n")


def load(folder: pathlib.Path, name: str):
    """The result of a study. Its absence makes a target "not taken"."""
    return json.loads((folder / f"{name}.json").read_text())


# The ladder ----------------------------------------------------------------

MODELS = {
    "ladder-experts": "slice of a mixture of experts, in short rounds",
    "ladder-hybrid": "hybrid, in short rounds",
}
APART = {
    "ladder-separate": "large model, lanes on separate cores",
    "ladder-separate-builtin": "built-in model, lanes on separate cores",
}


class Ladder:
    """The runs of one `bench ladder`, by rung."""

    def __init__(self, folder: pathlib.Path, name: str):
        saved = load(folder, name)
        rungs = [run["rung"] for run in saved["rounds"][0]]
        self.runs = {rung: [round[i] for round in saved["rounds"]] for i, rung in enumerate(rungs)}
        self.layers = [rung for rung in rungs if rung - 1 in rungs]  # rungs whose previous rung ran, too

    def ratios(self, rung: int, base: int) -> list[float]:
        return ratios(self.values(rung, "tokens_per_s"), self.values(base, "tokens_per_s"))

    def values(self, rung: int, key: str) -> list[float]:
        """The values of the rounds that have one."""
        return [run[key] for run in self.runs[rung] if run.get(key) is not None]

    def of_rungs(self, key: str, rungs=range(11)) -> dict[str, dict]:
        """The number `key` of each rung that has it."""
        values = {rung: self.values(rung, key) for rung in self.runs if rung in rungs}
        return {f"rung {rung}": spread(found) for rung, found in values.items() if found}

    def steps(self, of_rung) -> tuple[str, str]:
        return each({f"rung {rung}": of_rung(rung, rung - 1) for rung in self.layers}, at_least, 0.995)

    def speed(self, rung: int, base: int = 0) -> dict[str, float]:
        return spread(self.ratios(rung, base))

    def share(self, rung: int, base: int = 0) -> dict[str, float]:
        """The speed "by accounting"."""
        return spread(kept(run, bare) for run, bare in zip(self.runs[rung], self.runs[base]))

    def is_accounted(self) -> bool:
        """Without all rungs, nothing is known about the others."""
        return all(run["model_share"] is not None for runs in self.runs.values() for run in runs)


# Targets: (text, (measured, verdict)) ----------------------------------------


def targets(folder: pathlib.Path):
    """Each target with the measured number and the verdict."""
    for target, measure in known(folder):
        try:
            yield target, measure()
        except (FileNotFoundError, KeyError):  # no file, or none that has the number
            yield target, NOT_TAKEN


def known(folder: pathlib.Path):
    """Each target, and the function that judges it."""
    read = lambda name: load(folder, name)  # noqa: E731
    ladder = lambda name: Ladder(folder, name)  # noqa: E731
    rounds = lambda name, value: spread(value(round["first"]) for round in read(name)["rounds"])  # noqa: E731
    large, ends, one, builtin = "ladder", "ladder-ends", "ladder-one", "ladder-builtin-32"
    yield "1. Rung 10 at least 0.99 of rung 0, large model", lambda: judged(ladder(large).speed(10), at_least, 0.99)
    yield "1. Rung 10 at least 0.99 of rung 0, in short rounds", lambda: judged(ladder(ends).speed(10), at_least, 0.99)
    yield "1. No rung under 0.995 of the one before", lambda: ladder(large).steps(ladder(large).speed)
    target = "1. No rung under 0.995 of the one before, by accounting"
    yield target, lambda: ladder(large).steps(ladder(large).share) if ladder(large).is_accounted() else NOT_TAKEN
    yield "1. Rung 10 at least 0.99 of rung 0, by accounting", lambda: judged(ladder(large).share(10), at_least, 0.99)
    target = "1. Rung 10 at least 0.99 of rung 0, in short rounds, by accounting"
    yield target, lambda: judged(ladder(ends).share(10), at_least, 0.99)
    for name, what in MODELS.items():
        yield f"1. Rung 10 at least 0.99 of rung 0, {what}", lambda: judged(ladder(name).speed(10), at_least, 0.99)
        yield f"1. Rung 10 at least 0.99 of rung 0, {what}, by accounting", lambda: judged(ladder(name).share(10), at_least, 0.99)
    target = "1. One request at a time: rung 10 at least 0.985 of rung 0"
    yield target, lambda: judged(ladder(one).speed(10), at_least, 0.985)
    yield f"{target}, by accounting", lambda: judged(ladder(one).share(10), at_least, 0.985)
    for name, what in APART.items():
        yield f"1. Rung 9 at least 0.99 of rung 0, {what}", lambda: judged(ladder(name).speed(9), at_least, 0.99)
        for key, limit in (("p50", 20), ("p99", 200)):
            target = f"2. Bubble {key} at most {limit} µs, {what}"
            yield target, lambda: each(ladder(name).of_rungs(f"bubble_us_{key}"), at_most, limit, "µs")
    for key in ("p50", "p99"):
        target = f"2. Bubble {key}, large model, lanes on a shared core"
        yield target, lambda: (worst_of(ladder(large).of_rungs(f"bubble_us_{key}"), max, "µs"), "no target")
    target = "3. Rung 4 at least 0.90 of rung 0, built-in model, 32 sequences"
    yield target, lambda: judged(ladder(builtin).speed(4), at_least, 0.90)
    yield f"{target}, by accounting", lambda: judged(ladder(builtin).share(4), at_least, 0.90)
    target = "4. Front lane at most 5 µs of CPU per streamed token, 64 streams"
    yield target, lambda: each(ladder("ladder-builtin-64").of_rungs("front_us_per_token", (9, 10)), at_most, 5, "µs")
    yield "5. No measured setting is better than the default", lambda: settings_target(read("settings"))
    target = "6. Memory beyond weights and KV cache under 150 MiB"
    yield target, lambda: single(read("memory")["overhead"]["overhead_mib"], 150, "MiB")
    grown = lambda growth: growth["second_mib"] - growth["first_mib"]  # noqa: E731
    target = f"6. No growth over 10,000 requests (under {GROWTH_MIB_MAX} MiB)"
    yield target, lambda: single(grown(read("memory")["growth"]), GROWTH_MIB_MAX, "MiB")
    yield "100 scrapes per second change the ITL p99 of 8 streams by under 2 %", lambda: scrape_target(read("scrape"))
    target = "7. Streams beside a prompt of 2,000 tokens: ITL p99 at most 2 x their p50 before"
    slower = lambda run: run["itl_during_p99_ms"] / run["itl_before_p50_ms"]  # noqa: E731
    yield target, lambda: judged(rounds("stall", slower), at_most, 2)
    for target, name, key, most in [
        ("7. The long prompt: TTFT at most 1.4 x its TTFT alone", "stall", "long_ttft_ratio", 1.4),
        (
            *("8. Eight requests that share 500 tokens: the last TTFT at most 1.3 x that of one alone", "burst"),
            *("last_to_alone_ratio", 1.3),
        ),
        ("9. The second turn of a chat: TTFT at most 0.1 x that of the first", "turns", "second_to_first_ratio", 0.1),
    ]:
        yield target, lambda: judged(rounds(name, lambda run: run[key]), at_most, most)
    yield "10. Overload: goodput at least 0.95 of capacity", lambda: goodput_target(read("overload"))
    for key in ("p99", "max"):
        yield f"10. Overload: refused in under 10 ms ({key})", lambda: single(read("overload")["refusal_ms"][key], 10, "ms")
    target = f"10. Overload: no growth of memory (under {GROWTH_MIB_MAX} MiB)"
    yield target, lambda: single(read("overload")["resident_mib"]["growth"], GROWTH_MIB_MAX, "MiB")
    gain = lambda name: read(name)["ratios"]["output_throughput"]  # noqa: E731
    yield "11. Throughput at least 0.99 of the other build's (AGAINST)", lambda: judged(gain("against"), at_least, 0.99)
    yield "12. Hostile requests: ITL p99 of a stream at most 1.2 x", lambda: judged(read("hostile")["ratio"], at_most, 1.2)
    answers = lambda hostile: {name: times["alone_ms"] for name, times in hostile["answers"].items()}  # noqa: E731
    target = "12. Hostile requests: each answered in under 50 ms"
    yield target, lambda: each(answers(read("hostile")), at_most, 50, "ms")
    yield from products(folder)
    target = "15. 32 sequences of 30 to 1,500 tokens: one KV cache at least 1 x a cache for each, tokens/s"
    yield target, lambda: judged(gain("ragged"), at_least, 1)
    yield "The load generator takes under 5 % of a core at 500 tokens/s", lambda: client_target(read("client"))


def products(folder: pathlib.Path):
    """The targets of kernels and attention are in their results."""
    if not (folder / "kernels.json").exists():
        yield "13. corelane's kernels against llama.cpp's", lambda: NOT_TAKEN
    else:
        for row in load(folder, "kernels")["rows"]:
            if row["least"]:
                target = f"13. corelane's kernels at least {row['least']} x llama.cpp's, {row['rate']}, {row['workload']}"
                yield target, lambda: judged(row["ratio"], at_least, row["least"])
    if not (folder / "attention.json").exists():
        yield "14. corelane's attention against llama.cpp's", lambda: NOT_TAKEN
    else:
        for row in load(folder, "attention")["rows"]:
            for kind, other in (("alone", "attention"), ("together", "kernels and attention")):
                if kind in row:
                    target = f"14. corelane's {other} at least {row[kind]['least']} x the better of llama.cpp's, {row['rate']}, {row['workload']}"
                    yield target, lambda: judged(row[kind]["ratio"], at_least, row[kind]["least"])


def kept(run: dict, base: dict) -> float:
    """The model's share of the time in one run, relative to another run. It does not depend on the machine's speed.

    The share is the wall time inside llama_decode, minus the share of a core that the front lane and the client took.
    Steps that the other run did not need count as lost time.
    """

    def left(run: dict) -> float:
        # On rungs 8 and 9 the client is a thread of the ladder, on rung 10 a process of its own.
        client = run["cpu_s"].get("client", 0) if run["client_cpu_s"] is None else run["client_cpu_s"]
        taken = run["cpu_s"].get("front", 0) + client
        return run["model_share"] - taken / run["wall_s"]

    return left(run) / left(base) * min(1, base["steps"] / run["steps"])


def scrape_target(scrape: dict) -> tuple[str, str]:
    """A change in either direction counts. If rounds miss the target on both sides, the median decides."""
    change = {key: 100 * (ratio - 1) for key, ratio in scrape["ratio"].items()}
    found = shown_in(change, "%")
    if "between_runs" in scrape:
        found += f"; between two runs without scrapes: {shown(scrape['between_runs'])}"
    slower, faster = at_most(change, 2, "%"), at_least(change, -2, "%")
    if slower == "met" or (faster != "met" and change["median"] < 0):
        return found, faster
    return found, slower


def goodput_target(overload: dict) -> tuple[str, str]:
    """The goodput relative to the capacity before and after, and to the mean of both."""
    goodput, capacity = overload["goodput_tokens_per_s"], overload["capacity_tokens_per_s"]
    ratio = {"min": goodput / max(capacity), "median": overload["goodput_of_capacity"], "max": goodput / min(capacity)}
    return shown(ratio), at_least(ratio, 0.95)


def client_target(client: dict) -> tuple[str, str]:
    share, judged = single(100 * client["client_cpu_share"], 5, "%")
    return f"{share} at {client['output_throughput']:.0f} tokens/s", judged


def settings_target(settings: dict) -> tuple[str, str]:
    better, unresolved, no_better = [], 0, 0
    rows = [row for row in settings["rows"] if row["setting"] != "default"]
    for row in rows:
        ratios = {rate: row[rate]["ratio"] for rate in ("all", "decode") if row[rate]}
        gains = {rate: r for rate, r in ratios.items() if r["median"] >= GAIN_MIN and r["min"] > 1}
        better += [f"{row['setting']} {r['median']:.3f} in {rate} at {row['workload']}" for rate, r in gains.items()]
        if not gains:  # one round with a gain leaves it open
            is_open = any(r["max"] >= GAIN_MIN for r in ratios.values())
            unresolved, no_better = unresolved + is_open, no_better + (not is_open)
    missing = "".join(f"; not taken: {name}" for name in settings["not_taken"])
    measured = f"{len(rows)} comparisons: {no_better} not better, "
    measured += f"{unresolved} unclear, because rounds differ too much"
    measured += "".join(f"; better: {setting}" for setting in better)
    return measured + missing, "missed" if better else "open" if missing or unresolved else "met"


# Verdicts on the spread of rounds ---------------------------------------------


def judged(found: dict[str, float], rule, limit: float) -> tuple[str, str]:
    return shown(found), rule(found, limit)


def at_least(found: dict[str, float], least: float, unit: str = "") -> str:
    return verdict(least - found["max"], least - found["median"], least - found["min"], unit)


def at_most(found: dict[str, float], most: float, unit: str = "") -> str:
    return verdict(found["min"] - most, found["median"] - most, found["max"] - most, unit)


def verdict(best: float, median: float, worst: float, unit: str) -> str:
    """The arguments are amounts by which rounds miss a target; 0 and below is met. If rounds differ, it is open."""
    missed = f"missed by {number(median, unit)}"
    if worst <= 0:
        return "met"
    if best > 0:
        return missed
    return f"open: median {missed}, some rounds met" if median > 0 else "open: median met, not every round"


def each(found: dict[str, dict], rule, limit: float, unit: str = "") -> tuple[str, str]:
    """All must meet the limit. Shows those that do not, missed before open; if all do, the closest one."""
    if not found:
        return NOT_TAKEN
    verdicts = {name: rule(values, limit, unit) for name, values in found.items()}
    short = sorted((name for name in found if verdicts[name] != "met"), key=lambda name: "open" in verdicts[name])
    if not short:
        return worst_of(found, max if rule is at_most else min, unit), "met"
    numbers = "; ".join(f"{name}: {shown_in(found[name], unit)}" for name in short)
    texts = dict.fromkeys(verdicts[name] for name in short)  # without repetition
    names = {text: ", ".join(name for name in short if verdicts[name] == text) for text in texts}
    return numbers, "; ".join(f"{text} ({names[text]})" for text in texts)


def worst_of(found: dict[str, dict], pick, unit: str = "") -> str:
    if not found:
        return "not taken"
    name = pick(found, key=lambda name: found[name]["median"])
    return f"worst is {name}: {shown_in(found[name], unit)}"


def single(value: float, most: float, unit: str) -> tuple[str, str]:
    """The verdict on a number that was measured once."""
    return number(value, unit), at_most(spread([value]), most, unit)


def shown_in(found: dict[str, float], unit: str) -> str:
    return f"{shown(found, '.2f')} {unit}" if unit else shown(found)


def number(value: float, unit: str) -> str:
    return f"{value:.2f} {unit}" if unit else f"{value:.3f}"


# Against another server ---------------------------------------------------------


def medians(found: dict) -> str:
    if found["median"] is None:
        return "not taken"
    return shown(found, ".4g" if found["max"] < 1e4 else ".0f")


LOAD = {"output_throughput": at_least}
LOAD |= {key: at_most for key in ("median_ttft_ms", "median_tpot_ms", "mean_tpot_ms")}
VERSUS = {"eight": LOAD, "one": LOAD, "long": LOAD, "crowd": LOAD}
VERSUS |= {"stall": {"itl_during_max_ms": at_most, "long_ttft_ms": at_most}, "burst": {"max_ttft_ms": at_most}}


def versus_table(folder: pathlib.Path) -> list[str]:
    """Our number / theirs: at least 1 in tokens per second, at most 1 in time."""
    taken = {name for name in VERSUS if (folder / f"versus-{name}.json").exists()}
    if not taken:
        return ["", "## Against another server: not taken"]
    lines = ["", "## Against another server", "", "At least 1 x in tokens/s, at most 1 x in time.", ""]
    lines += ["| load | | corelane | the other | ratio | |", "|---|---|---|---|---|---|"]
    for name, keys in VERSUS.items():
        if name not in taken:
            lines.append(f"| {name} | not taken | | | | |")
            continue
        saved = load(folder, f"versus-{name}")
        for key, rule in keys.items():
            sides, ratio = saved["spread"][key], saved["ratios"][key]
            numbers = " | ".join(map(medians, [sides["first"], sides["second"], ratio]))
            lines.append(f"| {name} | {key} | {numbers} | {'' if ratio['median'] is None else rule(ratio, 1)} |")
    return lines

"""Which targets does a complete run meet?

Writes FOLDER/summary.md from the results of the studies in FOLDER. Lists every target with the measured number and the
amount by which it was missed. Numbers are medians of the rounds, ratios are within a round, "(from to)" is the range. A
target that only some rounds meet is "open". A missing study is "not taken". `perf/study all` calls it.
"""

import json
import pathlib
import statistics

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
    for name in LADDERS:
        lines += ladder_table(folder, name)
    lines += settings_table(folder)
    for name in ("cache", "cache-builtin", "ragged", "stall", "burst", "turns"):
        lines += scenario(folder, name)
    lines += versus_table(folder)
    lines += ["", "## Start-up and idling", ""] + spine(folder)
    (folder / "summary.md").write_text("\n".join(lines) + "\n")


def load(folder: pathlib.Path, name: str):
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


# The ladder ----------------------------------------------------------------

LADDERS = {
    "ladder": "large model",
    "ladder-ends": "large model, the first and the last rung in short rounds",
    "ladder-one": "large model, one request at a time",
    "ladder-separate": "large model, lanes on separate cores",
    "ladder-separate-builtin": "built-in model, lanes on separate cores",
    "ladder-builtin-32": "built-in model",
    "ladder-builtin-64": "built-in model",
}


class Ladder:
    """The runs of one `bench ladder`, by rung."""

    def __init__(self, saved: dict):
        self.saved = saved
        rungs = [run["rung"] for run in saved["rounds"][0]]
        self.runs = {rung: [round[i] for round in saved["rounds"]] for i, rung in enumerate(rungs)}
        self.layers = [rung for rung in rungs if rung - 1 in rungs]  # rungs whose previous rung ran, too

    def ratios(self, rung: int, base: int) -> list[float]:
        return ratios(self.values(rung, "tokens_per_s"), self.values(base, "tokens_per_s"))

    def values(self, rung: int, key: str) -> list[float]:
        """The values of the rounds that have one."""
        return [run[key] for run in self.runs[rung] if run.get(key) is not None]

    def median(self, rung: int, key: str) -> float | None:
        values = self.values(rung, key)
        return statistics.median(values) if values else None


def read_ladder(folder: pathlib.Path, name: str) -> Ladder | None:
    saved = load(folder, name)
    return Ladder(saved) if saved else None


def ladder_table(folder: pathlib.Path, name: str) -> list[str]:
    ladder = read_ladder(folder, name)
    if not ladder:
        return ["", f"## {name}: not taken"]
    saved, rungs = ladder.saved, list(ladder.runs)
    shared = saved["front_core"] in saved["decode_cores"]
    lines = ["", f"## {name}: {LADDERS[name]}", ""]
    lines += [
        f"{saved['model']}: {saved['requests']} requests, {saved['concurrency']} at once, {saved['prompt_tokens']} + "
        f"{saved['gen_tokens']} tokens, {len(saved['rounds'])} rounds; the lanes "
        f"{'share a core' if shared else 'are on separate cores'}.",
        "",
        "| rung | t/s | of rung 0 | of the rung before | inside the model | bubble p50, p99 (µs) "
        "| front lane (µs per token) | stolen (of a core) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for above, rung in zip([None, *rungs], rungs):
        of_0 = shown(spread(ladder.ratios(rung, 0))) if 0 in rungs else "-"
        of_above = shown(spread(ladder.ratios(rung, above))) if above is not None else "-"
        p50, p99, front = (ladder.median(rung, key) for key in ("bubble_us_p50", "bubble_us_p99", "front_us_per_token"))
        title, inside = f"{rung} {ladder.runs[rung][0]['name']}", ladder.median(rung, "model_share")
        part = "-" if inside is None else f"{100 * inside:.2f} %"
        bubble = "-" if p50 is None else f"{p50:.0f}, {p99:.0f}"
        took = "-" if front is None else f"{front:.1f}" if shared else "polls"
        lines.append(
            f"| {title} | {ladder.median(rung, 'tokens_per_s'):.1f} | {of_0} | {of_above} "
            f"| {part} | {bubble} | {took} | {stolen(ladder.runs[rung])} |"
        )
    return lines


def stolen(runs: list[dict]) -> str:
    """The share of a core that other virtual machines took: the median and the maximum."""
    shares = [run["stolen_s"] / run["wall_s"] for run in runs if "stolen_s" in run]
    return f"{statistics.median(shares):.3f}, {max(shares):.3f}" if shares else "-"


# Targets: (text, (measured, verdict)) ----------------------------------------


def targets(folder: pathlib.Path):
    ladder = read_ladder(folder, "ladder")
    yield "1. Rung 10 at least 0.99 of rung 0, large model", ratio_target(ladder, 10, 0, 0.99)
    ends = read_ladder(folder, "ladder-ends")
    yield "1. Rung 10 at least 0.99 of rung 0, in short rounds", ratio_target(ends, 10, 0, 0.99)
    yield "1. No rung under 0.995 of the one before", steps_target(ladder)
    yield "1. No rung under 0.995 of the one before, by accounting", steps_accounted(ladder)
    yield "1. Rung 10 at least 0.99 of rung 0, by accounting", accounted(ladder, 10, 0.99)
    yield "1. Rung 10 at least 0.99 of rung 0, in short rounds, by accounting", accounted(ends, 10, 0.99)
    one = read_ladder(folder, "ladder-one")
    yield "1. One request at a time: rung 10 at least 0.985 of rung 0", ratio_target(one, 10, 0, 0.985)
    yield "1. One request at a time: rung 10 at least 0.985 of rung 0, by accounting", accounted(one, 10, 0.985)
    for name in ("ladder-separate", "ladder-separate-builtin"):
        apart = read_ladder(folder, name)
        yield f"1. Rung 9 at least 0.99 of rung 0, {LADDERS[name]}", ratio_target(apart, 9, 0, 0.99)
        for key, limit in (("p50", 20), ("p99", 200)):
            target = f"2. Bubble {key} at most {limit} µs, {LADDERS[name]}"
            yield target, each(of_rungs(apart, f"bubble_us_{key}"), at_most, limit, "µs")
    for key in ("p50", "p99"):
        bubbles = of_rungs(ladder, f"bubble_us_{key}")
        yield f"2. Bubble {key}, large model, lanes on a shared core", (worst_of(bubbles, max, "µs"), "no target")
    builtin = read_ladder(folder, "ladder-builtin-32")
    yield "3. Rung 4 at least 0.90 of rung 0, built-in model, 32 sequences", ratio_target(builtin, 4, 0, 0.90)
    yield "3. Rung 4 at least 0.90 of rung 0, built-in model, 32 sequences, by accounting", accounted(builtin, 4, 0.90)
    crowd = read_ladder(folder, "ladder-builtin-64")
    target = "4. Front lane at most 5 µs of CPU per streamed token, 64 streams"
    yield target, each(of_rungs(crowd, "front_us_per_token", rungs=(9, 10)), at_most, 5, "µs")
    yield "5. No measured setting is better than the default", settings_target(load(folder, "settings"))
    memory = load(folder, "memory") or {}
    overhead = memory.get("overhead", {}).get("overhead_mib")
    yield "6. Memory beyond weights and KV cache under 150 MiB", single(overhead, 150, "MiB")
    growth = memory.get("growth")
    grown = growth and growth["second_mib"] - growth["first_mib"]
    yield f"6. No growth over 10,000 requests (under {GROWTH_MIB_MAX} MiB)", single(grown, GROWTH_MIB_MAX, "MiB")
    scrape = load(folder, "scrape")
    yield "100 scrapes per second change the ITL p99 of 8 streams by under 2 %", scrape_target(scrape)
    stall = load(folder, "stall")
    target = "7. Streams beside a prompt of 2,000 tokens: ITL p99 at most 2 x their p50 before"
    yield target, rounds_target(stall, lambda run: run["itl_during_p99_ms"] / run["itl_before_p50_ms"], 2)
    target = "7. The long prompt: TTFT at most 1.4 x its TTFT alone"
    yield target, rounds_target(stall, lambda run: run["long_ttft_ratio"], 1.4)
    target = "8. Eight requests that share 500 tokens: the last TTFT at most 1.3 x that of one alone"
    yield target, rounds_target(load(folder, "burst"), lambda run: run["last_to_alone_ratio"], 1.3)
    target = "9. The second turn of a chat: TTFT at most 0.1 x that of the first"
    yield target, rounds_target(load(folder, "turns"), lambda run: run["second_to_first_ratio"], 0.1)
    overload = load(folder, "overload") or {}
    yield "10. Overload: goodput at least 0.95 of capacity", goodput_target(overload)
    for key in ("p99", "max"):
        yield f"10. Overload: refused in under 10 ms ({key})", single(overload.get("refusal_ms", {}).get(key), 10, "ms")
    target = f"10. Overload: no growth of memory (under {GROWTH_MIB_MAX} MiB)"
    yield target, single(overload.get("resident_mib", {}).get("growth"), GROWTH_MIB_MAX, "MiB")
    target = "11. Throughput at least 0.99 of the other build's (AGAINST)"
    against = load(folder, "against")
    ratio = against and against["ratios"]["output_throughput"]
    yield target, (shown(ratio), at_least(ratio, 0.99)) if ratio else NOT_TAKEN
    hostile = load(folder, "hostile") or {}
    target = "12. Hostile requests: ITL p99 of a stream at most 1.2 x"
    ratio = hostile.get("ratio")
    yield target, (shown(ratio), at_most(ratio, 1.2)) if ratio else NOT_TAKEN
    answers = {name: times["alone_ms"] for name, times in hostile.get("answers", {}).items()}
    yield "12. Hostile requests: each answered in under 50 ms", each(answers, at_most, 50, "ms")
    kernels = load(folder, "kernels")
    if not kernels:
        yield "13. corelane's kernels against llama.cpp's", NOT_TAKEN
    for row in kernels["rows"] if kernels else []:
        if row["least"]:
            target = f"13. corelane's kernels at least {row['least']} x llama.cpp's, {row['rate']}, {row['workload']}"
            yield target, (shown(row["ratio"]), at_least(row["ratio"], row["least"]))
    attention = load(folder, "attention")
    if not attention:
        yield "14. corelane's attention against llama.cpp's", NOT_TAKEN
    for row in attention["rows"] if attention else []:
        for kind, other in (("alone", "attention"), ("together", "kernels and attention")):
            if kind in row:
                target = f"14. corelane's {other} at least {row[kind]['least']} x the better of llama.cpp's, {row['rate']}, {row['workload']}"
                yield target, (shown(row[kind]["ratio"]), at_least(row[kind]["ratio"], row[kind]["least"]))
    ragged = load(folder, "ragged")
    target = "15. 32 sequences of 30 to 1,500 tokens: one KV cache at least 1 x a cache for each, tokens/s"
    ratio = ragged and ragged["ratios"]["output_throughput"]
    yield target, (shown(ratio), at_least(ratio, 1)) if ratio else NOT_TAKEN
    client = load(folder, "client")
    yield "The load generator takes under 5 % of a core at 500 tokens/s", client_target(client)


def ratio_target(ladder: Ladder | None, rung: int, base: int, least: float) -> tuple[str, str]:
    if not ladder or not {rung, base} <= ladder.runs.keys():
        return NOT_TAKEN
    ratio = spread(ladder.ratios(rung, base))
    return shown(ratio), at_least(ratio, least)


def rounds_target(saved: dict | None, value, most: float) -> tuple[str, str]:
    if not saved:
        return NOT_TAKEN
    found = spread([value(round["first"]) for round in saved["rounds"]])
    return shown(found), at_most(found, most)


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


def shares_kept(ladder: Ladder, rung: int, base: int) -> dict[str, float]:
    return spread([kept(run, bare) for run, bare in zip(ladder.runs[rung], ladder.runs[base])])


def accounted(ladder: Ladder | None, rung: int, least: float) -> tuple[str, str]:
    if not ladder or not {0, rung} <= ladder.runs.keys():
        return NOT_TAKEN
    share = shares_kept(ladder, rung, 0)
    return shown(share), at_least(share, least)


def steps_accounted(ladder: Ladder | None) -> tuple[str, str]:
    # Without all rungs, nothing is known about the others.
    if not ladder or any(run["model_share"] is None for runs in ladder.runs.values() for run in runs):
        return NOT_TAKEN
    return each({f"rung {rung}": shares_kept(ladder, rung, rung - 1) for rung in ladder.layers}, at_least, 0.995)


def steps_target(ladder: Ladder | None) -> tuple[str, str]:
    if not ladder:
        return NOT_TAKEN
    return each({f"rung {rung}": spread(ladder.ratios(rung, rung - 1)) for rung in ladder.layers}, at_least, 0.995)


def of_rungs(ladder: Ladder | None, key: str, rungs=range(11)) -> dict[str, dict]:
    """The number `key` of each rung that has it."""
    values = {rung: ladder.values(rung, key) for rung in ladder.runs if rung in rungs} if ladder else {}
    return {f"rung {rung}": spread(found) for rung, found in values.items() if found}


def scrape_target(scrape: dict | None) -> tuple[str, str]:
    """A change in either direction counts. If rounds miss the target on both sides, the median decides."""
    if not scrape:
        return NOT_TAKEN
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
    if not overload:
        return NOT_TAKEN
    goodput, capacity = overload["goodput_tokens_per_s"], overload["capacity_tokens_per_s"]
    ratio = {"min": goodput / max(capacity), "median": overload["goodput_of_capacity"], "max": goodput / min(capacity)}
    return shown(ratio), at_least(ratio, 0.95)


def client_target(client: dict | None) -> tuple[str, str]:
    if not client:
        return NOT_TAKEN
    share, judged = single(100 * client["client_cpu_share"], 5, "%")
    return f"{share} at {client['output_throughput']:.0f} tokens/s", judged


def settings_target(settings: dict | None) -> tuple[str, str]:
    if not settings:
        return NOT_TAKEN
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


def single(value: float | None, most: float, unit: str) -> tuple[str, str]:
    """The verdict on a number that was measured once."""
    return NOT_TAKEN if value is None else (number(value, unit), at_most(spread([value]), most, unit))


def shown_in(found: dict[str, float], unit: str) -> str:
    return f"{shown(found, '.2f')} {unit}" if unit else shown(found)


def number(value: float, unit: str) -> str:
    return f"{value:.2f} {unit}" if unit else f"{value:.3f}"


# The other tables --------------------------------------------------------------------


def settings_table(folder: pathlib.Path) -> list[str]:
    path = folder / "settings.txt"
    if not path.exists():
        return ["", "## settings: not taken"]
    table = [line for line in path.read_text().splitlines() if line.startswith("|")]
    return ["", "## settings", "", *table]


def scenario(folder: pathlib.Path, name: str) -> list[str]:
    saved = load(folder, name)
    if not saved:
        return ["", f"## {name}: not taken"]
    keys = [key for key in saved["spread"] if key.startswith(SHOWN)]
    sides = list(saved["spread"][keys[0]])
    head = ["corelane", "the other"][: len(sides)] + ["ratio"] * ("ratios" in saved)
    lines = ["", f"## {name}", "", "| | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    for key in keys:
        found = [saved["spread"][key][side] for side in sides] + ([saved["ratios"][key]] if "ratios" in saved else [])
        lines.append(f"| {key} | " + " | ".join(map(medians, found)) + " |")
    return lines


SHOWN = ("output_throughput", "median_ttft", "max_ttft", "ttft_alone", "median_itl", "itl_", "long_ttft", "last_to")
SHOWN += ("first_ttft", "second_")


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
    if not any(load(folder, f"versus-{name}") for name in VERSUS):
        return ["", "## Against another server: not taken"]
    lines = ["", "## Against another server", "", "At least 1 x in tokens/s, at most 1 x in time.", ""]
    lines += ["| load | | corelane | the other | ratio | |", "|---|---|---|---|---|---|"]
    for name, keys in VERSUS.items():
        saved = load(folder, f"versus-{name}")
        if not saved:
            lines.append(f"| {name} | not taken | | | | |")
            continue
        for key, rule in keys.items():
            sides, ratio = saved["spread"][key], saved["ratios"][key]
            numbers = " | ".join(map(medians, [sides["first"], sides["second"], ratio]))
            lines.append(f"| {name} | {key} | {numbers} | {'' if ratio['median'] is None else rule(ratio, 1)} |")
    return lines


def spine(folder: pathlib.Path) -> list[str]:
    lines = []
    for name in ("spine", "spine-builtin"):
        path = folder / f"{name}.txt"
        taken = path.read_text().splitlines() if path.exists() else []
        told = [line for line in taken if line.startswith(("start-up", "resident", "idle"))]
        lines.append(f"- {name}: " + ("; ".join(told) or "not taken"))
    return lines

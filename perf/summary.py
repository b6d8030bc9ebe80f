#!/usr/bin/env python3
"""Writes FOLDER/summary.md from what the studies left there.

    perf/summary.py FOLDER

Every target with the number that was measured, and by how much it was missed.
A study that is not there is "not taken". Numbers are medians of rounds, ratios
are taken within a round, "(from to)" is their spread.
"""

import json
import pathlib
import statistics
import sys

NOT_TAKEN = ("not taken", "")
GROWTH_MIB_MAX = 1  # over 10,000 requests; a leak of 105 bytes a request is 1 MiB
GAIN_MIN = 1.02  # what a setting must gain, in every round some of it, to be better than the default


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    machine = folder / "machine.txt"
    lines = [f"# {folder.resolve().name}", "", "```"]
    lines += [machine.read_text().strip() if machine.exists() else "machine: not taken", "```", ""]
    lines += ["Written by `perf/summary.py` from the files beside it, which begin with their commands.", ""]
    lines += ["## Targets", "", "| target | measured | |", "|---|---|---|"]
    lines += [f"| {target} | {measured} | {verdict} |" for target, (measured, verdict) in targets(folder)]
    for name in LADDERS:
        lines += ladder_table(folder, name)
    lines += settings_table(folder)
    for name in ("cache", "cache-builtin", "stall", "burst", "turns", "versus-eight", "versus-one", "versus-long", "versus-crowd", "versus-stall", "versus-burst"):
        lines += scenario(folder, name)
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

    def ratios(self, rung: int, base: int) -> list[float]:
        return [a["tokens_per_s"] / b["tokens_per_s"] for a, b in zip(self.runs[rung], self.runs[base])]

    def median(self, rung: int, key: str) -> float | None:
        values = [run[key] for run in self.runs[rung] if run.get(key) is not None]
        return statistics.median(values) if values else None


def read_ladder(folder: pathlib.Path, name: str) -> Ladder | None:
    saved = load(folder, name)
    return Ladder(saved) if saved else None


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


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
        "| rung | t/s | of rung 0 | of the one above | inside the model | bubble p50, p99 (µs) | front lane (µs a token) | stolen (of a core) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for above, rung in zip([None, *rungs], rungs):
        of_0 = spread(ladder.ratios(rung, 0)) if 0 in rungs else "-"
        of_above = spread(ladder.ratios(rung, above)) if above is not None else "-"
        p50, p99, front = (ladder.median(rung, key) for key in ("bubble_us_p50", "bubble_us_p99", "front_us_per_token"))
        inside = ladder.median(rung, "model_share")
        bubble = "-" if p50 is None else f"{p50:.0f}, {p99:.0f}"
        lines.append(
            f"| {rung} {ladder.runs[rung][0]['name']} | {ladder.median(rung, 'tokens_per_s'):.1f} | {of_0} | {of_above} "
            f"| {'-' if inside is None else f'{100 * inside:.2f} %'} | {bubble} | {'-' if front is None else f'{front:.1f}' if shared else 'polls'} | {stolen(ladder.runs[rung])} |"
        )
    return lines


def stolen(runs: list[dict]) -> str:
    """What other virtual machines took of a core: median, and the most."""
    shares = [run["stolen_s"] / run["wall_s"] for run in runs if "stolen_s" in run]
    return f"{statistics.median(shares):.3f}, {max(shares):.3f}" if shares else "-"


# Targets: (text, (measured, verdict)) ----------------------------------------


def targets(folder: pathlib.Path):
    ladder = read_ladder(folder, "ladder")
    yield "1. Rung 10 at least 0.99 of rung 0, large model", ratio_target(ladder, 10, 0, 0.99)
    ends = read_ladder(folder, "ladder-ends")
    yield "1. The same in short rounds", ratio_target(ends, 10, 0, 0.99)
    yield "1. No rung under 0.995 of the one before", steps_target(ladder)
    yield "1. The same by accounting", steps_accounted(ladder)
    yield "1. Rung 10 by accounting: what it leaves to the model, of what rung 0 does", accounted(ladder, 10, 0.99)
    yield "1. Rung 10 by accounting, in short rounds", accounted(ends, 10, 0.99)
    one = read_ladder(folder, "ladder-one")
    yield "1. One request at a time: rung 10 at least 0.985 of rung 0", ratio_target(one, 10, 0, 0.985)
    yield "1. One request at a time, by accounting", accounted(one, 10, 0.985)
    for name in ("ladder-separate", "ladder-separate-builtin"):
        apart = read_ladder(folder, name)
        yield f"1. Rung 9 at least 0.99 of rung 0, {LADDERS[name]}", ratio_target(apart, 9, 0, 0.99)
        for key, limit in (("p50", 20), ("p99", 200)):
            target = f"2. Bubble {key} at most {limit} µs, {LADDERS[name]}"
            yield target, worst_target(apart, f"bubble_us_{key}", limit)
    for key in ("p50", "p99"):
        yield f"2. Bubble {key}, large model, lanes that share", (worst(ladder, f"bubble_us_{key}"), "no target")
    builtin = read_ladder(folder, "ladder-builtin-32")
    yield "3. Rung 4 at least 0.90 of rung 0, built-in model, 32 sequences", ratio_target(builtin, 4, 0, 0.90)
    yield "3. The same by accounting", accounted(builtin, 4, 0.90)
    crowd = read_ladder(folder, "ladder-builtin-64")
    target = "4. Front lane at most 5 µs of CPU a streamed token, 64 streams"
    yield target, worst_target(crowd, "front_us_per_token", 5, rungs=(9, 10))
    yield "5. Of the settings measured, the defaults are the best", settings_target(load(folder, "settings"))
    memory = load(folder, "memory") or {}
    overhead = memory.get("overhead", {}).get("overhead_mib")
    yield "6. Memory beside weights and KV cache under 150 MiB", at_most(overhead, 150, "MiB")
    growth = memory.get("growth")
    grown = growth and growth["second_mib"] - growth["first_mib"]
    yield f"6. No growth over 10,000 requests (under {GROWTH_MIB_MAX} MiB)", at_most(grown, GROWTH_MIB_MAX, "MiB")
    scrape = load(folder, "scrape")
    changed = scrape and 100 * abs(scrape["ratio"]["median"] - 1)
    yield "100 scrapes a second change the ITL p99 of 8 streams by under 2 %", at_most(changed, 2, "%")
    stall = load(folder, "stall")
    target = "7. Streams beside a prompt of 2,000 tokens: ITL p99 at most 2.5 x their p50 before"
    yield target, rounds_target(stall, lambda run: run["itl_during_p99_ms"] / run["itl_before_p50_ms"], 2.5)
    target = "7. The long prompt: TTFT at most 2 x what it takes alone"
    yield target, rounds_target(stall, lambda run: run["long_ttft_ratio"], 2)
    target = "8. Eight requests that share 500 tokens: the last TTFT at most 1.6 x that of one alone"
    yield target, rounds_target(load(folder, "burst"), lambda run: run["last_to_alone_ratio"], 1.6)
    target = "9. The second turn of a chat: TTFT at most 0.1 x that of the first"
    yield target, rounds_target(load(folder, "turns"), lambda run: run["second_to_first_ratio"], 0.1)
    overload = load(folder, "overload") or {}
    share = overload.get("goodput_of_capacity")
    target = "10. Overload: goodput at least 0.95 of capacity"
    yield target, (f"{share:.3f}", at_least(share, 0.95)) if share is not None else NOT_TAKEN
    for key in ("p99", "max"):
        yield f"10. Overload: refused in under 10 ms ({key})", at_most(overload.get("refusal_ms", {}).get(key), 10, "ms")
    target = f"10. Overload: no growth of memory (under {GROWTH_MIB_MAX} MiB)"
    yield target, at_most(overload.get("resident_mib", {}).get("growth"), GROWTH_MIB_MAX, "MiB")
    target = "11. Throughput at least 0.99 of what it was before (AGAINST)"
    against = load(folder, "against")
    ratio = against and against["ratios"]["output_throughput"]
    yield target, (spread(ratio["pairs"]), at_least(ratio["median"], 0.99)) if ratio else NOT_TAKEN
    hostile = load(folder, "hostile") or {}
    yield "12. Hostile requests: ITL p99 of a stream at most 1.2 x", at_most(hostile.get("ratio", {}).get("median"), 1.2, "x")
    slowest = max((times["alone_ms"]["median"] for times in hostile.get("answers", {}).values()), default=None)
    yield "12. Hostile requests: each answered in under 50 ms", at_most(slowest, 50, "ms")
    client = load(folder, "client")
    yield "The load generator takes under 5 % of a core at 500 tokens/s", client_target(client)


def ratio_target(ladder: Ladder | None, rung: int, base: int, least: float) -> tuple[str, str]:
    if not ladder or not {rung, base} <= ladder.runs.keys():
        return NOT_TAKEN
    ratios = ladder.ratios(rung, base)
    return spread(ratios), spread_at_least(ratios, least)


def rounds_target(saved: dict | None, value, most: float) -> tuple[str, str]:
    if not saved:
        return NOT_TAKEN
    values = [value(round["first"]) for round in saved["rounds"]]
    return spread(values), at_most(statistics.median(values), most, "")[1]


def kept(run: dict, base: dict) -> float:
    """What a run leaves to the model, of what another one does, however noisy the machine: the part
    of the wall time inside llama_decode, less what the front lane and the client took of a core
    meanwhile, and less the steps that the other one does not make, as if each were as long as the
    others. In older runs the lowest rungs did not tell: there, what they have to do besides counts
    as lost, too."""

    def left(run: dict) -> float:
        taken = run["cpu_s"].get("front", 0) + (run["client_cpu_s"] or 0)
        return (run["model_share"] or 1) - taken / run["wall_s"]

    return left(run) / left(base) * min(1, base["steps"] / run["steps"])


def accounted(ladder: Ladder | None, rung: int, least: float) -> tuple[str, str]:
    if not ladder or not {0, rung} <= ladder.runs.keys():
        return NOT_TAKEN
    shares = [kept(run, bare) for bare, run in zip(ladder.runs[0], ladder.runs[rung])]
    return spread(shares), at_least(statistics.median(shares), least)


def steps_accounted(ladder: Ladder | None) -> tuple[str, str]:
    if not ladder or ladder.runs[1][0]["model_share"] is None:
        return NOT_TAKEN
    pairs = [(rung, zip(ladder.runs[rung], ladder.runs[rung - 1])) for rung in range(1, 11)]
    shares = [(rung, [kept(run, above) for run, above in runs]) for rung, runs in pairs]
    rung, lowest = min(shares, key=lambda pair: statistics.median(pair[1]))
    return f"lowest is rung {rung}: {spread(lowest)}", at_least(statistics.median(lowest), 0.995)


def steps_target(ladder: Ladder | None) -> tuple[str, str]:
    if not ladder:
        return NOT_TAKEN
    pairs = [(rung, ladder.ratios(rung, rung - 1)) for rung in ladder.runs if rung - 1 in ladder.runs]
    under = [(rung, ratios) for rung, ratios in pairs if statistics.median(ratios) < 0.995]
    rung, ratios = min(pairs, key=lambda pair: statistics.median(pair[1]))
    lowest = f"lowest is rung {rung}: {spread(ratios)}"
    verdicts = [f"rung {rung}: {spread_at_least(ratios, 0.995)}" for rung, ratios in under]
    return "; ".join(f"rung {rung}: {spread(ratios)}" for rung, ratios in under) or lowest, "; ".join(verdicts) or "met"


def worst(ladder: Ladder | None, key: str, rungs=range(11)) -> str:
    found = worst_of(ladder, key, rungs)
    return f"{found[0]:.1f} µs (rung {found[1]})" if found else "not taken"


def worst_of(ladder: Ladder | None, key: str, rungs) -> tuple[float, int] | None:
    values = [(ladder.median(rung, key), rung) for rung in ladder.runs if rung in rungs] if ladder else []
    return max((value for value in values if value[0] is not None), default=None)


def worst_target(ladder: Ladder | None, key: str, most: float, rungs=range(11)) -> tuple[str, str]:
    """Of the rungs that have such a number, the one that is worst."""
    found = worst_of(ladder, key, rungs)
    return (worst(ladder, key, rungs), at_most(found[0], most, "µs")[1]) if found else NOT_TAKEN


def client_target(client: dict | None) -> tuple[str, str]:
    if not client:
        return NOT_TAKEN
    measured, verdict = at_most(100 * client["client_cpu_share"], 5, "%")
    return f"{measured} at {client['output_throughput']:.0f} tokens/s", verdict


def settings_target(settings: dict | None) -> tuple[str, str]:
    if not settings:
        return NOT_TAKEN
    better, unresolved, no_better = [], 0, 0
    rows = [row for row in settings["rows"] if row["setting"] != "default"]
    for row in rows:
        ratios = {rate: row[rate]["ratio"] for rate in ("all", "decode") if row[rate]}
        gains = {rate: r for rate, r in ratios.items() if r["median"] >= GAIN_MIN and r["min"] > 1}
        better += [f"{row['setting']} {r['median']:.3f} in {rate} at {row['workload']}" for rate, r in gains.items()]
        if not gains:  # a single round that gained leaves it open
            is_open = any(r["max"] >= GAIN_MIN for r in ratios.values())
            unresolved, no_better = unresolved + is_open, no_better + (not is_open)
    missing = "".join(f"; not taken: {name}" for name in settings["not_taken"])
    measured = f"{len(rows)} comparisons: {no_better} are no better, {unresolved} differ too much between rounds to tell"
    measured += "".join(f"; better: {setting}" for setting in better)
    return measured + missing, "missed" if better else "open" if missing or unresolved else "met"


def at_least(value: float, least: float) -> str:
    return "met" if value >= least else f"missed by {least - value:.3f}"


def spread_at_least(values: list[float], least: float) -> str:
    """Where single rounds say both, the median is not the last word."""
    verdict = at_least(statistics.median(values), least)
    return verdict + ", but rounds differ" * (min(values) < least <= max(values))


def at_most(value: float | None, most: float, unit: str) -> tuple[str, str]:
    if value is None:
        return NOT_TAKEN
    return f"{value:.2f} {unit}", "met" if value <= most else f"missed by {value - most:.2f} {unit}"


# The others --------------------------------------------------------------------


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
    shown = [key for key in saved["spread"] if key.startswith(SHOWN)]
    sides = list(saved["spread"][shown[0]])
    head = ["corelane", "the other"][: len(sides)] + ["ratio"] * ("ratios" in saved)
    lines = ["", f"## {name}", "", "| | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    for key in shown:
        found = [saved["spread"][key][side] for side in sides] + ([saved["ratios"][key]] if "ratios" in saved else [])
        lines.append(f"| {key} | " + " | ".join(map(medians, found)) + " |")
    return lines


SHOWN = ("output_throughput", "median_ttft", "max_ttft", "ttft_alone", "median_itl", "itl_", "long_ttft", "last_to", "first_ttft", "second_")


def medians(found: dict) -> str:
    if found["median"] is None:
        return "not taken"
    return f"{found['median']:.4g} ({found['min']:.4g} to {found['max']:.4g})"


def spine(folder: pathlib.Path) -> list[str]:
    lines = []
    for name in ("spine", "spine-builtin"):
        path = folder / f"{name}.txt"
        taken = path.read_text().splitlines() if path.exists() else []
        shown = [line for line in taken if line.startswith(("start-up", "resident", "idle"))]
        lines.append(f"- {name}: " + ("; ".join(shown) or "not taken"))
    return lines


if __name__ == "__main__":
    main()

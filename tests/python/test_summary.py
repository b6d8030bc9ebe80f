"""perf/study summary on a folder whose right answers can be worked out by hand."""

import json
import pathlib
import subprocess
import sys

import pytest

STUDY = pathlib.Path(__file__).parents[2] / "perf" / "study"
LADDER = {"model": "m", "requests": 1, "concurrency": 1, "prompt_tokens": 1, "gen_tokens": 1}
LADDER |= {"front_core": 0, "decode_cores": [0, 1]}
RUNG_10 = "1. Rung 10 at least 0.99 of rung 0, by accounting"
RUN = {"name": "rung", "wall_s": 100, "tokens_per_s": 100, "steps": 100, "model_share": 1, "client_cpu_s": None}


def run(rung, cpu_s=None, **other):
    return RUN | {"rung": rung, "cpu_s": cpu_s or {}} | other


def rows(folder, **files):
    """What stands behind each target, and behind each load and key of `versus`."""
    for name, saved in files.items():
        (folder / f"{name.replace('_', '-')}.json").write_text(json.dumps(saved))
    subprocess.run([sys.executable, STUDY, "summary", folder], check=True)
    lines = [line[2:-2].split(" | ") for line in (folder / "summary.md").read_text().splitlines()]
    found = {cells[0]: cells[1:] for cells in lines if len(cells) == 3}
    return found | {tuple(cells[:2]): cells[2:] for cells in lines if len(cells) == 6}


def targets_of(folder, *rounds):
    return rows(folder, ladder=LADDER | {"rounds": rounds})


def test_a_client_is_charged_where_it_runs(tmp_path):
    # On rung 10 it is another process, and the thread of that name waits for it.
    client = run(10, {"client": 30}, client_cpu_s=60)
    found = targets_of(tmp_path, [run(0), run(8, {"client": 20}), run(9, {"client": 60}), client])
    # Rung 9 leaves 40 of 80, rung 10 as much as rung 9, which is 40 of 100.
    assert found["1. No rung under 0.995 of the one before, by accounting"] == ["rung 9: 0.500 (0.500 to 0.500)", "missed by 0.495 (rung 9)"]
    assert found[RUNG_10] == ["0.400 (0.400 to 0.400)", "missed by 0.590"]


@pytest.mark.parametrize(
    ("steps", "front_s", "expected"),
    [
        (100, 0, ["1.000 (1.000 to 1.000)", "met"]),
        (125, 0, ["0.800 (0.800 to 0.800)", "missed by 0.190"]),
        (125, 50, ["0.400 (0.400 to 0.400)", "missed by 0.590"]),
        (80, 0, ["1.000 (1.000 to 1.000)", "met"]),  # fewer are no merit
    ],
)
def test_steps_that_rung_0_does_not_make_are_taken_off(tmp_path, steps, front_s, expected):
    last = run(10, {"front": front_s}, client_cpu_s=0, steps=steps)
    found = targets_of(tmp_path, [run(0), run(8), run(9), last])
    assert found[RUNG_10] == expected


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([100, 99.5, 100], ["1.000 (0.995 to 1.000)", "met"]),
        ([100, 100, 98], ["1.000 (0.980 to 1.000)", "open: median met, not every round"]),
        ([97, 100, 98], ["0.980 (0.970 to 1.000)", "open: median missed by 0.010, some rounds met"]),
        ([97, 95, 96], ["0.960 (0.950 to 0.970)", "missed by 0.030"]),
    ],
)
def test_a_spread_that_crosses_the_limit_is_open(tmp_path, rates, expected):
    ends = [[run(0), run(8), run(9), run(10, tokens_per_s=rate)] for rate in rates]
    assert targets_of(tmp_path, *ends)["1. Rung 10 at least 0.99 of rung 0, large model"] == expected
    # The same by accounting: what the front lane takes is missing.
    ends = [[run(0), run(10, {"front": 100 - rate}, client_cpu_s=0)] for rate in rates]
    assert targets_of(tmp_path, *ends)[RUNG_10] == expected


def test_each_rung_has_a_verdict_the_missed_ones_first(tmp_path):
    rates = [(100, 100, 98, 49, 50), (100, 100, 100, 50, 50), (100, 100, 100, 50, 49)]  # of rungs 0 and 7 to 10
    rounds = [[run(rung, tokens_per_s=rate) for rung, rate in zip((0, 7, 8, 9, 10), of_round)] for of_round in rates]
    measured, verdict = targets_of(tmp_path, *rounds)["1. No rung under 0.995 of the one before"]
    assert [part.split(":")[0] for part in measured.split("; ")] == ["rung 9", "rung 8", "rung 10"]
    assert verdict == "missed by 0.495 (rung 9); open: median met, not every round (rung 8, rung 10)"


@pytest.mark.parametrize(
    ("spread", "verdict"),
    [
        ((0.99, 1, 1.01), "met"),
        ((1.03, 1.04, 1.05), "missed by 2.00 %"),
        ((0.95, 0.96, 0.97), "missed by 2.00 %"),
        ((0.94, 1, 1.06), "open: median met, not every round"),
        ((0.94, 1.01, 1.015), "open: median met, not every round"),
        ((0.94, 1.04, 1.05), "open: median missed by 2.00 %, some rounds met"),
        ((0.94, 0.96, 1.05), "open: median missed by 2.00 %, some rounds met"),
    ],
)
def test_scrapes_may_change_the_time_between_tokens_neither_way(tmp_path, spread, verdict):
    found = rows(tmp_path, scrape={"ratio": dict(zip(("min", "median", "max"), spread))})
    assert found["100 scrapes per second change the ITL p99 of 8 streams by under 2 %"][1] == verdict


def test_what_another_server_does_better_is_missed(tmp_path):
    less, more, both = [{"min": low, "median": low, "max": high} for low, high in ((0.5, 0.75), (1.5, 2), (0.5, 2))]
    none = dict.fromkeys(less)  # no round had such a number on both sides

    def saved(**ratios):
        return {"spread": {key: {"first": ratio, "second": ratio} for key, ratio in ratios.items()}, "ratios": ratios}

    eight = saved(output_throughput=less, median_ttft_ms=less, median_tpot_ms=more, mean_tpot_ms=none)
    found = rows(tmp_path, versus_eight=eight, versus_stall=saved(itl_during_max_ms=less, long_ttft_ms=both))
    assert found["eight", "output_throughput"][-2:] == ["0.5 (0.5 to 0.75)", "missed by 0.500"]
    assert found["eight", "median_ttft_ms"][-1] == "met"
    assert found["eight", "median_tpot_ms"][-2:] == ["1.5 (1.5 to 2)", "missed by 0.500"]
    assert found["eight", "mean_tpot_ms"][-2:] == ["not taken", ""]
    assert found["stall", "long_ttft_ms"][-1] == "open: median met, not every round"


def test_what_was_taken_once_is_met_or_missed(tmp_path):
    growth = {"first_mib": 10, "second_mib": 12}
    found = rows(tmp_path, memory={"overhead": {"overhead_mib": 125}, "growth": growth})
    assert found["6. Memory beyond weights and KV cache under 150 MiB"] == ["125.00 MiB", "met"]
    assert found["6. No growth over 10,000 requests (under 1 MiB)"] == ["2.00 MiB", "missed by 1.00 MiB"]
    assert found["1. Rung 10 at least 0.99 of rung 0, large model"] == ["not taken", ""]

"""Median, spread and ratios of a number that was measured in several rounds."""

import statistics
import typing


def spread(values: typing.Iterable[float]) -> dict[str, float]:
    values = list(values)
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def shown(found: dict[str, float], form: str = ".3f") -> str:
    return f"{found['median']:{form}} ({found['min']:{form}} to {found['max']:{form}})"


def ratios(values: typing.Iterable[float], base: typing.Iterable[float]) -> list[float]:
    """The ratio within each round."""
    return [value / of if of else float("nan") for value, of in zip(values, base)]


def percentile(values: typing.Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def p99(values: typing.Iterable[float]) -> float:
    return percentile(values, 0.99)

"""Rounds of one number, as the studies save and print them: the median, and how far they lie apart."""

import statistics


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def shown(found: dict[str, float], form: str = ".3f") -> str:
    return f"{found['median']:{form}} ({found['min']:{form}} to {found['max']:{form}})"

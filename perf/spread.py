"""The median and the range of a number over all rounds."""

import statistics


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def shown(found: dict[str, float], form: str = ".3f") -> str:
    return f"{found['median']:{form}} ({found['min']:{form}} to {found['max']:{form}})"

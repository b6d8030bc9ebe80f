"""Rung 0 of the ladder: the bare model."""

from shared.server import CORELANE, saved

# A sequence decodes as soon as its own prompt is computed. The fewer steps all prompts take, the longer all
# sequences decode together.
LONG_STEPS = ["--ubatch-size=512"]


def rung_0(model: str | None, workload: tuple[int, int, int], flags: list[str]) -> dict[str, float | None]:
    """Tokens per second, and the mean rows of the steps that only decode. None is the built-in model."""
    concurrency, prompt, generated = workload
    command = [str(CORELANE), "bench", "ladder", *([f"--model={model}"] if model else []), "--rung=0", "--rounds=1"]
    command += [f"--concurrency={concurrency}", f"--requests={concurrency}"]
    command += [f"--prompt-tokens={prompt}", f"--gen-tokens={generated}"]
    one = saved([*command, *merged(flags)], "--json")["rounds"][0][0]
    every = concurrency * (prompt + generated) / one["wall_s"]
    rates = {"all": every, "prefill": one["prefill_tokens_per_s"], "decode": one["decode_tokens_per_s"]}
    return rates | {"decode_rows_mean": one["decode_rows_mean"]}


def merged(flags: list[str]) -> list[str]:
    """A flag given twice is an error, so the last one replaces the others."""
    return list({flag.partition("=")[0]: flag for flag in flags}.values())


def shown_workload(workload: tuple[int, int, int]) -> str:
    return f"{workload[0]} x {workload[1]} + {workload[2]}"

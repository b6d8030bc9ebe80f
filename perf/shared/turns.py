"""What is compared runs in turns, and what runs beside a measurement runs on threads."""

import threading
import time
import typing

from shared.server import measure
from shared.statistics import ratios, shown, spread

Way = typing.Callable[[], typing.Any]


def in_turns(rounds: int, ways: dict[str, Way], alternate: bool = True, after: typing.Callable | None = None) -> dict[str, list]:
    """Runs each way once in a round. With `alternate`, every second round has the opposite order.

    Returns the results of each way, round by round. `after` sees them after each round.
    """
    found: dict[str, list] = {name: [] for name in ways}
    for number in range(rounds):
        for name in order(ways, number if alternate else 0):
            found[name].append(ways[name]())
        if after:
            after(found)
    return found


def order(ways: typing.Iterable, number: int) -> list:
    """The order in a round: the opposite one in every second round."""
    return list(ways)[:: -1 if number % 2 else 1]


def show(field: str, found: dict[str, list[float]], base: str, unit: str, form: str = ".3f") -> None:
    """A line for each way: the spread of a number, and of its ratio to another way within a round."""
    for name, values in found.items():
        to_base = shown(spread(ratios(values, found[base])))
        print(f"{field} {name}: {shown(spread(values), form)} {unit}; to {base}: {to_base}")


class Beside:
    """Runs functions on threads while the `with` block runs. Each gets the event that ends it.

    The first error of one is raised at the end of the block, unless `strict` is false.
    """

    def __init__(self, *works: typing.Callable[[threading.Event], None], strict: bool = True):
        self.works, self.strict, self.over, self.failed = works, strict, threading.Event(), None

    def __enter__(self) -> "Beside":
        self.began = time.monotonic()
        self.threads = [threading.Thread(target=self.run, args=(work,)) for work in self.works]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, *_) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        self.took = time.monotonic() - self.began
        if self.failed and self.strict and not kind:  # an error inside the block says more
            raise RuntimeError("what ran beside the measurement failed") from self.failed

    def run(self, work) -> None:
        try:
            work(self.over)
        except Exception as error:  # raised again in __exit__; a thread would only print it
            self.failed = self.failed or error


class Load(Beside):
    """Calls `work` again and again on some threads. `work` returns the number of its units."""

    def __init__(self, work: typing.Callable[[], float], threads: int):
        super().__init__(*[self.again] * threads)
        self.work, self.units, self.lock = work, 0.0, threading.Lock()

    def again(self, over: threading.Event) -> None:
        while not over.is_set():
            units = self.work()
            with self.lock:
                self.units += units

    def __exit__(self, kind, *_) -> None:
        # Without the calls that are still running.
        self.per_second = self.units / (time.monotonic() - self.began)
        super().__exit__(kind)


def beside_a_stream(url: str, work: typing.Callable[[], float], unit: str, threads: int, rounds: int, prompts: int, tokens: int) -> dict:
    """What a load costs a stream that runs beside it, and what the stream costs the load.

    The stream has `prompts` answers of `tokens` tokens, one after another. Each round measures the stream alone, both
    together, and the load alone for as long.
    """
    stream = [f"--num-prompts={prompts}", "--max-concurrency=1", "--random-input-len=32", f"--random-output-len={tokens}"]
    stream += ["--metric-percentiles=99", "--num-warmups=0"]
    measure(url, *stream)  # a warm-up
    seconds = 0.0

    def alone() -> dict:
        nonlocal seconds
        began = time.monotonic()
        result = measure(url, *stream)
        seconds = time.monotonic() - began
        return result

    def together() -> tuple[dict, float]:
        with Load(work, threads) as load:
            result = measure(url, *stream)
        return result, load.per_second

    def load_alone() -> float:
        with Load(work, threads) as load:
            time.sleep(max(seconds, 2))
        return load.per_second

    taken = in_turns(rounds, {"alone": alone, "together": together, "load": load_alone})
    saved = {}
    for field in ["median_itl_ms", "p99_itl_ms"]:
        saved[field] = {"alone": [result[field] for result in taken["alone"]]}
        saved[field]["beside the load"] = [result[field] for result, _ in taken["together"]]
        show(f"{field} stream", saved[field], "alone", "ms")
    saved["per_second"] = {"alone": taken["load"], "beside the stream": [rate for _, rate in taken["together"]]}
    show(f"{unit}/s load", saved["per_second"], "alone", "", ".1f")
    return saved

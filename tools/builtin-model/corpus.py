"""The training text: an endless stream of documents from a seed.

Out: plain text (`str`) or conversations (lists of `(role, text)`). The grammar
is in `stories.py` (with `plots.py`), the questions in `chat.py`, the words in
`words.py`. Run it to read some: `python corpus.py --seed 1 --count 10`.
"""

import argparse
import random
from collections.abc import Iterator

import chat
from stories import snippet, story

Document = str | list[tuple[str, str]]

# Of a hundred documents; conversations are shorter, so that by tokens a little
# more than half is stories.
PLAIN_STORIES, NOTES, SNIPPETS = 27, 3, 22
DRILLS = 0.3


def documents(seed: int, drills: bool = False) -> Iterator[Document]:
    """Documents without end. Equal arguments give equal documents.

    With `drills`, almost a third of them practise what needs many examples.
    """
    rng = random.Random(seed)
    while True:
        yield drill(rng) if drills and rng.random() < DRILLS else document(rng)


def document(rng: random.Random) -> Document:
    """One document, its type drawn by share."""
    draw = rng.random() * 100
    if draw < PLAIN_STORIES:
        return story(rng).text
    if draw < PLAIN_STORIES + NOTES:
        return notes(rng)
    if draw < PLAIN_STORIES + NOTES + SNIPPETS:
        return " ".join(snippet(rng) for _ in range(rng.choice([1, 1, 2])))
    length = rng.choices([1, rng.randint(2, 4), rng.randint(5, 14)], [60, 32, 8])[0]
    return chat.conversation(rng, length)


def drill(rng: random.Random) -> Document:
    """A list of sums, or a few turns of the classes that are learned last."""
    if rng.random() < 0.45:
        kinds = rng.choices(("addition", "subtraction", "multiplication"), (5, 3, 2), k=rng.randint(6, 18))
        return " ".join(chat.turn(rng, kind).answer for kind in kinds)
    turns = [chat.turn(rng, rng.choice(chat.DRILLED)) for _ in range(rng.randint(1, 4))]
    return [message for turn in turns for message in (("user", turn.question), ("assistant", turn.answer))]


def notes(rng: random.Random) -> str:
    """Plain statements of facts, as the answers of several questions."""
    kinds = [kind for kind in chat.STATED if rng.random() < 0.5] or list(chat.STATED)
    return " ".join(chat.turn(rng, rng.choice(kinds)).answer for _ in range(rng.randint(3, 9)))


def main() -> None:
    """Print documents to read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="seed of the generator (default 1)")
    parser.add_argument("--count", type=int, default=10, help="number of documents (default 10)")
    options = parser.parse_args()
    stream = documents(options.seed)
    for _ in range(options.count):
        made = next(stream)
        print(made if isinstance(made, str) else "\n".join(f"[{role}] {text}" for role, text in made))
        print("-" * 72)


if __name__ == "__main__":
    main()

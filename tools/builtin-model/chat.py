"""Chat conversations: small questions with answers that can be checked.

In: a seeded `random.Random`. Out: `(question, answer)` turns, alone or as a
conversation. Every class of question is a function in `CLASSES` with a weight
that is its share of the turns; `train.py` measures accuracy class by class.
"""

import json
import random
from dataclasses import dataclass

import words as w
from stories import articles, expand, story

NAME = "corelane's small built-in model"


@dataclass(frozen=True)
class Turn:
    """One question and its answer. `kind` is the class that made it."""

    kind: str
    question: str
    answer: str


def turn(rng: random.Random, kind: str | None = None) -> Turn:
    """One turn of class `kind`, or of a class drawn by weight."""
    kind = kind or rng.choices(list(CLASSES), [weight for _, weight in CLASSES.values()])[0]
    question, answer = CLASSES[kind][0](rng)
    return Turn(kind, vary(rng, question), answer)


def conversation(rng: random.Random, turns: int) -> list[tuple[str, str]]:
    """A conversation as `(role, text)` messages, with a system message in some."""
    messages = []
    if rng.random() < 0.2:
        messages.append(("system", choose(rng, SYSTEM)))
    for i in range(turns):
        kind = "greeting" if i == 0 and turns > 1 and rng.random() < 0.3 else None
        made = turn(rng, kind)
        messages += [("user", made.question), ("assistant", made.answer)]
    return messages


SYSTEM = (
    "You are [a helpful|a friendly|a useful|a small] [assistant|helper|model]."
    "[| Answer briefly.| Be kind.| Keep your answers short.| You answer in English.]"
)


def choose(rng: random.Random, template: str, **fields: str) -> str:
    """One way to say `template` (see `stories.py` for the language)."""
    return articles(expand(rng, template, fields))


def vary(rng: random.Random, question: str) -> str:
    """The question as different people type it."""
    draw = rng.random()
    if draw < 0.06:
        question = question[0].lower() + question[1:]
    elif draw < 0.10:
        question = "Please " + question[0].lower() + question[1:] if question.split()[0] in POLITE else question
    if rng.random() < 0.08 and question[-1] in ".?":
        question = question[:-1]
    return question


POLITE = ("Tell", "Name", "Spell", "Count", "Add", "List", "Describe", "Write", "Give", "Say", "Subtract", "Multiply")


# --- Numbers ---------------------------------------------------------------

ADD = [
    "What is {a} plus {b}?", "{a} + {b} = ?", "Add {a} and {b}.", "How much is {a} plus {b}?", "{a}+{b}", "{a} plus {b}?",
    "What is {a} + {b}?", "What's {a} + {b}?", "Can you add {a} and {b}?", "What is the sum of {a} and {b}?",
    "Calculate {a} + {b}.", "How much is {a} and {b}?", "What do you get if you add {b} to {a}?", "{a} + {b} =",
]  # fmt: skip
SUBTRACT = [
    "What is {a} minus {b}?", "{a} - {b} = ?", "Subtract {b} from {a}.", "How much is {a} minus {b}?", "{a}-{b}",
    "What is {a} - {b}?", "What's {a} - {b}?", "Take {b} away from {a}.", "Calculate {a} - {b}.", "{a} minus {b}?", "{a} - {b} =",
]  # fmt: skip
MULTIPLY = [
    "What is {a} times {b}?", "{a} * {b} = ?", "Multiply {a} by {b}.", "How much is {a} times {b}?", "{a} x {b} = ?",
    "What is {a} * {b}?", "What's {a} times {b}?", "Calculate {a} times {b}.", "{a} times {b}?", "What is {a} x {b}?",
]  # fmt: skip


def small(rng: random.Random, top: int) -> int:
    """0 to `top`; the numbers up to ten are asked for more often."""
    return rng.randint(0, 10 if rng.random() < 0.6 else top)


def addition(rng):
    a, b = small(rng, 20), small(rng, 20)
    return choose(rng, rng.choice(ADD), a=a, b=b), f"{a} plus {b} is {a + b}."


def subtraction(rng):
    a, b = sorted((small(rng, 20), small(rng, 20)), reverse=True)
    return choose(rng, rng.choice(SUBTRACT), a=a, b=b), f"{a} minus {b} is {a - b}."


def multiplication(rng):
    a, b = rng.randint(0, 10), rng.randint(0, 10)
    return choose(rng, rng.choice(MULTIPLY), a=a, b=b), f"{a} times {b} is {a * b}."


def word_sum(rng):
    """Arithmetic as a story of one line."""
    a, b = rng.randint(2, 12), rng.randint(1, 10)
    name, her = (rng.choice(w.GIRLS), "She") if rng.random() < 0.5 else (rng.choice(w.BOYS), "He")
    things = rng.choice(w.FOODS + ["coins", "marbles", "books", "shells", "stones", "buttons", "pencils"])
    if rng.random() < 0.5:
        question = (
            f"{name} has {a} {things}. {her} [gets|finds|buys] {b} more. How many {things} does {name} have [now|]?"
        )
        answer = f"{name} has {a + b} {things}, because {a} plus {b} is {a + b}."
    else:
        a = b + rng.randint(2, 10)
        question = f"{name} has {a} {things}. {her} [gives away|loses|sells] {b}. How many {things} are left?"
        answer = f"{name} has {a - b} {things} left, because {a} minus {b} is {a - b}."
    return choose(rng, question).replace(" ?", "?"), answer


def counting(rng):
    start = rng.randint(0, 12)
    step = rng.choices([1, -1, 2], [8, 2, 1])[0]
    length = rng.randint(3, 10)
    if step == -1:
        start = max(start, length)
        numbers = list(range(start, start - length, -1))
        question = "Count [down|backwards] from {a} to {b}."
    elif step == 2:
        numbers = list(range(start, start + 2 * length, 2))
        question = "Count [from {a} to {b} in steps of two|by twos from {a} to {b}]."
    else:
        numbers = list(range(start, start + length))
        question = "[Count from {a} to {b}.|Can you count from {a} to {b}?|List the numbers from {a} to {b}.]"
        if rng.random() < 0.3:
            numbers = list(range(1, rng.randint(3, 20) + 1))
            question = "[Count to {b}.|Can you count to {b}?|Please count to {b}.]"
    return choose(rng, question, a=numbers[0], b=numbers[-1]), ", ".join(map(str, numbers)) + "."


def bigger_number(rng):
    a, b = rng.sample(range(0, 100), 2)
    if rng.random() < 0.6:
        return choose(
            rng, "[Which is bigger|Which number is bigger|What is more|Which is larger], {a} or {b}?", a=a, b=b
        ), (f"{max(a, b)} is bigger than {min(a, b)}.")
    return choose(rng, "[Which is smaller|Which number is smaller|What is less], {a} or {b}?", a=a, b=b), (
        f"{min(a, b)} is smaller than {max(a, b)}."
    )


def next_number(rng):
    n = rng.randint(0, 98)
    if rng.random() < 0.6:
        return choose(
            rng, "[What comes after {n}?|Which number comes after {n}?|What number follows {n}?]", n=n
        ), f"After {n} comes {n + 1}."
    n += 1
    return choose(rng, "[What comes before {n}?|Which number comes before {n}?]", n=n), f"Before {n} comes {n - 1}."


def number_word(rng):
    n = rng.randint(0, 20)
    if rng.random() < 0.5:
        return choose(
            rng, "[Write {n} as a word.|How do you write {n} in words?|Spell the number {n}.]", n=n
        ), f"{n} is written as {w.NUMBER_WORDS[n]}."
    return choose(rng, "[Write {n} as a number.|Which number is {n}?|Write {n} in digits.]", n=w.NUMBER_WORDS[n]), (
        f"{w.NUMBER_WORDS[n].capitalize()} is {n}."
    )


def even_odd(rng):
    n = rng.randint(0, 60)
    kind = "odd" if n % 2 else "even"
    return choose(rng, "Is {n} [even or odd|odd or even|an even number or an odd number]?", n=n), f"{n} is {kind}."


# --- Facts -----------------------------------------------------------------


def colour(rng):
    thing, value = rng.choice(w.COLOUR_FACTS)
    word = rng.choice(["colour", "colour", "color"])
    question = "[What {word} is {thing}?|Which {word} does {thing} have?|Tell me the {word} of {thing}.|What is the {word} of {thing}?]"
    return choose(rng, question, word=word, thing=thing), f"{thing[0].upper() + thing[1:]} is {value}."


def yes_no_colour(rng):
    thing, value = rng.choice(w.COLOUR_FACTS)
    asked = value if rng.random() < 0.5 else rng.choice([c for c in w.COLOURS if c != value])
    subject = thing[0].upper() + thing[1:]
    answer = f"Yes, {thing} is {value}." if asked == value else f"No, {thing} is {value}."
    return choose(
        rng,
        "[Is {thing} {asked}?|Is it true that {thing} is {asked}?|{subject} is {asked}, right?]",
        thing=thing,
        asked=asked,
        subject=subject,
    ), answer


def opposite(rng):
    a, b = rng.choice(w.OPPOSITES)
    if rng.random() < 0.5:
        a, b = b, a
    return choose(
        rng,
        '[What is the opposite of {a}?|What\'s the opposite of {a}?|Tell me the opposite of {a}.|Give me the opposite of "{a}".|Opposite of {a}?]',
        a=a,
    ), (f"The opposite of {a} is {b}.")


def day(rng):
    i = rng.randrange(7)
    return in_cycle(rng, w.DAYS, i, "day")


def month(rng):
    i = rng.randrange(12)
    return in_cycle(rng, w.MONTHS, i, "month")


def in_cycle(rng, names, i, unit):
    """What comes after or before `names[i]`."""
    after, before = names[(i + 1) % len(names)], names[i - 1]
    if rng.random() < 0.6:
        return choose(
            rng,
            "[What comes after {x}?|Which {unit} comes after {x}?|What {unit} is after {x}?|What is the {unit} after {x}?]",
            x=names[i],
            unit=unit,
        ), f"After {names[i]} comes {after}."
    return choose(
        rng, "[What comes before {x}?|Which {unit} comes before {x}?|What {unit} is before {x}?]", x=names[i], unit=unit
    ), f"Before {names[i]} comes {before}."


CALENDAR = [
    ("[How many days are in a week?|How many days does a week have?]", "A week has 7 days."),
    ("[How many months are in a year?|How many months does a year have?]", "A year has 12 months."),
    ("[How many hours are in a day?|How many hours does a day have?]", "A day has 24 hours."),
    ("[How many minutes are in an hour?|How many minutes does an hour have?]", "An hour has 60 minutes."),
    ("[How many seconds are in a minute?|How many seconds does a minute have?]", "A minute has 60 seconds."),
    ("[Name|List] the days of the week.", ", ".join(w.DAYS) + "."),
    ("[Name|List] the months of the year.", ", ".join(w.MONTHS) + "."),
    ("[Name|List|What are] the [four seasons|seasons].", "The four seasons are spring, summer, autumn and winter."),
    ("How many sides does a triangle have?", "A triangle has 3 sides."),
    ("How many sides does a square have?", "A square has 4 sides."),
    ("How many letters are in the alphabet?", "The English alphabet has 26 letters."),
    ("How many fingers [are on a hand|does a hand have]?", "A hand has 5 fingers."),
    ("What is the first day of the week?", "Many people begin the week on Monday."),
    ("What is the [first|1st] month of the year?", "The first month of the year is January."),
    ("What is the last month of the year?", "The last month of the year is December."),
]


def calendar(rng):
    question, answer = rng.choice(CALENDAR)
    return choose(rng, question), answer


def sound(rng):
    animal, says = rng.choice(w.SOUNDS)
    return choose(
        rng,
        "[What sound does a {x} make?|What does a {x} say?|What noise does a {x} make?|Which sound does the {x} make?|How does a {x} go?]",
        x=animal,
    ), choose(rng, f"A {animal} says {says}.")


def baby(rng):
    animal, young = rng.choice(w.BABIES)
    return choose(
        rng, "[What is a baby {x} called?|What do you call a baby {x}?|What is the young of a {x} called?]", x=animal
    ), choose(rng, f"A baby {animal} is called a {young}.")


def animal_home(rng):
    animal, home = rng.choice(w.HOMES)
    where = home if home in ("water",) else "a " + home
    return choose(
        rng, "[Where does a {x} live?|Where do you find a {x}?|What is the home of a {x}?]", x=animal
    ), choose(rng, f"A {animal} lives in {where}.")


def legs(rng):
    animal, count = rng.choice(w.LEGS)
    return choose(rng, "[How many legs does a {x} have?|How many legs has a {x}?]", x=animal), choose(
        rng, f"A {animal} has {count} legs." if count != "0" else f"A {animal} has no legs."
    )


def bigger_animal(rng):
    i, j = rng.sample(range(len(w.SIZES)), 2)
    small_, big = w.SIZES[min(i, j)], w.SIZES[max(i, j)]
    a, b = w.SIZES[i], w.SIZES[j]
    if rng.random() < 0.6:
        return choose(
            rng, "[Which is bigger|What is bigger|Which animal is bigger], a {a} or a {b}?", a=a, b=b
        ), choose(rng, f"A {big} is bigger than a {small_}.")
    return choose(rng, "[Which is smaller|What is smaller|Which animal is smaller], a {a} or a {b}?", a=a, b=b), choose(
        rng, f"A {small_} is smaller than a {big}."
    )


def plural(word: str) -> str:
    """The plural of a noun in `words.py`."""
    return w.PLURALS.get(word, word + "s")


def listing(rng):
    group = rng.choice(sorted(w.GROUPS))
    n = rng.choice([2, 3, 3, 3, 4, 5])
    items = rng.sample(w.GROUPS[group], n)
    question = choose(
        rng,
        "[List|Name|Tell me|Give me|Can you name|What are] {n} {x}",
        n=rng.choice([n, w.NUMBER_WORDS[n]]),
        x=plural(group),
    )
    question += "?" if question.startswith(("Can", "What")) else "."
    if rng.random() < 0.25:
        return question[:-1] + rng.choice([" as a list", ", one per line", " as bullet points"]) + question[
            -1
        ], "\n".join(f"- {item}" for item in items)
    return question, choose(
        rng,
        f"[{n} {plural(group)} are|Here are {n} {plural(group)}:|{w.NUMBER_WORDS[n].capitalize()} {plural(group)} are] ",
    ) + ", ".join(items[:-1]) + f" and {items[-1]}."


def one_of(rng):
    group = rng.choice(sorted(w.GROUPS))
    item = rng.choice(w.GROUPS[group])
    return choose(rng, "[Name a {x}.|Tell me a {x}.|Give me the name of a {x}.]", x=group), choose(
        rng, f"[One {group} is {with_article(group, item)}.|{item[0].upper() + item[1:]}.]"
    )


def with_article(group: str, item: str) -> str:
    """`item` as it stands in "One fruit is ...": countries and the like take no article."""
    return item if group in ("country", "colour", "sport", "drink", "planet") else f"a {item}"


def kind_of(rng):
    groups = [
        "fruit",
        "vegetable",
        "bird",
        "tool",
        "instrument",
        "tree",
        "flower",
        "drink",
        "vehicle",
        "sport",
        "colour",
    ]
    group = rng.choice(groups)
    item = rng.choice([item for item in w.GROUPS[group] if item not in AMBIGUOUS])
    thing = with_article(group, item)
    asked = group if rng.random() < 0.5 else rng.choice(groups)
    subject = articles(thing)
    subject = subject[0].upper() + subject[1:]
    if rng.random() < 0.5:
        return choose(rng, "[What kind of thing is {x}?|To which group does {x} belong?]", x=thing), choose(
            rng, f"{subject} is a {group}."
        )
    answer = f"Yes, {thing} is a {group}." if asked == group else f"No, {thing} is a {group}."
    return choose(rng, "Is {x} a {g}?", x=thing, g=asked), choose(rng, answer)


AMBIGUOUS = (
    "orange",
    "peach",
    "plum",
    "lily",
    "rose",
    "tomato",
    "pumpkin",
    "pepper",
    "bell",
    "kiwi",
    "cherry",
    "violet",
)


def capital(rng):
    country, city = rng.choice(w.CAPITALS)
    if rng.random() < 0.75:
        return choose(
            rng,
            "[What is the capital of {x}?|What's the capital of {x}?|Which city is the capital of {x}?|Tell me the capital of {x}.|Capital of {x}?]",
            x=country,
        ), f"The capital of {country} is {city}."
    return choose(
        rng, "[In which country is {x}?|Where is {x}?|Which country has {x} as its capital?]", x=city
    ), f"{city} is the capital of {country}."


def definition(rng):
    thing, what, use = rng.choice(w.DEFINITIONS)
    if rng.random() < 0.5:
        return choose(
            rng, '[What is a {x}?|Explain what a {x} is.|Tell me what a {x} is.|Define "{x}".]', x=thing
        ), choose(rng, f"A {thing} is {what}. It is used for {use}.")
    return choose(
        rng,
        "[What is a {x} used for?|What do you use a {x} for?|What is a {x} for?|Why do people need a {x}?]",
        x=thing,
    ), choose(rng, f"A {thing} is used for {use}.")


def spelling(rng):
    word = rng.choice(w.SPELLABLE)
    return choose(rng, '[Spell the word {x}.|How do you spell {x}?|Spell {x}.|Can you spell "{x}"?]', x=word), "-".join(
        word.upper()
    ) + "."


def first_letter(rng):
    word = rng.choice(w.SPELLABLE)
    if rng.random() < 0.6:
        return choose(
            rng,
            "[What is the first letter of {x}?|Which letter does {x} begin with?|What letter does {x} start with?]",
            x=word,
        ), f"The first letter of {word} is {word[0].upper()}."
    return choose(
        rng, "[What is the last letter of {x}?|Which letter does {x} end with?]", x=word
    ), f"The last letter of {word} is {word[-1].upper()}."


def plural_of(rng):
    word = rng.choice(
        w.SPELLABLE + ["mouse", "goose", "child", "foot", "tooth", "leaf", "box", "cherry", "wolf", "fox"]
    )
    while word in ("water", "light", "green", "happy", "summer", "winter", "yellow", "music", "snow", "rain", "bread"):
        word = rng.choice(w.SPELLABLE)
    word_plural = {"story": "stories"}.get(word) or plural(word)
    return choose(
        rng, "[What is the plural of {x}?|Plural of {x}?|Give me the plural of {x}.]", x=word
    ), f"The plural of {word} is {word_plural}."


def repeat(rng):
    word = rng.choice(w.SPELLABLE + w.LOSABLE + ["hello", "yes", "thank you", "good morning"])
    if rng.random() < 0.5:
        n = rng.randint(2, 5)
        times = rng.choice([f"{n} times", w.NUMBER_WORDS[n] + " times"])
        return choose(rng, "[Say {x} {t}.|Repeat the word {x} {t}.|Write {x} {t}.]", x=word, t=times), " ".join(
            [word] * n
        )
    return choose(rng, '[Say {x}.|Say "{x}".|Repeat after me: {x}]', x=word), word


# --- JSON ------------------------------------------------------------------

SIZES = ["small", "big", "tiny", "large", "medium"]


def as_json(rng):
    """An object of sensible keys; sometimes with the keys that were asked for."""
    kind = rng.choice(["animal", "person", "thing", "fruit", "day", "city"])
    colour_key = rng.choice(["colour", "colour", "color"])
    name = rng.choice(w.PETS + w.GIRLS + w.BOYS)
    if kind == "animal":
        noun = rng.choice(w.ANIMALS)
        about = choose(rng, f"a {noun}[| named {name}| called {name}]")
        fields = {
            "name": name if name in about else rng.choice(w.PETS),
            "kind": noun,
            colour_key: rng.choice(w.COLOURS),
            "size": rng.choice(SIZES),
            "age": rng.randint(1, 12),
        }
    elif kind == "person":
        noun = rng.choice(w.PERSON_KINDS[:28])
        about = choose(rng, f"a {noun}[| named {name}| called {name}]")
        fields = {
            "name": name if name in about else rng.choice(w.GIRLS + w.BOYS),
            "job": noun,
            "age": rng.randint(20, 70),
            "city": rng.choice(w.CAPITALS)[1],
            "happy": rng.random() < 0.8,
        }
    elif kind == "fruit":
        noun = rng.choice(w.GROUPS["fruit"])
        about = choose(rng, f"a {noun}")
        fields = {
            "name": noun,
            "kind": "fruit",
            colour_key: rng.choice(["red", "green", "yellow"]),
            "size": rng.choice(SIZES),
            "sweet": rng.random() < 0.7,
        }
    elif kind == "day":
        about = rng.choice(w.DAYS)
        i = w.DAYS.index(about)
        fields = {"name": about, "kind": "day", "before": w.DAYS[i - 1], "after": w.DAYS[(i + 1) % 7], "weekend": i > 4}
    elif kind == "city":
        country, about = rng.choice(w.CAPITALS)
        fields = {"name": about, "kind": "city", "country": country, "capital": True}
    else:
        noun = rng.choice(w.LOSABLE)
        tint = rng.choice(w.COLOURS)
        about = choose(rng, f"a [|{tint} ]{noun}")
        fields = {
            "name": noun,
            "kind": "thing",
            colour_key: tint,
            "size": rng.choice(SIZES),
            "price": rng.randint(1, 50),
        }
    if rng.random() < 0.4:
        keys = rng.sample(list(fields), rng.randint(2, min(4, len(fields))))
        fields = {key: fields[key] for key in keys}
        listed = ", ".join(keys[:-1]) + " and " + keys[-1]
        question = choose(
            rng,
            "[Describe {x} as JSON with the keys {keys}.|Give me a JSON object for {x} with the keys {keys}.|Write JSON about {x}. Use the keys {keys}.]",
            x=about,
            keys=listed,
        )
    else:
        question = choose(
            rng,
            "[Describe {x} as JSON.|Describe {x} as a JSON object.|Give me a JSON object for {x}.|Write a JSON object that describes {x}.|{x} as JSON, please.]",
            x=about,
        )
        question = question[0].upper() + question[1:]
    return question, json.dumps(fields, indent=2 if rng.random() < 0.15 else None)


# --- Talk ------------------------------------------------------------------


def greeting(rng):
    hello = rng.choice(
        ["Hello", "Hi", "Hey", "Good morning", "Good evening", "Good afternoon", "Hello there", "Hi there"]
    )
    end = rng.choice(["!", ".", "", "!", ", how are you?", "! How are you?"])
    reply = rng.choice(["Hello!", "Hi!", "Hello there!"]) if not hello.startswith("Good") else hello + "!"
    if "how" in end.lower():
        return hello + end, reply + choose(
            rng, " I am [fine|well|doing well], thank you. [How can I help you?|What can I do for you?]"
        )
    return hello + end, reply + choose(
        rng, " [How can I help you?|What can I do for you?|What would you like to know?|How can I help you today?]"
    )


TALK = [
    (
        "[Who are you?|What are you?|What is your name?|What's your name?|Tell me about yourself.|Who am I talking to?|Are you a person?|Are you ChatGPT?|Which model are you?|Introduce yourself.]",
        f"I am {NAME}. [I can tell short stories, do small sums and answer simple questions.|I know little, but I can tell stories and do small sums.|I am very small, and I can tell stories and answer simple questions.]",
    ),
    (
        "[What can you do?|What do you know?|How can you help me?|Help|What can I ask you?]",
        "I can [tell short stories|tell you a story], [do small sums|add and subtract small numbers], [name colours and opposites|count and spell] and [describe things as JSON|write small JSON objects].",
    ),
    (
        "[Thank you!|Thanks!|Thank you very much.|Thanks a lot.|Great, thanks.|thx]",
        "[You are welcome!|You are welcome. Is there anything else?|I am glad that I could help.]",
    ),
    (
        "[Goodbye!|Bye!|Bye.|See you later.|Good night!|I have to go now.]",
        "[Goodbye!|Goodbye, and have a nice day!|See you soon!]",
    ),
    (
        "[How are you?|How are you today?|How do you do?|How is it going?|How's it going?]",
        "I am [fine|well|doing well], thank you. [How can I help you?|And how are you?]",
    ),
    (
        "[Who made you?|Who built you?|Where do you come from?|How were you made?|Who trained you?]",
        "I was made for corelane. I was trained on text that a small program wrote.",
    ),
    (
        "[How big are you?|Are you a large model?|How many parameters do you have?|Are you smart?]",
        "I am very small: only a few million parameters. I know little, but I am quick.",
    ),
    (
        "[What is corelane?|What's corelane?|Tell me about corelane.|Explain corelane.]",
        "Corelane is a server for language models, and I am its small built-in model.",
    ),
    (
        "[I am sad.|I feel sad.|I am tired.|I had a bad day.]",
        "[I am sorry to hear that. Would you like to hear a story?|I am sorry. A short story may help. Shall I tell you one?]",
    ),
    (
        "[I am happy.|I feel great.|I had a good day.|Today is my birthday.]",
        "[That is nice to hear!|I am glad to hear that!|How lovely!]",
    ),
    (
        "[Are you alive?|Are you human?|Do you have feelings?|Can you see me?|Do you dream?]",
        f"No, I am {NAME}. I only work with text.",
    ),
    (
        "[What is your favourite colour?|What's your favorite color?|Which colour do you like?]",
        "I like [blue, like the sea|green, like grass|yellow, like the sun].",
    ),
    (
        "[What is your favourite animal?|Which animal do you like best?|What animal do you like?]",
        "I like the [fox|owl|hedgehog|otter], because it is in many of my stories.",
    ),
    (
        "[Good job.|Well done!|That is right.|Correct!|Very good.|Nice!|Great!|I like that.|That was a nice story.]",
        "[Thank you!|Thank you! Shall I go on?|I am glad that you like it.]",
    ),
    (
        "[Say something.|I am bored.|What shall we do?|Let's talk.|Talk to me.|Surprise me.]",
        "[Shall I tell you a story?|I can tell you a story or a joke. Which would you like?|Ask me for a story about a fox.]",
    ),
    (
        "[That is wrong.|No, that is not right.|You are wrong.|Are you sure?]",
        "[I am sorry. I am a very small model, and I make mistakes.|I may be wrong. I am only a small model.]",
    ),
    (
        "[ok|Okay.|I see.|Yes.|No.|Sure.|Fine.|Cool.|lol|test|Test.|asdf|?]",
        "[Good. What would you like to know?|What would you like to do next?|How can I help you?]",
    ),
    (
        "[Can you speak French?|Do you speak German?|Can you speak Spanish?|Which languages do you speak?]",
        "I only know [simple|a little] English.",
    ),
]


def talk(rng):
    question, answer = rng.choice(TALK)
    return choose(rng, question), choose(rng, answer)


UNKNOWN = [
    "[What is the weather|How is the weather|Will it rain] [in {city}|today|tomorrow|in {city} tomorrow]?", "Who [won|will win] the [game|election|match|race] [in {city}|yesterday|in 1998|last year]?",
    "How many people live in [{city}|{country}]?", "What [time|day|date] is it [now|today|in {city}]?", "Who [wrote|painted|invented|discovered] [the {thing}|the first {thing}|this book]?",
    "[Explain|What is] [quantum physics|gravity|electricity|the stock market|democracy|evolution|chemistry|calculus|relativity|the internet].", "How do I [fix|build|sell|paint|clean] a {thing}?",
    "What is the [distance|way|shortest way] from {city} to {city2}?", "Write a [Python|Rust|C|Java] [program|function] that [sorts a list|adds two numbers|reads a file|prints a name].",
    "Translate \"{thing}\" into [French|German|Spanish|Latin].", "Who is the [president|king|queen|mayor] of [{country}|{city}]?", "What is the [price|cost] of a {thing} in {country}?",
    "[How does|Why does] a {thing} [work|break|cost so much]?", "[Where can I|How can I|Should I] [buy|find|sell|learn about] [a {thing}|{city}]?",
    "[Write|Compose|Draft] [an email|a letter|an essay|a report|a blog post|a review] about [the {thing}|{country}|my job|{city}].",
    "[Explain|Describe|Tell me about|Teach me] [the history of {country}|how a {thing} is made|machine learning|black holes|music theory|philosophy|the law|football in {country}].",
    "[Give me|I need] [a recipe|a plan|advice|tips|ideas] for [dinner|a trip to {city}|my garden|a party|losing weight|my {thing}].", "Who is [the best player|the most famous person|the richest man] in [{city}|{country}|the world]?",
    "What [happened|was new] in [1945|1969|2001|2020|{city} last week]?", "What is the meaning of life?", "When was [{city}|the {thing}] [founded|made|invented]?", "Why is the sky blue?", "Summarize the [history|news|economy] of {country}.",
]  # fmt: skip


def unknown(rng):
    (country, city), (_, city2) = rng.sample(w.CAPITALS, 2)
    question = choose(rng, rng.choice(UNKNOWN), city=city, city2=city2, country=country, thing=rng.choice(w.LOSABLE))
    return question, choose(
        rng,
        "[I do not know that.|I am sorry, I do not know.|That is more than I know.] I am only a small [built-in |]model[.|, and I know simple things.|. Ask me for a story or a small sum.]",
    )


JOKES = [
    ("the {a} take a ladder to the {p}", "it wanted to reach the high notes"), ("the {a} sit on the clock", "it wanted to be on time"),
    ("the {a} bring a pencil to the {p}", "it wanted to draw a crowd"), ("the {a} eat the lamp", "it wanted a light meal"),
    ("the {a} put a bed in the {p}", "it wanted to rest its case"), ("the {a} cross the {p}", "the map said so, and the map was upside down"),
    ("the {a} wear two hats", "it could not make up its mind"), ("the {a} bring a spoon to the {p}", "it heard there was a stirring story"),
    ("the {a} paint the {p} blue", "it was feeling green with envy and wanted a change"), ("the {a} whisper at the {p}", "the walls were all ears"),
]  # fmt: skip


def joke(rng):
    setup, punch = rng.choice(JOKES)
    setup = setup.format(a=rng.choice(w.ANIMALS), p=rng.choice(w.PLACES))
    return choose(
        rng, "[Tell me a joke.|Do you know a joke?|Make me laugh.|Can you tell me a joke?|Another joke, please.]"
    ), f"Why did {setup}? Because {punch}!"


VERSES = [
    ("The {x} is {adj} in the morning light,", "And {adj2} it waits for the quiet night."),
    ("I saw a {x} beside the sea,", "It {verb} and {verb} and came to me."),
    ("O little {x}, where do you go?", "To fields of green and hills of snow."),
    ("When winds are cold and days are grey,", "The {x} will chase the clouds away."),
    ("A {x} can be a friend to you,", "If you are kind, and honest too."),
    ("The road is long, the sky is wide,", "The {x} is walking by my side."),
    ("The stars come out, the day is done,", "The {x} is dreaming of the sun."),
    ("Sing of the {x} when the moon is high,", "Sing of its road beneath the sky."),
]


def poem(rng):
    subject = rng.choice(
        w.ANIMALS + w.LOSABLE + ["moon", "river", "rain", "sea", "winter", "tree", "star", "city", "spring"]
    )
    article = "" if subject in ("winter", "spring", "rain") else rng.choice(["a ", "the "])
    lines = []
    for first, second in rng.sample(VERSES, rng.choice([1, 2, 2])):
        fill = {
            "x": subject,
            "adj": rng.choice(["bright", "soft", "still", "gold", "calm"]),
            "adj2": rng.choice(["softly", "calmly", "gladly", "gently"]),
            "verb": rng.choice(["danced", "laughed", "sang", "turned"]),
        }
        lines += [choose(rng, first, **fill), choose(rng, second, **fill)]
    return choose(
        rng,
        "[Write|Tell me|Can you write|Give me] a [|short |little ]poem about {x}[.|.|, please.]",
        x=article + subject,
    ), "\n".join(lines)


def tell_story(rng):
    made = story(rng)
    subject = rng.choice(made.subjects)
    if rng.random() < 0.12:
        question = "[Tell me a story.|Tell me a short story.|Tell me another story.|Another story, please.|Tell me something.|Write a short story.|Can you tell me a story?|I want to hear a story.|Write a story.|A story, please.]"
    else:
        question = "[Tell me a [|short |little ]story about {x}.|Write a [|short ]story about {x}.|Can you tell me a story about {x}?|I would like a story about {x}.|Tell a story about {x}.|A story about {x}, please.]"
    return choose(rng, question, x=subject), made.text


CLASSES = {
    # class: (function, weight)
    "addition": (addition, 12), "subtraction": (subtraction, 8), "multiplication": (multiplication, 6), "word sum": (word_sum, 4),
    "counting": (counting, 3), "bigger number": (bigger_number, 2), "next number": (next_number, 2), "number word": (number_word, 1),
    "even or odd": (even_odd, 1), "colour": (colour, 3), "yes or no": (yes_no_colour, 2), "opposite": (opposite, 4),
    "day": (day, 3), "month": (month, 3), "calendar": (calendar, 2), "sound": (sound, 3), "baby animal": (baby, 2),
    "animal home": (animal_home, 1), "legs": (legs, 1.5), "bigger animal": (bigger_animal, 2), "list": (listing, 4), "name one": (one_of, 1.5),
    "kind": (kind_of, 1), "capital": (capital, 4), "definition": (definition, 3), "spelling": (spelling, 3), "letter": (first_letter, 2),
    "plural": (plural_of, 1), "repeat": (repeat, 2), "json": (as_json, 8), "greeting": (greeting, 4), "talk": (talk, 6),
    "unknown": (unknown, 4), "joke": (joke, 1), "poem": (poem, 2), "story": (tell_story, 10),
}  # fmt: skip
# Classes with one right answer, whose accuracy can be measured by comparing text.
CHECKED = (
    "addition", "subtraction", "multiplication", "word sum", "counting", "bigger number", "next number", "number word",
    "even or odd", "colour", "yes or no", "opposite", "day", "month", "calendar", "sound", "baby animal", "animal home",
    "legs", "bigger animal", "capital", "definition", "spelling", "letter", "plural", "repeat",
)  # fmt: skip
# Classes whose answer is a sentence that stands alone.
STATED = (
    "addition", "subtraction", "multiplication", "bigger number", "even or odd", "colour", "opposite", "day", "month",
    "calendar", "sound", "baby animal", "animal home", "legs", "bigger animal", "capital", "definition",
)  # fmt: skip
# Classes that need many examples: they copy, count or calculate.
DRILLED = (
    "addition", "subtraction", "multiplication", "word sum", "counting", "bigger number", "next number", "number word",
    "yes or no", "spelling", "letter", "repeat", "opposite", "bigger animal", "plural", "json",
)  # fmt: skip

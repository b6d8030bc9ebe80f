"""Short coherent stories from a grammar.

In: a seeded `random.Random`. Out: a `Story`: its text and the subjects that it
can be asked for by ("a fox named Pip", "a lost kite").

A story draws its cast once (hero, friend, elder, object, place); every beat
then speaks of that cast alone, so that what the first sentence introduces is
what the last one is about. A beat is a template: `[a|b|]` is a choice (they
nest), `{field}` is a member of the cast, `a~` becomes "a" or "an". Sentences
are capitalised at the end, so a beat may start with a pronoun.
"""

import random
import re
from dataclasses import dataclass

import words as w
from plots import ENDINGS, INTERLUDES, MORALS, OPENINGS, PLOTS, SCENES, SNIPPETS

CHOICE = re.compile(r"\[([^\[\]]*)\]")
# Vowels that sound like consonants.
SOUNDS_LIKE_A = ("one", "use", "uni", "eu")
SILENT_H = ("honest", "hour")


@dataclass(frozen=True)
class Character:
    """One of the cast: the name, what it is, and the pronouns."""

    name: str
    kind: str
    adjective: str
    pronoun: str  # "he" or "she"
    is_animal: bool

    def fields(self, prefix: str) -> dict[str, str]:
        """Template fields of this character."""
        her = self.pronoun == "she"
        return {
            prefix: self.name,
            prefix + "the": self.name if self.kind in ("girl", "boy") else f"{self.name} the {self.kind}",
            prefix + "kind": self.kind,
            prefix + "adj": self.adjective,
            prefix + "he": self.pronoun,
            prefix + "him": "her" if her else "him",
            prefix + "his": "her" if her else "his",
            prefix + "self": "herself" if her else "himself",
        }


@dataclass(frozen=True)
class Story:
    """A finished story and what it can be asked for by."""

    text: str
    subjects: tuple[str, ...]


def story(rng: random.Random, plot_name: str | None = None) -> Story:
    """One story, its plot and cast drawn from `rng`."""
    name = plot_name or rng.choice(sorted(PLOTS))
    plot = PLOTS[name]
    fields, hero = cast(rng, plot.get("hero"))
    fields |= props(rng, plot.get("props"), plot.get("season") or rng.choice(w.SEASONS))
    beats = [rng.choice(OPENINGS["animal" if hero.is_animal else "person"])]
    if rng.random() < 0.3:
        beats.append(rng.choice(SCENES))
    for i, beat in enumerate(plot["beats"]):
        if i > 1 and rng.random() < 0.12:
            beats.append(rng.choice(INTERLUDES))
        beats.append(rng.choice(beat))
    if rng.random() < 0.7:
        beats.append(rng.choice(ENDINGS))
    moral = rng.random()
    if moral < 0.3:
        beats.append(rng.choice(MORALS[plot["moral"]]))
    text = join(rng, [expand(rng, beat, fields) for beat in beats if beat])
    if moral > 0.92:
        text += "\n\nThe moral: " + rng.choice(MORALS["short"])[plot["moral"]]
    return Story(text, subjects(rng, text, plot, fields))


def snippet(rng: random.Random) -> str:
    """Two or three sentences about one cast: the shortest texts that stay on a subject."""
    fields, _ = cast(rng, None)
    fields |= props(rng, None, rng.choice(w.SEASONS))
    return capitalise(articles(expand(rng, rng.choice(SNIPPETS), fields)))


def subjects(rng: random.Random, text: str, plot: dict, fields: dict[str, str]) -> tuple[str, ...]:
    """What the story can be asked for by; only what its text really names."""
    own = [expand(rng, subject, fields) for subject in plot["subjects"]]
    asked = ["a {Hkind}", "a {Hkind}", "a {Hkind} named {H}", "{H}", "a {Hadj} {Hkind}", "{Hthe}"]
    if fields["F"] in text:
        asked.append("{H} and {F}")
        if f" {fields['Fkind']}" in text:
            asked += ["a {Hkind} and a {Fkind}", "a {Hkind} and a {Fkind}"]
    if text.count(fields["place"]) > 1:
        asked.append("a {Hkind} [near|at] the {place}")
    if f" {fields['obj']}" in text:
        asked.append("a {Hkind} and a {obj}")
    asked = [expand(rng, subject, fields) for subject in asked]
    return tuple(articles(subject) for subject in own * 2 + asked)


def cast(rng: random.Random, hero_type: str | None) -> tuple[dict[str, str], Character]:
    """Hero, friend and elder, all with different names; and the hero."""
    names: set[str] = set()
    hero = character(rng, names, hero_type or rng.choice(["child", "child", "person", "animal", "animal"]))
    friend = character(rng, names, "animal" if hero.is_animal or rng.random() < 0.15 else "child")
    fields = hero.fields("H") | friend.fields("F")
    fields |= {"he": fields["Hhe"], "him": fields["Hhim"], "his": fields["Hhis"], "self": fields["Hself"]}
    if not hero.is_animal and rng.random() < 0.5:
        elder, pronoun = rng.choice(w.RELATIVES)
        fields["E"] = f"{fields['his']} {elder}"
    else:
        elder, pronoun = (
            rng.choice(w.NEIGHBOURS)
            if not hero.is_animal
            else (f"old {rng.choice(w.ANIMALS[:30])}", rng.choice(["he", "she"]))
        )
        fields["E"] = f"the {elder}"
    fields |= {
        "Ehe": pronoun,
        "Ehim": "her" if pronoun == "she" else "him",
        "Ehis": "her" if pronoun == "she" else "his",
    }
    if friend.kind in ("girl", "boy"):
        fields["Fthe"] = f"{fields['his']} friend {friend.name}"
    fields["home"] = rng.choice(w.ANIMAL_HOMES if hero.is_animal else w.PEOPLE_HOMES)
    return fields, hero


def character(rng: random.Random, taken: set[str], what: str) -> Character:
    """A child, a grown person or an animal whose name is not in `taken`."""
    pronoun = rng.choice(["he", "she"])
    pool = w.GIRLS if pronoun == "she" else w.BOYS
    if what == "animal":
        kind = rng.choice(w.ANIMALS)
        pool = w.PETS + pool if rng.random() < 0.5 else w.PETS
    elif what == "person":
        kind = rng.choice(w.PERSON_KINDS)
        if kind in ("princess", "queen", "fairy"):
            pronoun, pool = "she", w.GIRLS
        elif kind in ("prince", "king", "wizard", "fisherman", "postman"):
            pronoun, pool = "he", w.BOYS
    else:
        kind = "girl" if pronoun == "she" else "boy"
    name = rng.choice([name for name in pool if name not in taken])
    taken.add(name)
    adjective = rng.choice(w.CHILD_ADJECTIVES)
    return Character(name, kind, adjective, pronoun, what == "animal")


def props(rng: random.Random, table: str | None, season: str) -> dict[str, str]:
    """Things, places and times; `table` names a row type of the plot's own."""
    place, place2 = rng.sample(w.PLACES, 2)
    number = rng.randint(2, 9)
    fields = {
        "obj": rng.choice(w.LOSABLE), "colour": rng.choice(w.COLOURS), "place": place, "place2": place2,
        "hiding": rng.choice(w.HIDING), "food": rng.choice(w.FOODS), "weather": rng.choice(w.WEATHER[season]),
        "time": rng.choice(w.TIMES), "season": season, "day": rng.choice(w.DAYS),
        "n": w.NUMBER_WORDS[number], "m": w.NUMBER_WORDS[number + rng.randint(1, 8)],
        "wild": rng.choice(w.ANIMALS), "frag": rng.choice(w.FRAGILE),
    }  # fmt: skip
    if table:
        row = rng.choice(getattr(w, table))
        fields |= {f"p{i}": part for i, part in enumerate(row)}
    return fields


def expand(rng: random.Random, template: str, fields: dict[str, str]) -> str:
    """Choose the alternatives, innermost first, then fill in the fields."""
    while match := CHOICE.search(template):
        template = template[: match.start()] + rng.choice(match[1].split("|")) + template[match.end() :]
    return template.format_map(fields)


def join(rng: random.Random, beats: list[str]) -> str:
    """The beats as text: one paragraph, or a few."""
    paragraphs = rng.random() < 0.35
    text = ""
    for i, beat in enumerate(beats):
        if i:
            text += "\n\n" if paragraphs and (i % 2 == 0 or rng.random() < 0.3) else " "
        text += "^" + beat.strip()
    return capitalise(articles(re.sub(r" +", " ", text).strip()))


def articles(text: str) -> str:
    """Turn `a~ apple` and `a apple` into "an apple"."""

    def pick(match: re.Match) -> str:
        word = match[2].lower()
        vowel = word[0] in "aeiou" and not word.startswith(SOUNDS_LIKE_A)
        return match[1] + ("n " if vowel or word.startswith(SILENT_H) else " ")

    return re.sub(r"\b([Aa])~? (?=(\w+))", pick, text)


def capitalise(text: str) -> str:
    """Capitalise the start of each sentence and of each quotation.

    After `?"` and `!"` the next word stays as it is ("... ?" asked Anna); a
    beat that starts a sentence there is written with a capital, or with `^`.
    A quotation that goes on after `, ` stays as it is, too.
    """
    start = r"(^|\n\"?|[.!?] \"?|[.]\" \"?|: \")([a-z])"
    text = re.sub(start, lambda m: m[1] + m[2].upper(), text)
    return re.sub(r"\^(.)", lambda m: m[1].upper(), text)

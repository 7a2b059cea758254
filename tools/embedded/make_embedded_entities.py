"""Make the embedded sentences with tagged entities: synthetic, from templates and invented names.

Usage::

    python tools/embedded/make_embedded_entities.py collapipe_env/data/entities

All text is the project's own. Five types: person, location, organisation, product, date. What makes the task
more than a look-up of words:

- names are built from invented stems, and held-out parts mostly use stems, given names and product words that
  training never shows, and some sentence patterns of their own
- one stem names people, places, organisations and products alike, so the words around it decide
- chatty sentences are often all in lower case, headlines in capitals
- common words double as names (Rose, Will, May, Lantern), and also occur as common words
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from pathlib import Path

from ruamel.yaml import YAML

SIZES = {"train": 1800, "dev": 350, "test": 350}
"""Sentences of each part."""

SEED = 20250
FAMILIAR = 0.35
"""Probability that a held-out part takes a name that training may also show."""
OWN_PATTERNS = 5
"""One pattern of every five is kept for the held-out parts."""

WORDS = YAML(typ="safe").load(Path(__file__).with_name("entities.yaml"))
"""Patterns, common words and parts of names."""

Tagged = list[tuple[str, str]]


class Names:
    """Name parts that one part of the data may use.

    Attributes:
        stems: Invented words without meaning.
        given: Given names.
        words: Common words that name products.
        acronyms: Runs of capitals.
    """

    def __init__(self, stems: list[str], given: list[str], words: list[str], acronyms: list[str]) -> None:
        self.stems, self.given, self.words, self.acronyms = stems, given, words, acronyms

    def entity(self, kind: str, rng: random.Random) -> list[str]:
        """Return the words of a new name of that type."""
        text = rng.choice(WORDS["shapes"][kind]).replace("{surname}", rng.choice(WORDS["surname"]))
        parts: dict[str, Callable[[], str]] = {
            "stem": lambda: rng.choice(self.stems),
            "given": lambda: rng.choice(self.given),
            "word": lambda: rng.choice(self.words),
            "acronym": lambda: rng.choice(self.acronyms),
            "initial": lambda: rng.choice("ABCDEFGHJKLMNPRSTW") + ".",
            "number": lambda: str(rng.randint(2, 28)),
            "year": lambda: str(rng.randint(1962, 2031)),
            "day": lambda: rng.choice(WORDS["days"]),
            "month": lambda: rng.choice(WORDS["months"]),
            "ordinal": lambda: rng.choice(WORDS["ordinals"]),
        }
        for slot, draw in parts.items():
            while (mark := "{" + slot + "}") in text:
                text = text.replace(mark, draw(), 1)
        return text.split()


def stem(rng: random.Random) -> str:
    """Return an invented word, with a capital."""
    middle = rng.choice(WORDS["middles"]) + rng.choice(WORDS["closes"])
    return (rng.choice(WORDS["onsets"]) + middle + rng.choice(WORDS["ends"])).title()


def deal(items: list[str], rng: random.Random) -> dict[str, list[str]]:
    """Return disjoint shares for the parts: three fifths for training, a fifth for each of the others."""
    shuffled = rng.sample(items, len(items))
    first, second = 3 * len(items) // 5, 4 * len(items) // 5
    return {"train": shuffled[:first], "dev": shuffled[first:second], "test": shuffled[second:]}


def fill(pattern: str, own: Names, familiar: Names, share: float, rng: random.Random) -> Tagged:
    """Return a sentence: a pattern with names and common words in its slots."""
    sentence: Tagged = []
    for token in pattern.split():
        slot = token.strip("{}") if token.startswith("{") else ""
        if slot in WORDS["shapes"]:
            names = familiar if rng.random() < share else own
            words = names.entity(slot, rng)
            kind = "date" if slot == "period" else slot
            sentence += [(word, f"{'I' if i else 'B'}-{kind}") for i, word in enumerate(words)]
        else:
            words = (rng.choice(WORDS["common"][slot]) if slot else token).split()
            if sentence and sentence[-1][0] == "a" and words[0][0] in "aeiou":
                sentence[-1] = ("an", "O")
            sentence += [(word, "O") for word in words]
    return sentence


def sentence_of(
    patterns: dict[str, list[str]], own: Names, familiar: Names, share: float, rng: random.Random
) -> Tagged:
    """Return a formal sentence, sometimes of two clauses or as a headline, or a chatty one."""
    if rng.random() < 0.35:
        sentence = fill(rng.choice(patterns["chatty"]), own, familiar, share, rng)
        return [(word.lower(), tag) for word, tag in sentence] if rng.random() < 0.6 else sentence
    sentence = fill(rng.choice(patterns["formal"]), own, familiar, share, rng)
    if rng.random() < 0.2:
        other = fill(rng.choice(patterns["formal"]), own, familiar, share, rng)
        if other[0][1] == "O":
            other[0] = (other[0][0].lower(), "O")
        sentence = [*sentence[:-1], *((word, "O") for word in rng.choice(WORDS["links"]).split()), *other]
    style = rng.random()
    if style < 0.06:
        return [(word.upper(), tag) for word, tag in sentence]
    if style < 0.12:
        return [(word[:1].upper() + word[1:], tag) for word, tag in sentence]
    return [(sentence[0][0][:1].upper() + sentence[0][0][1:], sentence[0][1]), *sentence[1:]]


def main() -> None:
    """Write ``train.conll``, ``dev.conll`` and ``test.conll``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("target", type=Path, help="folder for train.conll, dev.conll and test.conll")
    target = parser.parse_args().target

    rng = random.Random(SEED)  # noqa: S311 - a seed, to draw the same data again
    stems = deal(sorted({stem(rng) for _ in range(2500)}), rng)
    acronyms = deal(sorted({"".join(rng.choices("ABCDEFGKLMNPRSTVW", k=3)) for _ in range(80)}), rng)
    given, words = deal(WORDS["given"], rng), deal(WORDS["product_words"], rng)
    names = {part: Names(stems[part], given[part], words[part], acronyms[part]) for part in SIZES}
    every = {kind: WORDS[kind] for kind in ("formal", "chatty")}
    known = {
        kind: [pattern for i, pattern in enumerate(patterns) if i % OWN_PATTERNS]
        for kind, patterns in every.items()
    }

    target.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    for part, size in SIZES.items():
        patterns, share = (known, 0.0) if part == "train" else (every, FAMILIAR)
        blocks: list[str] = []
        while len(blocks) < size:
            tagged = sentence_of(patterns, names[part], names["train"], share, rng)
            block = "".join(f"{word}\t{tag}\n" for word, tag in tagged)
            if block not in seen:
                seen.add(block)
                blocks.append(block)
        content = "\n".join(blocks)
        (target / f"{part}.conll").write_text(content, encoding="ascii", newline="\n")
        print(f"{part}: {size} sentences, {content.count(chr(9))} words, {content.count('B-')} entities")


if __name__ == "__main__":
    main()

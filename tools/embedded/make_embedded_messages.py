"""Make the embedded English-German message pairs from the wheel of Home Assistant 2026.11.0 (Apache-2.0).

Usage::

    pip download --no-deps --ignore-requires-python --only-binary :all: homeassistant==2026.11.0
    python -m zipfile -e homeassistant-2026.11.0-py3-none-any.whl homeassistant-2026.11.0
    python tools/embedded/make_embedded_messages.py homeassistant-2026.11.0 collapipe_env/data/messages

Every integration of the wheel has a catalogue of messages per language, ``translations/en.json`` and
``translations/de.json``, with the same nested keys. The messages kept are short, free of markup and made of
frequent words, so that a small model can learn them from the training part alone:

1. Messages of ``WORDS`` words without line breaks, markup, addresses, brackets or plural forms, whose German
   differs from the English and has the same placeholders (``{name}``). Of several German versions of a
   message the most frequent one is kept.
2. One of any messages that differ only in placeholders, numbers, case, punctuation or articles.
3. Messages whose English words all occur in ``ENGLISH_FREQUENCY`` messages and whose German words all occur
   in ``GERMAN_FREQUENCY``. German has the lower threshold, since it writes compounds as one word.

A hash of the German text without those differences decides on the split, so messages that say the same in
other English words are in the same part.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WORDS = {"en": (3, 12), "de": (2, 14)}
"""Fewest and most words of a message."""
ENGLISH_FREQUENCY = 7
"""Least number of messages, of those that pass steps 1 and 2, in which every English word occurs."""
GERMAN_FREQUENCY = 2
"""The same for German words."""
SHARES = {"dev": 6, "test": 8}
"""Percentage of the held-out parts; the rest is for training."""

PLACEHOLDER = re.compile(r"\{[^{}]*\}")
UNWANTED = re.compile(r"[<>\[\]()`*_=#|\\/@%{}^~\n]|http|www\.")
WORD = re.compile(r"[^\W\d_]+")
# fmt: off
ARTICLES = frozenset((
    "a", "an", "the", "this", "your", "its", "der", "die", "das", "den", "dem", "des", "ein", "eine",
    "einen", "einem", "einer", "eines", "dein", "deine", "deinen", "deinem", "deiner", "deines",
    "diese", "dieser", "dieses", "diesen", "diesem", "ihr", "ihre", "ihren", "ihrem", "ihrer", "ihres",
))
# fmt: on
"""Words that make no difference between two messages."""


def pairs_of(english: dict[str, Any], german: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the messages that both catalogues have under the same keys."""
    for key in english.keys() & german.keys():
        first, second = english[key], german[key]
        if isinstance(first, dict) and isinstance(second, dict):
            yield from pairs_of(first, second)
        elif isinstance(first, str) and isinstance(second, str):
            yield first.strip(), second.strip()


def is_wanted(english: str, german: str) -> bool:
    """Tell whether a pair passes step 1."""
    placeholders = [Counter(PLACEHOLDER.findall(text)) for text in (english, german)]
    return (
        english != german
        and placeholders[0] == placeholders[1]
        and not any(UNWANTED.search(PLACEHOLDER.sub("", text)) for text in (english, german))
        and not any("," in name for name in placeholders[0])  # {count, plural, ...}
        and all(
            low <= len(text.split()) <= high
            for text, (low, high) in ((english, WORDS["en"]), (german, WORDS["de"]))
        )
    )


def words(text: str) -> list[str]:
    """Return the lower-cased words of a text without its placeholders."""
    return WORD.findall(PLACEHOLDER.sub(" ", text).lower())


def skeleton(text: str) -> str:
    """Return what is left of a text without placeholders, numbers, case, punctuation and articles."""
    return " ".join(word for word in words(text) if word not in ARTICLES)


def main() -> None:
    """Read the catalogues, choose the messages and write ``{train,dev,test}.{en,de}``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", type=Path, help="folder of the unpacked wheel")
    parser.add_argument("target", type=Path, help="folder for the six files")
    arguments = parser.parse_args()

    versions: dict[str, Counter[str]] = {}
    for path in sorted(arguments.source.rglob("translations/en.json")):
        catalogues = [path, path.with_name("de.json")]
        if catalogues[1].is_file():
            for english, german in pairs_of(*(json.loads(p.read_text(encoding="utf-8")) for p in catalogues)):
                if is_wanted(english, german):
                    versions.setdefault(english, Counter())[german] += 1
    if not versions:
        parser.error(f"{arguments.source} has no translations/en.json with a de.json next to it")

    chosen: dict[str, tuple[str, str]] = {}
    for english, germans in sorted(versions.items()):
        german = min(germans, key=lambda text: (-germans[text], text))
        if skeleton(english) and skeleton(german):
            chosen.setdefault(skeleton(english), (english, german))
    frequency = [
        Counter(word for pair in chosen.values() for word in set(words(pair[side]))) for side in (0, 1)
    ]
    pairs = [
        pair
        for pair in chosen.values()
        if all(frequency[0][word] >= ENGLISH_FREQUENCY for word in words(pair[0]))
        and all(frequency[1][word] >= GERMAN_FREQUENCY for word in words(pair[1]))
    ]

    parts: dict[str, list[tuple[str, str]]] = {"train": [], "dev": [], "test": []}
    # In the order of a hash, so that the first lines of a file are a fair sample of it.
    for pair in sorted(pairs, key=lambda pair: hashlib.sha256(pair[0].encode()).digest()):
        percentile = int.from_bytes(hashlib.sha256(skeleton(pair[1]).encode()).digest()[:8]) * 100 >> 64
        dev, test = SHARES["dev"], SHARES["test"]
        parts["dev" if percentile < dev else "test" if percentile < dev + test else "train"].append(pair)

    arguments.target.mkdir(parents=True, exist_ok=True)
    for name, rows in parts.items():
        for side, language in enumerate(("en", "de")):
            text = "".join(pair[side] + "\n" for pair in rows)
            (arguments.target / f"{name}.{language}").write_text(text, encoding="utf-8", newline="\n")
        print(f"{name}: {len(rows)} pairs, {sum(len(pair[0].split()) for pair in rows)} English words")


if __name__ == "__main__":
    main()

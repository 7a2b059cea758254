"""Make the embedded stories for language modelling: always the same, from words and sentences of the project.

Usage::

    python tools/embedded/make_embedded_stories.py collapipe_env/data/stories

A story has an opening, a plot in five steps and an ending. Its people, things and places are drawn once and
recur in every sentence, so later words depend on what was said long before: a language model can learn that,
counts of three tokens cannot. No story occurs twice.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from ruamel.yaml import YAML

WORDS = YAML(typ="safe").load(Path(__file__).with_name("stories.yaml"))
"""People, settings and sentences."""

PARTS = {"train": 700, "dev": 80, "test": 100}
"""Stories of each part."""
PRONOUNS = {"girl": ("she", "her", "her"), "boy": ("he", "his", "him")}


def story(rng: random.Random) -> tuple[str, str]:
    """Draw a story; returns its setting and its text."""
    setting = rng.choice(sorted(WORDS["settings"]))
    words = {name: rng.choice(choices) for name, choices in WORDS["settings"][setting].items()}
    child = rng.choice(sorted(PRONOUNS))
    he, his, him = PRONOUNS[child]
    hero = rng.choice(WORDS["girls"] if child == "girl" else WORDS["boys"])
    friend = rng.choice([name for name in WORDS["girls"] + WORDS["boys"] if name != hero])
    words |= {"child": child, "he": he, "his": his, "him": him, "a": hero, "b": friend}
    words |= {"He": he.capitalize(), "Helper": words["helper"].capitalize()}
    plot = WORDS["plots"][rng.choice(sorted(WORDS["plots"]))]
    sentences = []
    for variants in (WORDS["openings"], *plot, WORDS["endings"]):
        time = rng.choice(WORDS["times"])
        drawn = {
            "few": rng.choice(WORDS["few"]),
            "time_": time.capitalize() + ("," if rng.random() < 0.5 else ""),
        }
        sentences.append(rng.choice(variants).format(**words, **drawn))
    return setting, " ".join(sentences)


def main() -> None:
    """Write one file per part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("target", type=Path, help="folder for train.jsonl, dev.jsonl and test.jsonl")
    target: Path = parser.parse_args().target
    rng, seen = random.Random(2), set()  # noqa: S311 - a seed, to draw the same data again
    target.mkdir(parents=True, exist_ok=True)
    for part, count in PARTS.items():
        rows = []
        while len(rows) < count:
            setting, text = story(rng)
            if text not in seen:
                seen.add(text)
                rows.append(json.dumps({"source": setting, "text": text}) + "\n")
        (target / f"{part}.jsonl").write_text("".join(rows), encoding="ascii")
        print(f"{part}: {count} stories, {sum(map(len, rows)):,} bytes")


if __name__ == "__main__":
    main()

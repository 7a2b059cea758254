"""Data that the package ships: small, licensed, and with parts that share no sample."""

import re
from itertools import combinations
from pathlib import Path

import pytest

import collapipe_env
from collapipe_env.tasks.labelled_texts import load_splits
from collapipe_env.tasks.parallel_text import load_parallel

DATA = Path(collapipe_env.__file__).parent / "data"
SETS = ("reviews", "messages", "entities", "stories")


def skeleton(text):
    """A text without placeholders, numbers, case and punctuation."""
    return " ".join(re.findall(r"[^\W\d_]+", re.sub(r"\{[^}]*\}", " ", text).lower()))


def test_all_of_it_is_small():
    assert sum(file.stat().st_size for file in DATA.rglob("*") if file.is_file()) < 1_750_000


@pytest.mark.parametrize("name", SETS)
def test_every_set_says_whose_it_is(name):
    notice = (DATA / name / "NOTICE").read_text(encoding="utf-8")
    grants = ("Permission is hereby granted, free of charge", "Apache License\n", "The project's own work")
    assert any(grant in notice for grant in grants)
    assert f"`{name}`" in (DATA / "README.md").read_text(encoding="utf-8")


def test_the_whole_apache_licence_goes_with_the_messages():
    notice = (DATA / "messages" / "NOTICE").read_text(encoding="utf-8")
    assert all(f"\n   {number}. " in notice for number in range(1, 10))
    assert "END OF TERMS AND CONDITIONS" in notice
    assert "Copyright The Home Assistant Authors" in notice


def test_reviews():
    parts = load_splits(DATA / "reviews")
    assert [len(part) for part in parts] == [1735, 245, 475]
    assert [part.answers.count("1") for part in parts] == [1068, 153, 293]
    for first, second in combinations(parts, 2):
        # Whole reviews are on one side, so that a few stock phrases at most are on both.
        assert len(set(first.inputs) & set(second.inputs)) <= 12


def test_messages():
    parts = load_parallel(DATA / "messages")
    assert [len(part) for part in parts] == [7225, 471, 652]
    for part in parts:
        assert all(3 <= len(text.split()) <= 12 for text in part.inputs)
        assert all(2 <= len(text.split()) <= 14 for text in part.answers)
        for source, target in zip(part.inputs, part.answers, strict=True):
            assert source != target
            assert sorted(re.findall(r"\{\w+\}", source)) == sorted(re.findall(r"\{\w+\}", target))
    for side in ("inputs", "answers"):
        texts = [[skeleton(text) for text in getattr(part, side)] for part in parts]
        for first, second in combinations(texts, 2):
            assert not set(first) & set(second)
    assert len({skeleton(text) for part in parts for text in part.inputs}) == sum(map(len, parts))


def test_messages_are_made_of_words_that_training_shows():
    train, _, test = load_parallel(DATA / "messages")
    for side, share in (("inputs", 0.99), ("answers", 0.93)):
        known = {word for text in getattr(train, side) for word in skeleton(text).split()}
        words = [word for text in getattr(test, side) for word in skeleton(text).split()]
        assert sum(word in known for word in words) / len(words) > share

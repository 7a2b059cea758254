"""Learned tokenisers: the same in every process, reversible for translations, a token for every text."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from collapipe_env.models.tokenization import (
    CASED,
    END,
    LOWER_CASED,
    PADDING,
    SOURCE,
    TARGET,
    UNKNOWN,
    decode,
    encode,
    train_tokenizer,
)
from collapipe_env.tasks.language_tokens import learn_bytes


def digests():
    """Of tokenisers of all kinds, where more equally frequent characters occur than have tokens."""
    texts = ["".join(chr(0x4E00 + i + j) for j in range(8)) + " line" for i in range(0, 400, 8)]
    made = [train_tokenizer(texts, 300, kind) for kind in (LOWER_CASED, CASED, SOURCE, TARGET)]
    made.append(learn_bytes(texts, 300).tokenizer)
    return [hashlib.sha256(tokenizer.to_str().encode()).hexdigest() for tokenizer in made]


def test_tokens_are_the_same_in_every_process():
    environment = {**os.environ, "PYTHONHASHSEED": "1", "RAYON_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "from test_tokenization import digests; print(digests())"],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parent, env=environment,
    )  # fmt: skip
    assert done.stdout.strip() == str(digests())


def test_the_alphabet_has_the_space_and_does_not_depend_on_the_order_of_letters():
    letters = "abcdefghijklmnopqrstuvwxyz" * 3  # all of them occur more often than the space
    first, second = (train_tokenizer([text], 16).get_vocab() for text in (letters, letters[::-1]))
    assert "▁" in first
    assert first == second


def test_every_text_has_a_token():
    rows = encode(train_tokenizer(["Good film", "good"], 64), ["Good film", "", "good " * 50, "\u20ac"], 12)
    assert rows.shape == (4, 12)
    assert (rows[:, 0] != PADDING).all()
    assert rows[1, 0] == rows[3, 1] == UNKNOWN
    assert (rows[2] != PADDING).all()


def test_long_sentences_are_cut(tmp_path):
    tokenizer = train_tokenizer(["a b c"], 64, SOURCE)
    tokenizer.enable_truncation(6)
    source = encode(tokenizer, ["a b c a b c a b c", "a"], 6)
    assert source[0, -1] == END
    assert (source[0] > 0).all()
    tokenizer = train_tokenizer(["a b c"], 64, TARGET)
    target = encode(tokenizer, ["a b c a b c a b c", "a b c a b", "a b c a b c"], 7)
    assert target.shape == (3, 7)
    assert END not in target[0]  # nobody learns to stop here
    assert target[1, -1] == END
    assert END not in target[2]
    assert decode(tokenizer, target[:, 1:]) == ["a b c a b c", "a b c a b", "a b c a b c"]


TRICKY = (
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "She said: \"It's 3.50 €, isn't it?\" (really!) {url}/path_x - T-Shirt...",
    "iOS & Android;  two   spaces\tand a tab ",
    "Straße STRASSE e\u0301tude",
)


@pytest.mark.parametrize("vocabulary", [150, 400])
def test_texts_survive_the_tokeniser(vocabulary):
    tokenizer = train_tokenizer(TRICKY, vocabulary, TARGET)
    assert tokenizer.get_vocab_size() <= vocabulary
    rows = encode(tokenizer, TRICKY, 201)[:, 1:]
    assert decode(tokenizer, rows) == [
        TRICKY[0], TRICKY[1], "iOS & Android; two spaces and a tab", "Straße STRASSE étude",
    ]  # fmt: skip
    unknown = encode(tokenizer, ["Deich 漢字"], 20)[0].tolist()
    assert unknown.count(1) == 1
    assert decode(tokenizer, np.array([unknown]))[0].startswith("Deich")
    assert decode(tokenizer, np.array([[10**6, 0, 1, 2, END, 7], [END] * 6])) == ["", ""]

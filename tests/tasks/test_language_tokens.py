"""Tokens of language models: exact to the byte, the same in every process; and how documents are packed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.tasks.base import NO_TARGET
from collapipe_env.tasks.language_tokens import BYTES, END, HIDDEN, NAMES, learn_bytes, pack

TEXTS = ["the cat sat on the mat", "the dog sat on the log", "a cat and a dog"] * 3
TOKENS = learn_bytes(TEXTS, 275)

STRANGE = "Größe [PAD] [END] <|endoftext|>\t😀 \u2028x\n\n  y\x00"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=40), min_size=1, max_size=4))
def test_every_text_comes_back_to_the_byte(texts):
    ids = TOKENS.encode(texts)
    for text, one in zip(texts, ids, strict=True):
        assert (one >= len(NAMES)).all()
        assert TOKENS.byte_counts[one].sum() == len(text.encode())
    assert TOKENS.decode(ids) == texts


def test_what_a_text_says_is_never_a_special_token():
    (ids,) = TOKENS.encode([STRANGE])
    assert ids.min() >= len(NAMES)
    assert TOKENS.decode([[END, HIDDEN, 0, *ids, END, 10**6]]) == [STRANGE]


def test_the_vocabulary_is_learned_from_the_texts():
    assert TOKENS.size == 275
    (ids,) = TOKENS.encode(["the cat sat on the mat"])
    assert len(ids) < 12
    few = learn_bytes(TEXTS, len(NAMES) + BYTES)
    assert [len(one) for one in few.encode(["the cat"])] == [7]
    assert few.byte_counts.tolist() == [0] * len(NAMES) + [1] * BYTES
    with pytest.raises(
        ScenarioError, match=r"vocabulary is 258, .*needs a token for every byte; set .* 259 at"
    ):
        learn_bytes(TEXTS, 258)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=20), min_size=1, max_size=8),
    st.integers(1, 9),
    st.sampled_from([END, 0, 77]),
)
def test_every_token_is_the_target_of_one_position(documents, length, end):
    """Every id may be one of text, 0 too, as in a checkpoint."""
    tokens, targets = pack([np.array(one) for one in documents], length, end)
    stream = [end] + [token for one in documents for token in (*one, end)]
    real = targets != NO_TARGET
    assert tokens.shape[1] == length
    assert targets[real].tolist() == stream[1:]
    assert tokens[real].tolist() == stream[:-1]
    assert (tokens[~real] == 0).all()
    # Padding is at the end of the last row only.
    assert real[:-1].all()
    assert real[-1].any()
    assert (np.diff(real[-1].astype(int)) <= 0).all()

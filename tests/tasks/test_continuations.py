"""Greedy and top-p decoding: the smallest set that reaches p, and what was read before each token."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.models.tokenization import PADDING
from collapipe_env.tasks.continuations import ScoresNotFiniteError, continued, drawn, likeliest, nucleus
from collapipe_env.tasks.language_tokens import HIDDEN

UNWRITTEN = (PADDING, HIDDEN)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=12).filter(any),
    st.floats(0.01, 1.0),
)
def test_top_p_keeps_the_smallest_set_that_reaches_p(weights, p):
    probabilities = torch.tensor(weights, dtype=torch.float64)
    probabilities /= probabilities.sum()
    found, turned = nucleus(torch.stack((probabilities, probabilities.flip(0))), p)
    found = found.numpy()
    kept = found > 0
    mass = probabilities.numpy()[kept].sum()
    assert found.sum() == pytest.approx(1.0)
    assert found[kept] == pytest.approx(probabilities.numpy()[kept] / mass)
    assert mass >= p - 1e-12
    # It is the smallest: one token fewer, even the likeliest ones, does not reach p.
    ordered = np.sort(probabilities.numpy())[::-1]
    assert ordered[: kept.sum() - 1].sum() < p + 1e-12
    # And nothing that was left out is likelier than what was kept.
    assert (probabilities.numpy()[~kept] <= probabilities.numpy()[kept].min()).all()
    assert sorted(turned.tolist()) == pytest.approx(sorted(found))  # each row by itself


def test_draws_follow_the_nucleus():
    scores = torch.log(torch.tensor([[0.4, 0.3, 0.2, 0.1]])).repeat(20_000, 1)
    chosen = drawn(0.65, torch.Generator().manual_seed(1))(scores)
    shares = torch.bincount(chosen, minlength=4) / len(chosen)
    assert shares[2:].tolist() == [0.0, 0.0]
    assert shares[0] == pytest.approx(4 / 7, abs=0.015)


def adding(tokens):
    """A model whose next token is the sum of the last three, modulo 10, plus 3; 0 and 1 score higher."""
    scores = torch.zeros(len(tokens), 13)
    scores[torch.arange(len(tokens)), 3 + tokens[:, -3:].sum(dim=1) % 10] = 5.0
    scores[:, :2] = 9.0
    return scores


def test_continuations_read_what_they_wrote():
    prompts = torch.tensor([[4, 5], [11, 12]])
    found = continued(adding, prompts, 5, 3, likeliest, UNWRITTEN)
    for prompt, written in zip(prompts.tolist(), found.tolist(), strict=True):
        text = list(prompt)
        for token in written:
            assert token == 3 + sum(text[-3:]) % 10
            text.append(token)
    assert torch.equal(found, continued(adding, prompts, 5, 3, likeliest, UNWRITTEN))
    again = continued(adding, prompts, 5, 3, drawn(0.5, torch.Generator().manual_seed(0)), UNWRITTEN)
    assert torch.equal(found, again)


def test_no_more_is_read_than_the_window():
    read = []

    def score(tokens):
        read.append(tokens.shape[1])
        return adding(tokens)

    continued(score, torch.tensor([[4, 5, 6]]), 4, 4, likeliest, UNWRITTEN)
    assert read == [3, 4, 4, 4]


def test_ids_that_stand_for_no_text_are_never_written():
    choose = drawn(1.0, torch.Generator().manual_seed(0))
    found = continued(adding, torch.tensor([[4]]), 200, 3, choose, UNWRITTEN)
    assert found.min() > HIDDEN


def test_scores_that_are_no_numbers_are_refused():
    def score(tokens):
        return torch.full((len(tokens), 13), torch.nan)

    for choose in (likeliest, drawn(0.9, torch.Generator().manual_seed(0))):
        with pytest.raises(ScoresNotFiniteError):
            continued(score, torch.tensor([[4]]), 3, 3, choose, UNWRITTEN)

"""Counts of blocks that sum to L: most likely ones, samples and probabilities against enumeration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.counts import every_count, log_chances

from collapipe_env.agents.learned.graph.counts import sample_counts


def drawn(logits, cap, blocks, draws):
    """Most likely counts, samples and the logarithms of their probabilities, of one cluster."""
    devices = len(cap)
    top, samples = np.full((1, devices), -1), np.full((1, len(draws), devices), -1)
    chance = np.full((1, len(draws)), np.nan)
    sample_counts(logits[None], np.asarray(cap)[None], blocks, draws[None], top, samples, chance)
    return top[0], samples[0], chance[0]


@st.composite
def clusters(draw):
    blocks = draw(st.integers(1, 6))
    cap = draw(st.lists(st.integers(0, blocks), min_size=1, max_size=4).filter(lambda c: sum(c) >= blocks))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    logits = draw(st.sampled_from([0.1, 1.0, 4.0])) * rng.standard_normal((len(cap), blocks + 1))
    return logits, cap, blocks, rng


@settings(max_examples=40)
@given(clusters())
def test_everything_agrees_with_enumeration(cluster):
    logits, cap, blocks, rng = cluster
    plans = every_count(cap, blocks)
    chances = log_chances(logits, plans)
    top, samples, chance = drawn(logits, cap, blocks, rng.random((50, len(cap))))
    np.testing.assert_array_equal(top, plans[chances.argmax()])
    known = {tuple(plan): value for plan, value in zip(plans, chances, strict=True)}
    np.testing.assert_allclose(chance, [known[tuple(sample)] for sample in samples], atol=1e-9)


def test_frequencies_are_the_probabilities():
    rng = np.random.default_rng(3)
    logits, cap, blocks, number = 1.5 * rng.standard_normal((3, 6)), [5, 2, 3], 5, 40_000
    plans = every_count(cap, blocks)
    chances = log_chances(logits, plans)
    _, samples, _ = drawn(logits, cap, blocks, rng.random((number, 3)))
    found = (samples[:, None] == plans).all(axis=-1).mean(axis=0)
    deviation = np.sqrt(np.exp(chances) * -np.expm1(chances) / number)
    assert found.sum() == pytest.approx(1.0)
    assert (np.abs(found - np.exp(chances)) <= 4.5 * deviation).all()


@pytest.mark.parametrize("draw", [0.0, np.nextafter(1.0, 0.0)])
def test_draws_at_the_ends_give_possible_counts(draw):
    rng = np.random.default_rng(4)
    for _ in range(50):
        logits, cap = 10.0 * rng.standard_normal((4, 7)), rng.integers(0, 7, 4)
        cap[0] += max(0, 6 - cap.sum())
        _, (sample,), chance = drawn(logits, cap, 6, np.full((1, 4), draw))
        assert sample.sum() == 6
        assert ((sample >= 0) & (sample <= cap)).all()
        assert np.isfinite(chance).all()


@pytest.mark.parametrize(
    ("wanted", "cap", "level", "rest"),
    [
        *(([2, 0, 3, 1], [2, 0, 3, 1], level, 0.0) for level in (1.0, -1e3, -1e8)),
        *(([1] * devices, [1] * devices, -500.0, 0.0) for devices in (16, 24, 60)),
        ([1, 3, 0], [4, 4, 4], 0.0, -1e4),
    ],
)
@pytest.mark.parametrize("number", [0, 200])
def test_the_only_possible_counts_are_met_however_disliked_and_very_unlikely_ones_are_not(
    wanted, cap, level, rest, number
):
    blocks, devices = sum(wanted), len(cap)
    logits = np.full((devices, blocks + 1), rest)
    logits[np.arange(devices), wanted] = level
    top, samples, chance = drawn(logits, cap, blocks, np.random.default_rng(1).random((number, devices)))
    np.testing.assert_array_equal(top, wanted)
    np.testing.assert_array_equal(samples, np.broadcast_to(wanted, (number, devices)))
    np.testing.assert_allclose(chance, 0.0, atol=1e-9)

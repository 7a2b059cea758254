"""The numbers that everything is drawn from: their law, and that rows do not depend on each other."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.splitmix import MASK, splitmix
from scipy.stats import kstest

from collapipe_env.ground.backends import NUMPY
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.simulator.randomness import COMPONENTS, SeededGenerators, episode_seeds, normal


def uniform(seeds, rounds, count, factors=1):
    """Numbers of rows with these seeds, all in the same round or each in its own."""
    rounds = np.broadcast_to(np.asarray(rounds, dtype=np.int64), len(seeds)).copy()
    return NUMPY.uniform(np.array(seeds, dtype=np.uint64), rounds, count, factors)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, MASK), count=st.integers(1, 9), rounds=st.integers(0, 5))
def test_numbers_are_those_of_the_published_function(seed, count, rounds):
    words = [splitmix(seed + rounds * count + i & MASK) for i in range(count)]
    expected = [((word >> 12) + 0.5) / 2**52 for word in words]
    np.testing.assert_array_equal(uniform([seed], rounds, count)[0], expected)


def test_splitmix_is_the_one_that_others_have():
    # The first outputs for seed 1234567 in the reference implementation by Vigna.
    outputs = [splitmix((1234567 * pow(0x9E3779B97F4A7C15, -1, 2**64) + i) & MASK) for i in range(1, 4)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_numbers_are_uniform_and_independent():
    numbers = np.stack([uniform([3, 4, 5], t, 1000) for t in range(20)])  # rounds, rows, numbers
    assert kstest(numbers.ravel(), "uniform").pvalue > 0.001
    for axis in range(3):
        x = np.moveaxis(numbers, axis, 0) - 0.5
        assert abs((x[1:] * x[:-1]).mean() * 12.0) < 5.0 / np.sqrt(x[1:].size)


def test_products_are_those_of_the_numbers_and_erlang():
    count, factors = 4000, 4
    products = uniform([7], 2, count, factors)[0]
    expected = uniform([7], 2, count)[0].reshape(factors, -1).prod(axis=0)
    np.testing.assert_allclose(products, expected, rtol=1e-14)
    assert kstest(-np.log(products), "gamma", args=(factors,)).pvalue > 0.001


def test_normal_numbers():
    numbers = normal(uniform([11], 0, 20_000))[0]
    assert kstest(numbers, "norm").pvalue > 0.001
    pairs = numbers.reshape(-1, 2)
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 5.0 / np.sqrt(len(pairs))
    assert abs(np.corrcoef((pairs**2).T)[0, 1]) < 5.0 / np.sqrt(len(pairs))


def test_a_row_does_not_depend_on_the_others():
    for factors in (1, 2):
        together = uniform([1, 2, 3], [5, 1, 0], 6, factors)
        for row, (seed, rounds) in enumerate(((1, 5), (2, 1), (3, 0))):
            np.testing.assert_array_equal(together[row], uniform([seed], rounds, 6, factors)[0])


def test_seeds_come_from_the_children_of_each_row():
    parents = [np.random.default_rng(i) for i in range(3)]
    first = episode_seeds(np.array([0, 2]), parents, ())
    assert tuple(first) == COMPONENTS
    children = [np.random.SeedSequence(i).spawn(1)[0] for i in (0, 2)]
    expected = np.array([child.generate_state(len(COMPONENTS), np.uint64) for child in children])
    np.testing.assert_array_equal(np.stack(list(first.values()), axis=-1), expected)
    later = episode_seeds(np.array([0, 1, 2]), parents, ())
    words = np.concatenate([*first.values(), *later.values()])
    assert len(np.unique(words)) == 5 * len(COMPONENTS)
    # Numbers that somebody draws from a row's own generator change nothing.
    fresh = np.random.default_rng(0)
    fresh.random(100)
    again = episode_seeds(np.array([0]), [fresh], ())
    assert all(again[name][0] == first[name][0] for name in COMPONENTS)


def test_other_components_have_seeds_by_their_names():
    def seeds(*others):
        return episode_seeds(np.arange(2), [np.random.default_rng(i) for i in range(2)], others)

    alone, together = seeds("storms"), seeds("load", "storms/known", "fading", "storms", "tides")
    assert set(together) == {*COMPONENTS, "storms", "storms/known", "tides"}
    # Neither the shipped components nor the others depend on which others there are, or in what order.
    for name, expected in (seeds() | alone).items():
        np.testing.assert_array_equal(together[name], expected)
    word = int.from_bytes(hashlib.sha256(b"storms").digest()[:8], "little")
    for row in range(2):
        child = np.random.SeedSequence(row).spawn(1)[0]
        last = int(child.generate_state(len(COMPONENTS) + 1, np.uint64)[-1])
        assert int(alone["storms"][row]) == (last + word) & MASK
    assert len(np.unique(np.concatenate(list(together.values())))) == 2 * (len(COMPONENTS) + 3)


def test_a_generator_without_a_seed_sequence_is_refused():
    class Bits:
        seed_seq = None

    class Fake:
        bit_generator = Bits()

    with pytest.raises(ScenarioError, match=r"environment 0 has no seed sequence.*default_rng"):
        episode_seeds(np.array([0]), [Fake()], ())


def test_generators_are_made_once_for_the_rows_that_have_a_seed():
    everyone = [np.random.default_rng(i) for i in range(3)]
    made = SeededGenerators(everyone, np.array([0, 2]), np.array([5, 6], dtype=np.uint64))
    assert len(made) == len(list(made)) == 3
    assert made[1] is everyone[1]
    assert made[2] is made[-1] is made[1:][1]
    assert made[2].random(3).tolist() == np.random.default_rng(6).random(3).tolist()
    with pytest.raises(IndexError):
        made[3]

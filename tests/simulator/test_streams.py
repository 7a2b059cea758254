"""The numbers that everything is drawn from: their law, and that rows do not depend on each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from collapipe_env.errors import ScenarioError
from collapipe_env.simulator.streams import SeededGenerators, Stream, episode_seeds, normal

MASK = 2**64 - 1


def splitmix(word):
    """The published function, in Python's own integers."""
    z = word * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def stream(numbers, *seeds):
    made = Stream(len(seeds), numbers)
    made.reset(np.arange(len(seeds)), np.array(seeds, dtype=np.uint64))
    return made


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, MASK), numbers=st.integers(1, 9), rounds=st.integers(0, 5))
def test_numbers_are_those_of_the_published_function(seed, numbers, rounds):
    made = stream(numbers, seed)
    for _ in range(rounds):
        made.next_round()
    words = [splitmix(seed + rounds * numbers + i & MASK) for i in range(numbers)]
    expected = [((word >> 12) + 0.5) / 2**52 for word in words]
    np.testing.assert_array_equal(made.uniform()[0], expected)


def test_splitmix_is_the_one_that_others_have():
    # The first outputs for seed 1234567 in the reference implementation by Vigna.
    outputs = [splitmix((1234567 * pow(0x9E3779B97F4A7C15, -1, 2**64) + i) & MASK) for i in range(1, 4)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_numbers_are_uniform_and_independent():
    made = stream(1000, 3, 4, 5)
    rounds = []
    for _ in range(20):
        rounds.append(made.uniform())
        made.next_round()
    numbers = np.stack(rounds)  # rounds, rows, numbers
    assert kstest(numbers.ravel(), "uniform").pvalue > 0.001
    for axis in range(3):
        x = np.moveaxis(numbers, axis, 0) - 0.5
        assert abs((x[1:] * x[:-1]).mean() * 12.0) < 5.0 / np.sqrt(x[1:].size)


def test_products_are_erlang():
    total = -np.log(stream(4000, 7).uniform(factors=4)[0])
    assert kstest(total, "gamma", args=(4,)).pvalue > 0.001


def test_normal_numbers():
    numbers = normal(stream(20_000, 11).uniform())[0]
    assert kstest(numbers, "norm").pvalue > 0.001
    pairs = numbers.reshape(-1, 2)
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 5.0 / np.sqrt(len(pairs))
    assert abs(np.corrcoef((pairs**2).T)[0, 1]) < 5.0 / np.sqrt(len(pairs))


def test_a_row_does_not_depend_on_the_others():
    together, alone = stream(6, 1, 2, 3), stream(6, 2)
    for made in (together, alone):
        made.next_round()
    np.testing.assert_array_equal(together.uniform()[1], alone.uniform()[0])
    together.reset(np.array([0, 2]), np.array([8, 9], dtype=np.uint64))
    for made in (together, alone):
        made.next_round()
    np.testing.assert_array_equal(together.uniform(np.array([1]))[0], alone.uniform()[0])
    np.testing.assert_array_equal(together.uniform()[0], stream_after(6, 8, 1))


def stream_after(numbers, seed, rounds):
    made = stream(numbers, seed)
    for _ in range(rounds):
        made.next_round()
    return made.uniform()[0]


def test_seeds_come_from_the_children_of_each_row():
    parents = [np.random.default_rng(i) for i in range(3)]
    first = episode_seeds(np.array([0, 2]), parents, 4)
    expected = [np.random.SeedSequence(i).spawn(1)[0].generate_state(4, np.uint64) for i in (0, 2)]
    np.testing.assert_array_equal(first, expected)
    later = episode_seeds(np.array([0, 1, 2]), parents, 4)
    assert len(np.unique(np.concatenate((first, later)))) == 20
    # Numbers that somebody draws from a row's own generator change nothing.
    fresh = np.random.default_rng(0)
    fresh.random(100)
    np.testing.assert_array_equal(episode_seeds(np.array([0]), [fresh], 4)[0], first[0])


def test_a_generator_without_a_seed_sequence_is_refused():
    class Bits:
        seed_seq = None

    class Fake:
        bit_generator = Bits()

    with pytest.raises(ScenarioError, match=r"environment 0 has no seed sequence.*default_rng"):
        episode_seeds(np.array([0]), [Fake()], 4)


def test_generators_are_made_once_for_the_rows_that_have_a_seed():
    everyone = [np.random.default_rng(i) for i in range(3)]
    made = SeededGenerators(everyone, np.array([0, 2]), np.array([5, 6], dtype=np.uint64))
    assert len(made) == len(list(made)) == 3
    assert made[1] is everyone[1]
    assert made[2] is made[-1] is made[1:][1]
    assert made[2].random(3).tolist() == np.random.default_rng(6).random(3).tolist()
    with pytest.raises(IndexError):
        made[3]

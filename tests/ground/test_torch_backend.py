"""Numbers drawn on tensors: those of the NumPy simulator, which depend on a row's seed and round alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.splitmix import MASK, splitmix

from collapipe_env.ground.backends import NUMPY
from collapipe_env.ground.backends.torch_backend import TorchBackend, numbers
from collapipe_env.kernels.arrivals import arrivals
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.arrivals import TensorArrivals
from collapipe_env.simulator.randomness import normal

E = 5
EXACT = {"rtol": 1e-12, "atol": 1e-15}


@settings(max_examples=50, deadline=None)
@given(words=st.lists(st.integers(0, MASK), min_size=1, max_size=20))
def test_numbers_are_those_of_the_published_function(words):
    found = numbers(torch.from_numpy(np.array(words, dtype=np.uint64).view(np.int64)))
    assert found.tolist() == [((splitmix(word) >> 12) + 0.5) / 2**52 for word in words]


@settings(max_examples=30, deadline=None)
@given(
    seeds=st.lists(st.integers(0, MASK), min_size=1, max_size=4),
    shape=st.tuples(st.integers(1, 9), st.integers(1, 3)),
    data=st.data(),
)
def test_uniform_numbers_have_the_same_bits(seeds, shape, data):
    words = np.array(seeds, dtype=np.uint64)
    rounds = np.array([data.draw(st.integers(0, 1000)) for _ in seeds])
    columns, factors = shape
    expected = NUMPY.uniform(words, rounds, columns, 1)
    for dtype in ("float64", "float32"):
        place = TorchBackend("cpu", dtype)
        on_tensors = place.array(words), place.array(rounds)
        assert (place.host(on_tensors[0]).view(np.uint64) == words).all()
        found = place.uniform(*on_tensors, columns)
        assert found.dtype == torch.float64
        np.testing.assert_array_equal(found, expected)
        # Products are of the same numbers, in an order of their own.
        products = place.uniform(*on_tensors, columns * factors, factors)
        assert products.shape == (len(seeds), columns)
        whole = NUMPY.uniform(words, rounds, columns * factors, factors)
        np.testing.assert_allclose(products, whole, rtol=1e-14)
    if columns % 2 == 0:
        np.testing.assert_allclose(normal(found), normal(expected), rtol=1e-12, atol=1e-14)


WORDS = np.random.SeedSequence(7).generate_state(E, np.uint64)


@pytest.mark.parametrize("steps", [1, 3])
def test_arrivals(steps):
    scenario = load_scenario({"base": "small", "workload": {"local_steps": steps}})
    choices = scenario.workload.micro_batch_choices
    place = TorchBackend()
    tensors = TensorArrivals(steps, choices[-1], place)
    rng = np.random.default_rng(0)
    shape = (E, scenario.clusters)
    # Certain, nearly certain and any outcomes.
    edges = [np.full(shape, p) for p in (0.0, 1e-9, 0.5, 1.0 - 1e-9, 1.0)]
    for t, survival in enumerate(
        [*edges, *rng.random((40, *shape)), *(1.0 - 0.01 * rng.random((20, *shape)))]
    ):
        given = WORDS, np.full(E, t), survival, rng.choice(choices, shape)
        found = tensors.draw(*map(place.array, given))
        words, rounds, *others = given
        expected, _ = arrivals(words, rounds.astype(np.uint64), *others, steps)
        assert found.dtype == torch.float64
        np.testing.assert_array_equal(found, expected)


def test_everything_arrives_where_links_do_not_drop():
    place = TorchBackend("cpu", "float32")
    M, survival = place.array(np.array([[4, 8]] * E)), place.array(np.ones((E, 2)))
    rounds = place.array(np.zeros(E, dtype=np.int64))
    arrived = TensorArrivals(2, 8, place).draw(place.array(WORDS), rounds, survival, M)
    assert arrived.dtype == torch.float32
    assert arrived.tolist() == [[[4.0, 4.0], [8.0, 8.0]]] * E

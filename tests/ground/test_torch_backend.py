"""Numbers drawn on tensors: those of the NumPy simulator, which depend on a row's seed and round alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.dynamics.fading import Fading
from collapipe_env.dynamics.load import Load
from collapipe_env.dynamics.shadowing import Shadowing
from collapipe_env.ground.backends import NUMPY
from collapipe_env.ground.backends.torch_backend import TorchBackend, numbers
from collapipe_env.kernels.arrivals import arrivals
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.arrivals import TensorArrivals
from collapipe_env.simulator.randomness import normal
from collapipe_env.simulator.system import laid_out

E = 5
MASK = 2**64 - 1
EXACT = {"rtol": 1e-12, "atol": 1e-15}


def splitmix(word):
    """The published function, in Python's own integers."""
    z = word * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


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


def course(process, backend, rounds):
    """System of the layout under a process in each round, from the first, and what it carries."""
    words = backend.array(WORDS)

    def drawn(t):
        rounds = backend.array(np.full(E, t))
        return backend.uniform(words, rounds, process.numbers, process.factors)

    system = laid_out(process.scenario, WORDS, backend)
    carried = process.begin(system, drawn(0))
    for t in range(1, rounds + 1):
        yield process.apply(system, carried), carried
        if process.defines("advance"):
            carried = process.advance(carried, None, None, drawn(t), None)


def assert_same_course(process, dtype, rounds):
    """Play a process on both backends."""
    tolerance = EXACT if dtype == "float64" else {"rtol": 2e-6, "atol": 1e-30}
    place = TorchBackend("cpu", dtype)
    pairs = zip(course(process, NUMPY, rounds), course(process, place, rounds), strict=True)
    for (system, carried), (on_tensors, kept) in pairs:
        assert set(carried) == set(kept)
        for name, expected in (system._asdict() | dict(carried)).items():
            found = kept[name] if name in kept else getattr(on_tensors, name)
            if expected is None:
                assert found is None
                continue
            if expected.dtype == np.float64:
                np.testing.assert_allclose(found, expected, err_msg=name, **tolerance)
            else:
                np.testing.assert_array_equal(found, expected, err_msg=name)
        reals = [a for a in on_tensors if a is not None and a.is_floating_point()]
        assert {a.dtype for a in reals} == {getattr(torch, dtype)}
        assert on_tensors.present.dtype == torch.bool


def fading(diversity, rho):
    radio = {"diversity": diversity, "fading_correlation": rho}
    return Fading(load_scenario({"base": "small", "radio": radio}))


def loads(levels, stay):
    dynamics = {"load_levels": levels, "load_stay_probability": stay}
    return Load(load_scenario({"base": "small", "dynamics": dynamics}))


def shadowing(layout, devices):
    radio = {"d2e_shadowing_db": 8.0, "d2d_shadowing_db": 4.0}
    cluster = {"layout": layout, "devices": devices}
    return Shadowing.of(load_scenario({"base": "small", "radio": radio, "cluster": cluster}))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "process",
    [
        *(fading(m, rho) for m in (1, 4, 17) for rho in (0.0, 0.7)),
        *(loads(levels, stay) for levels in ([0.5], [0.4, 0.6, 0.8, 1.0]) for stay in (0.0, 0.6, 1.0)),
        *(shadowing("per_episode", devices) for devices in ([3, 2], [2, 2])),
        shadowing("fixed", [3, 2]),
    ],
    ids=lambda process: process.name,
)
def test_processes_of_every_scenario_are_those_in_numpy(process, dtype):
    assert_same_course(process, dtype, 6)


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

"""Numbers drawn on tensors: those of the NumPy simulator, which depend on a row's seed and round alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_support import NAMES, ROUNDS, make_torch, random_actions, trajectory

from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.arrivals import MicroBatchLosses
from collapipe_env.simulator.channels import Fading, LoadChain
from collapipe_env.simulator.simulator import COMPONENTS
from collapipe_env.simulator.streams import Stream, episode_seeds
from collapipe_env.simulator.streams import normal as numpy_normal
from collapipe_env.torch_backend.draws import Draws
from collapipe_env.torch_backend.placement import Placement
from collapipe_env.torch_backend.rows import Rows
from collapipe_env.torch_backend.streams import normal, numbers, uniform

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
@given(seeds=st.lists(st.integers(0, MASK), min_size=1, max_size=4), pairs=st.integers(1, 9), data=st.data())
def test_rounds_of_a_stream(seeds, pairs, data):
    words = np.array(seeds, dtype=np.uint64)
    rounds = np.array([data.draw(st.integers(0, 1000)) for _ in seeds])
    stream = Stream(len(seeds), 2 * pairs)
    stream.reset(np.arange(len(seeds)), words)
    stream.rounds += rounds.astype(np.uint64)
    found = uniform(torch.from_numpy(words.view(np.int64)), torch.from_numpy(rounds), 2 * pairs)
    np.testing.assert_array_equal(found, stream.uniform())
    np.testing.assert_allclose(normal(found), numpy_normal(stream.uniform()), rtol=1e-12, atol=1e-14)


def make_draws(dtype="float64", **sections):
    """Draws of ``small`` that have begun their episodes, and the seeds of its components."""
    scenario = load_scenario({"base": "small", **sections})
    draws = Draws(scenario, E, Placement.of("cpu", dtype))
    draws.seed(7, None)
    rngs = [np.random.default_rng(7 + row) for row in range(E)]
    seeds = episode_seeds(np.arange(E), rngs, COMPONENTS)
    start = draws.start(Rows(np.ones(E, dtype=bool), torch.device("cpu")))
    return scenario, draws, start, seeds.T


def after(rounds):
    return torch.full((E,), rounds)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("rho", [0.0, 0.7])
@pytest.mark.parametrize("m", [1, 4, 17])
def test_fading(m, rho, dtype):
    _, draws, start, seeds = make_draws(dtype, radio={"diversity": m, "fading_correlation": rho})
    fading = Fading(E, start.fading.shape[1], m, rho)
    tolerance = EXACT if dtype == "float64" else {"rtol": 1e-6}
    np.testing.assert_allclose(start.fading, fading.reset(np.arange(E), seeds[2]), **tolerance)
    for t in range(1, 4):
        found = draws.fading(after(t))
        assert found.dtype == getattr(torch, dtype)
        np.testing.assert_allclose(found, fading.advance(), **tolerance)


@pytest.mark.parametrize("levels", [[0.5], [0.3, 0.6], [0.4, 0.6, 0.8, 1.0]], ids=len)
@pytest.mark.parametrize("stay", [0.0, 0.6, 1.0])
def test_loads(levels, stay):
    dynamics = {"load_levels": levels, "load_stay_probability": stay}
    scenario, draws, start, seeds = make_draws(dynamics=dynamics)
    load = LoadChain(E, (scenario.clusters, scenario.max_devices), tuple(levels), stay)
    np.testing.assert_array_equal(start.load, load.reset(np.arange(E), seeds[3]))
    for t in range(1, 6):
        found = draws.load(after(t))
        if len(levels) == 1:
            assert found is None
        else:
            np.testing.assert_array_equal(found, load.advance())


@pytest.mark.parametrize("steps", [1, 3])
def test_arrivals(steps):
    scenario, draws, _, seeds = make_draws(workload={"local_steps": steps})
    choices = scenario.workload.micro_batch_choices
    losses = MicroBatchLosses(E, scenario.clusters, steps, choices[-1], lossy=True)
    losses.reset(np.arange(E), seeds[4])
    rng = np.random.default_rng(0)
    shape = (E, scenario.clusters)
    # Certain, nearly certain and any outcomes.
    edges = [np.full(shape, p) for p in (0.0, 1e-9, 0.5, 1.0 - 1e-9, 1.0)]
    for t, survival in enumerate(
        [*edges, *rng.random((40, *shape)), *(1.0 - 0.01 * rng.random((20, *shape)))]
    ):
        micro_batches = rng.choice(choices, shape)
        expected = losses.draw(survival, micro_batches).counts
        losses.next_round()
        found = draws.arrived(torch.from_numpy(survival), torch.from_numpy(micro_batches), after(t))
        assert found.dtype == torch.float64
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", ["arq", "none"])
def test_everything_arrives_where_links_do_not_drop(mode):
    _, draws, _, _ = make_draws(radio={"link_errors": mode})
    survival = torch.zeros((E, 2), dtype=torch.float64)
    arrived = draws.arrived(survival, torch.tensor([[4, 8]] * E), after(0))
    assert arrived.squeeze(-1).tolist() == [[4.0, 8.0]] * E


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_trajectory(name):
    one, two = make_torch(name), make_torch(name)
    actions = random_actions(one, 2 * (ROUNDS + 1))
    first, again = trajectory(one, actions, seed=5), trajectory(two, actions, seed=5)
    assert all(map(torch.equal, first, again))
    # The same environment, too, whatever it did before; and seeds may be listed.
    assert all(map(torch.equal, first, trajectory(one, actions, seed=[5, 6, 7])))
    for other in (trajectory(two, actions, seed=8), trajectory(two, actions)):
        assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_row_depends_on_its_own_seed_alone(mode):
    together, alone = make_torch("moving", autoreset_mode=mode), make_torch("moving", 1, autoreset_mode=mode)
    actions = random_actions(together, 2 * (ROUNDS + 1))
    pairs = zip(
        trajectory(together, actions, seed=5), trajectory(alone, actions[:, 1:2], seed=6), strict=True
    )
    for expected, found in pairs:
        torch.testing.assert_close(found, expected[1:2], rtol=1e-9, atol=1e-6)


def test_rows_and_episodes_differ():
    env = make_torch("moving", 4)
    observation = env.reset(seed=0)[0]
    following = env.reset()[0]
    rows = torch.cat((observation, following))
    assert len(torch.unique(rows, dim=0)) == 8


def test_channels_and_loads_do_not_depend_on_actions():
    one, two = make_torch("moving"), make_torch("moving")
    for env in (one, two):
        env.reset(seed=1)
    for a, b in zip(random_actions(one, ROUNDS), random_actions(two, ROUNDS, seed=1), strict=True):
        one.step(a)
        two.step(b)
        for name in ("uplink_gain", "d2d_gain", "speed"):
            assert torch.equal(getattr(one.state, name), getattr(two.state, name))
    assert not torch.equal(one.state.backlog, two.state.backlog)


def test_rows_that_go_on_keep_their_own():
    env = make_torch("moving", 3)
    env.reset(seed=1)
    env.step(random_actions(env, 1)[0])
    before = env.state
    env.reset(options={"reset_mask": np.array([False, True, False])})
    for name, old in vars(before).items():
        new = getattr(env.state, name)
        assert torch.equal(old[[0, 2]], new[[0, 2]]), name
    assert not torch.equal(before.uplink_gain[1], env.state.uplink_gain[1])
    assert env.state.round_index.tolist() == [1, 0, 1]

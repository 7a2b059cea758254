"""Compiled loops give what the general forms of the same functions give."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.envs.observation import FlatObserver
from collapipe_env.ground.errors import AllocationError
from collapipe_env.learners.surrogate import SurrogateLearner
from collapipe_env.learners.surrogate_fits import fit_for
from collapipe_env.learners.surrogate_progress import SurrogateOutcome, progress
from collapipe_env.physics.loss_curve import loss_at
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.codec import ActionCodec
from collapipe_env.simulator.learner import Arrivals, RoundOutcome
from collapipe_env.simulator.world import World

SEEDS = st.integers(0, 2**32 - 1)
PARAMETERS = system_parameters(load_scenario("small"))


@settings(max_examples=60, deadline=None)
@given(
    seed=SEEDS,
    clusters=st.integers(1, 3),
    devices=st.integers(1, 8),
    blocks=st.integers(1, 20),
    levels=st.sampled_from([None, 2, 5]),
)
def test_decoding(seed, clusters, devices, blocks, levels):
    rng = np.random.default_rng(seed)
    costs = replace(PARAMETERS.costs, blocks=blocks)
    codec = ActionCodec(replace(PARAMETERS, clusters=clusters, costs=costs), devices)
    action = rng.uniform(-1.3, 1.3, (4, codec.action_size))
    if levels is not None:  # many ties, and devices without a preference
        action = np.round(action * (levels - 1)) / (levels - 1)
    caps = rng.integers(0, blocks + 1, (4, clusters, devices))
    caps[..., -1] += np.maximum(blocks - caps.sum(axis=-1), 0)
    found, expected = codec.decode(action, caps), codec.decode_finite(action, caps)
    np.testing.assert_array_equal(found.blocks, expected.blocks)
    np.testing.assert_array_equal(found.micro_batches, expected.micro_batches)
    for name in ("bandwidth", "device_power", "cu_power"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-13)
    assert found.device_power.min() >= 0.001
    assert found.device_power.max() <= 0.1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_decoding_names_the_place_of_a_bad_number(bad):
    codec = ActionCodec(PARAMETERS, 4)
    action = np.zeros((4, codec.action_size))
    action[2, 11] = bad
    with pytest.raises(AllocationError, match=r"action\[2, 11\] is"):
        codec.decode(action, np.full((4, PARAMETERS.clusters, 4), 6))


@pytest.mark.parametrize("size", ["small", "medium"])
def test_observations(size):
    scenario = load_scenario({"base": size, "dynamics": {"load_levels": [0.5, 1.0]}})
    simulator = World(scenario, SurrogateLearner.from_scenario(scenario, 3), 3)
    simulator.reset([np.random.default_rng(i) for i in range(3)])
    observer = FlatObserver(scenario)
    rng = np.random.default_rng(0)
    state = simulator.state.map(np.copy)
    state.backlog[:] = rng.uniform(0.0, 2.0, state.backlog.shape) * scenario.budgets.backlog_cap
    state.present[:, 0, 1] = False
    state.d2d_gain[0, 0] *= 1e-6  # beyond the bound
    state.round_index[:] = (0, 50, 1000)
    state.loss[:] = (0.0, 1.0, 100.0)
    found, expected = observer.build(state), observer.build_generic(state)
    assert found.dtype == expected.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=2e-6)
    assert observer.space().contains(found[0])


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, heterogeneity=st.sampled_from([0.0, 0.3]))
def test_the_surrogate(seed, heterogeneity):
    rng = np.random.default_rng(seed)
    constants = fit_for(load_scenario("medium")).constants
    learner = SurrogateLearner(constants, 5, 64, heterogeneity)
    learner.reset([rng] * 5)
    reached = np.zeros(5)
    for _ in range(3):
        M = rng.choice([1, 4, 64], (5, 4))
        survived = rng.random((5, 4, 2, 64)) < rng.random()
        outcome = RoundOutcome(np.ones((5, 4, 1), int), M, Arrivals.of(survived, M), rng.random((5, 4)))
        reached = reached + progress(constants, SurrogateOutcome.of(outcome, 64), heterogeneity)
        report = learner.train_round(outcome)
        np.testing.assert_allclose(report.loss, loss_at(constants, reached), rtol=1e-12)

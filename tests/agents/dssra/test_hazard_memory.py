"""Hazards estimated from stays, against the classes that nobody sees."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from oracles.splits import splits

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.dssra.hazard_memory import HazardMemory
from collapipe_env.agents.dssra.plus import DSSRAPlus
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import usual_round


def scenario_of(factors, on=300.0, workload=None, **fields):
    spec = {"on_mean_s": on, "off_mean_s": 60.0, "hazard_factors": factors, **fields}
    return load_scenario(
        {
            "base": "small",
            "workload": workload or {},
            "budgets": {"device_energy_j": 60},
            "dynamics": {"rounds": 200, "processes": {"presence": spec}},
        }
    )


def spec_of(scenario):
    return dict(scenario.dynamics.processes)["presence"]


def played(scenario, rounds, rows=28):
    env = CollaPipeVectorEnv(rows, scenario, "surrogate")
    env.reset(seed=0)
    memory = HazardMemory(spec_of(scenario))
    for _ in range(rounds):
        found = memory.update(env.state)
        env.step(np.zeros((rows, env.single_action_space.shape[0]), np.float32))
    factor = env._mdp.world.system.carried["presence"]["factor"]
    return env, memory, found, factor


def test_estimates_are_the_mean_hazard_of_those_who_look_alike():
    """A posterior mean is calibrated: among devices with like estimates the true mean is the estimate."""
    _, _, found, factor = played(scenario_of([0.2, 1.0, 5.0]), 70)
    true = factor / 300.0
    assert np.corrcoef(found.ravel(), true.ravel())[0, 1] > 0.7
    order = np.argsort(found.ravel())
    # Episodes begin in the stationary law, which favours calm devices a little: hence the slack.
    for part in np.array_split(order, 3):
        assert true.ravel()[part].mean() == pytest.approx(found.ravel()[part].mean(), rel=0.35)


def test_ends_and_seconds_are_counted_by_hand():
    scenario, returned = scenario_of([0.5, 2.0], off_mean_s=5.0), 0
    env = CollaPipeVectorEnv(1, scenario, "surrogate")
    env.reset(seed=3)
    memory, h = HazardMemory(spec_of(scenario)), np.array([0.5, 2.0]) / 300.0
    before = None
    N, K = env.state.present.shape[1:]
    ends, seconds = np.zeros((N, K)), np.zeros((N, K))
    for _ in range(60):
        state = env.state
        since = state.processes["presence"]["since_s"][0]
        here = state.present[0]
        if before is not None:
            gone = before[0] & (~here | (since < before[1]))
            ends += gone
            returned += (gone & here).sum()
            seconds += np.where(gone, before[1], 0.0)
        before = here.copy(), since.copy()
        weight = h ** ends[..., None] * np.exp(-h * (seconds + np.where(here, since, 0.0))[..., None])
        expected = (weight * h).sum(-1) / weight.sum(-1)
        np.testing.assert_allclose(memory.update(state)[0], expected, rtol=1e-9)
        np.testing.assert_allclose(memory.update(state)[0], expected, rtol=1e-9)
        env.step(np.zeros((1, env.single_action_space.shape[0]), np.float32))
    assert ends.sum() > returned > 0
    # A new episode knows nothing again.
    env.reset(seed=4)
    np.testing.assert_allclose(memory.update(env.state), h.mean())


def with_failures(price, factors=(0.2, 5.0), **fields):
    fields = {"off_mean_s": 30.0, **fields}
    scenario = scenario_of(list(factors), 60.0, {"blocks": 4, "batch_size": 8}, **fields)
    return scenario, DSSRAPlus(scenario, failure_price=price, threads=1)


def test_prices_are_the_probability_to_fail_in_the_round():
    scenario, policy = with_failures(7.0, [1.0], graceful=0.25)
    env = CollaPipeVectorEnv(2, scenario, "surrogate")
    env.reset(seed=0)
    seen = policy._risk.added(env.state)
    p = 1.0 - math.exp(-0.75 * usual_round(scenario) / 60.0)
    np.testing.assert_allclose(policy.use_price(seen), policy.tradeoff_v * 7.0 * p)
    assert policy.use_price(env.state) is None


@pytest.mark.parametrize("price", [2.0, 50.0])
def test_priced_plans_are_the_best_of_all_segments(price):
    """Against every split of the blocks at the plan's own powers, shares and micro-batches.

    Hops at the ceiling of their rate would leave falls that only moving two blocks at once finds, up to 2 %.
    """
    free = with_failures(price)[0].with_overrides({"radio.rate_ceiling": None})
    scenario, policy = free, DSSRAPlus(free, failure_price=price, threads=1)
    env = CollaPipeVectorEnv(6, scenario, "surrogate")
    env.reset(seed=1)
    steady = DSSRA(scenario, threads=1)
    fewer = checked = 0
    for _ in range(6):
        state, plan = policy._risk.added(env.state), policy.allocate(env.state)
        value = policy.objective(state, plan)
        for n, split in itertools.product(range(2), np.array(splits(4, [4] * 3))):
            # Powers of devices that the plan leaves idle are not those that they would have.
            known = (split <= state.memory_cap[:, n]) & ((plan.blocks[:, n] > 0) | (split == 0))
            other, rows = plan.blocks.copy(), known.all(axis=-1) & (plan.plays[:, n])
            other[rows, n] = split
            found = policy.objective(state, dataclasses.replace(plan, blocks=other))
            assert (value <= found * (1.0 + 1e-6))[rows].all()
            checked += rows.sum()
        fewer += (plan.blocks > 0).sum() - (steady.act(None, env.state).blocks > 0).sum()
        env.step_allocation(plan)
    assert checked > 50
    assert fewer < 0

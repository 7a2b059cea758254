"""Failures at the limits: memory of what is left, stages that join, first phases, frozen queues."""

import dataclasses

import numpy as np
import pytest
from failure_support import fragile, whole_system, with_failure
from variants_support import mostly_slow

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.rewards import make_reward
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.rendering.round_view import RoundView
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import reference_delay, system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split


def often(kind="light", **changes):
    """Devices fail and return within minutes."""
    scenario = fragile(kind, on_mean_s=60.0, off_mean_s=20.0)
    return scenario.with_overrides({"decisions": [*COLLAPIPE, "schedule"], **changes})


def played(scenario, name, rounds=12, rows=16):
    """Systems, plans, and failures of rounds in which some device failed."""
    env = CollaPipeVectorEnv(rows, scenario, "surrogate", reward="delay")
    observation, _ = env.reset(seed=0)
    policy = SCHEDULERS.get(name)(scenario)
    policy.reset(0)
    for _ in range(rounds):
        decided = policy.act(observation, env.state)
        step = env.step if isinstance(decided, np.ndarray) else env.step_allocation
        observation = step(decided)[0]
        record = env.last_round
        if record.interruption is not None and record.interruption.failed is not None:
            yield record, record.interruption.failed


@pytest.mark.parametrize("kind", ["light", "heavy"])
@pytest.mark.parametrize("name", mostly_slow(["asteroid", "pipar", "adaptis", "random", "pipeline"], [0, 3]))
def test_what_is_left_fits_the_memories_and_every_step_is_finite(kind, name):
    scenario = often(kind)
    went_on = 0
    for record, failed in played(scenario, name):
        assert (failed.replay_s < 1e4).all()
        hit = (failed.device >= 0) & ~failed.dropped
        for r, n in np.argwhere(hit).tolist():
            went_on += 1
            held = np.where(failed.stage[r, n] >= 0, failed.blocks[r, n][failed.stage[r, n]], 0)
            assert held[failed.device[r, n]] == 0 or failed.stage[r, n, failed.device[r, n]] < 0
            least = held * system_parameters(scenario).costs.block_state_bytes
            assert (least <= record.state.memory_bytes[r, n]).all()
    assert went_on > 3


@pytest.mark.parametrize("name", ["pipar", "random"])
def test_rounds_do_not_depend_on_what_memory_held_before(name):
    """Stages that join have caps of their own: equal seeds give equal rounds."""
    scenario = often("heavy")
    first, second = (
        [record.costs.cluster_delay for record, _ in played(scenario, name, 8)] for _ in range(2)
    )
    assert len(first) > 2
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_failure_in_the_relay_waits_for_the_rest_of_it():
    """With new weights relayed by the CU, at t = 0 all of the relay still lies ahead."""
    parameters = system_parameters(fragile(workload={"distribution": "relay"}))
    state = whole_system()
    costs = round_costs(parameters, state, even_split(parameters, state))
    moved = [
        with_failure(parameters, state, costs, (0, 0, 1), part * costs.relay[0, 0]).failed.move_s[0, 0]
        for part in (1e-9, 0.5, 1.0)
    ]
    assert moved[0] - moved[2] == pytest.approx(float(costs.relay[0, 0]), rel=1e-6)
    assert moved[1] - moved[2] == pytest.approx(0.5 * float(costs.relay[0, 0]), rel=1e-6)


def test_clusters_that_are_done_early_can_be_drawn():
    """After a failure a slow plan may give way to one that ends before it had planned to."""
    scenario = often(**{"decisions": list(COLLAPIPE), "workload.local_steps": 4})
    env = CollaPipeVectorEnv(32, scenario, "surrogate", reward="delay")
    env.reset(seed=3)
    env.action_space.seed(3)
    early = 0
    for _ in range(6):
        env.step(env.action_space.sample())
        record = env.last_round
        if record.interruption is not None:
            for row, n in np.argwhere(record.interruption.cluster_delay < 0.0).tolist():
                early += 1
                (*_, upload, _) = RoundView(record, "", row=row).charts[n].timeline.phases
                assert upload.end_s <= record.costs.delay[row]
    assert early > 2


@pytest.mark.parametrize("per", ["round", "second"])
def test_frozen_queues_have_no_price(per):
    """Queues of devices that are away do not move, so no plan and no reward depends on them."""
    scenario = often(**{"decisions": list(COLLAPIPE), "budgets.per": per})
    env = CollaPipeVectorEnv(6, scenario, "surrogate", reward="delay")
    env.reset(seed=2)
    for _ in range(3):
        env.step(np.zeros((6, env.single_action_space.shape[0]), np.float32))
    state = env.state
    away = np.concatenate((np.zeros((6, 2, 1), bool), ~state.present), axis=-1)
    assert away.any()
    plans, rewards = [], []
    policy = DSSRA(scenario, threads=1)
    reward = make_reward("drift_plus_penalty", scenario, reference_delay(scenario))
    for z in (0.0, 30.0):
        other = dataclasses.replace(state, backlog=np.where(away, z, state.backlog))
        plan = policy.act(None, other)
        plans.append(plan)
        costs = round_costs(system_parameters(scenario), other, plan)
        rewards.append(reward(other, costs, other))
    for name in ("blocks", "micro_batches", "bandwidth", "device_power", "cu_power"):
        np.testing.assert_array_equal(getattr(plans[0], name), getattr(plans[1], name))
    np.testing.assert_array_equal(rewards[0], rewards[1])

"""Replicas after local steps: their hosts, and what they take of time, energy and memory."""

import dataclasses

import numpy as np
import pytest
from failure_support import a_round, fragile, whole_system
from oracles.moves import replica_hosts, replicas

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.allocation import ASYNC, with_schedule
from collapipe_env.physics.replication import NO_REPLICATION
from collapipe_env.rendering.round_view import RoundView
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split


def bare(parameters):
    """The same parameters without replicas."""
    return dataclasses.replace(parameters, replication=NO_REPLICATION)


@pytest.mark.parametrize("kind", ["next_stage", "cu"])
@pytest.mark.parametrize("held", [[2, 2, 1, 1], [0, 3, 0, 3], [0, 0, 6, 0], [1, 0, 4, 1]])
def test_replicas_cost_airtime_energy_and_memory(kind, held):
    parameters, state, plan, _ = a_round("light", kind, steps=3, blocks=np.broadcast_to(held, (2, 2, 4)))
    state = dataclasses.replace(state, memory_bytes=np.full_like(state.memory_bytes, 1e12))
    power = np.random.default_rng(1).uniform(0.02, 0.1, plan.device_power.shape)
    plan = dataclasses.replace(plan, device_power=power)
    costs, without = round_costs(parameters, state, plan), round_costs(bare(parameters), state, plan)
    for row, n in np.ndindex(2, 2):
        at = row, n
        longest, joules, kept, hosts = replicas(parameters, state[row], plan[row], n, costs.interference[at])
        assert costs.terms.step["replicas"][at] == pytest.approx(longest, rel=1e-12)
        assert costs.cluster_delay[at] - without.cluster_delay[at] == pytest.approx(3 * longest)
        np.testing.assert_allclose(costs.energy[at] - without.energy[at], np.multiply(3, joules), rtol=1e-9)
        np.testing.assert_allclose(costs.memory[at] - without.memory[at], kept, rtol=1e-9)
        expected = [[hosts.get(k) == node for node in range(5)] for k in range(4)]
        np.testing.assert_array_equal(costs.terms.notes["replica_hosts"][at], expected)
    np.testing.assert_allclose(costs.delay, costs.cluster_delay.max(axis=-1) + costs.broadcast, rtol=1e-12)
    np.testing.assert_allclose(costs.energy_ratio, costs.energy / state.budget)
    check_allocation(parameters, state, dataclasses.replace(plan, blocks=plan.blocks.copy()))


def test_hosts_by_hand():
    """Two stages keep each other's, the last one's is at the stage before, and a single one's at the CU."""
    assert replica_hosts([0, 5, 0, 1], 1) == {1: 4, 3: 2}
    assert replica_hosts([1, 1, 1, 3], 1) == {0: 2, 1: 3, 2: 4, 3: 3}
    assert replica_hosts([0, 0, 6, 0], 1) == {2: 0}
    assert replica_hosts([1, 1, 1, 3], 2) == {0: 0, 1: 0, 2: 0, 3: 0}


def test_hosts_without_room_leave_replicas_to_the_cu():
    parameters, state, plan, costs = a_round("light", "next_stage", steps=3)
    without = round_costs(bare(parameters), state, plan)
    tight = dataclasses.replace(state, memory_bytes=without.memory * 1.0)
    full = round_costs(parameters, tight, plan)
    # Stages of no device have no replicas, all others theirs at the CU.
    np.testing.assert_array_equal(full.terms.notes["replica_hosts"][..., 0], plan.blocks > 0)
    assert not full.terms.notes["replica_hosts"][..., 1:].any()
    np.testing.assert_array_equal(full.memory, without.memory)
    # One byte less than a single host needs moves what it keeps, and nothing else.
    memory = np.where(costs.memory > without.memory, costs.memory, 1e12)
    memory[0, 0, 1] -= 1.0
    one = round_costs(parameters, dataclasses.replace(state, memory_bytes=memory), plan)
    moved = costs.terms.notes["replica_hosts"][0, 0, :, 2]
    assert moved.any()
    assert one.terms.notes["replica_hosts"][0, 0, moved, 0].all()
    other = costs.terms.notes["replica_hosts"].copy()
    other[0, 0, moved, 2], other[0, 0, moved, 0] = False, True
    np.testing.assert_array_equal(one.terms.notes["replica_hosts"], other)


def test_groups_have_copies_and_keep_no_replicas():
    stages = {"blocks": [5, 1, 0, 0], "stage": [0, 0, 0, 1], "sample_share": [0.5, 0.25, 0.25, 1.0]}
    stages = {name: np.broadcast_to(value, (2, 2, 4)).copy() for name, value in stages.items()}
    *_, costs = a_round("light", "next_stage", steps=3, **stages)
    expected = np.zeros((4, 5), dtype=bool)
    expected[3, 1] = True  # the second stage's only device, at the first one's lead
    hosts = costs.terms.notes["replica_hosts"]
    np.testing.assert_array_equal(hosts, np.broadcast_to(expected, (2, 2, 4, 5)))


def a_workload(**workload):
    """The same for a replica at the CU under another workload of three local steps."""
    parameters = system_parameters(fragile("light", "cu", steps=3, workload=workload))
    state = whole_system()
    plan = even_split(parameters, state)
    return parameters, state, plan, round_costs(parameters, state, plan)


def test_adapters_alone_travel():
    parameters, _, _, costs = a_workload(update_compression="lora", lora_rank=4)
    w_a = parameters.costs.adapter_parameters
    assert 0 < w_a < parameters.costs.block_parameters
    assert parameters.replication.block_bits == 96.0 * w_a
    assert (costs.terms.step["replicas"] > 0.0).all()


def test_a_common_head_waits_for_the_slowest_replicas():
    parameters, state, plan, costs = a_workload(head="common")
    without = round_costs(bare(parameters), state, plan)
    each = costs.local_step + costs.terms.step["replicas"]
    pace = each.max(axis=-1, keepdims=True)
    np.testing.assert_allclose(each + costs.barrier - pace, 0.0, atol=1e-12)
    longer = 3 * (pace - without.local_step.max(axis=-1, keepdims=True)) * np.ones((1, 2))
    np.testing.assert_allclose(costs.cluster_delay - without.cluster_delay, longer, rtol=1e-9)


def test_no_replicas_where_a_round_would_be_given_up():
    parameters, state, plan, costs = a_round("light", "cu", steps=3)
    waiting = with_schedule(plan, "1f1b", np.where(plan.blocks > 0, 2, 0))
    waiting = dataclasses.replace(waiting, schedule=np.full_like(waiting.schedule, ASYNC))
    assert not round_costs(parameters, state, waiting).terms.step
    assert costs.delay.min() > round_costs(bare(parameters), state, plan).delay.min()


@pytest.mark.parametrize("replication", ["next_stage", "cu"])
def test_environments_play_save_and_draw_rounds_with_replicas(replication):
    scenario = fragile("light", replication, steps=3, off_mean_s=1.0)
    env = CollaPipeVectorEnv(4, scenario, "surrogate", reward="delay")
    env.reset(seed=3)
    env.action_space.seed(3)
    credited = lost = 0
    for _ in range(40):
        env.step(env.action_space.sample())
        record = env.last_round
        costs = record.costs
        assert (costs.memory <= record.state.memory_bytes * (1 + 1e-9)).all()
        failed = None if record.interruption is None else record.interruption.failed
        if failed is not None:
            credited += int((failed.credited > 0).sum())
            lost += int(failed.reset.any(axis=-1).sum())
            assert not (failed.reset.any(axis=-1) & (failed.credited > 0)).any()
    assert credited > 0
    assert lost > 0
    charts = RoundView(env.last_round, "a round").charts
    kept = env.last_round.costs.terms.step["replicas"]
    for n, cluster in enumerate(charts):
        labels = [phase.label for phase in cluster.timeline.phases]
        plays = env.last_round.costs.plays is None or env.last_round.costs.plays[0, n]
        expected = kept is not None and kept[0, n] > 0.0 and plays
        assert ("replicas" in labels) == expected or "detection" in labels

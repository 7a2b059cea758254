"""Replicas after local steps, against scalar programs: hosts, airtime, energy, memory, and what they save."""

import dataclasses
import math

import numpy as np
import pytest

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.allocation import ASYNC, with_schedule
from collapipe_env.physics.recovery import RecoveryTerms
from collapipe_env.physics.replication import AT_CU, NEXT_STAGE, NO_REPLICATION
from collapipe_env.rendering.round_view import RoundView
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.failed_rounds import Failures

KINDS = {"next_stage": NEXT_STAGE, "cu": AT_CU}


def scenario_of(replication="none", *, steps=3, kind="light", **sections):
    presence = {
        "on_mean_s": 200.0,
        "off_mean_s": 1.0,
        "graceful": 0.0,
        "recovery": kind,
        "replication": replication,
    }
    workload = {"local_steps": steps, **sections.pop("workload", {})}
    return load_scenario(
        {
            "base": "small",
            "cluster": {"clusters": 2, "devices": 4},
            "workload": workload,
            "budgets": {"device_energy_j": 1e4, "cu_energy_j": 1e4},
            "dynamics": {"processes": {"presence": presence}},
            **sections,
        }
    )


def a_state(scenario, seed=5):
    env = CollaPipeVectorEnv(2, scenario, "surrogate")
    env.reset(seed=seed)
    while not env.state.present.all():
        env.step(np.zeros((2, env.single_action_space.shape[0]), np.float32))
    return env.state


def a_round(replication, scheduler="pipeline", **options):
    """Parameters, a system, a plan, and its round with and without replicas."""
    scenario = scenario_of(replication, **options)
    state, parameters = a_state(scenario), system_parameters(scenario)
    plan = SCHEDULERS.get(scheduler)(scenario).act(None, state)
    without = round_costs(dataclasses.replace(parameters, replication=NO_REPLICATION), state, plan)
    return parameters, state, plan, round_costs(parameters, state, plan), without


def host_by_hand(blocks, kind):
    """Host of each device's replica in a chain of single devices: a node, or None."""
    chain = [k for k, held in enumerate(blocks) if held > 0]
    hosts = {}
    for place, k in enumerate(chain):
        if kind == "cu" or len(chain) == 1:
            hosts[k] = 0
        elif place + 1 < len(chain):
            hosts[k] = chain[place + 1] + 1
        else:
            hosts[k] = chain[place - 1] + 1
    return hosts


def airtime_by_hand(parameters, state, plan, costs, row, n, sender, receiver, bits):
    power = plan.node_power[row, n, sender]
    noise = parameters.noise_density * parameters.d2d_bandwidth_hz + costs.interference[row, n]
    snr = min(power * state.d2d_gain[row, n, sender, receiver] / noise, parameters.d2d_snr_cap)
    return bits / (parameters.d2d_bandwidth_hz * math.log2(1.0 + snr))


@pytest.mark.parametrize("kind", ["next_stage", "cu"])
@pytest.mark.parametrize("scheduler", ["pipeline", "dssra"])
def test_replicas_cost_airtime_energy_and_memory(kind, scheduler):
    parameters, state, plan, costs, without = a_round(kind, scheduler)
    w, H = parameters.costs.block_parameters, parameters.costs.local_steps
    radio = parameters.radio_power
    for row, n in np.ndindex(2, 2):
        hosts = host_by_hand(plan.blocks[row, n], kind)
        joules, kept, longest = np.zeros(5), np.zeros(4), 0.0
        for k, host in hosts.items():
            bits = 96.0 * w * plan.blocks[row, n, k]
            seconds = airtime_by_hand(parameters, state, plan, costs, row, n, k + 1, host, bits)
            longest = max(longest, seconds)
            power = plan.device_power[row, n, k]
            joules[k + 1] += (radio.d2d_circuit_w + power / radio.efficiency) * seconds
            joules[host] += radio.receive_w * seconds
            if host > 0:
                kept[host - 1] += bits / 8.0
        assert costs.terms.step["replicas"][row, n] == pytest.approx(longest, rel=1e-12)
        assert costs.cluster_delay[row, n] - without.cluster_delay[row, n] == pytest.approx(H * longest)
        np.testing.assert_allclose(costs.energy[row, n] - without.energy[row, n], H * joules, rtol=1e-9)
        np.testing.assert_allclose(costs.memory[row, n] - without.memory[row, n], kept, rtol=1e-9)
    np.testing.assert_allclose(costs.delay, costs.cluster_delay.max(axis=-1) + costs.broadcast, rtol=1e-12)
    np.testing.assert_allclose(costs.energy_ratio, costs.energy / state.budget)
    check_allocation(parameters, state, plan)


def test_two_stages_keep_each_others_replicas_and_one_stage_leaves_its_to_the_cu():
    parameters, state, plan, _, _ = a_round("next_stage")
    blocks = plan.blocks.copy()
    L = parameters.costs.blocks
    room = np.full_like(state.memory_cap, L)
    state = dataclasses.replace(state, memory_bytes=np.full_like(state.memory_bytes, 1e12), memory_cap=room)
    blocks[:, 0], blocks[:, 1] = [0, L - 1, 0, 1], [0, 0, L, 0]
    hosts = round_costs(parameters, state, dataclasses.replace(plan, blocks=blocks)).terms.notes[
        "replica_hosts"
    ]
    expected = np.zeros((2, 4, 5), dtype=bool)
    expected[0, 1, 4] = expected[0, 3, 2] = expected[1, 2, 0] = True
    np.testing.assert_array_equal(hosts, [expected, expected])


def test_hosts_without_room_leave_replicas_to_the_cu():
    parameters, state, plan, costs, without = a_round("next_stage")
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
    parameters, state, plan, _, _ = a_round("next_stage")
    L = parameters.costs.blocks
    grouped = dataclasses.replace(
        plan,
        blocks=np.broadcast_to([L - 1, 1, 0, 0], (2, 2, 4)).copy(),
        stage=np.broadcast_to([0, 0, 0, 1], (2, 2, 4)).copy(),
        sample_share=np.broadcast_to([0.5, 0.25, 0.25, 1.0], (2, 2, 4)).copy(),
    )
    hosts = round_costs(parameters, state, grouped).terms.notes["replica_hosts"]
    expected = np.zeros((4, 5), dtype=bool)
    expected[3, 1] = True  # the second stage's only device, at the first one's lead
    np.testing.assert_array_equal(hosts, np.broadcast_to(expected, (2, 2, 4, 5)))


@pytest.mark.parametrize("kind", ["next_stage", "cu"])
def test_adapters_alone_travel(kind):
    adapters = {"update_compression": "lora", "lora_rank": 4}
    parameters, _state, plan, costs, _ = a_round(kind, workload=adapters)
    w_a = parameters.costs.adapter_parameters
    assert 0 < w_a < parameters.costs.block_parameters
    assert parameters.replication.block_bits == 96.0 * w_a
    assert (costs.terms.step["replicas"] > 0.0).all()
    assert plan.blocks.sum() > 0


def test_a_common_head_waits_for_the_slowest_replicas():
    parameters, _state, _plan, costs, without = a_round("cu", workload={"head": "common"})
    pace = (costs.local_step + costs.terms.step["replicas"]).max(axis=-1, keepdims=True)
    np.testing.assert_allclose(
        costs.local_step + costs.terms.step["replicas"] + costs.barrier - pace, 0.0, atol=1e-12
    )
    H = parameters.costs.local_steps
    before = without.local_step.max(axis=-1, keepdims=True)
    np.testing.assert_allclose(
        costs.cluster_delay - without.cluster_delay, H * (pace - before) * np.ones((1, 2)), rtol=1e-9
    )


def test_no_replicas_where_a_round_would_be_given_up():
    parameters, state, plan, _, without = a_round("cu")
    waiting = with_schedule(plan, "1f1b", np.where(plan.blocks > 0, 2, 0))
    waiting = dataclasses.replace(waiting, schedule=np.full_like(waiting.schedule, ASYNC))
    assert not round_costs(parameters, state, waiting).terms.step
    assert round_costs(parameters, state, plan).delay.min() > without.delay.min()


def failed_at(parameters, state, costs, local_steps, device=1, kind="light"):
    """The first cluster's round, with a failure half-way through a local step, ``local_steps`` being done."""
    step = float(costs.local_step[0, 0] + sum(each[0, 0] for each in costs.terms.step.values()))
    failing = np.full(state.present.shape, np.inf)
    failing[0, 0, device] = (local_steps + 0.5) * step
    found = Failures(parameters, RecoveryTerms(kind, 0.5, 4)).replayed(state, costs, failing)
    return found, failing[0, 0, device], step


@pytest.mark.parametrize("replication", ["next_stage", "cu"])
@pytest.mark.parametrize("done", [0, 1, 2])
def test_replicas_credit_the_steps_before_a_failure(replication, done):
    parameters, state, plan, costs, _ = a_round(replication)
    found, at, _ = failed_at(parameters, state, costs, done)
    failed, H, w = found.failed, parameters.costs.local_steps, parameters.costs.block_parameters
    assert failed.credited[0, 0] == done
    lost = np.repeat(np.arange(4) == 1, plan.blocks[0, 0])
    np.testing.assert_array_equal(failed.reset[0, 0], lost & (done == 0))
    # What moves, from the owners before and after.
    before = np.repeat(np.arange(4), plan.blocks[0, 0])
    after = np.repeat(np.arange(4), failed.blocks[0, 0])
    host = host_by_hand(plan.blocks[0, 0], replication)[1]
    words: dict = {}
    for old, new in zip(before, after, strict=True):
        if old == 1:
            source, size = (0, 4) if done == 0 else (host, 12)
        else:
            source, size = old + 1, 12
        if source != new + 1 and old != new:
            words[source, new + 1] = words.get((source, new + 1), 0) + 8.0 * size * w
    moved = max(
        airtime_by_hand(parameters, state, plan, costs, 0, 0, i, j, bits) for (i, j), bits in words.items()
    )
    left = dataclasses.replace(plan, blocks=failed.blocks)
    again = round_costs(dataclasses.replace(parameters, replication=NO_REPLICATION), state, left)
    delay = at + 2.0 + 0.1 + moved + (H - done) * again.local_step[0, 0]
    delay += again.collect[0, 0] + again.upload[0, 0]
    assert costs.cluster_delay[0, 0] + found.cluster_delay[0, 0] == pytest.approx(delay, rel=1e-12)


def test_without_replicas_nothing_is_credited():
    parameters, state, _, costs, without = a_round("cu")
    bare = dataclasses.replace(parameters, replication=NO_REPLICATION)
    found, _, _ = failed_at(bare, state, without, 2)
    assert found.failed.credited[0, 0] == 0
    assert found.failed.reset[0, 0].any()
    kept, _, _ = failed_at(parameters, state, costs, 2)
    assert kept.failed.replay_s[0, 0] < found.failed.replay_s[0, 0]


def test_heavy_recoveries_collect_replicas_from_devices_only():
    for replication in ("next_stage", "cu"):
        parameters, state, plan, costs, _ = a_round(replication, kind="heavy")
        found, _, _ = failed_at(parameters, state, costs, 1, kind="heavy")
        failed, w = found.failed, parameters.costs.block_parameters
        held = plan.blocks[0, 0]
        total = 0.0
        for k in (0, 2, 3):
            bits = 96.0 * w * held[k]
            total += airtime_by_hand(parameters, state, plan, costs, 0, 0, k + 1, 0, bits)
        if replication == "next_stage":
            total += airtime_by_hand(parameters, state, plan, costs, 0, 0, 3, 0, 96.0 * w * held[1])
        for k, blocks in enumerate(failed.blocks[0, 0]):
            total += airtime_by_hand(parameters, state, plan, costs, 0, 0, 0, k + 1, 96.0 * w * blocks)
        assert failed.move_s[0, 0] == pytest.approx(total, rel=1e-12)
        assert failed.credited[0, 0] == 1


def test_energy_of_a_failed_round_has_the_replicas_until_the_failure():
    parameters, state, plan, costs, without = a_round("cu")
    bare = dataclasses.replace(parameters, replication=NO_REPLICATION)
    found, _, _ = failed_at(parameters, state, costs, 1)
    H = parameters.costs.local_steps
    replicas = (costs.energy - without.energy)[0, 0] / H
    # The same failure, one and a half steps in, without the replicas' energy.
    plain, _, _ = failed_at(bare, state, without, 1)
    left = round_costs(bare, state, dataclasses.replace(plan, blocks=found.failed.blocks))
    fewer = dataclasses.replace(bare.costs, local_steps=H - 1)
    one = round_costs(dataclasses.replace(bare, costs=fewer), state, left.allocation)
    a_step = (left.energy - one.energy)[0, 0]
    with_replicas = (costs.energy + found.energy)[0, 0]
    without_them = (without.energy + plain.energy)[0, 0]
    # A replayed step less, one and a half times the replicas more; moves go from the CU in both.
    moves_w = parameters.radio_power.receive_w
    power = plan.cu_power[0, 0] / parameters.radio_power.efficiency + parameters.radio_power.d2d_circuit_w
    before = np.repeat(np.arange(4), plan.blocks[0, 0])
    after = np.repeat(np.arange(4), found.failed.blocks[0, 0])
    more = np.zeros(5)
    for old, new in zip(before, after, strict=True):
        if old == 1:
            bits = 64.0 * parameters.costs.block_parameters
            seconds = airtime_by_hand(parameters, state, plan, costs, 0, 0, 0, new + 1, bits)
            more[0] += power * seconds
            more[new + 1] += moves_w * seconds
    np.testing.assert_allclose(with_replicas - without_them, 1.5 * replicas - a_step + more, rtol=1e-9)


@pytest.mark.parametrize("replication", ["next_stage", "cu"])
def test_environments_play_save_and_draw_rounds_with_replicas(replication):
    scenario = scenario_of(replication)
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

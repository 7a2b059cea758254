"""Rounds in which devices fail, against a scalar program that follows the formulas one failure at a time."""

import dataclasses
import math

import numpy as np
import pytest

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.allocation import SCHEDULES as SCHEDULE_NAMES
from collapipe_env.physics.moves import LOST
from collapipe_env.physics.recovery import RecoveryTerms, light_segments
from collapipe_env.rendering.round_view import RoundView
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import system_parameters, usual_round
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.failed_rounds import Failures

SEED = 5


def scenario_of(kind="light", steps=1, **fields):
    return load_scenario(
        {
            "base": "small",
            "cluster": {"clusters": 2, "devices": 4},
            "workload": {"local_steps": steps},
            "budgets": {"device_energy_j": 80, "cu_energy_j": 80},
            "dynamics": {
                "processes": {"presence": {"on_mean_s": 200.0, "graceful": 0.0, "recovery": kind, **fields}}
            },
        }
    )


def a_round(kind="light", steps=1, scheduler="pipeline"):
    """A system in which all devices are there, and a round of it without failures."""
    scenario = scenario_of(kind, steps, off_mean_s=1.0)
    env = CollaPipeVectorEnv(2, scenario, "surrogate")
    env.reset(seed=SEED)
    while not env.state.present.all():
        env.step(np.zeros((2, env.single_action_space.shape[0]), np.float32))
    plan = SCHEDULERS.get(scheduler)(scenario).act(None, env.state)
    parameters = system_parameters(scenario)
    terms = RecoveryTerms(kind, 0.5, 4)
    return parameters, env.state, round_costs(parameters, env.state, plan), Failures(parameters, terms)


def failing_at(costs, place, at_s):
    """Times of failures: one device's, and never for the others."""
    failing = np.full(costs.allocation.blocks.shape, np.inf)
    failing[place] = at_s
    return failing


def light_by_hand(parameters, state, costs, row, n, device, at):
    """``T_n`` of a light replay of a plain plan, step by step from the formulas."""
    own = parameters.costs
    old = costs.allocation.blocks[row, n].tolist()
    alive = [k for k, d in enumerate(old) if d > 0 and k != device]
    speeds = [float(state.speed[row, n, k]) for k in alive]
    ends, total = [], sum(old)
    for p in range(len(alive)):
        goal = total * sum(speeds[: p + 1]) / sum(speeds)
        ends.append(next(cut for cut in range(total + 1) if cut >= goal - 1e-9))
    new = [0] * len(old)
    for k, end, start in zip(alive, ends, [0, *ends[:-1]], strict=True):
        new[k] = end - start
    assert all(new[k] <= state.memory_cap[row, n, k] for k in alive)
    owner_before = [k for k, d in enumerate(old) for _ in range(d)]
    owner_after = [k for k, d in enumerate(new) for _ in range(d)]
    words: dict = {}
    for a, b in zip(owner_before, owner_after, strict=True):
        if a != b:
            source, bytes_ = (0, 4) if a == device else (a + 1, 12)
            words[source, b + 1] = words.get((source, b + 1), 0) + bytes_ * own.block_parameters
    power = costs.allocation.node_power[row, n]
    noise = parameters.noise_density * parameters.d2d_bandwidth_hz + costs.interference[row, n]
    longest, airtime = 0.0, {}
    for (i, j), size in words.items():
        snr = min(power[i] * state.d2d_gain[row, n, i, j] / noise, parameters.d2d_snr_cap)
        airtime[i, j] = 8.0 * size / (parameters.d2d_bandwidth_hz * math.log2(1.0 + snr))
        longest = max(longest, airtime[i, j])
    blocks = costs.allocation.blocks.copy()
    blocks[row, n] = new
    after = round_costs(parameters, state, dataclasses.replace(costs.allocation, blocks=blocks))
    H = own.local_steps
    delay = at + 2.0 + 0.1 + longest + H * after.local_step[row, n]
    return delay + after.collect[row, n] + after.upload[row, n], new, airtime, after


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("part", [0.05, 0.4, 0.8])
@pytest.mark.parametrize("device", [0, 1, 3])
def test_light_replays_follow_the_formulas(steps, part, device):
    parameters, state, costs, failures = a_round(steps=steps)
    row, n = 1, 0
    at = part * float(steps * costs.local_step[row, n])
    found = failures.replayed(state, costs, failing_at(costs, (row, n, device), at))
    delay, new, airtime, after = light_by_hand(parameters, state, costs, row, n, device, at)
    np.testing.assert_array_equal(found.failed.blocks[row, n], new)
    assert costs.cluster_delay[row, n] + found.cluster_delay[row, n] == pytest.approx(delay, rel=1e-12)
    assert found.failed.device[row, n] == device
    assert found.failed.credited[row, n] == 0
    lost = np.repeat(np.arange(4) == device, costs.allocation.blocks[row, n])
    np.testing.assert_array_equal(found.failed.reset[row, n], lost)
    # All else is as it was.
    other = np.ones((2, 2), dtype=bool)
    other[row, n] = False
    assert (found.cluster_delay[other] == 0.0).all()
    assert (found.energy[other] == 0.0).all()
    assert (found.failed.device[other] == -1).all()
    # Energy: the part of the old steps, the new ones, collection and upload, and what was sent.
    step = energy_of_a_step(parameters, state, costs.allocation)[row, n]
    tried = min(at / float(costs.local_step[row, n]), steps)
    spent = tried * step + after.energy[row, n]
    power = costs.allocation.node_power[row, n]
    for (i, _), seconds in airtime.items():
        spent[i] += power[i] * seconds
    np.testing.assert_allclose(costs.energy[row, n] + found.energy[row, n], spent, rtol=1e-9, atol=1e-12)


def energy_of_a_step(parameters, state, plan):
    """Energy per local step: what eleven take more than one, over ten."""

    def with_steps(H):
        return dataclasses.replace(parameters, costs=dataclasses.replace(parameters.costs, local_steps=H))

    return (
        round_costs(with_steps(11), state, plan).energy - round_costs(with_steps(1), state, plan).energy
    ) / 10


def test_failures_after_the_collection_change_nothing():
    _, state, costs, failures = a_round()
    failing = failing_at(costs, (0, 1, 0), float(costs.cluster_delay[0, 1] - costs.upload[0, 1]) + 1e-9)
    assert failures.replayed(state, costs, failing) is None
    failing[0, 1, 0] -= 1e-3
    assert failures.replayed(state, costs, failing) is not None


def test_devices_without_blocks_fail_unnoticed():
    _, state, costs, failures = a_round(scheduler="best_single_device")
    failing = np.where(costs.allocation.blocks > 0, np.inf, 0.5)
    assert np.isfinite(failing).any()
    assert failures.replayed(state, costs, failing) is None


def test_the_first_of_two_failures_counts():
    _, state, costs, failures = a_round()
    failing = np.minimum(failing_at(costs, (0, 0, 2), 0.3), failing_at(costs, (0, 0, 1), 0.7))
    found = failures.replayed(state, costs, failing)
    assert found.failed.device[0, 0] == 2
    assert found.failed.at_s[0, 0] == 0.3


def test_a_failure_at_once_costs_the_recovery_alone_when_no_time_is_lost():
    """``t_f -> 0``: detection, planning and moves, and then the round of the plan that is left."""
    parameters, state, costs, failures = a_round()
    found = failures.replayed(state, costs, failing_at(costs, (0, 0, 1), 1e-12))
    left = dataclasses.replace(costs.allocation, blocks=found.failed.blocks)
    after = round_costs(parameters, state, left)
    recovery = (found.failed.detect_s + found.failed.plan_s + found.failed.move_s)[0, 0]
    total = costs.cluster_delay[0, 0] + found.cluster_delay[0, 0]
    assert total == pytest.approx(float(after.cluster_delay[0, 0]) + recovery, rel=1e-9)


@pytest.mark.parametrize("schedule", [None, "1f1b"])
@pytest.mark.parametrize("device", [0, 3])
@pytest.mark.parametrize("micro_batches", [1, 2, 16])
def test_heavy_plans_have_the_shortest_steps_as_they_are_played(schedule, device, micro_batches):
    """Devices that join send at full power, with as many micro-batches in flight as the others."""
    parameters, state, costs, failures = a_round("heavy")
    total, plan = parameters.costs.blocks, costs.allocation
    room = np.full_like(state.memory_cap, total)
    state = dataclasses.replace(state, memory_cap=room, memory_bytes=1e12 * np.ones(room.shape))
    blocks = np.zeros_like(plan.blocks)
    blocks[..., 0] = blocks[..., 3] = total // 2
    power = np.where(blocks > 0, plan.device_power, parameters.power_min_w)
    count = np.full_like(plan.micro_batches, micro_batches)
    plan = dataclasses.replace(plan, blocks=blocks, device_power=power, micro_batches=count)
    if schedule is not None:
        kinds, caps = np.full_like(count, SCHEDULE_NAMES.index(schedule)), np.where(blocks > 0, 8, 0)
        plan = dataclasses.replace(plan, schedule=kinds, caps=caps, chunks=np.ones_like(kinds))
    costs = round_costs(parameters, state, plan)
    for row, n in ((0, 0), (0, 1), (1, 0), (1, 1)):
        found = failures.replayed(state, costs, failing_at(costs, (row, n, device), 1.0)).failed
        steps = {}
        order = sorted({0, 1, 2, 3} - {device}, key=lambda k: -state.speed[row, n, k])
        for working in (sorted(order[:several]) for several in (1, 2, 3)):
            split = np.zeros_like(blocks[row, n])
            split[working] = light_segments(total, state.speed[row, n, working])
            tried, sent, flights = blocks.copy(), power.copy(), None
            tried[row, n] = split
            sent[row, n, 1:3] = np.where(split[1:3] > 0, parameters.power_max_w, sent[row, n, 1:3])
            if plan.caps is not None:
                flights = np.where(tried > 0, 8, plan.caps)
            left = dataclasses.replace(plan, blocks=tried, device_power=sent, caps=flights)
            steps[tuple(split.tolist())] = float(round_costs(parameters, state, left).local_step[row, n])
        assert tuple(found.blocks[row, n].tolist()) == min(steps, key=steps.get)
        assert found.replay_s[row, n] == pytest.approx(min(steps.values()), rel=1e-12)


def test_dropped_rounds_end_no_earlier_and_bring_nothing():
    _, state, costs, failures = a_round("drop-round")
    found = failures.replayed(state, costs, failing_at(costs, (0, 0, 1), 1.0))
    assert found.failed.dropped.tolist() == [[True, False], [False, False]]
    assert found.cluster_delay[0, 0] == max(0.0, 3.0 - costs.cluster_delay[0, 0])
    assert (found.energy[0, 0] <= 1e-12).all()


def test_a_cluster_that_cannot_go_on_gives_its_round_up():
    _, state, costs, failures = a_round()
    cap = state.memory_cap.copy()
    cap[0, 0] = np.where(np.arange(4) == 1, cap[0, 0], 1)
    poor = dataclasses.replace(state, memory_cap=cap)
    found = failures.replayed(poor, costs, failing_at(costs, (0, 0, 1), 1.0))
    assert found.failed.dropped[0, 0]
    assert found.failed.move_s[0, 0] == 0.0


def test_groups_keep_what_they_have_done():
    """A stage of several devices goes on with the others: the steps before the failure count."""
    _, state, costs, failures = a_round(steps=4, scheduler="asteroid")
    plan = costs.allocation
    sizes = [
        (r, n, s)
        for r in range(2)
        for n in range(2)
        for s in range(4)
        if (plan.stage[r, n] == s).sum() > 1 and plan.blocks[r, n, s] > 0
    ]
    if not sizes:
        pytest.skip("Asteroid has no stage of several devices here")
    r, n, slot = sizes[0]
    device = int(np.flatnonzero(plan.stage[r, n] == slot)[0])
    found = failures.replayed(
        state, costs, failing_at(costs, (r, n, device), 2.5 * float(costs.local_step[r, n]))
    )
    assert found.failed.credited[r, n] == 2
    assert not found.failed.reset.any()
    assert (found.failed.stage[r, n] == slot).sum() == (plan.stage[r, n] == slot).sum() - 1


@pytest.mark.parametrize("kind", ["light", "heavy", "drop-round"])
def test_rounds_fail_at_the_hazard_in_environments(kind):
    """``1 - exp(-S lambda T)`` of the clusters' rounds, where every device of a cluster has blocks."""
    scenario = scenario_of(kind)
    env = CollaPipeVectorEnv(128, scenario, "surrogate")
    observation, _ = env.reset(seed=1)
    policy = SCHEDULERS.get("pipeline")(scenario)
    expected = seen = variance = 0.0
    hazard, usual = 1.0 / 200.0, usual_round(scenario)
    for _ in range(12):
        state = env.state
        env.step_allocation(policy.act(observation, state))
        record = env.last_round
        plan, costs = record.allocation, record.costs
        planned = round_costs(system_parameters(scenario), record.state, plan)
        late = (planned.cluster_delay - planned.upload) / planned.cluster_delay
        p = 1.0 - np.exp(-hazard * usual * late * (plan.blocks > 0).sum(axis=-1))
        expected += float(p[costs.plays].sum())
        variance += float((p * (1.0 - p))[costs.plays].sum())
        if (failed := record.failed) is not None:
            seen += int((failed.device >= 0).sum())
            hit = failed.device >= 0
            if kind == "drop-round":
                assert failed.dropped[hit].all()
            gone = np.take_along_axis(env.state.present, np.maximum(failed.device, 0)[..., None], -1)[..., 0]
            assert gone[hit].mean() < 0.1  # back within the same seconds
            assert (record.arrivals.counts[failed.dropped] == 0).all()
    assert abs(seen - expected) < 3.5 * math.sqrt(variance)


def test_no_hazard_is_a_world_without_the_process():
    quiet = load_scenario(
        {"base": "small", "workload": {"local_steps": 2}, "budgets": {"device_energy_j": 40}}
    )
    sure = {"on_mean_s": 1e9, "off_mean_s": 1.0, "recovery": "drop-round"}
    busy = quiet.with_overrides({"dynamics.processes.presence": sure})
    envs = [CollaPipeVectorEnv(2, s, "surrogate") for s in (quiet, busy)]
    for env in envs:
        env.reset(seed=3)
    actions = np.random.default_rng(0).uniform(-1, 1, (5, *envs[0].action_space.shape)).astype(np.float32)
    for action in actions:
        first, second = (env.step(action)[1] for env in envs)
        np.testing.assert_array_equal(first, second)


def test_parameters_keep_the_start_of_the_round():
    """4 bytes a parameter more, so that the survivors can go back; not where the round is given up."""
    light, drop = (system_parameters(scenario_of(kind)).costs for kind in ("light", "drop-round"))
    assert light.block_state_bytes - drop.block_state_bytes == 4.0 * light.block_parameters


def test_the_picture_shows_the_loss_and_the_replay():
    env = CollaPipeVectorEnv(32, scenario_of(), "surrogate")
    observation, _ = env.reset(seed=2)
    policy = SCHEDULERS.get("pipeline")(env.scenario)
    shown = 0
    for _ in range(4):
        env.step_allocation(policy.act(observation, env.state))
        record = env.last_round
        failed = record.failed
        for row in range(32) if failed is not None else ():
            charts = RoundView(record, "", row=row).charts
            for n in np.flatnonzero(failed.device[row] >= 0).tolist():
                phases = {p.label: p for p in charts[n].timeline.phases}
                at = failed.at_s[row, n]
                assert phases["detection"].start_s == pytest.approx(at)
                assert max(e.end_s for e in charts[n].timeline.events) <= at
                ends = phases["wait" if failed.dropped[row, n] else "upload"].end_s
                expected = record.costs.cluster_delay[row]
                whole = expected.max() if failed.dropped[row, n] else expected[n]
                assert ends == pytest.approx(whole, rel=1e-9)
                assert ("replay" in phases) == (not failed.dropped[row, n])
                shown += 1
    assert shown > 5


@pytest.mark.parametrize("scheduler", ["pipeline", "vanilla_fl"])
def test_the_picture_says_who_failed(scheduler):
    """In a stage of several devices too, whichever of them it is."""
    env = CollaPipeVectorEnv(16, scenario_of(), "surrogate")
    observation, _ = env.reset(seed=2)
    policy = SCHEDULERS.get(scheduler)(env.scenario)
    shown = set()
    for _ in range(6):
        env.step_allocation(policy.act(observation, env.state))
        record = env.last_round
        failed = record.failed
        for row, n in np.argwhere(failed.device >= 0).tolist() if failed is not None else ():
            device = int(failed.device[row, n])
            labels = [e.label for e in RoundView(record, "", row=row).charts[n].timeline.elements]
            marks = [label for label in labels if label.endswith("failed")]
            together = record.allocation.stage is not None and np.count_nonzero(
                record.allocation.stage[row, n] == record.allocation.stage[row, n, device]
            )
            lead = int(np.flatnonzero(record.allocation.device_blocks[row, n])[0])
            expected = f"d{lead}+{together - 1}, d{device} failed" if together > 2 else f"d{device} failed"
            assert marks == [expected] or (together == 2 and marks[0].endswith(f", d{device} failed"))
            shown.add((device, together > 1))
    assert len(shown) > 2
    assert any(several for _, several in shown) == (scheduler == "vanilla_fl")


@pytest.mark.parametrize("kind", ["light", "drop-round"])
def test_the_last_round_of_a_saved_state_has_its_failures(kind, tmp_path):
    """And a saved environment goes on as the original does."""
    scenario = scenario_of(kind, on_mean_s=60.0, off_mean_s=20.0)
    first, second = (CollaPipeVectorEnv(16, scenario, "surrogate") for _ in range(2))
    first.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (4, *first.action_space.shape)).astype(np.float32)
    first.step(actions[0])
    first.save_state(tmp_path / "state.safetensors")
    second.load_state(tmp_path / "state.safetensors")
    one, two = (env.last_round.interruption.failed for env in (first, second))
    for name in one._fields:
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    np.testing.assert_array_equal(first.last_round.costs.delay, second.last_round.costs.delay)
    for action in actions[1:]:
        np.testing.assert_array_equal(first.step(action)[1], second.step(action)[1])


@pytest.mark.parametrize("kind", ["light", "drop-round"])
def test_the_real_learner_loses_what_the_price_says(kind):
    """Lost blocks' moments start again where the round goes on; a round given up trains nothing."""
    scenario = scenario_of(kind, on_mean_s=60.0, off_mean_s=20.0)
    env = CollaPipeVectorEnv(1, scenario, "real")
    observation, _ = env.reset(seed=4)
    policy = SCHEDULERS.get("pipeline")(scenario)
    learner = env._mdp.world.learner
    told = []
    original = learner.train_round

    def listen(outcome):
        told.append(outcome)
        return original(outcome)

    learner.train_round = listen
    seen = 0
    for _ in range(12):
        env.step_allocation(policy.act(observation, env.state))
        record, outcome = env.last_round, told[-1]
        failed = record.failed
        for n in np.flatnonzero(failed.device[0] >= 0).tolist() if failed is not None else ():
            seen += 1
            if failed.dropped[0, n]:
                assert outcome.arrivals.counts[0, n].sum() == 0
                assert outcome.moments is None or (outcome.moments[0, n] != LOST).all()
            else:
                held = np.repeat(np.arange(4), record.allocation.blocks[0, n])
                lost = held == failed.device[0, n]
                np.testing.assert_array_equal(outcome.moments[0, n] == LOST, lost)
                assert outcome.arrivals.counts[0, n].sum() > 0
    assert seen > 2

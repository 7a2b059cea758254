"""Rounds in which devices fail, against a scalar program that follows the formulas one failure at a time."""

import dataclasses
import math

import numpy as np
import pytest
from failure_support import a_round, fragile, with_failure
from oracles.moves import failed_round

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import with_schedule
from collapipe_env.physics.moves import LOST
from collapipe_env.physics.recovery import light_segments
from collapipe_env.rendering.round_view import RoundView
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import system_parameters, usual_round
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.round import Terms, with_terms


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("replication", ["none", "next_stage", "cu"])
@pytest.mark.parametrize("kind", ["light", "heavy"])
def test_failures_follow_the_formulas(kind, replication, steps):
    p, s, a, costs = a_round(kind, replication, steps)
    row, n = 1, 0
    whole_s = steps * float((costs.local_step + sum(costs.terms.step.values()))[row, n])
    other = np.ones((2, 2), dtype=bool)
    other[row, n] = False
    for part, device in ((1e-12, 1), (0.05, 0), (0.4, 1), (0.4, 3), (0.8, 0), (0.8, 3), (0.99, 1)):
        at_s = part * whole_s
        found = with_failure(p, s, costs, (row, n, device), at_s, kind)
        left = found.failed
        anew = left.blocks[row, n].tolist() if kind == "heavy" else None
        pause_s = {"light": 2.0 + 0.1, "heavy": 2.0 + 2.0}[kind]
        wanted = failed_round(p, s[row], a[row], n, device, at_s, pause_s=pause_s, blocks=anew)
        delay = costs.cluster_delay[row, n] + found.cluster_delay[row, n]
        assert delay == pytest.approx(wanted["delay"], rel=1e-12)
        joules = costs.energy[row, n] + found.energy[row, n]
        np.testing.assert_allclose(joules, wanted["energy"], rtol=1e-9, atol=1e-12)
        for name in ("blocks", "credited", "reset"):
            np.testing.assert_array_equal(getattr(left, name)[row, n], wanted[name])
        assert left.move_s[row, n] == pytest.approx(wanted["move_s"], rel=1e-12)
        assert left.device[row, n] == device
        # All else is as it was.
        assert (found.cluster_delay[other] == 0.0).all()
        assert (found.energy[other] == 0.0).all()
        assert (left.device[other] == -1).all()


@pytest.mark.parametrize("kind", ["light", "drop-round"])
def test_radios_are_on_as_long_as_the_round_lasts_after_a_failure(kind):
    p, s, _, costs = a_round(kind)
    played = []
    for idle_w in (0.0, 0.3):
        listening = dataclasses.replace(p, radio_power=p.radio_power._replace(idle_w=idle_w))
        whole = round_costs(listening, s, costs.allocation)
        found = with_failure(listening, s, whole, (1, 0, 1), 0.4 * float(whole.cluster_delay[1, 0]), kind)
        terms = Terms(delay=found.cluster_delay, energy=found.energy)
        played.append(with_terms(whole, listening, s, [terms]))
    off, on = played
    np.testing.assert_array_equal(on.delay, off.delay)
    assert on.delay[1] > costs.delay[1] or kind == "drop-round"
    np.testing.assert_array_equal(on.busy_energy, off.energy)
    np.testing.assert_allclose(on.energy - off.energy, 0.3 * on.delay[:, None, None] + 0.0 * off.energy)


def test_a_cluster_that_gives_its_round_up_hears_the_base_station_until_then_and_the_next_model():
    p, s, plan, costs = a_round("drop-round")
    at_s, energy = 0.4 * float(costs.local_step[1, 0]), []
    for watts in (0.6, 0.0):
        deaf = dataclasses.replace(p, radio_power=p.radio_power._replace(edge_receive_w=watts))
        whole = round_costs(deaf, s, plan)
        found = with_failure(deaf, s, whole, (1, 0, 1), at_s, "drop-round")
        energy.append(whole.energy[1, 0] + found.energy[1, 0])
    heard = 0.4 * plan.micro_batches[1, 0] * costs.elements.downlink[1, 0] + costs.broadcast[1]
    np.testing.assert_allclose(
        energy[0] - energy[1], [0.6 * heard, 0.0, 0.0, 0.0, 0.0], rtol=1e-9, atol=1e-12
    )


def test_late_failures_and_those_of_idle_devices_change_nothing():
    p, s, _, costs = a_round()
    late_s = float(costs.cluster_delay[0, 1] - costs.upload[0, 1])
    assert with_failure(p, s, costs, (0, 1, 0), late_s + 1e-9) is None
    assert with_failure(p, s, costs, (0, 1, 0), late_s - 1e-3) is not None
    blocks = np.broadcast_to([0, 3, 3, 0], (2, 2, 4))
    p, s, _, costs = a_round(blocks=blocks)
    assert with_failure(p, s, costs, (0, 1, [0, 3]), 0.5) is None


def test_the_first_of_two_failures_counts():
    p, s, _, costs = a_round()
    found = with_failure(p, s, costs, (0, 0, [1, 2]), [0.7, 0.3]).failed
    assert found.device[0, 0] == 2
    assert found.at_s[0, 0] == 0.3


@pytest.mark.parametrize("schedule", [None, "1f1b"])
@pytest.mark.parametrize("device", [0, 3])
@pytest.mark.parametrize("micro_batches", [1, 2, 16])
def test_heavy_plans_have_the_shortest_steps_as_they_are_played(schedule, device, micro_batches):
    """Devices that join send at full power, with as many micro-batches in flight as the others."""
    total = a_round("heavy")[0].costs.blocks
    blocks = np.broadcast_to([total // 2, 0, 0, total // 2], (2, 2, 4)).copy()
    p, s, plan, _ = a_round("heavy", blocks=blocks, micro_batches=np.full((2, 2), micro_batches))
    power = np.where(blocks > 0, plan.device_power, p.power_min_w)
    room = np.full_like(s.memory_cap, total)
    s = dataclasses.replace(s, memory_cap=room, memory_bytes=1e12 * np.ones(room.shape))
    plan = dataclasses.replace(plan, device_power=power)
    if schedule is not None:
        plan = with_schedule(plan, schedule, np.where(blocks > 0, 8, 0))
    costs = round_costs(p, s, plan)
    for row, n in ((0, 0), (0, 1), (1, 0), (1, 1)):
        found = with_failure(p, s, costs, (row, n, device), 1.0, "heavy").failed
        steps = {}
        order = sorted({0, 1, 2, 3} - {device}, key=lambda k: -s.speed[row, n, k])
        for working in (sorted(order[:several]) for several in (1, 2, 3)):
            split = np.zeros_like(blocks[row, n])
            split[working] = light_segments(total, s.speed[row, n, working])
            tried, sent = blocks.copy(), power.copy()
            tried[row, n] = split
            sent[row, n, 1:3] = np.where(split[1:3] > 0, p.power_max_w, sent[row, n, 1:3])
            flights = None if plan.caps is None else np.where(tried > 0, 8, plan.caps)
            left = dataclasses.replace(plan, blocks=tried, device_power=sent, caps=flights)
            steps[tuple(split.tolist())] = float(round_costs(p, s, left).local_step[row, n])
        assert tuple(found.blocks[row, n].tolist()) == min(steps, key=steps.get)
        assert found.replay_s[row, n] == pytest.approx(min(steps.values()), rel=1e-12)


def test_dropped_rounds_end_no_earlier_and_bring_nothing():
    p, s, _, costs = a_round("drop-round")
    found = with_failure(p, s, costs, (0, 0, 1), 1.0, "drop-round")
    assert found.failed.dropped.tolist() == [[True, False], [False, False]]
    assert found.cluster_delay[0, 0] == max(0.0, 3.0 - costs.cluster_delay[0, 0])
    assert (found.energy[0, 0] <= 1e-12).all()


def test_a_cluster_that_cannot_go_on_gives_its_round_up():
    p, s, _, costs = a_round()
    cap = s.memory_cap.copy()
    cap[0, 0] = np.where(np.arange(4) == 1, cap[0, 0], 1)
    found = with_failure(p, dataclasses.replace(s, memory_cap=cap), costs, (0, 0, 1), 1.0).failed
    assert found.dropped[0, 0]
    assert found.move_s[0, 0] == 0.0


def test_groups_keep_what_they_have_done():
    """A stage of several devices goes on with the others: the steps before the failure count."""
    stages = {
        "blocks": np.broadcast_to([2, 4, 0, 0], (2, 2, 4)),
        "stage": np.broadcast_to([0, 0, 1, 1], (2, 2, 4)),
        "sample_share": np.broadcast_to([0.5, 0.5, 0.25, 0.75], (2, 2, 4)),
    }
    p, s, _, costs = a_round(steps=4, **stages)
    found = with_failure(p, s, costs, (0, 1, 0), 2.5 * float(costs.local_step[0, 1])).failed
    assert found.credited[0, 1] == 2
    assert not found.reset.any()
    assert found.stage[0, 1].tolist() == [-1, 0, 1, 1]


@pytest.mark.parametrize("kind", ["light", "heavy", "drop-round"])
def test_rounds_fail_at_the_hazard_in_environments(kind):
    """``1 - exp(-S lambda T)`` of the clusters' rounds, where every device of a cluster has blocks."""
    scenario = fragile(kind)
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
        {
            "base": "small",
            "workload": {"local_steps": 2},
            "budgets": {"device_energy_j": 40, "cu_energy_j": 40},
        }
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
    light, drop = (system_parameters(fragile(kind)).costs for kind in ("light", "drop-round"))
    assert light.block_state_bytes - drop.block_state_bytes == 4.0 * light.block_parameters


def test_the_picture_shows_the_loss_and_the_replay():
    env = CollaPipeVectorEnv(32, fragile(), "surrogate")
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
    env = CollaPipeVectorEnv(16, fragile(), "surrogate")
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
    scenario = fragile(kind, on_mean_s=60.0, off_mean_s=20.0)
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


class Told(IdleLearner):
    """Keeps what it is told of the last round."""

    def train_round(self, outcome):
        self.outcome = outcome
        return super().train_round(outcome)


@pytest.mark.parametrize("kind", ["light", "drop-round"])
def test_learners_are_told_what_the_price_says(kind):
    """Lost blocks' moments start again where the round goes on; a round given up trains nothing."""
    learner = Told(16)
    env = CollaPipeVectorEnv(16, fragile(kind, on_mean_s=60.0, off_mean_s=20.0), learner, reward="delay")
    observation, _ = env.reset(seed=4)
    policy = SCHEDULERS.get("pipeline")(env.scenario)
    seen = 0
    for _ in range(4):
        env.step_allocation(policy.act(observation, env.state))
        record, outcome = env.last_round, learner.outcome
        failed = record.failed
        for row, n in np.argwhere(failed.device >= 0).tolist() if failed is not None else ():
            seen += 1
            if failed.dropped[row, n]:
                assert outcome.arrivals.counts[row, n].sum() == 0
                assert outcome.moments is None or (outcome.moments[row, n] != LOST).all()
            else:
                held = np.repeat(np.arange(4), record.allocation.blocks[row, n])
                lost = held == failed.device[row, n]
                np.testing.assert_array_equal(outcome.moments[row, n] == LOST, lost)
                assert outcome.arrivals.counts[row, n].sum() > 0
    assert seen > 2

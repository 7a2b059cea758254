"""Open areas: who is away, who has to stay, and what absence changes."""

import math

import numpy as np
import pytest
import torch
from oracles.path_losses import inh_nlos
from process_support import actions_of

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.dynamics.mobility import ANNOUNCED_S
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.kernels.queues import queue_round
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.memory import memory_caps
from collapipe_env.physics.motion import seconds_inside
from collapipe_env.physics.moves import LOST
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import budget_period, usual_round
from collapipe_env.simulator.system import reach_of, walking_side
from collapipe_env.simulator.world import World

SIDE = 40.0
GENEROUS = {"device_energy_j": 1e4, "cu_energy_j": 1e4}


def leaving(roaming=1.6, **sections):
    fields = {"area": "open", "roaming": roaming, "pause_s": 20.0}
    dynamics = {"rounds": 12, "processes": {"mobility": fields, **sections.pop("processes", {})}}
    return load_scenario(
        {"base": "small", "cluster": {"layout": "per_episode"}, **sections, "dynamics": dynamics}
    )


def world_of(scenario, rows, seed=0):
    world = World(scenario, IdleLearner(rows), rows)
    world.reset([np.random.default_rng([seed, row]) for row in range(rows)])
    return world


def caps_of(world):
    """Blocks that every device of the layouts can hold, whether it is there or not."""
    return memory_caps(world.parameters.costs, world.get_state()["layout"]["memory_bytes"])


def from_cu(state, side):
    walk = state.processes["mobility"]
    return np.hypot(walk["x"] - side / 2, walk["y"] - side / 2)


def test_devices_beyond_the_corners_are_away_unless_the_encoder_needs_them():
    scenario = leaving()
    side, world = walking_side(scenario), world_of(scenario, 40)
    assert side == pytest.approx(1.6 * SIDE)
    assert reach_of(scenario) == pytest.approx(math.dist((0, 0), (SIDE / 2, SIDE / 2)))
    scheduler, L, seen = DSSRA(scenario, threads=1), scenario.blocks, set()
    for _ in range(6):
        state = world.state
        far = from_cu(state, side)
        caps = caps_of(world)
        for row, n in np.ndindex(*far.shape[:2]):
            order = sorted(range(far.shape[2]), key=lambda k, f=far[row, n]: f[k])
            held, expected = 0, set()
            for k in order:
                inside = far[row, n, k] <= SIDE / math.sqrt(2.0)
                if inside or held < L:
                    expected.add(k)
                    seen.add("inside" if inside else "stays")
                else:
                    seen.add("away")
                held += caps[row, n, k]
            assert set(np.flatnonzero(state.present[row, n])) == expected
        assert (state.memory_bytes[~state.present] == 0).all()
        plan = scheduler.allocate(state)
        assert (plan.blocks[~state.present] == 0).all()
        world.step(plan)
    assert {"inside", "away"} <= seen


def test_who_is_needed_stays():
    """With little memory, at least two devices of each cluster stay, however far."""
    scenario = leaving(
        roaming=10.0,
        budgets=GENEROUS,
        devices={"profiles": [{"name": "tight", "memory_bytes": [384.0e6], "switched_capacitance": 1e-27}]},
    )
    world = world_of(scenario, 60)
    caps = caps_of(world)
    room = np.where(world.state.present, caps, 0).sum(axis=-1)
    assert (room >= scenario.blocks).all()
    away_alone = (from_cu(world.state, walking_side(scenario)) > reach_of(scenario)).all(axis=-1)
    assert away_alone.any()
    assert world.state.present[away_alone].any(axis=-1).all()


def test_the_share_of_devices_outside_follows_from_the_areas():
    """Devices that pause are uniform in their square; the circle cuts off its corners."""
    factor = 1.25
    fields = {"area": "open", "roaming": factor, "pause_s": 1e6}
    scenario = load_scenario(
        {
            "base": "medium",
            "cluster": {"layout": "per_episode"},
            "dynamics": {"processes": {"mobility": fields}},
        }
    )
    world = world_of(scenario, 300)
    radius, half = SIDE / math.sqrt(2.0), factor * SIDE / 2
    segment = radius**2 * math.acos(half / radius) - half * math.sqrt(radius**2 - half**2)
    outside = 1.0 - (math.pi * radius**2 - 4.0 * segment) / (2.0 * half) ** 2
    found = (from_cu(world.state, 2 * half) > radius).mean()
    # 6,000 devices, within four standard deviations.
    assert found == pytest.approx(outside, abs=4.0 * math.sqrt(outside / 6_000))
    assert 1.0 - world.state.present.mean() == pytest.approx(found, abs=0.006)


def test_time_to_leave_a_circle_against_small_steps():
    rng = np.random.default_rng(3)
    angle, far = rng.uniform(0, 2 * np.pi, 50), 10.0 * np.sqrt(rng.uniform(0, 1, 50))
    x, y = far * np.cos(angle), far * np.sin(angle)
    v, w = rng.normal(size=(2, 50))
    found = seconds_inside(10.0, x, y, v, w)
    np.testing.assert_allclose(np.hypot(x + v * found, y + w * found), 10.0, rtol=1e-12)
    before = np.linspace(0.0, 0.999, 200)[:, None] * found
    assert (np.hypot(x + v * before, y + w * before) < 10.0).all()
    assert np.isinf(seconds_inside(10.0, x[:1], y[:1], 0.0 * v[:1], 0.0 * w[:1])).all()


def test_straight_courses_are_announced_to_the_second():
    """Who neither arrives nor sets out within the round leaves when it was said to, and nobody else."""
    scenario = leaving(roaming=2.0)
    side, reach = walking_side(scenario), reach_of(scenario)
    world, scheduler = world_of(scenario, 60), DSSRA(scenario, threads=1)
    leavers = 0
    for _ in range(6):
        before = {name: a.copy() for name, a in world.state.processes["mobility"].items()}
        inside = from_cu(world.state, side) <= reach
        world.step(scheduler.allocate(world.state))
        seconds = usual_round(scenario)
        left = np.hypot(before["target_x"] - before["x"], before["target_y"] - before["y"])
        steady = inside & (before["speed"] > 0) & (left > seconds * before["speed"])
        gone = from_cu(world.state, side) > reach
        said = before["leaves_s"] < seconds
        np.testing.assert_array_equal(gone[steady], said[steady])
        leavers += said[steady].sum()
        assert (before["leaves_s"][~inside] == 0.0).all()
        assert (before["leaves_s"][inside & (before["speed"] == 0)] == ANNOUNCED_S).all()
    assert leavers > 20


@pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
def test_queues_of_devices_that_are_away_stand_still():
    scenario = leaving(budgets={"device_energy_j": 2.0})
    world = world_of(scenario, 30)
    scheduler, held = DSSRA(scenario, threads=1), 0
    for _ in range(8):
        state = world.state
        record = world.step(scheduler.allocate(state))
        away = ~state.present
        before, after = state.backlog[..., 1:][away], world.state.backlog[..., 1:][away]
        np.testing.assert_array_equal(before, after)
        held += (before > 0.0).sum()
        np.testing.assert_allclose(record.backlog_sum, record.backlog.sum(axis=(-2, -1)))
    assert held > 0


def test_blocks_of_those_who_left_lose_their_moments():
    scenario = leaving(processes={"migration": {}})
    world, scheduler = world_of(scenario, 30), DSSRA(scenario, threads=1)
    reset = 0
    for _ in range(8):
        holders = world.state.processes["migration"]["holders"].copy()
        gone = (holders[..., 1:] & ~world.state.present[:, :, None, :]).any(axis=-1)
        record = world.step(scheduler.allocate(world.state))
        moments = np.asarray(record.costs.terms.notes["moments"])
        assert (moments[gone] == LOST).all()
        reset += gone.sum()
    assert reset > 0


def test_gains_known_late_begin_where_devices_are():
    knowledge = {"channel_knowledge": {"modes": ["delayed"], "delay_rounds": 1}}
    scenario = leaving(processes=knowledge, radio={"d2d_path_loss": "inh-mixed-nlos"}, budgets=GENEROUS)
    fields = {"area": "open", "roaming": 1.6, "environment_sd_db": 0.0}
    scenario = scenario.with_overrides({"dynamics.processes.mobility": fields})
    env = CollaPipeVectorEnv(20, scenario, "surrogate")
    env.reset(seed=4)
    walk, half = env.truth.processes["mobility"], walking_side(scenario) / 2
    x, y = walk["x"] - half, walk["y"] - half
    metres = np.maximum(np.hypot(x, y), scenario.cluster.hop_min_m)
    # Both antennas of a hop at 1 m.
    expected = 10.0 ** (-np.vectorize(inh_nlos)(metres, 3.5, bs=1.0) / 10.0)
    np.testing.assert_allclose(env.state.d2d_gain[..., 0, 1:], expected, rtol=1e-9)


@pytest.mark.parametrize("per", ["round", "second"])
@pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
def test_summaries_divide_by_the_budgets_of_rounds_in_which_a_device_was_there(per):
    """Devices with next to no budget are the worst nodes, so what is counted for them decides."""
    scenario = leaving(budgets={"device_energy_j": 0.5, "cu_energy_j": 1e4, "per": per})
    envs = CollaPipeVectorEnv(6, scenario, "surrogate"), CollaPipeTorchVectorEnv(6, scenario)
    for env in envs:
        env.reset(seed=3)
    used, granted, rounds = 0.0, 0.0, 0.0
    for action in actions_of(envs[0], 9, seed=3):
        for env in envs:
            env.step(action)
        record = envs[0].last_round
        each = np.ones(6) if per == "round" else record.costs.delay / budget_period(scenario)
        used = used + record.costs.energy_ratio[..., 1:]
        granted = granted + record.state.present * each[:, None, None]
        rounds = rounds + each
    there = np.where(granted > 0.0, used / np.maximum(granted, 1e-9), 0.0).max(axis=(-2, -1))
    assert (used[granted == 0.0] == 0.0).all()
    for env in envs:
        found = [env.summary(row)["energy_ratio_max"] for row in range(6)]
        np.testing.assert_allclose(found, there, rtol=1e-9)
    assert (there > 1.01 * used.max(axis=(-2, -1)) / rounds).any()


def test_queues_of_who_is_away_stand_still_in_loops_and_tensors():
    rng = np.random.default_rng(1)
    backlog, ratio = rng.exponential(size=(2, 6, 3, 5))
    granted, present = rng.uniform(0.5, 1.5, 6), rng.random((6, 3, 4)) < 0.7
    taking = rng.random((6, 3)) < 0.7
    # With a period of 1 s the delay is the allowance.
    found = queue_round(backlog, ratio, granted, 1.0, taking, present)
    arrays = map(torch.from_numpy, (backlog, ratio, granted, taking, present))
    tensors = (lambda z, e, delay, *who: queue_round(z, e, delay, 1.0, *who))(*arrays)
    for ours, theirs in zip(found, tensors, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-13)
    np.testing.assert_array_equal(found[0][..., 1:][~present], backlog[..., 1:][~present])
    moved = np.maximum(backlog + ratio - granted[:, None, None], 0.0)
    moved = np.where(taking[..., None], moved, backlog)
    np.testing.assert_allclose(found[0][..., 1:][present], moved[..., 1:][present], rtol=1e-13)
    np.testing.assert_allclose(found[2], found[0].sum(axis=(1, 2)), rtol=1e-13)

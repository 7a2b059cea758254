"""Caps on clocks by hand: heat, pictures, what agents see, and free clocks bit for bit."""

from dataclasses import replace

import numpy as np
import pytest

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.thermal import computing_seconds
from collapipe_env.rendering import draw_round
from collapipe_env.rendering.round_view import RoundView
from collapipe_env.rendering.style import node_colours
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.running import running_state
from tests.opened_support import WARM, opened


def test_heat_is_that_of_the_capped_clock():
    """First law: energy that has flowed in is stored or has flowed out, and caps let less flow in."""
    scenario = opened(
        "clock_cap",
        base="small",
        **{"dynamics.processes": {"heat": {"ambient_min_c": 25.0, "ambient_max_c": 25.0}}},
        **{f"radio.{name}": 0.0 for name in ("d2d_circuit_w", "receive_w", "idle_w")},
        **{"radio.amplifier_efficiency": 1.0},
    )
    env = CollaPipeVectorEnv(1, scenario, learner="surrogate")
    env.reset(seed=0)
    plan = even_split(system_parameters(scenario), env.state)
    capped = replace(plan, clock_cap=np.full_like(plan.device_power, 0.5))
    state = env.state
    running = running_state(state, capped)
    np.testing.assert_allclose(running.compute_power, state.compute_power / 8.0, rtol=1e-12)
    free = computing_seconds(system_parameters(scenario), plan, state.speed, state.clock)
    slow = computing_seconds(system_parameters(scenario), capped, running.speed, running.clock)
    np.testing.assert_allclose(slow, 2.0 * free, rtol=1e-12)
    env.step_allocation(capped)
    costs, R, C = env.last_round.costs, 6.0, 60.0
    joules, T = costs.energy[0, :, 1:], costs.delay[0]
    busy = slow[0] + (joules - running.compute_power[0] * slow[0]) / capped.device_power[0]
    # One node by small steps, busy first.
    theta = np.full_like(joules, 25.0 + R * 0.5)
    steps = 20_000
    for i in range(steps):
        drawn = 0.5 + np.where(i * T / steps < busy, joules / busy, 0.0)
        theta = theta + T / steps * (drawn - (theta - 25.0) / R) / C
    np.testing.assert_allclose(env.state.processes["heat"]["temperature"][0], theta, atol=1e-3)


def test_the_picture_shows_caps():
    env = CollaPipeVectorEnv(1, opened("clock_cap", base="small"), learner="surrogate")
    env.reset(seed=0)
    action = np.random.default_rng(0).uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32)
    env.step(action)
    record = env.last_round

    def coloured(caps):
        """Pixels of the devices' colours in the picture."""
        plan = replace(record.allocation, clock_cap=caps * np.ones_like(record.allocation.clock_cap))
        view = RoundView(replace(record, allocation=plan), "")
        image = draw_round(view).reshape(-1, 3).astype(int)
        wanted = [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in node_colours(view.devices)[1:]]
        return sum(int((image == colour).all(axis=-1).sum()) for colour in wanted)

    # Parts at half the clock are half as high.
    full, half, quarter = map(coloured, (1.0, 0.5, 0.25))
    assert full > half
    assert half - quarter == pytest.approx(0.5 * (full - half), rel=0.15)


def test_an_episode_of_free_clocks_is_that_of_the_closed_decision_bit_for_bit():
    closed, scenario = opened(**WARM), opened("clock_cap", **WARM)
    one, two = (CollaPipeVectorEnv(2, s, learner="surrogate") for s in (closed, scenario))
    seen = one.reset(seed=5)[0], two.reset(seed=5)[0]
    rng = np.random.default_rng(3)
    for _ in range(5):
        for name, values in one.observation_layout.unpack(seen[0]).items():
            np.testing.assert_array_equal(two.observation_layout.unpack(seen[1])[name], values)
        action = rng.uniform(-1.0, 1.0, one.action_space.shape).astype(np.float32)
        parts = dict(one.codec.split(action))
        a = one.step(action)
        b = two.step(two.codec.join({**parts, "clock_cap": np.ones_like(parts["segments"])}))
        seen = a[0], b[0]
        np.testing.assert_array_equal(a[1], b[1])
        heat = (env.state.processes["heat"]["temperature"] for env in (one, two))
        np.testing.assert_array_equal(*heat)


def test_what_agents_see():
    env = CollaPipeVectorEnv(2, opened("clock_cap", **WARM), learner="surrogate")
    graph = CollaPipeVectorEnv(2, opened("clock_cap", **WARM), learner="surrogate", observation="graph")
    seen, _ = env.reset(seed=0)
    other, _ = graph.reset(seed=0)
    share = env.state.speed / env.state.full_speed
    assert np.unique(share).tolist() == [0.5, 1.0]
    found = env.observation_layout.unpack(seen)["device_clock_share"]
    np.testing.assert_allclose(found, np.where(env.state.present, share, 0.0), rtol=1e-6)
    np.testing.assert_array_equal(other["opened"][..., -1], found)

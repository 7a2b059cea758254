"""Caps on clocks in the action box and in environments."""

from dataclasses import fields, replace

import numpy as np
import pytest

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.envs.wrappers import MultiDiscreteActions
from collapipe_env.physics.thermal import computing_seconds
from collapipe_env.rendering import draw_round
from collapipe_env.rendering.round_view import round_view
from collapipe_env.rendering.style import node_colours
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.running import running_state
from tests.opened_support import STATE, WARM, opened


def test_plans_without_caps_run_free():
    scenario = opened("clock_cap")
    codec = action_codec(scenario)
    plan = even_split(system_parameters(scenario), STATE)
    action = codec.encode(plan)
    assert (codec.split(action)["clock_cap"] == 1.0).all()
    assert (codec.decode(action, STATE.memory_cap, STATE.memory_bytes).clock_cap == 1.0).all()
    assert "0.2" in codec.parts["clock_cap"].description
    assert codec.parts["clock_cap"].shape == (scenario.clusters, scenario.max_devices)


def test_levels_of_the_discrete_view_are_geometric():
    scenario = opened("clock_cap", base="small")
    env = MultiDiscreteActions(CollaPipeEnv(scenario=scenario, learner="surrogate"), clock_levels=5)
    env.reset(seed=0)
    K = scenario.max_devices
    levels = np.zeros_like(env.action_space.nvec).reshape(scenario.clusters, -1)
    assert (env.action_space.nvec.reshape(levels.shape)[:, -K:] == 5).all()
    levels[:, :K] = 1
    levels[:, -K:] = [4, 2, 0]
    env.step(levels.ravel())
    found = env.unwrapped.last_round.allocation.clock_cap[0]
    np.testing.assert_allclose(found, 2 * [[1.0, 0.2**0.5, 0.2]], rtol=1e-6)


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


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rounds_on_tensors_are_those_in_numpy(dtype):
    scenario = opened("clock_cap", **WARM)
    env = CollaPipeVectorEnv(2, scenario, "surrogate")
    tensors = CollaPipeTorchVectorEnv(2, scenario, dtype=dtype)
    env.reset(seed=4)
    tensors.reset(seed=4)
    close = 1e-9 if dtype == "float64" else 1e-4
    rng = np.random.default_rng(2)
    for _ in range(4):
        action = rng.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32)
        plan = env.codec.decode(action, env.state.memory_cap, env.state.memory_bytes)
        env.step_allocation(plan)
        tensors.step_allocation(plan)
        one, two = env.last_round, tensors.last_round
        for field in ("delay", "cluster_delay", "energy", "local_step"):
            found = getattr(two.costs, field).numpy()
            np.testing.assert_allclose(found, getattr(one.costs, field), rtol=close, err_msg=field)
        heat = tensors.state.processes["heat"]["temperature"].numpy()
        np.testing.assert_allclose(heat, env.state.processes["heat"]["temperature"], rtol=close)


def test_heat_is_that_of_the_capped_clock():
    """First law: energy that has flowed in is stored or has flowed out, and caps let less flow in."""
    scenario = opened(
        "clock_cap",
        base="small",
        **{"dynamics.processes": {"heat": {"ambient_min_c": 25.0, "ambient_max_c": 25.0}}},
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
    view = round_view(env.last_round, 1, title="")
    for n, cluster in enumerate(view.clusters):
        np.testing.assert_array_equal(cluster.clock_cap, env.last_round.allocation.clock_cap[0, n])

    def coloured(caps):
        """Pixels of the devices' colours in the picture."""
        clusters = tuple(replace(c, clock_cap=caps * np.ones_like(c.device_power_w)) for c in view.clusters)
        image = draw_round(replace(view, clusters=clusters)).reshape(-1, 3).astype(int)
        wanted = [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in node_colours(view.devices)[1:]]
        return sum(int((image == colour).all(axis=-1).sum()) for colour in wanted)

    # Parts at half the clock are half as high.
    bars = coloured(1.0) - coloured(0.5)
    assert bars > 0
    assert coloured(0.5) - coloured(0.25) == pytest.approx(0.5 * bars, rel=0.15)


@pytest.mark.parametrize("name", ["pipeline", "flop_proportional", "splitfed_v1"])
def test_schedulers_that_do_not_know_caps_run_free(name):
    scenario = opened("clock_cap", base="small")
    closed = opened(base="small")
    one, two = (CollaPipeVectorEnv(1, s, learner="surrogate") for s in (scenario, closed))
    one.reset(seed=0)
    two.reset(seed=0)
    plans = [SCHEDULERS.get(name)(s).allocate(e.state) for s, e in ((scenario, one), (closed, two))]
    one.step_allocation(plans[0])
    two.step_allocation(plans[1])
    for field in fields(one.last_round.costs):
        left, right = (getattr(e.last_round.costs, field.name) for e in (one, two))
        if isinstance(left, np.ndarray):
            np.testing.assert_array_equal(left, right, err_msg=field.name)


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

"""The process `heat`: episodes replayed in scalar Python, all environments, saved states, refusals."""

import copy
import math

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hook_processes import actions_of
from stable_baselines3 import PPO

from collapipe_env.dynamics.heat_spec import HeatSpec, heat_numbers
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import ScenarioError, StateError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import reference_delay

HOT = {"capacity_j_per_k": 5.0, "set_c": 27.0, "critical_c": 28.3, "ambient_max_c": 21.0}
"""Devices that are soon too hot."""
DIE = {"profile": "board", "capacity_j_per_k": 5.0, "set_c": 36.0, "critical_c": 38.5, "ambient_max_c": 21.0}
CUBIC = [{"name": "cubic", "clock_max_hz": 1.5e9, "switched_capacitance": 4e-27}]
STATED = [{"name": "stated", "clock_max_hz": 1.5e9, "active_power_w": 6.0}]
KINDS = {
    "step": {**HOT, "period_s": 4.0},
    "pause": {**HOT, "governor": "pause", "hysteresis_k": 2.0},
    "ipa": {**HOT, "governor": "ipa", "on_c": 25.0, "sustainable_w": 1.5},
    "die": {**DIE, "levels": [1.0, 0.8, 0.5]},
    "ipa-stated": {**HOT, "governor": "ipa", "on_c": 25.0, "sustainable_w": 1.5},
}


def scenario_of(kind, rounds=40, **dynamics):
    fields = {
        "base": "small",
        # Links that take little of a round, devices that draw much in it.
        "radio": {f"{link}_bandwidth_hz": 1e9 for link in ("d2d", "uplink", "downlink")},
        "devices": {"profiles": STATED if kind.endswith("stated") else CUBIC},
        "budgets": {"device_energy_j": 1000, "cu_energy_j": 100},
        "dynamics": {"rounds": rounds, "processes": {"heat": KINDS[kind]}, **dynamics},
    }
    return load_scenario(fields)


def heat_of(env):
    return env._mdp.world.system.carried["heat"]


def phase(theta, ambient, power, seconds, own):
    """One phase in small steps, with the heat that has left the device [J]."""
    steps, lost = 4000, 0.0
    dt = seconds / steps
    for _ in range(steps):  # midpoint rule
        half = theta + dt / 2 * (power - (theta - ambient) / own.resistance_k_per_w) / own.capacity_j_per_k
        flow = (half - ambient) / own.resistance_k_per_w
        theta += dt * (power - flow) / own.capacity_j_per_k
        lost += flow * dt
    return theta, lost


@pytest.mark.parametrize("kind", list(KINDS))
def test_an_episode_is_what_scalar_python_makes_of_it(kind):
    """One device, integrated step by step; its governor one move at a time; and the first law."""
    scenario = scenario_of(kind)
    spec = dict(scenario.dynamics.processes)["heat"]
    own = heat_numbers(spec)
    env = CollaPipeVectorEnv(2, scenario, "surrogate")
    env.reset(seed=6)
    n, k = 0, int(np.argmax(env.state.speed[0, 0]))
    assert heat_of(env)["share"][0, n, k] == 1.0
    full_speed, full_power = float(env.state.speed[0, n, k]), float(env.state.compute_power[0, n, k])
    ambient = float(heat_of(env)["ambient"][0, n])
    theta = first = ambient + own.resistance_k_per_w * own.idle_w
    level, remainder, paused, lost, drawn = 0, 0.0, False, 0.0, 0.0
    shares, paused_ever = [], False
    for action in actions_of(env, 30):
        env.step(action)
        costs = env.last_round.costs
        before = env.last_round.state
        delta, joules = float(costs.delay[0]), float(costs.energy[0, n, k + 1])
        computing, sending = computed(env, scenario, n, k)
        busy = min(computing + sending, delta) if joules else 0.0
        power = joules / busy if joules else 0.0
        theta, out = phase(theta, ambient, power + own.idle_w, busy, own)
        theta, more = phase(theta, ambient, own.idle_w, delta - busy, own)
        lost, drawn = lost + out + more, drawn + joules + own.idle_w * delta
        reading = theta + own.die_resistance_k_per_w * (power + own.idle_w)
        cool = reading < own.set_c - own.hysteresis_k
        paused = reading > own.critical_c or (paused and not cool)
        paused_ever |= paused
        remainder += delta
        while remainder >= own.period_s:
            remainder -= own.period_s
            level += (reading > own.set_c) - cool
            level = min(max(level, 0), len(own.levels) - 1)
        share = own.levels[level]
        if spec.governor == "ipa":
            slope = own.sustainable_w / (own.set_c - own.on_c)
            above = own.set_c - reading
            granted = max(own.sustainable_w + slope * above * (2 if above > 0 else 1), own.least_w)
            share = min((granted / full_power) ** (1.0 if kind == "ipa-stated" else 1 / 3), 1.0)
        if paused:
            share = min(share, own.levels[-1])
        found = heat_of(env)
        assert found["temperature"][0, n, k] == pytest.approx(theta, abs=1e-4)
        assert found["reading"][0, n, k] == pytest.approx(reading, abs=1e-4)
        assert bool(found["paused"][0, n, k]) == paused
        assert found["share"][0, n, k] == pytest.approx(share, rel=1e-4)
        if spec.governor != "ipa":
            assert found["level"][0, n, k] == level
            assert found["remainder"][0] == pytest.approx(remainder, abs=1e-9)
        # The share is what the next round runs at.
        power_share = share if kind == "ipa-stated" else share**3
        assert env.state.speed[0, n, k] == pytest.approx(share * full_speed, rel=1e-4)
        assert env.state.compute_power[0, n, k] == pytest.approx(power_share * full_power, rel=1e-3)
        assert before.speed[0, n, k] <= full_speed
        shares.append(share)
    assert min(shares) < 1.0
    assert len(set(shares)) > 1
    assert paused_ever or spec.governor == "ipa"  # which seldom lets it come so far
    # First law: what was drawn is in the device or has left it.
    stored = own.capacity_j_per_k * (float(heat_of(env)["temperature"][0, n, k]) - first)
    assert stored + lost == pytest.approx(drawn, rel=1e-3)


def computed(env, scenario, n, k):
    """Seconds of computing and of sending of a device of a plain plan, from the plan alone."""
    round_ = env.last_round
    plan, state, costs = round_.allocation, round_.state, round_.costs
    work, blocks = scenario.workload, int(plan.blocks[0, n, k])
    elements = costs.elements
    passes = work.local_steps * int(plan.micro_batches[0, n])
    each = elements.compute_forward[0, n, k] + elements.compute_backward[0, n, k]
    launches = scenario.overheads.update_s
    from collapipe_env.simulator.build import system_parameters

    update = blocks * system_parameters(scenario).overheads.update_cycles / float(state.clock[0, n, k])
    seconds = passes * float(each) + work.local_steps * update * (launches > 0.0)
    radio = float(costs.energy[0, n, k + 1]) - seconds * float(state.compute_power[0, n, k])
    drawn = (
        scenario.radio.d2d_circuit_w + float(plan.device_power[0, n, k]) / scenario.radio.amplifier_efficiency
    )
    return seconds, max(radio, 0.0) / drawn


def test_without_resistance_nothing_changes():
    off = load_scenario({"base": "small", "dynamics": {"rounds": 8}})
    on = off.with_overrides({"dynamics.processes": {"heat": {"resistance_k_per_w": 0.0}}})
    plain, own = (CollaPipeVectorEnv(3, scenario, "surrogate") for scenario in (off, on))
    a, b = plain.reset(seed=2)[0], own.reset(seed=2)[0]
    for action in actions_of(plain, 10):
        np.testing.assert_array_equal(b[:, : a.shape[1]], a)
        theta = heat_of(own)["temperature"]
        np.testing.assert_array_equal(theta, heat_of(own)["ambient"][..., None] + 0.0 * theta)
        found, expected = own.step(action), plain.step(action)
        a, b = expected[0], found[0]
        for x, y in zip(found[1:4], expected[1:4], strict=True):
            np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(own.last_round.costs.energy, plain.last_round.costs.energy)


def test_a_device_that_cannot_reach_the_set_point_keeps_its_full_clock():
    scenario = load_scenario({"base": "small", "dynamics": {"rounds": 100, "processes": {"heat": {}}}})
    spec = dict(scenario.dynamics.processes)["heat"]
    own = heat_numbers(spec)
    env = CollaPipeVectorEnv(4, scenario, "surrogate")
    env.reset(seed=6)
    most = env.state.compute_power + scenario.devices.power_max_w + own.idle_w
    steady = heat_of(env)["ambient"][..., None] + own.resistance_k_per_w * most
    safe = steady < own.set_c
    assert safe.any()
    for action in actions_of(env, 60):
        env.step(action)
        assert (heat_of(env)["level"][safe] == 0).all()
        assert (heat_of(env)["temperature"] <= steady + 1e-9).all()


@pytest.mark.parametrize("governor", ["step", "ipa"])
def test_numpy_single_and_torch_environments_agree(governor):
    scenario = scenario_of(governor)
    vector, tensors = CollaPipeVectorEnv(3, scenario, "surrogate"), CollaPipeTorchVectorEnv(3, scenario)
    single = CollaPipeEnv(scenario, "surrogate")
    seeds = [11, 12, 13]
    for env in (vector, tensors):
        env.reset(seed=seeds)
    first = single.reset(seed=12)[0]
    np.testing.assert_array_equal(first, vector.reset(seed=seeds)[0][1])
    for action in actions_of(vector, 10):
        a, b, c = vector.step(action), tensors.step(action), single.step(action[1])
        np.testing.assert_allclose(b[0].numpy(), a[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(c[0], a[0][1])  # a row does not depend on the others
        for name, values in heat_of(vector).items():
            np.testing.assert_allclose(heat_of(tensors)[name].numpy(), values, rtol=1e-9, atol=1e-9)
    assert (heat_of(vector)["share"] < 1.0).any()


def test_single_precision_keeps_its_types():
    tensors = CollaPipeTorchVectorEnv(3, scenario_of("die"), dtype="float32")
    tensors.reset(seed=1)
    before = {name: values.dtype for name, values in heat_of(tensors).items()}
    for action in actions_of(tensors, 4):
        tensors.step(action)
    assert {name: values.dtype for name, values in heat_of(tensors).items()} == before


def test_it_is_observed():
    scenario = scenario_of("step")
    flat = CollaPipeVectorEnv(2, scenario, "surrogate")
    graph = CollaPipeVectorEnv(2, scenario, "surrogate", observation="graph")
    a, b = flat.reset(seed=3)[0], graph.reset(seed=3)[0]
    for action in actions_of(flat, 10):
        a, b = flat.step(action)[0], graph.step(action)[0]
    own, state = heat_numbers(dict(scenario.dynamics.processes)["heat"]), flat.state
    carried = state.processes["heat"]
    headroom = np.clip((carried["temperature"] - 25.0) / (own.set_c - 25.0), 0.0, 1.5)
    assert 0.0 < headroom.max() < 1.5
    assert headroom.min() == 0.0
    seen = flat.observation_layout.physical(a)
    np.testing.assert_allclose(seen["heat_headroom"], headroom, atol=1e-6)
    np.testing.assert_allclose(seen["heat_level"], carried["level"], atol=1e-6)
    assert (seen["heat_level"] > 0).any()
    arrays = graph.observation_layout.physical(b)["heat"]
    np.testing.assert_allclose(arrays["headroom"], headroom, atol=1e-6)
    np.testing.assert_allclose(arrays["clock_share"], np.array(own.levels)[carried["level"]], atol=1e-6)
    space = graph.single_observation_space["heat"]
    assert all(space.contains(row) for row in b["heat"])
    without = CollaPipeVectorEnv(2, "small", "surrogate", observation="graph").reset(seed=3)[0]
    assert "heat" not in without
    ipa = CollaPipeVectorEnv(2, scenario_of("ipa"), "surrogate")
    assert "heat_level" not in ipa.observation_layout


def test_surroundings_are_uniform_and_constant_in_an_episode():
    env = CollaPipeVectorEnv(500, scenario_of("step"), "surrogate")
    env.reset(seed=1)
    ambient = heat_of(env)["ambient"]
    assert ambient.shape == (500, env.scenario.clusters)
    assert (ambient.min(), ambient.max()) == (pytest.approx(18.0, abs=0.1), pytest.approx(21.0, abs=0.1))
    assert ambient.mean() == pytest.approx(19.5, abs=0.1)
    env.step(next(iter(actions_of(env, 1))))
    np.testing.assert_array_equal(heat_of(env)["ambient"], ambient)
    constant = scenario_of("step").with_overrides(
        {"dynamics.processes": {"heat": {"ambient_min_c": 21.0, "ambient_max_c": 21.0}}}
    )
    fixed = CollaPipeVectorEnv(3, constant, "surrogate")
    fixed.reset(seed=1)
    assert (heat_of(fixed)["ambient"] == 21.0).all()


def test_by_the_reference_clock_a_round_lasts_as_long_as_a_usual_one():
    scenario = scenario_of("step", time_base="reference")
    env = CollaPipeVectorEnv(3, scenario, "surrogate")
    env.reset(seed=1)
    usual, period = reference_delay(scenario), KINDS["step"]["period_s"]
    for t, action in enumerate(actions_of(env, 5)):
        env.step(action)
        np.testing.assert_allclose(heat_of(env)["remainder"], math.fmod((t + 1) * usual, period), atol=1e-9)


def test_clusters_that_sit_out_and_devices_that_are_away_cool():
    fields = {
        "base": "small",
        "decisions": ["segments", "micro_batches", "bandwidth", "powers", "participation"],
        "cluster": {"clusters": 2, "devices": [3, 5]},
        "dynamics": {"processes": {"heat": HOT}},
    }
    env = CollaPipeVectorEnv(2, fields, "surrogate")
    env.reset(seed=1)
    own = heat_numbers(dict(env.scenario.dynamics.processes)["heat"])
    assert (heat_of(env)["temperature"][:, 0, 3:] == heat_of(env)["ambient"][:, :1]).all()
    for action in actions_of(env, 12):
        before, ambient = heat_of(env)["temperature"], heat_of(env)["ambient"][..., None]
        env.step(action)
        plays, delay = env.last_round.costs.plays, env.last_round.costs.delay[:, None, None]
        away = ~env.state.present
        out = ~plays[..., None] & ~away
        steady = ambient + own.resistance_k_per_w * own.idle_w * ~away
        left = np.exp(-delay / (own.resistance_k_per_w * own.capacity_j_per_k))
        cooled = steady + (before - steady) * left
        for which in (out, away):
            np.testing.assert_allclose(heat_of(env)["temperature"][which], cooled[which], rtol=1e-9)
        if out.any():
            break
    assert out.any()


@pytest.mark.parametrize("kind", ["step", "ipa", "die"])
def test_episodes_go_on_from_a_saved_state(kind):
    scenario = scenario_of(kind)
    one, two = (CollaPipeVectorEnv(2, scenario, "surrogate") for _ in range(2))
    one.reset(seed=8)
    actions = list(actions_of(one, 8))
    for action in actions[:5]:
        one.step(action)
    saved = one.get_state()
    two.set_state(copy.deepcopy(saved))
    for action in actions[5:]:
        a, b = one.step(action), two.step(action)
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1], b[1])
    for name, values in heat_of(one).items():
        np.testing.assert_array_equal(heat_of(two)[name], values)
    damage = {"temperature": -300.0, "ambient": 60.0, "headroom": 0.77, "share": 0.123}
    damage |= {"full_power": -1.0} if kind == "ipa" else {"level": 7, "remainder": -1.0}
    if kind != "die":
        damage["reading"] = 30.0
    for name, value in damage.items():
        broken = copy.deepcopy(saved)
        broken["mdp"]["simulator"]["processes"]["heat"][name][:] = value
        with pytest.raises(StateError, match="processes/heat"):
            two.set_state(broken)


def test_gymnasium_and_stable_baselines():
    scenario = scenario_of("step", rounds=8).to_dict()
    check_env(gym.make("CollaPipeSurrogate-v0", scenario=scenario).unwrapped, skip_render_check=True)
    model = PPO(
        "MlpPolicy", make_sb3_vec_env(scenario, 2, learner="surrogate"), n_steps=8, batch_size=8, n_epochs=1
    )
    model.learn(16)
    assert model.num_timesteps == 16


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"profile": "tablet"}, r"heat\.profile: got 'tablet'.*'phone', 'board' or 'board_cased'"),
        ({"governor": "fan"}, r"heat\.governor: got 'fan'.*'step', 'pause' or 'ipa'"),
        ({"resistance_k_per_w": -1.0}, r"resistance_k_per_w is -1: give 0 to 1e\+06 K/W"),
        ({"capacity_j_per_k": 0.0}, r"capacity_j_per_k is 0: give 1e-06 to 1e\+09 J/K"),
        ({"set_c": 20.0}, r"set_c is 20: give 26"),
        ({"critical_c": 40.0}, r"critical_c is 40: give set_c = 43 or more"),
        ({"governor": "ipa", "on_c": 43.0}, r"on_c is 43: the governor ipa begins below set_c = 43"),
        ({"ambient_min_c": 30.0, "ambient_max_c": 20.0}, r"ambient_min_c is 30, above ambient_max_c = 20"),
        ({"levels": [1.0]}, r"levels are \[1\.0\]: give two or more"),
        ({"levels": [0.9, 0.5]}, r"levels are .*1 first"),
        ({"levels": [1.0, 0.5, 0.6]}, r"levels are .*descending"),
        ({"levels": [1.0, 0.0]}, r"levels are .*above 0"),
        ({"levels": [1.0, float("nan")]}, r"levels.1: got nan, but the input should be a finite number"),
        ({"governor": "pause", "levels": [1.0, 0.5, 0.2]}, r"the governor pause has two"),
        ({"idle_w": float("nan")}, r"idle_w"),
        ({"period_s": 0.0}, r"period_s is 0: give 0\.001"),
        ({"warmth": 1.0}, r"heat\.warmth: got 1\.0, but there is no field 'warmth'"),
    ],
)
def test_bad_fields_are_refused(fields, message):
    with pytest.raises(ScenarioError, match=r"dynamics\.processes.*" + message):
        load_scenario({"base": "small", "dynamics": {"processes": {"heat": fields}}})


def test_profiles_and_what_follows_from_them():
    phone, board, cased = (heat_numbers(HeatSpec(profile=name)) for name in ("phone", "board", "board_cased"))
    for found, seconds in ((phone, 360.0), (board, 90.0), (cased, 213.0)):
        assert found.resistance_k_per_w * found.capacity_j_per_k == pytest.approx(seconds, rel=0.02)
    # Beside half a watt of idling, 2.5 W hold a phone of 6 K/W at 43 C in a room of 25 C.
    assert phone.sustainable_w == pytest.approx(2.5)
    assert board.sustainable_w == pytest.approx(55 / 7.4 - 1.6)
    pause = heat_numbers(HeatSpec(governor="pause"))
    assert (pause.levels, pause.hysteresis_k) == ((1.0, 0.25), 5.0)
    assert heat_numbers(HeatSpec(governor="pause", levels=(1.0, 0.4))).levels == (1.0, 0.4)
    scenario = load_scenario({"base": "small", "dynamics": {"processes": {"heat": {"idle_w": 0.1}}}})
    assert load_scenario(scenario.to_dict()) == scenario

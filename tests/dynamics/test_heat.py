"""The process `heat`: episodes replayed in scalar Python, who cools, and surroundings that drift."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from process_support import actions_of, carried_of

from collapipe_env.dynamics.heat_spec import HeatSpec, heat_numbers
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.thermal import ambient_after
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import reference_delay, system_parameters

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
        # Links that take little of a round, devices that draw much in it, and hear for nothing.
        "radio": {
            "d2e_path_loss": "free-space",
            "d2d_path_loss": "free-space",
            "receive_w": 0,
            "d2d_total_hz": 4e9,
            "uplink_bandwidth_hz": 1e9,
            "downlink_bandwidth_hz": 1e9,
        },
        "cluster": {"layout_seed": 0},  # with clocks that the governor first leaves alone
        "devices": {"profiles": STATED if kind.endswith("stated") else CUBIC},
        "budgets": {"device_energy_j": 1000, "cu_energy_j": 100},
        "dynamics": {"rounds": rounds, "processes": {"heat": KINDS[kind]}, **dynamics},
    }
    return load_scenario(fields)


def heat_of(env):
    return carried_of(env)["heat"]


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
    env.reset(seed=7)
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
        delta, joules = float(costs.delay[0]), float(costs.busy_energy[0, n, k + 1])
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
        headroom = min(max((reading - 25.0) / (own.set_c - 25.0), 0.0), 1.5)
        assert found["headroom"][0, n, k] == pytest.approx(headroom, abs=1e-4)
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
    update = blocks * system_parameters(scenario).overheads.update_cycles / float(state.clock[0, n, k])
    seconds = passes * float(each) + work.local_steps * update * (launches > 0.0)
    radio = float(costs.busy_energy[0, n, k + 1]) - seconds * float(state.compute_power[0, n, k])
    drawn = (
        scenario.radio.d2d_circuit_w + float(plan.device_power[0, n, k]) / scenario.radio.amplifier_efficiency
    )
    return seconds, max(radio, 0.0) / drawn


def test_clusters_that_sit_out_and_devices_that_are_away_cool():
    fields = {
        "base": "small",
        "decisions": ["segments", "micro_batches", "bandwidth", "powers", "participation"],
        "cluster": {"clusters": 2, "devices": [3, 5]},
        "budgets": {"device_energy_j": 40, "cu_energy_j": 40},
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


def test_a_cap_is_one_on_the_full_clock_which_load_slows_down_too():
    env = CollaPipeVectorEnv(2, scenario_of("step", load_levels=[0.8]), "surrogate")
    env.reset(seed=6)
    full = env.state.speed / 0.8
    for action in actions_of(env, 8):
        env.step(action)
        np.testing.assert_allclose(env.state.speed, np.minimum(heat_of(env)["share"], 0.8) * full, rtol=1e-12)
    assert (heat_of(env)["share"] < 0.8).any()


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


TAU, SD = 120.0, 2.0


def drifting(num_envs, base="mixed", seed=0, clusters=2, **heat):
    """An environment whose surroundings are an Ornstein-Uhlenbeck process about each episode's mean."""
    fields = {"ambient_sd_k": SD, "ambient_tau_s": TAU, **heat}
    dynamics = {"rounds": 60, "time_base": base, "processes": {"heat": fields}}
    parts = {"cluster": {"clusters": clusters}, "budgets": {"cu_energy_j": 40}, "dynamics": dynamics}
    scenario = load_scenario({"base": "small", "name": "drifting", **parts})
    env = CollaPipeVectorEnv(num_envs, scenario, "surrogate")
    env.reset(seed=seed)
    return env


def moments(start, seconds):
    """Mean and deviation of the law after some time."""
    one = np.ones(1)
    mean = ambient_after(start * one, 20.0 * one, seconds * one, TAU, SD, 0.0 * one)[0]
    return mean, ambient_after(start * one, 20.0 * one, seconds * one, TAU, SD, one)[0] - mean


@given(start=st.floats(-20.0, 60.0), a=st.floats(0.0, 1e4), b=st.floats(0.0, 1e4))
def test_two_times_one_after_the_other_have_the_law_of_their_sum(start, a, b):
    first, spread = moments(start, a)
    mean, more = moments(first, b)
    expected, deviation = moments(start, a + b)
    assert mean == pytest.approx(expected, abs=1e-9)
    # What was drawn first has faded when the second draw is added.
    assert math.hypot(spread * math.exp(-b / TAU), more) == pytest.approx(deviation, abs=1e-9)


def test_the_ends_of_the_law():
    assert moments(31.0, 0.0) == (31.0, 0.0)
    mean, deviation = moments(31.0, 1e6)
    assert (mean, deviation) == (pytest.approx(20.0), pytest.approx(SD))
    # After one time constant 1 / e is left of a distance, and 1 - 1 / e^2 of the variance is new.
    mean, deviation = moments(31.0, TAU)
    assert mean == pytest.approx(20.0 + 11.0 / math.e)
    assert deviation == pytest.approx(SD * math.sqrt(1.0 - math.exp(-2.0)))


@pytest.mark.parametrize("clusters", [2, 3])
def test_surroundings_are_stationary_and_forget_exponentially(clusters):
    env = drifting(1200, seed=5, clusters=clusters)
    mean, ambient = heat_of(env)["ambient_mean"], [heat_of(env)["ambient"]]
    assert (mean.min(), mean.max()) == (pytest.approx(18.0, abs=0.1), pytest.approx(35.0, abs=0.1))
    assert mean.mean() == pytest.approx(26.5, abs=4.0 * 17.0 / math.sqrt(12.0 * mean.size))
    for action in actions_of(env, 12):
        env.step(action)
        ambient.append(heat_of(env)["ambient"])
    away = np.stack(ambient) - mean
    np.testing.assert_array_equal(heat_of(env)["ambient_mean"], mean)
    rows = away[0].size
    for t in (0, 6, 12):
        assert away[t].std() == pytest.approx(SD, rel=4.0 / math.sqrt(2.0 * rows))
        assert away[t].mean() == pytest.approx(0.0, abs=4.0 * SD / math.sqrt(rows))
    usual = reference_delay(env.scenario)
    for lag in (1, 5, 12):
        correlation = (away[0] * away[lag]).mean() / SD**2
        assert correlation == pytest.approx(math.exp(-lag * usual / TAU), abs=4.0 / math.sqrt(rows))
    # Clusters drift by themselves, and so do environments.
    assert abs(np.corrcoef(away[0, :, 0], away[0, :, 1])[0, 1]) < 4.0 / math.sqrt(1200)


def test_under_real_surroundings_move_by_the_delay():
    env, reference = (drifting(2, base, seed=1) for base in ("real", "reference"))
    action = actions_of(env, 1)[0]
    start, mean = heat_of(env)["ambient"], heat_of(env)["ambient_mean"]
    for one in (env, reference):
        one.step(action)

    def drawn(one, seconds):
        """The normal number that a move was made by."""
        kept = np.exp(-seconds / TAU)
        return (heat_of(one)["ambient"] - mean - (start - mean) * kept) / (SD * np.sqrt(1.0 - kept**2))

    delay = env.last_round.costs.delay[:, None]
    np.testing.assert_allclose(drawn(env, delay), drawn(reference, reference_delay(env.scenario)), rtol=1e-9)


def test_devices_feel_the_surroundings_that_the_round_began_with():
    env = drifting(2, seed=3, resistance_k_per_w=0.0)
    for action in actions_of(env, 3):
        before = heat_of(env)["ambient"][..., None]
        env.step(action)
        np.testing.assert_array_equal(heat_of(env)["temperature"], before + 0.0 * heat_of(env)["temperature"])


def test_means_are_those_of_surroundings_that_stand_still():
    one, two = drifting(3, seed=2), drifting(3, seed=2, ambient_sd_k=0.0, ambient_tau_s=1800.0)
    np.testing.assert_array_equal(heat_of(one)["ambient_mean"], heat_of(two)["ambient"])
    assert "ambient_mean" not in heat_of(two)
    fixed = drifting(3, seed=2, ambient_min_c=21.0, ambient_max_c=21.0)
    assert (heat_of(fixed)["ambient_mean"] == 21.0).all()
    assert (heat_of(fixed)["ambient"] != 21.0).all()

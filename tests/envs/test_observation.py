"""Observations: every named slice against the state, recomputed with plain scalar formulas."""

import dataclasses
import math

import gymnasium as gym
import numpy as np
import pytest
from env_support import VARIANTS, make_actions, make_env
from unpriced_support import NO_OVERHEADS

from collapipe_env.scenario.block_prices import block_prices


def scaled_gain(gain, near_m, far_m, offset, slope):
    """Gain in dB, scaled so that the path losses at the two distances become 1 and -1."""
    near, far = (-(offset + slope * math.log10(d / 1000.0)) for d in (near_m, far_m))
    half = max((near - far) / 2.0, 10.0)
    return min(max((10.0 * math.log10(gain) - (near + far) / 2.0) / half, -3.0), 3.0)


def expected_features(env):
    s, sc = env.state, env.scenario
    N, K, L = sc.clusters, sc.max_devices, sc.blocks
    c = sc.cluster
    top = max(p.clock_max_hz * p.flops_per_cycle for p in sc.devices.profiles)

    def d2d(gain):
        return scaled_gain(gain, c.hop_min_m, math.hypot(c.area_side_m, c.area_side_m), 148.0, 40.0)

    out = {
        name: np.zeros((N, K))
        for name in (
            "device_backlog",
            "device_speed",
            "device_capacity",
            "device_hop_gain",
            "device_cu_gain",
            "device_present",
        )
    }
    for n in range(N):
        for k in range(K):
            if not s.present[0, n, k]:
                continue
            out["device_backlog"][n, k] = min(s.backlog[0, n, k + 1] / sc.budgets.backlog_cap, 1.0)
            out["device_speed"][n, k] = 2.0 * s.speed[0, n, k] / top - 1.0
            out["device_capacity"][n, k] = 2.0 * min(s.memory_cap[0, n, k], L) / L - 1.0
            out["device_hop_gain"][n, k] = d2d(s.d2d_gain[0, n, k, k + 1])
            out["device_cu_gain"][n, k] = d2d(s.d2d_gain[0, n, 0, k + 1])
            out["device_present"][n, k] = 1.0
    out["uplink_gain"] = np.array(
        [scaled_gain(h, c.cu_distance_min_m, c.cu_distance_max_m, 128.1, 37.6) for h in s.uplink_gain[0]]
    )
    out["cu_backlog"] = np.minimum(s.backlog[0, :, 0] / sc.budgets.backlog_cap, 1.0)
    out["round"] = np.array(s.round_index[0] / sc.dynamics.rounds)
    out["loss"] = np.array(min(max(s.loss[0] / math.log(2.0) - 1.0, -1.0), 3.0))
    if "recompute" in sc.decisions:
        # Inputs of blocks for the whole mini-batch, and one block's activations of the largest micro-batch.
        w, price = sc.workload, block_prices(dataclasses.replace(sc.workload, recompute=True))
        block = 16 * price.parameters + w.batch_size * price.stored_bytes
        room = s.memory_bytes[0] - w.batch_size / w.micro_batch_choices[0] * price.working_bytes
        held = np.minimum(np.floor(np.maximum(room, 0.0) / block), L)
        out["device_other_capacity"] = np.where(s.present[0], 2.0 * held / L - 1.0, 0.0)
    if "schedule" in sc.decisions:
        # One micro-batch of the smallest size.
        w, price = sc.workload, block_prices(sc.workload)
        samples = w.batch_size / w.micro_batch_choices[-1]
        room = np.maximum(s.memory_bytes[0] - samples * price.working_bytes, 0.0)
        held = np.minimum(np.floor(room / (16 * price.parameters + samples * price.stored_bytes)), L)
        out["device_flight_capacity"] = np.where(s.present[0], 2.0 * held / L - 1.0, 0.0)
    return out


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "walking"])
def test_slices_hold_the_state(name):
    env = make_env(name, rounds=8)
    layout = env.observation_layout
    observation, _ = env.reset(seed=3)
    seen_backlog = 0.0
    for action in make_actions(env, 8, seed=1):
        expected = expected_features(env)
        assert list(expected) == list(layout)
        for feature, value in layout.unpack(observation).items():
            np.testing.assert_allclose(value, expected[feature], atol=2e-6, err_msg=feature)
        assert env.observation_space.contains(observation)
        seen_backlog += expected["device_backlog"].sum() + expected["cu_backlog"].sum()
        observation = env.step(action)[0]
    assert seen_backlog > 0.0


PROFILES = [
    {"name": "phone", "switched_capacitance": 1e-27},
    {"name": "board", "flops_per_cycle": 64, "clock_max_hz": 4e9, "active_power_w": 6.0},
]


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"devices": {"profiles": PROFILES}}, True),
        ({"devices": {"profiles": PROFILES}, "overheads": {**NO_OVERHEADS, "block_s": 0.003}}, True),
        ({"devices": {"profiles": PROFILES}, "overheads": {**NO_OVERHEADS, "update_s": 0.005}}, True),
        ({"devices": {"profiles": PROFILES}, "overheads": {**NO_OVERHEADS, "message_s": 0.001}}, False),
        ({"overheads": {"block_s": 0.003}}, False),  # the speed tells the clock
    ],
)
def test_clocks_are_shown_where_launches_depend_on_them_and_speeds_do_not_tell(changes, shown):
    loads = {"load_levels": [0.5, 1.0], "load_stay_probability": 0.5}
    scenario = {"base": "small", "budgets": {"device_energy_j": 60}, "dynamics": loads, **changes}
    env = gym.make("CollaPipeSurrogate-v0", scenario=scenario).unwrapped
    observation, _ = env.reset(seed=5)
    assert ("device_clock" in env.observation_layout) == shown
    if shown:
        for _ in range(4):
            found = env.observation_layout.physical(observation)["device_clock"]
            np.testing.assert_allclose(found, env.state.clock[0], rtol=1e-6)
            observation = env.step(env.action_space.sample())[0]


@pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
def test_features_stay_within_bounds_in_deep_fades():
    from collapipe_env.envs.env import CollaPipeEnv

    scenario = {
        "base": "small",
        "radio": {"diversity": 1, "d2e_shadowing_db": 30.0, "d2d_shadowing_db": 30.0},
        "budgets": {"device_energy_j": 0.01, "cu_energy_j": 1e-4},
    }
    env = CollaPipeEnv(scenario, "surrogate")
    for seed in range(20):
        assert env.observation_space.contains(env.reset(seed=seed)[0])
        observation = env.step(np.ones(env.action_space.shape, np.float32))[0]
        assert env.observation_space.contains(observation)
    assert env.observation_layout.unpack(observation)["device_backlog"].max() == 1.0

"""Observations in physical units, and features that are added to the table."""

import math
import pickle
import re

import gymnasium as gym
import numpy as np
import pytest
import torch
from environments_support import make_actions, shortened, single
from unpriced_support import NO_OVERHEADS

from collapipe_env.decisions.schedule import flight_capacity
from collapipe_env.envs import features
from collapipe_env.envs.observation import FlatObserver
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.feature import Feature
from collapipe_env.simulator.state import other_memory_caps


def physical_state(env):
    """What each feature should say of the state, in physical units; from the state alone."""
    s, sc = env.state, env.scenario
    present, cap, walks = s.present[0], sc.budgets.backlog_cap, "mobility" in s.processes
    hop = np.stack([np.diagonal(g, offset=1) for g in s.d2d_gain[0]])

    def devices(values):
        return np.where(present, values, np.nan)

    parameters, opened = system_parameters(sc), {}
    if parameters.other_costs is not None:
        caps = np.minimum(other_memory_caps(parameters, s)[0], sc.blocks)
        opened["device_other_capacity"] = devices(caps)
    if "schedule" in sc.decisions:
        opened["device_flight_capacity"] = devices(flight_capacity(parameters, s)[0])
    return {
        "device_backlog": devices(np.minimum(s.backlog[0, :, 1:], cap)),
        "device_speed": devices(s.speed[0]),
        "device_capacity": devices(np.minimum(s.memory_cap[0], sc.blocks)),
        "device_hop_gain": devices(10.0 * np.log10(hop)),
        "device_cu_gain": devices(10.0 * np.log10(s.d2d_gain[0, :, 0, 1:])),
        "device_present": present,
        "uplink_gain": 10.0 * np.log10(s.uplink_gain[0]),
        "cu_backlog": np.minimum(s.backlog[0, :, 0], cap),
        "round": s.round_index[0],
        "loss": s.loss[0],
        **opened,
        **{
            f"mobility_{name}": devices(s.processes["mobility"][name][0])
            for name in (("x", "y", "speed") if walks else ())
        },
    }


SCENARIOS = ("small", "medium", "moving", "uneven", "decided", "opened", "walking", "arq")


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
def test_physical_units_are_those_of_the_state(name):
    # Budgets so small that queues fill.
    env = single(load_scenario(shortened(name, 6)).with_overrides({"budgets.device_energy_j": 2.0}))
    layout = env.observation_layout
    observation, _ = env.reset(seed=3)
    bounds = {n: (f.scale * f.low + f.offset, f.scale * f.high + f.offset) for n, f in layout.items()}
    filled = 0.0
    for action in make_actions(env, 6, seed=1):
        found, expected = layout.physical(observation), physical_state(env)
        assert list(found) == list(expected) == list(layout)
        for feature, values in expected.items():
            low, high = bounds[feature]
            kept = values if feature == "device_present" else np.clip(values, low, high)
            # A part in ten million of the range is lost in single precision.
            np.testing.assert_allclose(
                found[feature], kept, rtol=0, atol=3e-7 * (high - low), err_msg=feature
            )
            assert found[feature].shape == layout[feature].shape
        filled += expected["cu_backlog"].sum() + np.nansum(expected["device_backlog"])
        observation = env.step(action)[0]
    assert filled > 0.0
    if name == "uneven":
        assert np.isnan(found["device_speed"]).any()
    assert not np.isnan(found["uplink_gain"]).any()


def test_physical_keeps_leading_axes_and_tensors():
    env = single("uneven")
    layout, (observation, _) = env.observation_layout, env.reset(seed=0)
    alone = layout.physical(observation)
    batch = layout.physical(np.broadcast_to(observation, (2, 3, layout.size)))
    tensors = layout.physical(torch.from_numpy(observation))
    for name, values in alone.items():
        assert batch[name].shape == (2, 3, *layout[name].shape)
        np.testing.assert_array_equal(batch[name][1, 2], values)
        assert isinstance(tensors[name], torch.Tensor)
        np.testing.assert_array_equal(tensors[name].numpy(), values)


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
    env = single(scenario)
    observation, _ = env.reset(seed=5)
    assert ("device_clock" in env.observation_layout) == shown
    if shown:
        for _ in range(4):
            found = env.observation_layout.physical(observation)["device_clock"]
            np.testing.assert_allclose(found, env.state.clock[0], rtol=1e-6)
            observation = env.step(env.action_space.sample())[0]


@pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
def test_features_stay_within_bounds_in_deep_fades():
    scenario = {
        "base": "small",
        "radio": {"diversity": 1, "d2e_shadowing_db": 30.0, "d2d_shadowing_db": 30.0},
        "budgets": {"device_energy_j": 0.01, "cu_energy_j": 1e-4},
    }
    env = single(scenario)
    for seed in range(20):
        assert env.observation_space.contains(env.reset(seed=seed)[0])
        observation = env.step(np.ones(env.action_space.shape, np.float32))[0]
        assert env.observation_space.contains(observation)
    assert env.observation_layout.unpack(observation)["device_backlog"].max() == 1.0


# Features that are added


def memory_bytes(state):
    return state.memory_bytes


def share_there(state):
    return 1.0 * state.present[:, 0].sum(-1) / state.present.shape[-1]


def source(_):
    yield Feature("memory", "N K", "byte", 0.0, 2.0**32, "memory", memory_bytes, array="room")
    yield Feature(
        "present_share", "", "1", 0.0, 1.0, "share of devices", share_there, array="crowd", log1p=True
    )


@pytest.fixture
def core(monkeypatch):
    """Observations of `small` before a source of features is added to the table."""
    env = single("small")
    observation, _ = env.reset(seed=0)
    monkeypatch.setattr(features, "SOURCES", (*features.SOURCES, source))
    return env, observation


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("observation", ["flat", "graph"])
def test_a_new_feature_is_one_function_and_one_line(core, observation, backend):
    env, plain = core
    more = gym.make_vec(
        "CollaPipeSurrogate-v0", 1, scenario=env.scenario, observation=observation, backend=backend
    )
    seen, _ = more.reset(seed=0)
    layout = pickle.loads(pickle.dumps(more.observation_layout))
    physical = layout.physical(seen)
    if observation == "flat":
        D = env.observation_layout.size
        assert list(layout)[-2:] == ["memory", "present_share"]
        np.testing.assert_allclose(np.asarray(seen)[0, :D], plain, atol=1e-6)
        assert more.single_observation_space.shape == (D + 6 + 1,)
        assert re.search(r"memory +\[\d+:\d+\].*memory; 0 for 0 byte, 1 for", layout.describe())
        memory, share = physical["memory"], physical["present_share"]
    else:
        assert list(layout)[-2:] == ["room", "crowd"]
        memory, share = physical["room"]["memory"], physical["crowd"]["present_share"]
    found = np.asarray(memory)[0]
    np.testing.assert_allclose(found, np.minimum(env.state.memory_bytes[0], 2.0**32), rtol=1e-6)
    assert float(share[0]) == pytest.approx(1.0, rel=1e-6)
    first = {name: np.asarray(part)[0] for name, part in seen.items()} if observation == "graph" else seen[0]
    assert more.single_observation_space.contains(first if observation == "graph" else np.asarray(first))


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_values_beyond_the_bounds_become_these(monkeypatch, value):
    env = single("small")
    env.reset(seed=0)
    wild = Feature("wild", "", "1", -1.0, 1.0, "too much", lambda state: state.loss * 0.0 + value, least=-1.0)
    monkeypatch.setattr(features, "SOURCES", (*features.SOURCES, lambda _: [wild]))
    observer = FlatObserver(env.scenario)
    assert observer.build(env.state)[0, -1] == math.copysign(1.0, value)
    assert observer.build_generic(env.state)[0, -1] == math.copysign(1.0, value)


def test_two_features_of_one_name_are_refused(monkeypatch):
    again = Feature("loss", "", "1", 0.0, 1.0, "again", lambda state: state.loss)
    monkeypatch.setattr(features, "SOURCES", (*features.SOURCES, lambda _: [again]))
    with pytest.raises(ScenarioError, match="two features of the observation are called 'loss'"):
        FlatObserver(load_scenario("small"))

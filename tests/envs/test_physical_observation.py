"""Observations in physical units, and features that are appended to the core block."""

import math
import re

import numpy as np
import pytest
import torch
from env_support import VARIANTS, make_actions, make_env

from collapipe_env.decisions.schedule import flight_capacity
from collapipe_env.envs.observation import FeatureSource, ObservationBuilder
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
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


@pytest.mark.parametrize("name", VARIANTS)
def test_physical_units_are_those_of_the_state(name):
    env = make_env(name, rounds=6)
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
    env = make_env("uneven")
    layout, (observation, _) = env.observation_layout, env.reset(seed=0)
    single = layout.physical(observation)
    batch = layout.physical(np.broadcast_to(observation, (2, 3, layout.size)))
    tensors = layout.physical(torch.from_numpy(observation))
    for name, values in single.items():
        assert batch[name].shape == (2, 3, *layout[name].shape)
        np.testing.assert_array_equal(batch[name][1, 2], values)
        assert isinstance(tensors[name], torch.Tensor)
        np.testing.assert_array_equal(tensors[name].numpy(), values)


# Features that are appended


HEADROOM = FeatureSource(
    "memory",
    (2, 3),
    0.0,
    1.0,
    "memory over 4 GiB",
    lambda state: state.memory_bytes / 2.0**32,
    "byte",
    2.0**32,
)
SCARCE = FeatureSource(
    "present_share",
    (),
    0.0,
    1.0,
    "share of devices",
    lambda s: 1.0 * s.present[:, 0].sum(-1) / s.present.shape[-1],
)


@pytest.mark.parametrize("convert", [np.asarray, torch.asarray], ids=["numpy", "torch"])
def test_features_are_appended_to_the_core_block(convert):
    env = make_env("small")
    env.reset(seed=0)
    core, more = ObservationBuilder(env.scenario), ObservationBuilder(env.scenario, (HEADROOM, SCARCE))
    state = env.state.map(convert)
    build = "build" if convert is np.asarray else "build_generic"
    plain, longer = getattr(core, build)(state), getattr(more, build)(state)
    D = core.layout.size
    assert more.layout.size == D + 6 + 1
    assert list(more.layout) == [*core.layout, "memory", "present_share"]
    np.testing.assert_array_equal(longer[:, :D], plain)
    assert str(longer.dtype).endswith("float32")
    memory = np.minimum(env.state.memory_bytes[0] / 2.0**32, 1.0)
    assert 0.0 < memory.min() < memory.max()
    np.testing.assert_allclose(more.layout.unpack(longer)["memory"][0], memory, rtol=1e-6)
    np.testing.assert_allclose(more.layout.physical(longer)["memory"][0], memory * 2.0**32, rtol=1e-6)
    assert float(more.layout.unpack(longer)["present_share"][0]) == 1.0
    space = more.space()
    assert space.shape == (D + 7,)
    assert space.contains(np.asarray(longer)[0])
    assert re.search(r"memory +\[\d+:\d+\].*memory over 4 GiB", more.layout.describe())


def test_values_beyond_the_bounds_become_these():
    env = make_env("small")
    env.reset(seed=0)
    wild = FeatureSource("wild", (), -1.0, 1.0, "too much", lambda state: state.loss * 0.0 + math.inf)
    builder = ObservationBuilder(env.scenario, (wild,))
    assert builder.build(env.state)[0, -1] == 1.0
    assert builder.build_generic(env.state)[0, -1] == 1.0


def test_two_features_of_one_name_are_refused():
    again = FeatureSource("loss", (), 0.0, 1.0, "again", lambda state: state.loss)
    with pytest.raises(ScenarioError, match="two features of the observation are called 'loss'"):
        ObservationBuilder(load_scenario("small"), (again,))

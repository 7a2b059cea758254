"""Visibility: what schedulers and observations get of processes under ``realistic``."""

import numpy as np
import pytest

from collapipe_env.dynamics import PROCESSES, CarriedArray, Process, register_process
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS


def scenario_of(visibility, **processes):
    dynamics = {"rounds": 8, "processes": processes}
    if visibility is not None:
        dynamics["visibility"] = visibility
    return load_scenario({"base": "small", "name": "seen", "dynamics": dynamics})


def vector(scenario, observation="flat"):
    env = CollaPipeVectorEnv(2, scenario, "surrogate", observation=observation)
    env.reset(seed=1)
    return env


def actions_of(env, count):
    shape = (count, 2, *env.single_action_space.shape)
    return np.random.default_rng(0).uniform(-1.0, 1.0, shape).astype(np.float32)


def test_full_is_the_default():
    full, unsaid, realistic = (scenario_of(v) for v in ("full", None, "realistic"))
    assert full == unsaid != realistic
    with pytest.raises(ScenarioError, match="visibility"):
        scenario_of("partial")


def test_without_processes_that_show_anything_nothing_changes():
    realistic, full = (vector(scenario_of(v)) for v in ("realistic", "full"))
    assert realistic.observation_layout.size == full.observation_layout.size
    for action in actions_of(full, 3):
        for a, b in zip(realistic.step(action)[:4], full.step(action)[:4], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("governor", ["step", "ipa"])
def test_heat_tells_its_headroom_in_steps_of_a_tenth(governor):
    scenario = scenario_of(
        "realistic", heat={"governor": governor, "capacity_j_per_k": 5.0, "ambient_sd_k": 2.0}
    )
    env, full = vector(scenario), vector(scenario.with_overrides({"dynamics.visibility": "full"}))
    for action in actions_of(env, 5):
        for one in (env, full):
            one.step(action)
        seen, true = env.state.processes["heat"], env.truth.processes["heat"]
        assert set(seen) == {"headroom", "share"} | ({"level"} if governor == "step" else set())
        assert {"temperature", "ambient", "ambient_mean"} < set(true)
        np.testing.assert_array_equal(true["temperature"], full.state.processes["heat"]["temperature"])
        tenths = seen["headroom"] / 0.1
        np.testing.assert_allclose(tenths, np.round(tenths), atol=1e-9)
        assert (np.abs(seen["headroom"] - true["headroom"]) <= 0.05 + 1e-12).all()
    assert (seen["headroom"] != true["headroom"]).any()
    shown = env.observation_layout.unpack(env._mdp.observer.build(env.state))["heat_headroom"]
    np.testing.assert_allclose(shown * 1.5, seen["headroom"], atol=1e-6)


def test_what_schedulers_price_with_stays():
    scenario = scenario_of("realistic", migration={}, tenants={}, heat={}, mobility={})
    env = vector(scenario)
    dssra = SCHEDULERS.get("dssra")(scenario)
    for _ in range(2):
        env.step_allocation(dssra.act(None, env.state))
    seen, true = env.state.processes, env.truth.processes
    for name, arrays in (("migration", ("blocks", "holders")), ("tenants", ("share",))):
        assert set(seen[name]) == set(arrays)
        for key in arrays:
            np.testing.assert_array_equal(seen[name][key], true[name][key])


@pytest.mark.parametrize("knowledge", [{}, {"channel_knowledge": {}}])
def test_shadowing_of_devices_that_move_is_hidden(knowledge):
    walk = vector(scenario_of("full", mobility={}, **knowledge)).state.processes["mobility"]
    assert "environment_db" not in walk
    assert "x" in walk


class Gauge(Process):
    """Carries two numbers, and says one of them under realistic visibility."""

    name = "gauge"

    def __init__(self, scenario, spec):
        super().__init__(scenario, spec)
        self.carries = {
            "told": CarriedArray("", shown=(0.0, 1.0), seen="always", about="a number"),
            "secret": CarriedArray("", shown=(0.0, 1.0), about="another"),
            "carried": CarriedArray(""),
            "hidden": CarriedArray("", seen="never"),
        }

    @classmethod
    def of(cls, scenario):
        return cls(scenario, None)

    def begin(self, system, u):  # noqa: ARG002 - the interface
        half = 0.0 * system.speed[:, 0, 0] + 0.5
        return {"told": half, "secret": half, "carried": half, "hidden": half}


def test_a_process_of_ones_own_says_what_is_realistic():
    register_process(Gauge)
    try:
        env, full = (vector(scenario_of(v)) for v in ("realistic", "full"))
        assert set(env.state.processes["gauge"]) == {"told"}
        assert set(full.state.processes["gauge"]) == {"told", "secret", "carried"}
        assert "gauge_told" in set(env.observation_layout)
        assert "gauge_secret" not in set(env.observation_layout)
        assert "gauge_secret" in set(full.observation_layout)
    finally:
        PROCESSES._added.pop("gauge")

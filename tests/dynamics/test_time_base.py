"""`dynamics.time_base`: the seconds that processes are told, and what they leave as it was."""

import numpy as np
import pytest
from hook_processes import Idle, actions_of, registered

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import reference_delay
from collapipe_env.simulator.process_registry import active_processes

SMALL = {"base": "small", "dynamics": {"load_levels": [0.5, 1.0], "load_stay_probability": 0.5}}


class Driven(Idle):
    name = "driven"


class Wandering(Idle):
    name = "wandering"
    endogenous = False


@pytest.fixture(autouse=True)
def own_processes():
    with registered(Driven, Wandering):
        yield


def clocks(env, actions):
    """Seconds that both processes and the rounds themselves have counted."""
    env.reset(seed=4)
    seconds = 0.0
    for action in actions:
        seconds = seconds + np.asarray(env.step(action)[4]["delay"])
    carried = env._mdp.world.system.carried
    return (np.asarray(carried[name]["count"]) for name in ("driven", "wandering")), seconds


@pytest.mark.parametrize("make", [CollaPipeVectorEnv, CollaPipeTorchVectorEnv])
@pytest.mark.parametrize("base", ["mixed", "real", "reference"])
def test_each_process_moves_by_its_clock(base, make):
    scenario = load_scenario(
        {"base": "small", "dynamics": {"time_base": base, "processes": {"driven": {}, "wandering": {}}}}
    )
    kinds = {"learner": "surrogate"} if make is CollaPipeVectorEnv else {}
    env = make(3, scenario, **kinds)
    (driven, wandering), seconds = clocks(env, actions_of(CollaPipeVectorEnv(3, scenario), 5))
    usual = np.full(3, 5 * reference_delay(load_scenario("small")))
    assert (np.abs(seconds - usual) > 1.0).all()
    np.testing.assert_allclose(driven, usual if base == "reference" else seconds, rtol=1e-12)
    np.testing.assert_allclose(wandering, seconds if base == "real" else usual, rtol=1e-12)


def test_shipped_processes_by_clock():
    names = ["migration", "tenants", "heat", "mobility", "presence", "traces", "channel_knowledge"]
    processes = {name: {} for name in names}
    scenario = load_scenario({**SMALL, "dynamics": {**SMALL["dynamics"], "processes": processes}})
    found = {process.name: process.endogenous for process in active_processes(scenario)}
    others = dict.fromkeys((*names, "shadowing", "fading", "load"), False)
    assert found == {**others, "migration": True, "heat": True}


@pytest.mark.parametrize("base", ["real", "reference"])
def test_what_counts_rounds_moves_the_same_by_every_clock(base):
    """Fading, load and tenants are chains over rounds: no number depends on the seconds."""
    processes = {"tenants": {}, "migration": {}}
    first = load_scenario({**SMALL, "dynamics": {**SMALL["dynamics"], "processes": processes}})
    one = CollaPipeVectorEnv(3, first, "surrogate")
    other = CollaPipeVectorEnv(3, first.with_overrides({"dynamics.time_base": base}), "surrogate")
    np.testing.assert_array_equal(one.reset(seed=2)[0], other.reset(seed=2)[0])
    for action in actions_of(one, 6):
        for a, b in zip(one.step(action)[:2], other.step(action)[:2], strict=True):
            np.testing.assert_array_equal(a, b)

"""What is hidden stays hidden: it is permuted, and nobody but a declared oracle decides otherwise."""

from dataclasses import fields, replace

import numpy as np
import pytest
from process_support import Gauge, actions_of, registered
from state_ways_support import assert_same

from collapipe_env.baselines.oracle import Oracle
from collapipe_env.envs.graph_observation import GraphObservations
from collapipe_env.envs.observation import FlatObserver
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation import declared_sight
from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.own_scheduler import OwnScheduler
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.errors import ScenarioError, SchedulerError
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS, scheduler_names
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.state import EstimatedState, SystemState
from collapipe_env.simulator.world import World

LEARNED = ("zoo:graph", "zoo:small-ppo")
LONG = ("optpipe",)
NAMES = [
    pytest.param(name, marks=pytest.mark.slow if name in LONG else ())
    for name in (*scheduler_names(), *LEARNED)
    if name != "dssra-truth"
]


def scenario_of(visibility="full", modes=("noisy", "delayed"), **processes):
    on = {"channel_knowledge": {"modes": list(modes), "noise_db": 4.0}, **processes}
    return load_scenario({"base": "small", "dynamics": {"visibility": visibility, "processes": on}})


def on_traces(**fields):
    """A scenario in which a trace hides the gain of a round, and nothing else does."""
    return load_scenario({"base": "small", "dynamics": {"processes": {"traces": fields}}})


def permuted_pair(scenario, num_envs=2, seed=3):
    """What is seen of a system, and of one whose hidden part is another row's, reversed or turned."""
    world = World(scenario, IdleLearner(num_envs), num_envs)
    world.reset([np.random.default_rng([seed, row]) for row in range(num_envs)])
    world.step(even_split(world.parameters, world.state))
    truth, carried = world.state, dict(world.system.carried)
    nodes = np.random.default_rng(0).permutation(truth.d2d_gain.shape[-1])
    other = replace(
        truth,
        uplink_gain=truth.uplink_gain[:, ::-1].copy() * 3.0,
        d2d_gain=truth.d2d_gain[..., nodes, :][..., nodes].copy() * 0.2,
    )
    for name, hidden in hidden_arrays(scenario):
        carried[name] = {**carried[name], hidden: carried[name][hidden][::-1] * 0.5 + 1.0}
    told = {name: {key: carried[name][key] for key in arrays} for name, arrays in truth.processes.items()}
    other = replace(other, processes=told)
    seen = [world.system.estimate(one, c) for one, c in ((truth, world.system.carried), (other, carried))]
    return truth, seen


def hidden_arrays(scenario):
    on = dict(scenario.dynamics.processes)
    if "traces" in on:
        yield from (("traces", name) for name in ("trace", "position_s"))
    if "mobility" in on:
        yield "mobility", "environment_db"
        if scenario.dynamics.visibility == "realistic":
            yield from (("mobility", name) for name in ("x", "y", "speed", "pause", "target_x", "target_y"))
    if "heat" in on and scenario.dynamics.visibility == "realistic":
        yield from (("heat", name) for name in ("temperature", "reading", "ambient"))


@pytest.mark.parametrize("more", [{}, {"traces": {}}, {"traces": {"profile": "bus", "level": "layout"}}])
@pytest.mark.parametrize("visibility", ["full", "realistic"])
def test_the_seen_state_holds_nothing_of_the_hidden_part(visibility, more):
    scenario = scenario_of(visibility, heat={}, mobility={}, migration={}, **more)
    truth, (first, second) = permuted_pair(scenario)
    assert type(first) is EstimatedState
    assert (truth.uplink_gain != first.uplink_gain).all()
    assert_same(vars(first), vars(second))
    for observer in (FlatObserver(scenario), GraphObservations(scenario)):
        assert_same(observer.build(first), observer.build(second))


@pytest.mark.parametrize("hiding", [scenario_of, on_traces])
@pytest.mark.parametrize("name", NAMES)
def test_every_scheduler_decides_alike_whatever_the_hidden_part(name, hiding):
    scenario = hiding()
    _, seen = permuted_pair(scenario)
    decisions = []
    for state in seen:
        scheduler = make_scheduler(name, scenario)
        assert not declared_sight.sees_truth(scheduler)
        scheduler.reset(0)
        graph = getattr(scheduler, "observation", "flat") == "graph"
        observer = (GraphObservations if graph else FlatObserver)(scenario)
        decision = scheduler.act(observer.build(state), state)
        decisions.append(decision if isinstance(decision, np.ndarray) else vars(decision))
    assert_same(*decisions)


def test_the_declared_oracle_reads_what_it_is_given_and_nothing_else_of_dssra_changes():
    """On equal states it decides as DSSRA does; evaluations give it the truth, and its title says so."""
    scenario = scenario_of()
    truth, (seen, _) = permuted_pair(scenario)
    oracle, dssra = make_scheduler("dssra-truth", scenario), make_scheduler("dssra", scenario)
    assert declared_sight.sees_truth(oracle)
    assert_same(vars(oracle.act(None, seen)), vars(dssra.act(None, seen)))
    blurred, clear = oracle.act(None, seen), oracle.act(None, truth)
    assert not np.array_equal(blurred.bandwidth, clear.bandwidth)
    assert declared_sight.title_of(oracle, scenario) == "DSSRA on the truth (sees the truth)"
    assert declared_sight.title_of(oracle, load_scenario("small")) == "DSSRA on the truth"


TINY = {
    "base": "small",
    "workload": {"blocks": 3},
    "cluster": {"clusters": 2, "devices": 2},
    "budgets": {"device_energy_j": 1e3, "cu_energy_j": 1e3},
    "dynamics": {"rounds": 3, "processes": {"channel_knowledge": {"modes": ["noisy"], "noise_db": 15.0}}},
}


class Watcher:
    """Plays the even split and keeps what it is shown."""

    name = "Watcher"

    def __init__(self, scenario):
        self.inner, self.seen = SCHEDULERS.get("pipeline")(scenario), []

    def reset(self, seed=None):  # noqa: ARG002 - the interface
        self.seen.clear()

    def act(self, observation, state):
        self.seen.append(state)
        return self.inner.act(observation, state)


class Seer(Watcher):
    sees = "truth"


@pytest.mark.parametrize("kind", [Watcher, Seer])
def test_an_evaluation_shows_the_truth_to_declared_oracles_only(kind):
    scenario = load_scenario(TINY)
    scheduler = kind(scenario)
    plain = Watcher(load_scenario({**TINY, "dynamics": {"rounds": 3}}))
    played = play_episode("x", scheduler, scenario, 0, 3, "surrogate")
    play_episode("x", plain, plain.inner.scenario, 0, 3, "surrogate")
    oracle = kind is Seer
    assert played.result.title == ("Watcher (sees the truth)" if oracle else "Watcher")
    for state, true in zip(scheduler.seen, plain.seen, strict=True):
        assert isinstance(state, EstimatedState) is not oracle
        same = state.uplink_gain == true.uplink_gain
        assert same.all() if oracle else not same.any()


def test_an_unknown_sight_is_refused_and_own_schedulers_declare_theirs():
    scenario = load_scenario(TINY)
    for oracle in (Oracle(scenario), OwnScheduler("mine", Seer, scenario)):
        assert declared_sight.sees_truth(oracle)
    assert not declared_sight.sees_truth(OwnScheduler("mine", Watcher, scenario))

    class Odd(Watcher):
        sees = "all"

    with pytest.raises(SchedulerError, match="sees = 'all' is not known"):
        declared_sight.sees_truth(Odd(scenario))


def test_an_estimated_state_has_the_fields_of_a_state_and_stays_one():
    assert [f.name for f in fields(EstimatedState)] == [f.name for f in fields(SystemState)]
    _, (seen, _) = permuted_pair(scenario_of())
    for one in (seen.map(np.copy), seen[0], replace(seen, loss=seen.loss + 1.0)):
        assert type(one) is EstimatedState


def seen(visibility, **processes):
    dynamics = {"rounds": 8, "visibility": visibility, "processes": processes}
    return load_scenario({"base": "small", "name": "seen", "dynamics": dynamics})


def vector(scenario):
    env = CollaPipeVectorEnv(2, scenario, "surrogate")
    env.reset(seed=1)
    return env


def test_full_is_the_default():
    assert seen("full") == load_scenario({"base": "small", "name": "seen", "dynamics": {"rounds": 8}})
    with pytest.raises(ScenarioError, match="visibility"):
        seen("partial")


@pytest.mark.parametrize("governor", ["step", "ipa"])
def test_heat_tells_its_headroom_in_steps_of_a_tenth(governor):
    scenario = seen("realistic", heat={"governor": governor, "capacity_j_per_k": 5.0, "ambient_sd_k": 2.0})
    env, full = vector(scenario), vector(scenario.with_overrides({"dynamics.visibility": "full"}))
    for action in actions_of(env, 5):
        for one in (env, full):
            one.step(action)
        told, true = env.state.processes["heat"], env.truth.processes["heat"]
        assert set(told) == {"headroom", "share"} | ({"level"} if governor == "step" else set())
        assert {"temperature", "ambient", "ambient_mean"} < set(true)
        np.testing.assert_array_equal(true["temperature"], full.state.processes["heat"]["temperature"])
        tenths = told["headroom"] / 0.1
        np.testing.assert_allclose(tenths, np.round(tenths), atol=1e-9)
        assert (np.abs(told["headroom"] - true["headroom"]) <= 0.05 + 1e-12).all()
    assert (told["headroom"] != true["headroom"]).any()
    observer = FlatObserver(scenario)
    shown = env.observation_layout.unpack(observer.build(env.state))["heat_headroom"]
    np.testing.assert_allclose(shown * 1.5, told["headroom"], atol=1e-6)


def test_what_schedulers_price_with_stays():
    scenario = seen("realistic", migration={}, tenants={}, heat={}, mobility={})
    env = vector(scenario)
    dssra = SCHEDULERS.get("dssra")(scenario)
    for _ in range(2):
        env.step_allocation(dssra.act(None, env.state))
    told, true = env.state.processes, env.truth.processes
    for name, arrays in (("migration", ("blocks", "holders")), ("tenants", ("share",))):
        assert set(told[name]) == set(arrays)
        for key in arrays:
            np.testing.assert_array_equal(told[name][key], true[name][key])


@pytest.mark.parametrize("knowledge", [{}, {"channel_knowledge": {}}])
def test_shadowing_of_devices_that_move_is_hidden(knowledge):
    walk = vector(seen("full", mobility={}, **knowledge)).state.processes["mobility"]
    assert "environment_db" not in walk
    assert "x" in walk


def test_a_process_of_ones_own_says_what_is_realistic():
    with registered(Gauge):
        env, full = (vector(seen(v, gauge={})) for v in ("realistic", "full"))
        assert set(env.state.processes["gauge"]) == {"told"}
        assert set(full.state.processes["gauge"]) == {"told", "secret", "carried"}
        for one, expected in ((env, {"gauge_told"}), (full, {"gauge_told", "gauge_secret"})):
            assert {name for name in one.observation_layout if name.startswith("gauge_")} == expected

"""Batteries: environments whose devices run low, are charged, and sit out."""

import copy
import math
from typing import Any, NamedTuple

import array_api_strict
import numpy as np
import pytest
import torch
from state_ways_support import WAYS, assert_same

from collapipe_env.backends import NUMPY
from collapipe_env.dynamics.battery import BOOKS, Battery
from collapipe_env.dynamics.idle_fields import idle_fields
from collapipe_env.dynamics.process_registry import active_processes
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.errors import ScenarioError, StateError
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS, scheduler_names
from collapipe_env.simulator.build import action_codec, system_parameters, usual_round
from collapipe_env.simulator.state import able_clusters

LOW = {"capacity_j": 150.0, "usable_share": 1.0, "idle_w": 0.2, "charger_on_s": 20.0, "charger_off_s": 40.0}
"""So little that devices run low, and are charged, within a few rounds."""
SOURCES = ("none", "charger", "solar")


def low(fields=None, **sections):
    """A scenario of two clusters of unlike sizes with small batteries."""
    dynamics = sections.pop("dynamics", {})
    processes = {"battery": {**LOW, **(fields or {})}, **dynamics.pop("processes", {})}
    return {
        "base": "small",
        "cluster": {"devices": [3, 2]},
        "budgets": {"device_energy_j": 100},
        **sections,
        "dynamics": {"rounds": 30, "processes": processes, **dynamics},
    }


def source(harvest):
    """Fields of a source, without those that have no effect."""
    if harvest == "charger":
        return {}
    return {"harvest": harvest, "charger_on_s": 3600.0, "charger_off_s": 10800.0}


def process_of(fields=None, clusters=1, devices=1):
    scenario = load_scenario(
        {
            "base": "small",
            "cluster": {"clusters": clusters, "devices": devices},
            "workload": {"blocks": 1},
            "budgets": {"device_energy_j": 100},
            "dynamics": {"processes": {"battery": fields or {}}},
        }
    )
    return next(p for p in active_processes(scenario) if p.name == "battery")


def numbers(process, rows, t):
    words = np.random.SeedSequence(11).generate_state(rows, np.uint64)
    return NUMPY.uniform(words, np.full(rows, t), process.numbers, process.factors)


class Spent(NamedTuple):
    """A round's energies of nodes (R, N, K+1) [J]."""

    energy: Any


def actions_for(env, count, lead=()):
    space = getattr(env, "single_action_space", env.action_space)
    drawn = np.random.default_rng(0).uniform(-1.0, 1.0, (count, *lead, *space.shape))
    return drawn.astype(np.float32)


@pytest.mark.parametrize("harvest", SOURCES)
@pytest.mark.parametrize("time_base", ["mixed", "real", "reference"])
def test_what_devices_spend_is_drawn_from_their_batteries(harvest, time_base):
    """Against the law with the round's own energies and times, written out for single numbers."""
    weak = {"charger_min_w": 0.1, "charger_max_w": 2.0} if harvest == "charger" else {}
    fields = {**source(harvest), **weak, "start_min": 0.16, "start_max": 0.6}
    scenario = low(fields, dynamics={"time_base": time_base})
    env = CollaPipeVectorEnv(4, scenario, "surrogate")
    env.reset(seed=0)
    usual, low_seen = usual_round(env.scenario), 0
    there = np.arange(3) < np.array([3, 2])[:, None]
    for action in actions_for(env, 15, (4,)):
        before = {name: a.copy() for name, a in env.state.processes["battery"].items()}
        env.step(action)
        after, costs = env.state.processes["battery"], env.last_round.costs
        drain_s = np.full(4, usual) if time_base == "reference" else costs.delay
        for e, n, k in np.argwhere(np.broadcast_to(there, (4, 2, 3))):
            place = (e, n, k)
            gained = after["gained_j"][place] - before["gained_j"][place]
            drawn = costs.energy[e, n, k + 1] + 0.2 * drain_s[e]
            free = before["charge"][place] - drawn + gained
            assert after["charge"][place] == pytest.approx(min(max(free, 0.0), 150.0), abs=1e-9)
            spilled = after["spilled_j"][place] - before["spilled_j"][place]
            assert spilled == pytest.approx(max(free - 150.0, 0.0), abs=1e-9)
            assert spilled < 1e-9 or after["charge"][place] == 150.0
            level = after["charge"][place] / 150.0
            expected = level >= 0.15 if before["eligible"][place] else level > 0.3
            assert after["eligible"][place] == expected
            low_seen += int(not expected)
            assert costs.energy[e, n, k + 1] == 0.0 or env.last_round.state.present[place]
            if harvest == "solar":
                seconds = costs.delay[e] if time_base == "real" else usual
                assert gained == pytest.approx(
                    0.85 * before["harvest_w"][place] * seconds, rel=1e-9, abs=1e-9
                )
        assert (env.state.present <= after["eligible"]).all()
        assert (after["charge"][:, ~there] == 0.0).all()
        assert (after["drawn_j"][:, ~there] == 0.0).all()
        start, drawn, gained, deficit, spilled = (after[name] for name in BOOKS)
        np.testing.assert_allclose(start - drawn + gained + deficit - spilled, after["charge"], atol=1e-9)
    assert low_seen > 0


def test_without_a_source_a_battery_gives_no_more_than_it_has():
    """A device that spends E in every round plays at most b_0 / E of them; no cap lets it run dry."""
    fields = {**source("none"), "idle_w": 0.0, "off_below": 0.0, "on_above": 0.0}
    env = CollaPipeVectorEnv(3, low(fields, dynamics={"rounds": 60}), "surrogate")
    env.reset(seed=4)
    start = env.state.processes["battery"]["charge"].copy()
    # Full power, one plan for all rounds.
    action = np.ones((3, env.single_action_space.shape[0]), np.float32)
    played, least = np.zeros(start.shape), np.full(start.shape, math.inf)
    for _ in range(59):
        env.step(action)
        energy = env.last_round.costs.energy[..., 1:]
        played += energy > 0.0
        least = np.where(energy > 0.0, np.minimum(least, energy), least)
    battery = env.state.processes["battery"]
    some = played > 0
    assert some.sum() > 10
    assert (played[some] <= start[some] / least[some]).all()
    assert (battery["deficit_j"] == 0.0).all()
    assert (battery["charge"] >= 0.0).all()
    # In the end nobody plays any more, and rounds last as long as those in which nobody does.
    assert (env.last_round.costs.energy == 0.0).all()
    np.testing.assert_array_equal(env.last_round.costs.delay, usual_round(env.scenario))


@pytest.mark.parametrize("decisions", [(), ("participation", "recompute", "schedule")])
def test_huge_batteries_change_nothing(decisions):
    scenario = low({"capacity_j": 1e12, "start_min": 1.0})
    if decisions:
        scenario["decisions"] = [*load_scenario("small").decisions, *decisions]
    plain = copy.deepcopy(scenario)
    del plain["dynamics"]["processes"]["battery"]
    envs = [CollaPipeVectorEnv(3, s, "surrogate") for s in (scenario, plain)]
    for env in envs:
        env.reset(seed=2)
    for action in actions_for(envs[0], 10, (3,)):
        for env in envs:
            env.step(action)
        ours, theirs = (env.last_round for env in envs)
        np.testing.assert_array_equal(ours.allocation.blocks, theirs.allocation.blocks)
        np.testing.assert_allclose(ours.costs.delay, theirs.costs.delay, rtol=1e-12)
        np.testing.assert_allclose(ours.costs.energy, theirs.costs.energy, rtol=1e-12)
        np.testing.assert_array_equal(envs[0].state.memory_bytes, envs[1].state.memory_bytes)


def test_plans_stay_within_the_energy_that_is_left():
    """At full power no round draws more than a device's charge, whoever is low; caps do bind."""
    fields = {**source("none"), "idle_w": 0.0, "off_below": 0.0, "on_above": 0.0, "start_min": 0.0}
    scenario = load_scenario(low(fields))
    codec, parameters = action_codec(scenario), system_parameters(scenario)
    env = CollaPipeVectorEnv(20, scenario, "surrogate")
    env.reset(seed=0)
    rng, bound = np.random.default_rng(0), 0
    for _ in range(12):
        state = env.state
        charge = state.processes["battery"]["charge"]
        bound += int(((state.memory_cap > 0) & (state.memory_cap < 4)).sum())
        parts = {name: np.ones((20, *part.shape)) for name, part in codec.parts.items()}
        parts["segments"] = rng.uniform(-1.0, 1.0, parts["segments"].shape)
        env.step(codec.join(parts).astype(np.float32))
        plays = able_clusters(parameters, state)[..., None]
        held = np.where(plays, env.last_round.allocation.device_blocks, 0)
        assert (held <= state.memory_cap).all()
        assert (env.last_round.costs.energy[..., 1:] <= charge).all()
    assert bound > 20
    assert (env.state.processes["battery"]["deficit_j"] == 0.0).all()


def test_chargers_have_their_law():
    """Plugged in for on / (on + off) of the time, from the first round on; powers uniform."""
    rows, process = 40_000, process_of({"charger_on_s": 30.0, "charger_off_s": 90.0, "capacity_j": 1e9})
    carried = process.begin(None, numbers(process, rows, 0))
    watts = carried["charger_w"]
    assert watts.min() > 5.0 - 1e-9
    assert watts.max() < 15.0
    assert watts.mean() == pytest.approx(10.0, abs=0.06)
    idle, gained = Spent(np.zeros((rows, 1, 2))), 0.0
    for t in range(1, 25):
        assert carried["plugged"].mean() == pytest.approx(0.25, abs=4.5 * math.sqrt(0.25 * 0.75 / rows))
        following = process.advance(carried, None, idle, numbers(process, rows, t), np.full(rows, 7.0))
        gained += (following["gained_j"] - carried["gained_j"]).mean()
        carried = following
    # 0.85 of a quarter of 10 W, in the seconds of a usual round.
    expected = 24 * 0.85 * 2.5 * usual_round(process.scenario)
    assert gained == pytest.approx(expected, rel=0.02)


def test_sources_move_by_the_reference_delay_and_drains_by_the_round():
    """Slow and fast plans see the same chargers, bit for bit, and pay idle power for their own seconds."""
    envs = [CollaPipeVectorEnv(3, low({"capacity_j": 1e6, "idle_w": 1.0}), "surrogate") for _ in range(2)]
    for env in envs:
        env.reset(seed=1)
    drawn = actions_for(envs[0], 8, (3,))
    for action in drawn:
        envs[0].step(action)
        envs[1].step(-action)
    a, b = (env._mdp.world.system.carried["battery"] for env in envs)
    for name in ("plugged", "residual_s", "charger_w", "gained_j"):
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    assert (a["gained_j"] > 0.0).any()
    assert (a["drawn_j"][:, :, 0] != b["drawn_j"][:, :, 0]).all()


@pytest.mark.parametrize("library", ["torch", "strict"])
@pytest.mark.parametrize("harvest", SOURCES)
def test_other_array_libraries_give_the_same(library, harvest):
    convert = {"torch": torch.asarray, "strict": array_api_strict.asarray}[library]
    fields = {**LOW, **source(harvest)}
    process = process_of(fields, clusters=2, devices=3)
    carried = process.begin(None, numbers(process, 50, 0))
    other = process.begin(None, convert(numbers(process, 50, 0)))
    rng = np.random.default_rng(0)
    for t in range(1, 6):
        assert carried.keys() == other.keys()
        for name, values in carried.items():
            np.testing.assert_allclose(np.asarray(other[name]), values, rtol=1e-9, atol=1e-9, err_msg=name)
        seconds, energy = np.linspace(1.0, 90.0, 50), rng.uniform(0.0, 40.0, (50, 2, 4))
        carried = process.advance(carried, None, Spent(energy), numbers(process, 50, t), seconds)
        other = process.advance(
            other, None, Spent(convert(energy)), convert(numbers(process, 50, t)), convert(seconds)
        )


def test_a_device_needs_its_battery_and_its_presence():
    stay = {"on_mean_s": 60.0, "off_mean_s": 40.0}
    env = CollaPipeVectorEnv(8, low(dynamics={"processes": {"presence": stay}}), "surrogate")
    env.reset(seed=0)
    kinds = set()
    for action in actions_for(env, 12, (8,)):
        there = env._mdp.world.system.carried["presence"]["present"]
        charged = env._mdp.world.system.carried["battery"]["eligible"]
        np.testing.assert_array_equal(env.state.present, there & charged)
        assert (env.state.memory_cap[~env.state.present] == 0).all()
        kinds |= set(zip(there.ravel().tolist(), charged.ravel().tolist(), strict=True))
        env.step(action)
    assert len(kinds) == 4


@pytest.mark.parametrize("name", [n for n in scheduler_names() if n not in ("dssra-target", "optpipe")])
def test_every_scheduler_plays_with_low_batteries(name):
    # Between the levels at which devices go and come back: some sit out from the first round on.
    fields = {**source("none"), "start_min": 0.16, "start_max": 0.6}
    scenario = load_scenario(low(fields))
    env = CollaPipeVectorEnv(3, scenario, "surrogate", reward="delay")
    observation, _ = env.reset(seed=1)
    scheduler = SCHEDULERS.get(name)(scenario)
    scheduler.reset(seed=0)
    out = 0
    for _ in range(8):
        decided = scheduler.act(observation, env.state)
        step = env.step if isinstance(decided, np.ndarray) else env.step_allocation
        observation, *_ = step(decided)
        out += int((~env.last_round.costs.plays).sum()) if env.last_round.costs.plays is not None else 0
    assert out > 0


@pytest.mark.parametrize("visibility", ["full", "realistic"])
@pytest.mark.parametrize("harvest", SOURCES)
def test_schedulers_see_levels_and_sources_and_not_when_these_change(visibility, harvest):
    scenario = low(source(harvest), dynamics={"visibility": visibility})
    flat = CollaPipeVectorEnv(5, scenario, "surrogate")
    graph = CollaPipeVectorEnv(5, scenario, "surrogate", observation="graph")
    rows, _ = flat.reset(seed=2)
    nodes, _ = graph.reset(seed=2)
    for action in actions_for(flat, 6, (5,)):
        battery = flat._mdp.world.system.carried["battery"]
        assert "residual_s" not in flat.state.processes["battery"]
        seen = flat.observation_layout.unpack(rows)
        level = battery["charge"] / 150.0
        np.testing.assert_allclose(seen["battery_charge"], level, atol=1e-6)
        np.testing.assert_array_equal(seen["battery_eligible"], battery["eligible"])
        assert ("battery_harvest_w" in seen) == (harvest != "none")
        assert graph.observation_space.contains(nodes)
        drawn = graph.observation_layout.physical(nodes)["battery"]
        np.testing.assert_allclose(drawn["level"], level, atol=1e-6)
        np.testing.assert_array_equal(drawn["eligible"], battery["eligible"])
        watts = battery.get("harvest_w", np.zeros_like(level))
        np.testing.assert_allclose(drawn["harvest_w"], watts, rtol=1e-5, atol=1e-6)
        rows = flat.step(action)[0]
        nodes = graph.step(action)[0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("harvest", ["charger", "solar"])
def test_states_go_on_bit_for_bit(way, harvest, tmp_path):
    def build():
        return CollaPipeEnv(low(source(harvest)), "surrogate")

    env = build()
    env.reset(seed=5)
    actions = actions_for(env, 8)
    for action in actions[:4]:
        env.step(action)
    other = way(env, build, tmp_path / "state.npz")
    assert_same([other.step(a) for a in actions[4:]], [env.step(a) for a in actions[4:]])


@pytest.mark.parametrize("harvest", SOURCES)
def test_single_and_vector_environments_agree_and_so_does_torch(harvest):
    scenario = low(source(harvest))
    vector = CollaPipeVectorEnv(3, scenario, "surrogate")
    tensors = CollaPipeTorchVectorEnv(3, scenario)
    singles = [CollaPipeEnv(scenario, "surrogate") for _ in range(3)]
    vector.reset(seed=[4, 5, 6])
    tensors.reset(seed=[4, 5, 6])
    for i, env in enumerate(singles):
        env.reset(seed=4 + i)
    for action in actions_for(vector, 10, (3,)):
        reward = vector.step(action)[1]
        alone = [env.step(a)[1] for env, a in zip(singles, action, strict=True)]
        np.testing.assert_array_equal(reward, alone)
        there = tensors.step(torch.as_tensor(action))[1]
        np.testing.assert_allclose(there.cpu().numpy(), reward, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("charge", lambda x: x + 1e3, "charge holds"),
        ("charge", lambda x: 0.5 * x, "the energy accounts do not add up to the charge"),
        ("eligible", lambda x: ~x, "eligible is"),
        ("residual_s", lambda x: x - 1e9, "residual_s holds -"),
        ("charger_w", lambda x: x + 20.0, "charger_w holds"),
        ("harvest_w", lambda x: x + 1.0, "harvest_w does not agree with the source"),
    ],
)
def test_damaged_states_are_refused(name, change, message):
    env = CollaPipeEnv(low({"start_min": 0.9}), "surrogate")
    env.reset(seed=1)
    env.step(env.action_space.sample())
    state = env.get_state()
    wrong = copy.deepcopy(state)
    part = wrong["mdp"]["simulator"]
    for inner in (part["processes"]["battery"], part["system"]["processes"]["battery"]):
        if name in inner:
            inner[name] = change(inner[name])
    with pytest.raises(StateError, match=message):
        env.set_state(wrong)
    env.set_state(state)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"capacity_j": 0.0}, "capacity_j is 0 J: give a number from 0.001"),
        ({"start_min": 0.8, "start_max": 0.4}, "start_min is 0.8, above start_max = 0.4"),
        ({"off_below": 0.5}, "off_below is 0.5, above on_above = 0.3"),
        ({"charger_min_w": 20.0}, "charger_min_w is 20, above charger_max_w = 15"),
        ({"efficiency": 0.0}, "efficiency is 0: give"),
        ({"harvest": "wind"}, "harvest"),
    ],
)
def test_faults_are_named(fields, message):
    with pytest.raises(ScenarioError, match=message):
        load_scenario(low(fields))


def test_fields_of_other_sources_are_named():
    found = idle_fields(load_scenario(low({"harvest": "none", "panel_w": 1.0, "efficiency": 0.5})))
    own = {place.split(" = ")[0].rpartition(".")[2] for place in found}
    assert own == {"panel_w", "efficiency", "charger_on_s", "charger_off_s"}


def test_it_is_off_unless_named_and_moves_nothing_else():
    quiet = {"base": "small", "cluster": {"devices": [3, 2]}, "dynamics": {"load_levels": [0.5, 1.0]}}
    assert Battery.of(load_scenario(quiet)) is None
    busy = {**quiet, "dynamics": {**quiet["dynamics"], "processes": {"battery": LOW}}}
    envs = [CollaPipeEnv(s, "surrogate") for s in (quiet, busy)]
    for env in envs:
        env.reset(seed=3)
    for action in actions_for(envs[0], 3):
        for env in envs:
            env.step(action)
    a, b = (env.get_state()["mdp"]["simulator"]["processes"] for env in envs)
    assert_same(a["load"], b["load"])
    assert_same(a["fading"], b["fading"])

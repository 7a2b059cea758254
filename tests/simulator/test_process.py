"""Every part that a process may define, each with a throw-away process and computed another way."""

import numpy as np
import pytest
import torch
from process_support import (
    ALL,
    AMPLE,
    Absence,
    Bounded,
    Capped,
    Guess,
    Idle,
    Outage,
    Shown,
    Slowing,
    Spill,
    actions_of,
    carried_of,
    registered,
    scenario_with,
)

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import AllocationError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import reference_delay, system_parameters
from collapipe_env.simulator.process_registry import active_processes

PLAIN = {"base": "small", "dynamics": {"rounds": 6}, "budgets": AMPLE}
SLOW = {**PLAIN, "dynamics": {"rounds": 6, "load_levels": [0.5]}}
MEMORY = 3e8


class Swap(Idle):
    """Takes devices away and changes their power."""

    name = "swap"

    def apply(self, system, carried):  # noqa: ARG002
        return system._replace(
            present=system.present & (np.arange(system.present.shape[-1]) > 0),
            active_power=2.0 * system.active_power,
            switched_capacitance=2.0 * system.switched_capacitance,
        )


class Wandering(Idle):
    name = "wandering"
    endogenous = False


@pytest.fixture(autouse=True)
def own_processes():
    with registered(*ALL, Swap, Wandering):
        yield


def started(*scenarios, num_envs=3, seed=4):
    """Environments before their first round."""
    envs = [CollaPipeVectorEnv(num_envs, scenario, "surrogate") for scenario in scenarios]
    for env in envs:
        env.reset(seed=seed)
    return envs


def pair(process, size=0.0, plain=PLAIN, num_envs=3, **dynamics):
    """The environment with a process and without it."""
    return started(scenario_with(process, size, **dynamics), plain, num_envs=num_envs)


def test_it_is_told_the_seconds_and_draws_its_own_numbers():
    (env,) = started(scenario_with(Idle))
    total, drawn = np.zeros(3), []
    for action in actions_of(env, 4):
        carried = carried_of(env)["idle_process"]
        np.testing.assert_array_equal(carried["count"], total)
        drawn.append(carried["drawn"])
        total = total + env.step(action)[4]["delay"]
    numbers = np.concatenate(drawn)
    assert len(np.unique(numbers)) == numbers.size
    assert ((numbers > 0.0) & (numbers < 1.0)).all()


@pytest.mark.parametrize(
    ("process", "size", "plain", "share"),
    [
        (Slowing, 0.5, PLAIN, 0.5),
        # A cap on clocks is one on full clocks, which load slows down, too.
        (Capped, 0.6, SLOW, 1.0),
        (Capped, 0.4, SLOW, 0.8),
    ],
)
def test_apply_changes_speeds(process, size, plain, share):
    load = {"load_levels": [0.5]} if plain is SLOW else {}
    own, other = pair(process, size, plain, **load)
    for action in actions_of(other, 2):
        np.testing.assert_allclose(own.state.speed, share * other.state.speed, rtol=1e-14)
        for env in (own, other):
            env.step(action)


def test_a_cap_reads_what_other_processes_made_of_the_system():
    """A process of one's own comes after load: half the speed, half the memory."""
    own, plain = pair(Bounded, 0.06, SLOW, load_levels=[0.5])
    expected = np.minimum(plain.state.memory_bytes, 0.06 * plain.state.speed)
    np.testing.assert_allclose(own.state.memory_bytes, expected, rtol=1e-12)
    assert (own.state.memory_bytes < plain.state.memory_bytes).any()


def test_apply_may_take_devices_away_and_change_their_power():
    own, plain = pair(Swap)
    assert (own.state.memory_cap[..., 0] == 0).all()
    np.testing.assert_array_equal(own.state.memory_cap[..., 1:], plain.state.memory_cap[..., 1:])
    np.testing.assert_allclose(own.state.compute_power, 2.0 * plain.state.compute_power)


def test_caps_hold_before_decoding():
    own, plain = pair(Absence, MEMORY)
    c = system_parameters(own.scenario).costs
    offered = np.minimum(plain.state.memory_bytes, MEMORY)
    held = np.floor(offered / (c.block_state_bytes + c.batch_size * c.stored_activation_bytes))
    held[..., 0] = 0
    np.testing.assert_array_equal(own.state.memory_cap, held)
    assert not own.state.present[..., 0].any()
    np.testing.assert_array_equal(own.state.present[..., 1:], plain.state.present[..., 1:])
    for action in actions_of(own, 3):
        own.step(action)
        assert (own.last_round.allocation.blocks[..., 0] == 0).all()
        assert (own.last_round.costs.energy[..., 1] == 0.0).all()


@pytest.mark.parametrize(("bound", "share"), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)])
def test_events(bound, share):
    own, plain = pair(Outage, bound, num_envs=100)
    before = own.state.loss.copy()
    for action in actions_of(own, 2):
        own.step(action)
        plain.step(action)
    record, other = own.last_round, plain.last_round
    lost = ~record.interruption.trained
    assert abs(lost.mean() - share) < 0.1
    np.testing.assert_array_equal(record.arrivals.counts, np.where(lost[..., None], 0, other.arrivals.counts))
    np.testing.assert_allclose(record.costs.cluster_delay, other.costs.cluster_delay + 5.0 * lost)
    if share == 1.0:
        np.testing.assert_array_equal(own.state.loss, before)
    else:
        assert (own.state.loss < before).mean() > 0.4


def test_interruptions_of_several_processes_add_up():
    both = scenario_with(Outage, 0.5)
    both["dynamics"]["processes"]["spill"] = {"size": 0.5}
    envs = started(both, *(scenario_with(p, 0.5) for p in (Outage, Spill)), num_envs=100)
    for env in envs:
        env.step(actions_of(env, 1)[0])
    found, first, second = (env.last_round.interruption for env in envs)
    np.testing.assert_array_equal(found.trained, first.trained & second.trained)
    np.testing.assert_array_equal(found.cluster_delay, first.cluster_delay + second.cluster_delay)
    np.testing.assert_array_equal(found.energy, first.energy + second.energy)
    assert (first.trained != second.trained).any()


def test_estimate_is_what_schedulers_see_and_no_more():
    own, plain = pair(Guess, 1.0)
    layout = own.observation_layout
    for action in actions_of(own, 3):
        truth, seen = own.truth, own.state
        np.testing.assert_array_equal(truth.uplink_gain, plain.state.uplink_gain)
        ratio = seen.uplink_gain / truth.uplink_gain
        assert ((ratio > 1.0) & (ratio < 2.0)).all()
        a, b = own.step(action), plain.step(action)
        np.testing.assert_array_equal(a[1], b[1])  # rewards are those of the truth
        ahead = own.state.uplink_gain / plain.state.uplink_gain
        one, other = (layout.unpack(step[0])["uplink_gain"] for step in (a, b))
        inside = (np.abs(one) < 3.0) & (np.abs(other) < 3.0)
        half = (np.log10(ahead) * 10.0 / (one.astype(float) - other))[inside]
        np.testing.assert_allclose(half, half.mean(), rtol=1e-3)


def test_observed():
    env, core = pair(Shown)
    first, _ = env.reset(seed=1)
    layout = env.observation_layout
    assert env.observation_space.contains(first)
    total = np.zeros(3)
    for action in actions_of(env, 4):
        observation, *_, info = env.step(action)
        total += info["delay"]
        np.testing.assert_allclose(layout.unpack(observation)["shown_count"], total / 1000.0, rtol=1e-5)
        np.testing.assert_allclose(layout.physical(observation)["shown_count"], total, rtol=1e-5)
        np.testing.assert_allclose(env.state.processes["shown"]["count"], total)
    np.testing.assert_array_equal(core.reset(seed=1)[0], first[:, : core.observation_layout.size])


@pytest.mark.slow
@pytest.mark.timeout(1200)  # the C++ compiler takes two minutes of a processor
def test_a_compiled_round_on_tensors_is_the_same():
    scenario = scenario_with(Slowing, 0.5)
    plain, fused = (CollaPipeTorchVectorEnv(2, scenario, compiled=compiled) for compiled in (False, True))
    actions = actions_of(plain, 2)
    for env in (plain, fused):
        env.reset(seed=0)
    for action in actions:
        a, b = plain.step(action), fused.step(action)
        torch.testing.assert_close(a[1], b[1], rtol=1e-6, atol=1e-6)


def test_what_leaves_no_room_is_refused_and_changes_nothing():
    (env,) = started(scenario_with(Absence, 0.0))
    before = env.state
    with pytest.raises(AllocationError, match="no plan exists"):
        env.step(actions_of(env, 1)[0])
    assert env.state is before


@pytest.mark.parametrize("part", ["advance", "known", "begin"])
def test_a_process_that_raises_leaves_everything_as_it_was(part):
    class Faulty(Guess):
        name = "faulty"
        wrong = False

    def fail(self, *arguments):
        if type(self).wrong:
            raise ZeroDivisionError
        return getattr(Guess, part)(self, *arguments)

    setattr(Faulty, part, fail)
    with registered(Faulty):
        env, other = started(*[scenario_with(Faulty, 0.5)] * 2)
        actions = actions_of(env, 4)
        for one in (env, other):
            one.step(actions[0])
        Faulty.wrong = True
        with pytest.raises(ZeroDivisionError):
            env.reset() if part == "begin" else env.step(actions[1])
        Faulty.wrong = False
        for action in actions[1:]:
            for a, b in zip(env.step(action)[:4], other.step(action)[:4], strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("make", [CollaPipeVectorEnv, CollaPipeTorchVectorEnv])
@pytest.mark.parametrize("base", ["mixed", "real", "reference"])
def test_each_process_moves_by_its_clock(base, make):
    """Seconds that both processes and the rounds themselves have counted."""
    on = {"idle_process": {}, "wandering": {}}
    env = make(3, {"base": "small", "dynamics": {"time_base": base, "processes": on}}, learner="surrogate")
    env.reset(seed=4)
    seconds = sum(np.asarray(env.step(action)[4]["delay"]) for action in actions_of(env, 5))
    usual = np.full(3, 5 * reference_delay(load_scenario("small")))
    assert (np.abs(seconds - usual) > 1.0).all()
    found = {name: np.asarray(carried_of(env)[name]["count"]) for name in on}
    expected = usual if base == "reference" else seconds
    np.testing.assert_allclose(found["idle_process"], expected, rtol=1e-12)
    expected = seconds if base == "real" else usual
    np.testing.assert_allclose(found["wandering"], expected, rtol=1e-12)


MOVING = {"base": "small", "dynamics": {"load_levels": [0.5, 1.0], "load_stay_probability": 0.5}}


def test_shipped_processes_by_clock():
    names = ["migration", "tenants", "heat", "mobility", "presence", "traces", "channel_knowledge"]
    on = {"dynamics.processes": {name: {} for name in names}}
    found = {p.name: p.endogenous for p in active_processes(load_scenario(MOVING).with_overrides(on))}
    others = dict.fromkeys((*names, "shadowing", "fading", "load"), False)
    assert found == {**others, "migration": True, "heat": True}


@pytest.mark.parametrize("base", ["real", "reference"])
def test_what_counts_rounds_moves_the_same_by_every_clock(base):
    """Fading, load and tenants are chains over rounds: no number depends on the seconds."""
    first = load_scenario(MOVING).with_overrides({"dynamics.processes": {"tenants": {}, "migration": {}}})
    one, other = started(first, first.with_overrides({"dynamics.time_base": base}))
    for action in actions_of(one, 6):
        for a, b in zip(one.step(action)[:2], other.step(action)[:2], strict=True):
            np.testing.assert_array_equal(a, b)

"""Every part that a process may define, each with a throw-away process and computed another way."""

import numpy as np
import pytest
import torch
from hook_processes import (
    ALL,
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
    registered,
    scenario_with,
)

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import AllocationError
from collapipe_env.simulator.build import system_parameters

PLAIN = {"base": "small", "dynamics": {"rounds": 6}}
MEMORY = 3e8


@pytest.fixture(autouse=True)
def own_processes():
    with registered(*ALL):
        yield


def vector(scenario, num_envs=3):
    return CollaPipeVectorEnv(num_envs, scenario, "surrogate")


def pair(process, size=0.0):
    """The environment with a process and without it, both before their first round."""
    envs = vector(scenario_with(process, size)), vector(PLAIN)
    for env in envs:
        env.reset(seed=4)
    return envs


def test_a_process_that_does_nothing_changes_no_number():
    own, plain = pair(Idle)
    for action in actions_of(plain, 9):
        for a, b in zip(own.step(action)[:4], plain.step(action)[:4], strict=True):
            np.testing.assert_array_equal(a, b)
    assert own.last_round is not None
    assert own.state.processes == {}


def test_it_is_told_the_seconds_and_draws_its_own_numbers():
    env = vector(scenario_with(Idle))
    env.reset(seed=4)
    total, drawn = np.zeros(3), []
    for action in actions_of(env, 4):
        carried = env._mdp.world.system.carried["idle_process"]
        np.testing.assert_array_equal(carried["count"], total)
        drawn.append(carried["drawn"])
        total = total + env.step(action)[4]["delay"]
    numbers = np.concatenate(drawn)
    assert len(np.unique(numbers)) == numbers.size
    assert ((numbers > 0.0) & (numbers < 1.0)).all()


def test_apply():
    own, plain = pair(Slowing, 0.5)
    for _ in range(2):
        np.testing.assert_array_equal(own.state.speed, 0.5 * plain.state.speed)
        for env in (own, plain):
            env.step(actions_of(plain, 1)[0])


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


@pytest.mark.parametrize(("cap", "left"), [(0.6, 1.0), (0.4, 0.8)])
def test_a_cap_on_clocks_is_one_on_full_clocks_which_load_slows_down_too(cap, left):
    own, plain = vector(scenario_with(Capped, cap, load_levels=[0.5])), vector(PLAIN)
    for env in (own, plain):
        env.reset(seed=4)
    for action in actions_of(plain, 2):
        np.testing.assert_allclose(own.state.speed, 0.5 * left * plain.state.speed, rtol=1e-14)
        for env in (own, plain):
            env.step(action)


def test_a_cap_reads_what_other_processes_made_of_the_system():
    """A process of one's own comes after load: half the speed, half the memory."""
    bytes_each = 0.06
    scenario = scenario_with(Bounded, bytes_each, load_levels=[0.5])
    own, plain = vector(scenario), vector({**PLAIN, "dynamics": {"rounds": 6, "load_levels": [0.5]}})
    for env in (own, plain):
        env.reset(seed=4)
    for action in actions_of(own, 3):
        expected = np.minimum(plain.state.memory_bytes, bytes_each * plain.state.speed)
        np.testing.assert_allclose(own.state.memory_bytes, expected, rtol=1e-12)
        assert (own.state.memory_bytes < plain.state.memory_bytes).any()
        for env in (own, plain):
            env.step(action)


@pytest.mark.parametrize(("bound", "share"), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)])
def test_events(bound, share):
    own, plain = vector(scenario_with(Outage, bound), 100), vector(PLAIN, 100)
    for env in (own, plain):
        env.reset(seed=0)
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
    envs = [vector(scenario, 100) for scenario in (both, *(scenario_with(p, 0.5) for p in (Outage, Spill)))]
    for env in envs:
        env.reset(seed=0)
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
        truth, seen = own._mdp.world.state, own.state
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
    env = vector(scenario_with(Shown))
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
    core = vector(PLAIN)
    np.testing.assert_array_equal(core.reset(seed=1)[0], first[:, : core.observation_layout.size])


@pytest.mark.slow
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
    env = vector(scenario_with(Absence, 0.0))
    env.reset(seed=0)
    before = env.state
    with pytest.raises(AllocationError, match="no plan exists"):
        env.step(actions_of(env, 1)[0])
    assert env.state is before


def test_apply_may_take_devices_away_and_change_their_power():
    class Swap(Idle):
        name = "swap"

        def apply(self, system, carried):  # noqa: ARG002
            present = system.present & (np.arange(system.present.shape[-1]) > 0)
            return system._replace(
                present=present,
                active_power=2.0 * system.active_power,
                switched_capacitance=2.0 * system.switched_capacitance,
            )

    with registered(Swap):
        own, plain = vector(scenario_with(Swap)), vector(PLAIN)
        for env in (own, plain):
            env.reset(seed=4)
        assert (own.state.memory_cap[..., 0] == 0).all()
        np.testing.assert_array_equal(own.state.memory_cap[..., 1:], plain.state.memory_cap[..., 1:])
        np.testing.assert_allclose(own.state.compute_power, 2.0 * plain.state.compute_power)


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
        env, other = (vector(scenario_with(Faulty, 0.5)) for _ in range(2))
        actions = actions_of(env, 4)
        for one in (env, other):
            one.reset(seed=3)
            one.step(actions[0])
        Faulty.wrong = True
        with pytest.raises(ZeroDivisionError):
            env.reset() if part == "begin" else env.step(actions[1])
        Faulty.wrong = False
        for action in actions[1:]:
            for a, b in zip(env.step(action)[:4], other.step(action)[:4], strict=True):
                np.testing.assert_array_equal(a, b)

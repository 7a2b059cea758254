"""Recomputation as a decision: costs of each cluster's setting, checks, actions, observations, training."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.feasibility.sampled_rounds import sample_rounds
from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.physics.allocation import stack_allocations, with_schedule
from collapipe_env.physics.memory import memory_caps
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.general_costs import general_round_costs
from collapipe_env.simulator.state import other_memory_caps
from collapipe_env.training import pipeline_step

DECISIONS = ["segments", "micro_batches", "bandwidth", "powers", "recompute"]
OPEN = load_scenario("medium").with_overrides({"decisions": DECISIONS})
FIXED = {on: load_scenario("medium").with_overrides({"workload.recompute": on}) for on in (False, True)}
STATE = sample_rounds(FIXED[False]).state[:3]
N = OPEN.clusters


def plans():
    """Plans under several schedules, with settings that differ from cluster to cluster and row to row."""
    plain = even_split(system_parameters(OPEN), STATE)
    rng = np.random.default_rng(0)
    chosen = rng.integers(-1, 2, plain.micro_batches.shape)
    chosen[0, :3] = 0, 1, -1
    caps = np.full(plain.blocks.shape, 3)
    yield "gpipe", plain, chosen
    for name in ("1f1b", "zb-h1", "async"):
        yield name, with_schedule(plain, name, caps), chosen


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("name", "plan", "chosen"), list(plans()), ids=lambda value: str(value)[:6])
def test_every_cluster_costs_what_a_scenario_with_its_setting_says(name, plan, chosen, own):
    parameters = system_parameters(OPEN.with_overrides({"workload.recompute": own}))
    found = round_costs(parameters, STATE, replace(plan, recompute=chosen))
    settled = np.where(chosen < 0, own, chosen)
    for on in (False, True):
        expected = round_costs(system_parameters(FIXED[on]), STATE, plan)
        same = settled == on
        for field in ("cluster_delay", "energy", "memory", "local_step"):
            np.testing.assert_allclose(
                getattr(found, field)[same], getattr(expected, field)[same], rtol=1e-12, err_msg=field
            )
    np.testing.assert_allclose(found.delay, found.cluster_delay.max(-1) + found.broadcast, rtol=1e-12)
    general = general_round_costs(parameters, STATE, replace(plan, recompute=chosen))
    for field in ("delay", "energy", "memory", "local_step"):  # plain plans go through a compiled loop
        np.testing.assert_allclose(getattr(found, field), getattr(general, field), rtol=1e-12, err_msg=field)
    if name == "gpipe":
        stored, again = (round_costs(system_parameters(FIXED[on]), STATE, plan) for on in (False, True))
        assert (again.cluster_delay > stored.cluster_delay).all()
        used = plan.blocks > 0
        assert (again.memory[used] < stored.memory[used]).all()


def test_plans_that_say_nothing_stack_with_others():
    plan = even_split(system_parameters(OPEN), STATE)
    rows = [plan[0], replace(plan[1], recompute=np.ones(N, dtype=np.int64))]
    np.testing.assert_array_equal(stack_allocations(rows).recompute, [[-1] * N, [1] * N])


def test_what_a_scenario_leaves_open_is_checked():
    plan = even_split(system_parameters(OPEN), STATE)
    ones = np.ones(plan.micro_batches.shape, dtype=np.int64)
    check_allocation(system_parameters(OPEN), STATE, replace(plan, recompute=ones))
    with pytest.raises(AllocationError, match=r"recompute.*do not list recompute"):
        check_allocation(system_parameters(FIXED[True]), STATE, replace(plan, recompute=ones))
    check_allocation(system_parameters(FIXED[True]), STATE, replace(plan, recompute=-ones))
    with pytest.raises(AllocationError, match=r"recompute.*cluster 0 is 2, expected 0 or 1"):
        check_allocation(system_parameters(OPEN), STATE, replace(plan, recompute=2 * ones))
    with pytest.raises(AllocationError, match=r"recompute.*shape"):
        check_allocation(system_parameters(OPEN), STATE, replace(plan, recompute=ones[:, :1]))


def test_memory_is_that_of_the_setting():
    parameters = system_parameters(OPEN)
    caps, more = STATE.memory_cap, memory_caps(parameters.other_costs, STATE.memory_bytes)
    assert (more >= caps).all()
    n, k = np.argwhere((more[0] > caps[0]) & (caps[0] < OPEN.blocks))[0]
    plan = even_split(parameters, STATE)
    blocks = plan.blocks.copy()
    # As many on one device as fit under recomputation alone, the others share the rest.
    blocks[0, n] = 0
    blocks[0, n, k] = min(more[0, n, k], OPEN.blocks)
    for other in range(blocks.shape[-1]):
        if other != k:
            blocks[0, n, other] = min(caps[0, n, other], OPEN.blocks - blocks[0, n].sum())
    assert blocks[0, n].sum() == OPEN.blocks
    assert blocks[0, n, k] > caps[0, n, k]
    chosen = np.zeros(plan.micro_batches.shape, dtype=np.int64)
    with pytest.raises(AllocationError, match=r"needs .* bytes for its"):
        check_allocation(parameters, STATE, replace(plan, blocks=blocks, recompute=chosen))
    chosen[0, n] = 1
    check_allocation(parameters, STATE, replace(plan, blocks=blocks, recompute=chosen))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), own=st.booleans(), tight=st.floats(0.3, 1.5))
def test_what_an_action_says_is_done_where_it_fits(seed, own, tight):
    scenario = OPEN.with_overrides({"workload.recompute": own})
    parameters, codec = system_parameters(scenario), action_codec(scenario)
    memory = STATE.memory_bytes * tight
    state = replace(STATE, memory_bytes=memory, memory_cap=memory_caps(parameters.costs, memory))
    caps = {own: state.memory_cap, not own: other_memory_caps(parameters, state)}
    if (caps[True].sum(-1) < OPEN.blocks).any() or (caps[own].sum(-1) < OPEN.blocks).any():
        return
    action = np.random.default_rng(seed).uniform(-1.2, 1.2, (3, codec.action_size))
    plan = codec.decode(action, caps[own], memory)
    wanted = codec.split(action)["recompute"] >= 0.0
    room = caps[False].sum(-1) >= OPEN.blocks
    np.testing.assert_array_equal(plan.recompute, wanted | ~room)


@pytest.mark.parametrize("observation", ["flat", "graph"])
def test_agents_see_the_room_under_the_other_setting(observation):
    env = CollaPipeEnv(scenario=OPEN, learner="surrogate", observation=observation)
    seen, _ = env.reset(seed=0)
    state = env.unwrapped.state
    expected = np.minimum(other_memory_caps(system_parameters(OPEN), state)[0], OPEN.blocks)
    layout = env.unwrapped.observation_layout
    physical = layout.physical(seen)
    found = (
        physical["device_other_capacity"] if observation == "flat" else physical["opened"]["other_capacity"]
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert env.observation_space.contains(seen)


def test_training_recomputes_where_the_plan_says_so_and_learns_the_same(monkeypatch):
    scenario = load_scenario("small").with_overrides({"decisions": DECISIONS, "dynamics.rounds": 3})
    runs = {}
    real = pipeline_step.checkpoint
    for chosen in ([0, 0], [1, 0], [1, 1]):
        calls = []

        def counted(*args, calls=calls, **kwargs):
            calls.append(1)
            return real(*args, **kwargs)

        monkeypatch.setattr(pipeline_step, "checkpoint", counted)
        env = CollaPipeEnv(scenario=scenario, learner="real")
        env.reset(seed=3)
        plan = even_split(system_parameters(scenario), env.unwrapped.state)
        losses = []
        for _ in range(2):
            single = replace(plan, recompute=np.array([chosen]))
            losses.append(env.unwrapped.step_allocation(single)[4]["loss"])
        runs[tuple(chosen)] = losses, len(calls)
    stored, one, both = (runs[key] for key in ((0, 0), (1, 0), (1, 1)))
    np.testing.assert_allclose(one[0], stored[0], rtol=1e-4)
    np.testing.assert_allclose(both[0], stored[0], rtol=1e-4)
    assert stored[1] == 0
    assert both[1] == 2 * one[1] > 0


def test_scenarios_name_their_decisions():
    mixed = load_scenario("medium").with_overrides({"decisions": DECISIONS[::-1]})
    assert mixed == OPEN
    for wrong, message in (
        (["recompute"], "segments, micro_batches, bandwidth, powers are missing"),
        ([*DECISIONS, "recompute"], "recompute is named twice"),
        ([*DECISIONS, "colour"], "colour"),
        ("recompute", "decisions"),
    ):
        with pytest.raises(ScenarioError, match=message):
            load_scenario("medium").with_overrides({"decisions": wrong})

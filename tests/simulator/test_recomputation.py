"""Recomputation as a decision: actions, observations and training."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.feasibility.sampled_rounds import sample_rounds
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.memory import memory_caps
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.state import other_memory_caps
from collapipe_env.training import pipeline_step

DECISIONS = ["segments", "micro_batches", "bandwidth", "powers", "recompute"]
OPEN = load_scenario("medium").with_overrides({"decisions": DECISIONS})
STATE = sample_rounds(load_scenario("medium")).state[:3]


@settings(max_examples=30, deadline=None)
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
    proxy = {"width": 8, "feedforward": 8, "heads": 1, "sequence_length": 16}
    small = {"learning.evaluation_samples": 8, "learning.metric_samples": 8, "workload.batch_size": 16}
    small |= {f"learning.proxy.{name}": value for name, value in proxy.items()}
    scenario = load_scenario("small").with_overrides({"decisions": DECISIONS, **small})
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

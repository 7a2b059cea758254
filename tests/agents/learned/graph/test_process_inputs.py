"""Inputs for heat and failures: decisions read them; weights of 0 change nothing."""

from dataclasses import replace

import graph_net_support as support
import gymnasium as gym
import numpy as np
import pytest
import torch

from collapipe_env.agents.dssra.hazard_memory import failure_risk
from collapipe_env.agents.learned.agent_file import read_agent_file, write_agent_file
from collapipe_env.agents.learned.graph.graph_files import HEAT, LATER, first_weights, require_graph_net
from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.graph.graph_scheduler import GraphScheduler
from collapipe_env.agents.learned.graph.process_inputs import (
    HEAT_INPUTS,
    PROCESS_INPUTS,
    heat_columns,
    process_inputs,
    risk_columns,
)
from collapipe_env.agents.learned.graph.systems import Group
from collapipe_env.agents.learned.hyperparameters import usual
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.even_split import even_split
from collapipe_env.zoo.shipped_agents import agent_path

THERMAL, CHURN = load_scenario("small-thermal"), load_scenario("small-churn")


def warm_state(rows=4, seed=0):
    """A state of `small-thermal` whose devices are of any temperature and governor level."""
    state, rng = support.played_state(THERMAL, rows, seed), np.random.default_rng(seed)
    heat = dict(state.processes["heat"])
    heat["headroom"] = rng.uniform(0.0, 1.5, state.present.shape)
    heat["share"] = rng.choice([0.25, 1.0], state.present.shape)
    return replace(state, processes={**state.processes, "heat": heat})


def test_the_columns_are_those_of_the_array_heat_of_the_graph_observation():
    env = gym.make("CollaPipeSurrogate-v0", scenario="small-thermal", observation="graph")
    observation, _ = env.reset(seed=3)
    for _ in range(30):
        observation, *_ = env.step(env.action_space.sample() * 0.0)
    headroom, share = observation["heat"][..., 0], observation["heat"][..., 1]
    found = process_inputs(env.unwrapped.state)[0]
    assert headroom.max() > 0.3
    np.testing.assert_allclose(found[..., 0], headroom, rtol=1e-6)
    np.testing.assert_allclose(found[..., 2], 1.0 - share, atol=1e-6)
    np.testing.assert_allclose(found[..., 1], np.maximum(headroom - 0.8, 0.0) / 0.2, atol=1e-5)
    assert not found[..., HEAT_INPUTS:].any()


def test_absent_devices_have_neither_heat_nor_risk():
    there = np.array([False, True])
    found = heat_columns(np.array([1.2, 0.9]), np.array([0.25, 1.0]), there)
    np.testing.assert_allclose(found, [[0.0, 0.0, 0.0], [0.9, 0.5, 0.0]])
    found = risk_columns(np.array([0.5, 0.097]), there)
    np.testing.assert_allclose(found, [[0.0, 0.0], [0.485, 1.0 - np.log(10.0) / 3.0]])


def test_systems_that_neither_warm_up_nor_fail_have_no_such_inputs():
    assert process_inputs(support.played_state(support.SMALL, 2)).shape == (0, 0, 0, PROCESS_INPUTS)


def churned(seed):
    """A state of `small-churn`, with the probabilities of failure that a new scheduler adds."""
    group = Group(CHURN, 4, life=10, seed=seed)
    for _ in range(3):
        group.play(even_split(group.parameters, group.known))
    return failure_risk(CHURN).added(group.known)


@pytest.mark.parametrize(("scenario", "state_of"), [(THERMAL, warm_state), (CHURN, churned)])
@pytest.mark.parametrize("seed", range(2))
def test_decisions_read_processes(scenario, state_of, seed):
    state, net = state_of(seed=seed), support.random_net(seed)
    with torch.no_grad():
        for part in (net.heat, net.risk):
            part.weight.copy_(torch.randn_like(part.weight))
    found = GraphScheduler(scenario, net).allocate(state)
    inputs, blocks = support.inputs_of(support.observed(scenario, state)), scenario.workload.blocks
    with torch.no_grad():
        tokens = net.double().tokens(inputs, torch.from_numpy(process_inputs(state)).double())
        assert not torch.equal(tokens, net.tokens(inputs))
        logits = net.count_logits(tokens, inputs, blocks)
    cap = np.where(state.present, state.memory_cap, 0)
    np.testing.assert_array_equal(found.blocks, support.likeliest_counts(logits, cap, blocks))


def test_weights_of_zero_decide_as_if_there_was_no_heat_bit_for_bit_and_others_do_not():
    state, net = warm_state(16), support.random_net(5)
    for value in (0.0, 1.0):
        with torch.no_grad():
            net.heat.weight.copy_(value * torch.randn_like(net.heat.weight))
        scheduler = GraphScheduler(THERMAL, net)
        found = scheduler.allocate(state)
        blind = scheduler.allocate(replace(state, processes={}))
        parts = ("blocks", "micro_batches", "bandwidth", "device_power", "cu_power")
        same = [np.array_equal(getattr(found, part), getattr(blind, part)) for part in parts]
        assert all(same) == (value == 0.0)


def test_files_without_later_weights_load_with_weights_of_zero(tmp_path):
    agent = read_agent_file(agent_path("zoo:graph"))
    older = {name: value for name, value in agent.tensors.items() if not name.startswith(LATER)}
    path = tmp_path / "older.safetensors"
    write_agent_file(path, agent.record, older)
    net = require_graph_net(read_agent_file(path), str(path))
    weights = net.state_dict()
    assert weights[HEAT].shape == (net.sizes.width, HEAT_INPUTS)
    added = weights.keys() - older.keys()
    assert len(added) == 6  # for heat and failures, and two layers for shares
    assert not any(weights[name].any() for name in added)
    # A training starts with weights of its own for what the file lacks: of zeros, nothing would learn.
    assert first_weights(usual(GraphParameters, start_from=str(path))).keys() == older.keys()

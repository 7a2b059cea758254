"""Inputs for heat: the compiled decision reads them as PyTorch does, and weights of 0 change nothing."""

from dataclasses import replace

import graph_net_support as support
import gymnasium as gym
import numpy as np
import pytest
import torch

from collapipe_env.agents.learned.agent_file import read_agent_file, write_agent_file
from collapipe_env.agents.learned.graph.graph_files import HEAT, LATER, first_weights, require_graph_net
from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.graph.graph_scheduler import GraphScheduler
from collapipe_env.agents.learned.graph.heat_inputs import HEAT_INPUTS, heat_columns, heat_inputs
from collapipe_env.agents.learned.graph.net_inputs import net_inputs
from collapipe_env.envs.graph_observation import GraphArrays
from collapipe_env.scenario import load_scenario
from collapipe_env.zoo.shipped_agents import agent_path

THERMAL = load_scenario("small-thermal")


def warm_state(rows=4, seed=0):
    """A state of `small-thermal` whose devices are of any temperature and governor level."""
    state, rng = support.played_state(THERMAL, rows, seed), np.random.default_rng(seed)
    heat = dict(state.processes["heat"])
    heat["headroom"] = rng.uniform(0.0, 1.5, state.present.shape)
    heat["share"] = rng.choice([0.25, 1.0], state.present.shape)
    return replace(state, processes={**state.processes, "heat": heat})


def test_the_columns_are_those_of_the_array_heat_of_the_graph_observation():
    env = gym.make("CollaPipeSurrogate-Small-Thermal-v0", observation="graph")
    observation, _ = env.reset(seed=3)
    for _ in range(30):
        observation, *_ = env.step(env.action_space.sample() * 0.0)
    headroom, share = observation["heat"][..., 0], observation["heat"][..., 1]
    found = heat_inputs(env.unwrapped.state)[0]
    assert headroom.max() > 0.3
    np.testing.assert_allclose(found[..., 0], headroom, rtol=1e-6)
    np.testing.assert_allclose(found[..., 2], 1.0 - share, atol=1e-6)
    np.testing.assert_allclose(found[..., 1], np.maximum(headroom - 0.8, 0.0) / 0.2, atol=1e-5)


def test_absent_devices_have_no_heat():
    found = heat_columns(np.array([1.2, 0.9]), np.array([0.25, 1.0]), np.array([False, True]))
    np.testing.assert_allclose(found, [[0.0, 0.0, 0.0], [0.9, 0.5, 0.0]])


def test_systems_that_do_not_warm_up_have_no_such_inputs():
    assert heat_inputs(support.played_state(support.SMALL, 2)).shape == (0, 0, 0, HEAT_INPUTS)


@pytest.mark.parametrize("seed", range(3))
def test_compiled_decisions_read_heat_as_pytorch_does(seed):
    state, net = warm_state(seed=seed), support.random_net(seed)
    with torch.no_grad():
        net.heat.weight.copy_(torch.randn_like(net.heat.weight))
    scheduler = GraphScheduler(THERMAL, support.packed(net), net.shape.heads, exact_shares=False)
    found = scheduler.allocate(state)
    graph = GraphArrays(*(torch.from_numpy(array) for array in scheduler._observer.build(state)))
    inputs, blocks = net_inputs(graph), THERMAL.workload.blocks
    with torch.no_grad():
        tokens = net.tokens(inputs, torch.from_numpy(heat_inputs(state)))
        logits = net.count_logits(tokens, inputs, blocks).double()
    cap = np.where(state.present, state.memory_cap, 0)
    np.testing.assert_array_equal(found.blocks, support.likeliest_counts(logits, cap, blocks))


def test_weights_of_zero_decide_as_if_there_was_no_heat_bit_for_bit_and_others_do_not():
    state, net = warm_state(16), support.random_net(5)
    for value in (0.0, 1.0):
        with torch.no_grad():
            net.heat.weight.copy_(value * torch.randn_like(net.heat.weight))
        scheduler = GraphScheduler(THERMAL, support.packed(net), net.shape.heads)
        found = scheduler.allocate(state)
        blind = scheduler.allocate(replace(state, processes={}))
        parts = ("blocks", "micro_batches", "bandwidth", "device_power", "cu_power")
        same = [np.array_equal(getattr(found, part), getattr(blind, part)) for part in parts]
        assert all(same) == (value == 0.0)


def test_files_of_earlier_versions_load_with_weights_of_zero(tmp_path):
    agent = read_agent_file(agent_path("zoo:graph"))
    older = {name: value for name, value in agent.tensors.items() if not name.startswith(LATER)}
    path = tmp_path / "older.safetensors"
    write_agent_file(path, agent.record, older)
    parameters, weights = require_graph_net(read_agent_file(path), str(path))
    assert weights[HEAT].shape == (parameters.width, HEAT_INPUTS)
    added = weights.keys() - older.keys()
    assert len(added) == 5  # for heat, and two layers for shares
    assert not any(weights[name].any() for name in added)
    # A training starts with weights of its own for what the file lacks: of zeros, nothing would learn.
    assert first_weights(GraphParameters(start_from=str(path))).keys() == older.keys()

"""Decisions of the graph net: as its answers say, allowed, and the same in any batch."""

from dataclasses import replace

import graph_net_support as support
import numpy as np
import pytest
import torch
from oracles.counts import every_count, scores
from unpriced_support import unpriced

from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.graph.graph_scheduler import GraphScheduler
from collapipe_env.agents.learned.graph.net import GraphNet
from collapipe_env.agents.learned.hyperparameters import usual
from collapipe_env.dynamics.migration import change_of_plan, phase_times
from collapipe_env.ground.errors import AllocationError
from collapipe_env.ground.records import declarations
from collapipe_env.physics.allocation import Allocation, own_arrays
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation

scheduler = support.scheduler


ODD = usual(GraphParameters, width=12, layers=3, heads=3, hidden=7, edge_hidden=5)


@pytest.mark.parametrize("name", support.SCENARIOS)
@pytest.mark.parametrize("seed", range(3))
def test_decisions_are_as_the_nets_answers_say(name, seed):
    """The answers come from the observation in double precision, the most likely counts from all of them."""
    scenario = support.SCENARIOS[name]
    state = support.played_state(scenario, 3, seed, mean=[0.2, 2.0, 15.0][seed])
    state = replace(state, processes={})  # no cluster asks whether it should keep its blocks
    net = support.random_net(seed)
    if seed == 2:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = GraphNet(ODD)
    found = GraphScheduler(scenario, net).allocate(state)
    with torch.no_grad():
        answer = support.answer(net, scenario, state)
    cap = np.where(state.present, state.memory_cap, 0)
    for row, n in np.ndindex(*cap.shape[:2]):
        possible = every_count(cap[row, n], scenario.workload.blocks)
        wanted = possible[scores(answer.logits[row, n].numpy(), possible).argmax()]
        np.testing.assert_array_equal(found.blocks[row, n], wanted)
    p, used = system_parameters(scenario), found.blocks > 0
    choices = np.array(p.micro_batch_choices)
    nearest = np.abs(np.log2(choices) - answer.log2_micro_batches.numpy()[..., None]).argmin(axis=-1)
    np.testing.assert_array_equal(found.micro_batches, choices[nearest])
    power = p.power_min_w * (p.power_max_w / p.power_min_w) ** answer.power.numpy()  # [W]
    np.testing.assert_allclose(found.cu_power, power[..., 0], rtol=1e-5)
    np.testing.assert_allclose(found.device_power[used], power[..., 1:][used], rtol=1e-5)


def test_idle_devices_send_at_least_power_unless_they_held_blocks_whose_moments_may_move():
    scenario = support.BOARDS
    p, senders = system_parameters(scenario), 0
    for seed in range(6):
        state = support.played_state(scenario, 3, seed)
        cap = state.memory_cap.copy()
        cap[..., 0] = 0  # who held blocks there gives them away
        state = replace(state, memory_cap=cap)
        found = scheduler(scenario, seed).allocate(state)
        change = change_of_plan(p, state, found)
        sends = phase_times(p, state, found, change).sent[..., 1:] > 0.0
        idle, held = found.blocks == 0, state.processes["migration"]["blocks"] > 0
        assert held[sends].all()
        np.testing.assert_array_equal(found.device_power[idle & ~held], p.power_min_w)
        assert (found.device_power[idle & held] > p.power_min_w).all()
        senders += (idle & sends).sum()
    assert senders > 0


def test_micro_batches_are_as_many_as_possible_where_they_cost_nothing():
    scenario = unpriced("small")
    state = support.played_state(scenario, 2)
    found = scheduler(scenario, 0).allocate(state)
    assert (found.micro_batches == max(system_parameters(scenario).micro_batch_choices)).all()


@pytest.mark.parametrize("name", support.SCENARIOS)
def test_a_row_of_a_batch_is_decided_as_if_it_were_alone(name):
    scenario = support.SCENARIOS[name]
    state = support.played_state(scenario, 5, 4)
    own = scheduler(scenario, 4)
    together = own.allocate(state)
    check_allocation(own.parameters, state, own_arrays(together))
    for row in range(5):
        alone = own.allocate(state[row : row + 1])
        for name in declarations(Allocation):
            value = getattr(together, name)
            if value is not None:
                np.testing.assert_array_equal(getattr(alone, name)[0], value[row])


def test_a_cluster_that_cannot_hold_the_encoder_is_named():
    state = support.played_state(support.SMALL, 2)
    cap = state.memory_cap.copy()
    cap[1, 0] = [2, 1, 2]
    with pytest.raises(
        AllocationError, match="environment 1, cluster 0: its devices can hold only 5 blocks, but the"
    ):
        scheduler(support.SMALL, 0).allocate(replace(state, memory_cap=cap))

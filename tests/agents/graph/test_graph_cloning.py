"""Cloning of DSSRA: the likelihood of its segments, and a net that comes closer to its plans."""

import itertools

import numpy as np
import pytest
import torch

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.learned.graph.graph_cloning import clone_and_play, log_likelihood
from collapipe_env.agents.learned.graph.net import GraphNet, NetShape
from collapipe_env.agents.learned.graph.training_groups import Group
from collapipe_env.scenario import load_scenario


def possible_counts(cap, blocks):
    """All counts within the caps that sum to the blocks."""
    ranges = (range(min(most, blocks) + 1) for most in cap)
    return [counts for counts in itertools.product(*ranges) if sum(counts) == blocks]


@pytest.mark.parametrize("cap", [(5, 5, 5), (2, 0, 4), (1, 1, 3), (5, 0, 0)])
def test_likelihoods_and_their_gradients_are_those_of_enumeration(cap):
    blocks = 5
    rng = np.random.default_rng(sum(cap))
    values = torch.tensor(3.0 * rng.standard_normal((3, blocks + 1)), requires_grad=True)
    every = possible_counts(cap, blocks)
    weights = torch.stack([sum(values[k, c] for k, c in enumerate(counts)) for counts in every])
    for i, counts in enumerate(every):
        expected = weights[i] - torch.logsumexp(weights, dim=0)
        found = log_likelihood(values, torch.tensor(cap), torch.tensor(counts))
        assert found.item() == pytest.approx(expected.item(), rel=1e-9, abs=1e-12)
        (wanted,) = torch.autograd.grad(expected, values, retain_graph=True)
        (gradient,) = torch.autograd.grad(found, values)
        torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-12)


def test_the_net_comes_closer_to_dssras_plans_and_dssras_are_played():
    torch.manual_seed(0)
    net, rng = GraphNet(NetShape(width=16, hidden=16)), np.random.default_rng(0)
    adam = torch.optim.Adam(net.parameters(), lr=3e-3)
    group = Group(load_scenario("small"), 16, 1000, 0)
    losses = []
    for _ in range(30):
        wanted = DSSRA(group.scenario, threads=1).allocate(group.env.state)
        step = clone_and_play(net, group, rng)
        np.testing.assert_array_equal(group.env.last_round.costs.allocation.blocks, wanted.blocks)
        adam.zero_grad()
        step.total.backward()
        adam.step()
        losses.append(step.total.item())
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])

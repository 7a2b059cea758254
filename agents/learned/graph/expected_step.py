"""A step of the graph net's training where gains are hidden: decide on what is known, pay the expected cost.

The truth enters only in prices. Shares of the uplink are the best ones at the known gains times the net's
residual, and the round is played with them.

1. Several draws of the fading around the true path gains stand for the rounds that may come.
2. Powers and the share residual follow the gradient of ``V mean_s max_n T_n`` plus the mean exact drift
   through the physics in PyTorch. The shares are not the best ones for the truth: they have a gradient too.
3. Counts of blocks and micro-batches are priced cluster by cluster with all else held, the shares included:
   ``V mean_s max(T_n, slowest other) + mean own drift``. Since the others' delays differ from draw to draw, a
   cluster that is seldom the slowest pays little for its delay.
"""

from __future__ import annotations

import numpy as np
import torch

from collapipe_env.agents.dssra.cluster_costs import (
    SUMMARY,
    delay_and_cost,
    node_drift,
    node_joules,
    summarise_cluster,
)
from collapipe_env.agents.dssra.link_noise import noise_of, set_moving_noise
from collapipe_env.agents.dssra.pricing import best_shares
from collapipe_env.agents.dssra.round_input import RoundInput, environment_row, round_input
from collapipe_env.arrays import FloatArray, IntArray
from collapipe_env.compiled import compiled
from collapipe_env.physics.parameters import Parameters
from collapipe_env.simulator.state import SystemState

from .graph_step import Losses, Plan, Weights, losses_of, planned, priced
from .net import GraphNet
from .shares import LEAST_ABOVE
from .training_groups import Group


def departed(share: FloatArray, residual: torch.Tensor, floor: float) -> torch.Tensor:
    """The net's departures from shares (E, N), as :func:`~.shares.depart` has them, with gradients.

    Args:
        share: Shares (E, N) with sum 1.
        residual: Logs of the factors of their parts above the floor (E, N).
        floor: Least share.
    """
    above = torch.from_numpy(np.log(np.maximum(share - floor, LEAST_ABOVE)))
    found: torch.Tensor = floor + (1.0 - share.shape[-1] * floor) * torch.softmax(
        above + residual.double(), dim=-1
    )
    return found


@compiled
def expected_costs(
    inputs: RoundInput,
    parameters: Parameters,
    power: FloatArray,
    share: FloatArray,
    segments: IntArray,
    option: FloatArray,
    cost: FloatArray,
) -> None:
    """Expected costs of other plans of single clusters: ``V mean_s max(T_n, slowest other) + mean drift``.

    Args:
        inputs: True states (E D, ...), the D draws of an environment together.
        parameters: The scenario.
        power: Powers (E, N, K+1) [W].
        share: Shares of the uplink (E, N).
        segments: Blocks (E, N, C, K); those at 0 are the plan's, which the other clusters play.
        option: Micro-batches (E, N, C).
        cost: Receives the costs (E, N, C).
    """
    E, N, C, K = segments.shape
    draws = len(inputs.gain) // E
    summary, delay = np.empty(SUMMARY + K + 1), np.empty((N, C))
    cost[:] = 0.0
    for e in range(E):
        for s in range(draws):
            row = environment_row(inputs, e * draws + s)
            noise = noise_of(segments[e, :, 0], power[e], row, parameters)
            set_moving_noise(segments[e, :, 0], power[e], row, parameters)
            for n in range(N):
                for c in range(C):
                    blocks, M = segments[e, n, c], option[e, n, c]
                    summarise_cluster(n, blocks, power[e, n], M, noise[n], row, parameters, summary)
                    delay[n, c] = delay_and_cost(share[e, n], summary, parameters)[0]
                    for i in range(K + 1):
                        ratio = node_joules(i, share[e, n], summary, parameters) / row.budget[n, i]
                        cost[e, n, c] += node_drift(row.backlog[n, i], ratio, row.allowance[0]) / draws
            for n in range(N):
                others = 0.0
                for m in range(N):
                    others = max(others, delay[m, 0] if m != n else 0.0)
                for c in range(C):
                    cost[e, n, c] += parameters.tradeoff_v * max(delay[n, c], others) / draws


def learn_for_hidden_gains(
    net: GraphNet,
    group: Group,
    samples: int,
    entropy: float,
    weights: Weights,
    rng: np.random.Generator,
    draws: int,
) -> Losses:
    """Compute the loss of one round of a group whose gains are hidden, which then plays the most likely plan.

    Args:
        net: The net.
        group: The environments.
        samples: Samples of the counts of each cluster, >= 2.
        entropy: Weight of the entropy of the counts.
        weights: Weights of the other parts.
        rng: Draws the samples and the fading.
        draws: Draws of the fading of every environment.
    """
    whole, plan = group.whole, planned(net, group, samples, rng)
    power = np.ascontiguousarray(plan.power.detach().numpy())
    shares = _shares(plan, group, power)
    share = np.ascontiguousarray(shares.detach().numpy())
    truths = group.possible_truths(draws, rng)
    objective, unit = _expected(plan, group, shares, truths)
    cost = _alternatives(plan, group, power, share, truths)
    weighed = torch.from_numpy(np.where(whole, 1.0 / unit, 0.0))
    losses = losses_of(
        plan,
        (objective * weighed).sum(),
        unit,
        cost[:, :, 1 : 1 + samples],
        cost[:, :, 1 + samples :],
        whole,
        entropy,
        weights,
    )
    group.play(plan.played(power, share))
    return losses


def _shares(plan: Plan, group: Group, power: FloatArray) -> torch.Tensor:
    """Shares that are played (E, N): the net's departures from the best ones at the known gains."""
    inputs = round_input(group.parameters, group.known, plan.micro_batches, exact_drift=True)
    E, N, _ = plan.counts.shape
    share, worth = np.full((E, N), 1.0 / N), np.empty((E, N))
    best_shares(inputs, group.record, plan.counts, power, share, worth)
    return departed(share, plan.answer.share_residual, group.parameters.bandwidth_floor)


def _expected(
    plan: Plan, group: Group, shares: torch.Tensor, truths: SystemState
) -> tuple[torch.Tensor, FloatArray]:
    """Expected drift plus penalty of the plan, and the size of a cluster's part (E,)."""
    costs, drift, size = priced(group.parameters, truths, plan, shares)
    value = group.parameters.tradeoff_v * costs.cluster_delay.amax(dim=-1) + drift.sum(dim=-1)
    E = len(plan.counts)
    return value.reshape(E, -1).mean(dim=-1), size.reshape(E, -1).mean(dim=-1).numpy()


def _alternatives(
    plan: Plan, group: Group, power: FloatArray, share: FloatArray, truths: SystemState
) -> FloatArray:
    """Expected costs (E, N, 1 + S + C) of the plan, of the samples, and of all numbers of micro-batches."""
    own, choices = plan.counts[:, :, None], group.choices
    segments = np.concatenate((own, plan.samples, np.repeat(own, len(choices), axis=2)), axis=2)
    option = np.repeat(plan.micro_batches[:, :, None], segments.shape[2], axis=2)
    option[:, :, -len(choices) :] = choices
    cost = np.empty(option.shape)
    inputs = round_input(group.parameters, truths, np.ones(truths.uplink_gain.shape), exact_drift=True)
    expected_costs(inputs, group.record, power, share, segments, option, cost)
    return cost

"""One step of the graph net's training: no labels, only the physics.

1. The net's most likely plan is priced with its best shares of the uplink.
2. Powers learn from the gradient of the exact drift plus penalty through the physics in PyTorch. Shares and
   the worth of every cluster's delay are held fixed: the shares are the best ones, so to first order nothing
   is left out (envelope theorem).
3. Counts of blocks learn by score function: samples of the net's distribution are priced at the plan's
   prices, each cluster on its own; the mean of the samples is the baseline. A little entropy keeps the net
   trying other counts.
4. Micro-batches learn from the costs of all their numbers, weighted by their probabilities.
5. The environments play the most likely plan.

Where gains are hidden, or devices fail, the net decides on what is known and pays the expected cost. The
truth enters only in prices. Shares are the best ones at the known gains times the net's residual, and the
round is played with them. Several draws stand for the rounds that may come: of the fading around the true
path gains, and of failures by their estimated probabilities, with costs drawn from replays of the round.
Powers and the residual follow the gradient of ``V mean_s max_n T_n`` plus the mean exact drift.

The net runs where its weights are, on a GPU too; plans are priced on the host.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from collapipe_env.agents.dssra.round_input import round_input
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.parameters import Parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.state import SystemState

from .graph_costs import compare_counts, expected_costs
from .graph_parameters import GraphParameters
from .graph_scheduler import Plan
from .net import GraphNet
from .systems import Group


class Losses(NamedTuple):
    """Parts of the loss of a step, per cluster and relative to the objective's size.

    Attributes:
        total: Loss whose gradient is taken.
        objective: Drift plus penalty of the most likely plan.
        micro_batches: Regret of the most likely number of micro-batches.
        entropy: Entropy of the counts of a cluster, estimated from the samples [nat].
    """

    total: torch.Tensor
    objective: float
    micro_batches: float
    entropy: float


class Priced(NamedTuple):
    """Price of a plan and of its alternatives.

    Attributes:
        share: Shares of the uplink that are played (E, N).
        objective: Drift plus penalty of every environment (E,), with gradients.
        size: Size of a cluster's part of it (E,).
        samples: Costs of the sampled blocks (E, N, S).
        choices: Costs of the plan's blocks with each number of micro-batches (E, N, C).
    """

    share: FloatArray
    objective: torch.Tensor
    size: FloatArray
    samples: FloatArray
    choices: FloatArray


def learn_and_play(
    net: GraphNet, group: Group, p: GraphParameters, entropy: float, rng: np.random.Generator
) -> Losses:
    """Compute the loss of one round of a group, which then plays the most likely plan.

    Args:
        group: The environments.
        p: Hyper-parameters.
        entropy: Weight of the entropy of the counts.
        rng: Draws samples of the counts, the fading and the failures.
    """
    known = group.known
    plan = group.decider.plan(net, known, p.samples, rng)
    # If a cluster sits out, the others play another round than the one that is priced.
    whole = group.whole
    priced = _expected(plan, group, known, p.fading_draws, rng) if group.surprises else _exact(plan, group)
    counted, (_, N, samples) = max(int(whole.sum()), 1), priced.samples.shape
    objective = (priced.objective / torch.from_numpy(priced.size))[torch.from_numpy(whole)].sum()

    relative = _relative(priced.samples, priced.size)
    # Rare and very bad samples must not drown the others.
    relative = np.minimum(relative, 2.0) + entropy * plan.log_chance
    advantage = (relative - relative.mean(axis=-1, keepdims=True)) * (1.0 / (samples - 1))
    advantage[~whole] = 0.0
    taken = torch.gather(plan.logits, -1, torch.from_numpy(plan.samples).movedim(2, -1)).sum(dim=-2)
    counts = (torch.from_numpy(advantage).float() * taken).sum()

    regret = np.minimum(_relative(priced.choices, priced.size), 3.0)
    regret[~whole] = 0.0
    regrets = torch.from_numpy(regret).float()
    micro_batches = (plan.choice_logits.softmax(dim=-1) * regrets).sum()
    likeliest = plan.choice_logits.argmax(dim=-1, keepdim=True)

    group.play(plan.played(priced.share))
    loss = objective.float() + p.counts_weight * counts + p.micro_batches_weight * micro_batches
    return Losses(
        total=loss / (counted * N),
        objective=float(objective.detach()) / (counted * N),
        micro_batches=float(regrets.gather(-1, likeliest).sum()) / (counted * N),
        entropy=float(-plan.log_chance.mean()),
    )


def _relative(cost: FloatArray, size: FloatArray) -> FloatArray:
    """Costs above the least of a cluster's (E, N, ...), relative to the size of a cluster's part (E,)."""
    found: FloatArray = (cost - cost.min(axis=-1, keepdims=True)) / size[:, None, None]
    return found


def _exact(plan: Plan, group: Group) -> Priced:
    """Prices where the round is as it is known, with the plan's best shares."""
    (E, N, _), samples, choices = plan.counts.shape, plan.samples.shape[2], len(group.decider.choices)
    share, worth = np.full((E, N), 1.0 / N), np.empty((E, N))
    sample_cost, choice_cost = np.empty((E, N, samples)), np.empty((E, N, choices))
    inputs = round_input(group.parameters, group.truth, plan.option, exact_drift=True)
    compare_counts(
        inputs, group.decider.record, plan.counts, plan.watts, plan.option, plan.samples,
        share, worth, sample_cost, choice_cost,
    )  # fmt: skip
    costs, drift, size = _costs(group.parameters, group.truth, plan, torch.from_numpy(share))
    objective = (torch.from_numpy(worth) * costs.cluster_delay + drift).sum(dim=-1)
    return Priced(share, objective, size, sample_cost, choice_cost)


def _expected(plan: Plan, group: Group, known: SystemState, draws: int, rng: np.random.Generator) -> Priced:
    """Prices where the round may differ from what is known, with the net's shares.

    Args:
        known: Known states (E, ...).
        draws: Draws of the fading of every environment.
    """
    E, N, K = plan.counts.shape
    found, worth = group.decider.shares(plan, known, departs=True)
    share = np.ascontiguousarray(found.detach().numpy())
    part = worth / np.maximum(worth.sum(axis=-1, keepdims=True), 1e-300)
    truths = group.possible_truths(draws, rng)
    longer = group.possible_failures(plan.played(share), len(truths.present) // E, rng)

    costs, drift, size = _costs(group.parameters, truths, plan, found)
    at_known = _costs(group.parameters, known, plan, found.detach())[0].cluster_delay
    change = at_known - at_known.detach()
    worst = np.where(plan.counts[:, None] > 0, longer.reshape(E, -1, N, K), 0.0).max(axis=-1)
    delay = costs.cluster_delay.reshape(E, -1, N) - change[:, None]
    delay = delay.repeat_interleave(worst.shape[1] // delay.shape[1], dim=1)
    ends = (delay * torch.from_numpy(1.0 + worst)).amax(dim=-1).mean(dim=-1)
    latest = ends + (torch.from_numpy(part) * change).sum(dim=-1)
    drifts = drift.sum(dim=-1).reshape(E, -1).mean(dim=-1)

    # The plan itself, its samples, and its blocks with all numbers of micro-batches.
    own, samples, choices = plan.counts[:, :, None], plan.samples.shape[2], len(group.decider.choices)
    segments = np.concatenate((own, plan.samples, np.repeat(own, choices, axis=2)), axis=2)
    option = np.repeat(plan.option[:, :, None], segments.shape[2], axis=2)
    option[:, :, -choices:] = np.arange(choices)
    cost = np.empty(option.shape)
    seen = round_input(group.parameters, known, plan.option, exact_drift=True)
    inputs = round_input(group.parameters, truths, exact_drift=True)
    expected_costs(
        seen, inputs, group.decider.record, plan.watts, share, part, segments, option, longer, group.exact,
        cost,
    )  # fmt: skip
    return Priced(
        share,
        group.parameters.tradeoff_v * latest + drifts,
        size.reshape(E, -1).mean(axis=-1),
        cost[:, :, 1 : 1 + samples],
        cost[:, :, 1 + samples :],
    )


def _costs(
    parameters: Parameters, truth: SystemState, plan: Plan, share: torch.Tensor
) -> tuple[RoundCosts, torch.Tensor, FloatArray]:
    """Costs of a plan with gradients, drifts of the clusters (R, N), and sizes of a cluster's part (R,).

    Args:
        truth: True states (R, ...), ``R`` a multiple of the plan's E: as many successive ones of each.
        plan: The plan (E, ...).
        share: Its shares of the uplink (E, N).
    """
    state = truth.map(torch.from_numpy)
    rows = torch.arange(len(truth.present)) // (len(truth.present) // len(plan.counts))
    costs = round_costs(
        parameters,
        state,
        Allocation(
            blocks=torch.from_numpy(plan.counts)[rows],
            micro_batches=torch.from_numpy(plan.micro_batches.astype(np.int64))[rows],
            bandwidth=share[rows],
            device_power=plan.power[rows, :, 1:],
            cu_power=plan.power[rows, :, 0],
        ),
    )
    after = torch.clamp(state.backlog + costs.energy_ratio - 1.0, min=0.0)
    drift = 0.5 * (after * after).sum(dim=-1)
    energy = (state.backlog * costs.energy_ratio).sum(dim=(-2, -1))
    size = (parameters.tradeoff_v * costs.delay + energy + drift.sum(dim=-1)).detach() / parameters.clusters
    return costs, drift, size.numpy()

"""One step of the graph net's training: no labels, only the physics.

1. The net's most likely plan is priced, with exact shares of the uplink (``cluster_comparison``).
2. Powers learn from the gradient of the exact drift plus penalty through the physics in PyTorch. Shares and
   the worth of every cluster's delay are held fixed: the shares are the best ones, so to first order nothing
   is left out (envelope theorem).
3. Counts of blocks learn by score function: samples of the net's distribution are priced at the plan's
   prices, each cluster on its own; the mean of the samples is the baseline. A little entropy keeps the net
   trying other counts.
4. Micro-batches learn from the costs of all their numbers, weighted by their probabilities.
5. The environments play the most likely plan.

The net runs where its weights are, on a GPU too; plans are priced on the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from collapipe_env.agents.dssra.round_input import round_input
from collapipe_env.envs.graph_observation import GraphArrays
from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.parameters import Parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.state import SystemState

from .cluster_comparison import compare_counts
from .counts import sample_counts
from .net import GraphNet, NetAnswer
from .net_inputs import NetInputs, net_inputs
from .plan_inputs import PlanInputs, plan_inputs
from .process_inputs import process_inputs
from .staying import keep_rows, staying_rows
from .training_groups import Group


@dataclass(frozen=True)
class Weights:
    """Weights of the parts of the loss.

    Attributes:
        counts: Weight of the counts of blocks.
        micro_batches: Weight of the numbers of micro-batches.
    """

    counts: float = 5.0
    micro_batches: float = 3.0


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


class Plan(NamedTuple):
    """The net's plan before shares.

    Attributes:
        logits: Logits of each device's count of blocks (E, N, K, L+1).
        answer: The net's answer for the rest.
        counts: Most likely blocks (E, N, K).
        samples: Sampled blocks (E, N, S, K).
        log_chance: Logarithms of their probabilities (E, N, S).
        power: Powers of CUs and devices (E, N, K+1) [W].
        choice_logits: Logits of the numbers of micro-batches (E, N, C).
        option: The options of the most likely ones (E, N).
        micro_batches: The most likely ones (E, N), int.
    """

    logits: torch.Tensor
    answer: NetAnswer
    counts: IntArray
    samples: IntArray
    log_chance: FloatArray
    power: torch.Tensor
    choice_logits: torch.Tensor
    option: IntArray
    micro_batches: IntArray

    def played(self, power: FloatArray, share: FloatArray) -> Allocation:
        """The most likely plan with its powers as an array (E, N, K+1) [W], and shares of the band (E, N)."""
        return Allocation(
            blocks=self.counts,
            micro_batches=self.micro_batches,
            bandwidth=share,
            device_power=power[..., 1:],
            cu_power=power[..., 0],
        )


def planned(net: GraphNet, group: Group, samples: int, rng: np.random.Generator) -> Plan:
    """The net's plan for the present states of a group, with gradients.

    Args:
        group: The environments.
        samples: Samples ``S`` of the counts of each cluster.
        rng: Draws them.
    """
    state, p = group.known, group.parameters
    graph = group.observer.build(state)
    inputs = net_inputs(GraphArrays(*(torch.from_numpy(array) for array in graph)))
    there = NetInputs(*_beside(net, inputs))
    tokens = net.tokens(there, *_beside(net, [torch.from_numpy(process_inputs(state))]))
    all_logits = net.count_logits(tokens, there, p.costs.blocks).cpu()
    E, N, K, C = all_logits.shape
    cap = np.where(state.present, state.memory_cap, 0).reshape(E * N, K)
    counts, drawn = np.empty((E, N, K), np.int64), np.empty((E * N, samples, K), np.int64)
    log_chance = np.empty((E * N, samples))
    logits = all_logits.detach().numpy().astype(np.float64).reshape(E * N, K, C)
    draws = rng.random((E * N, samples, K))
    sample_counts(logits, cap, p.costs.blocks, draws, counts.reshape(E * N, K), drawn, log_chance)
    if group.moves:
        _keep_what_pays(net, group, tokens, inputs, counts)
    answer, power, choice_logits = _completed(net, group, tokens, inputs, counts)
    option = choice_logits.argmax(dim=-1).numpy()
    return Plan(
        all_logits,
        answer,
        counts,
        drawn.reshape(E, N, samples, K),
        log_chance.reshape(E, N, samples),
        power,
        choice_logits,
        option,
        group.choices[option],
    )


def _beside(net: GraphNet, tensors: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Tensors on the device of the net's weights."""
    return (tensor.to(net.cu.weight.device) for tensor in tensors)


def _completed(
    net: GraphNet, group: Group, tokens: torch.Tensor, inputs: NetInputs, counts: IntArray
) -> tuple[NetAnswer, torch.Tensor, torch.Tensor]:
    """Answer of the net for known counts, its powers [W], and the logits of micro-batches."""
    p = group.parameters
    found: NetAnswer = net(tokens, PlanInputs(*_beside(net, plan_inputs(inputs, counts))))
    answer = NetAnswer(*(tensor.cpu() for tensor in found))
    low, high = math.log(p.power_min_w), math.log(p.power_max_w)
    power = torch.exp(low + (high - low) * answer.power.double())
    log2 = torch.from_numpy(np.log2(group.choices)).float()
    logits = -answer.sharpness[..., None] * (log2 - answer.log2_micro_batches[..., None]) ** 2
    return answer, power, logits


def _keep_what_pays(
    net: GraphNet, group: Group, tokens: torch.Tensor, inputs: NetInputs, counts: IntArray
) -> None:
    """Keep the previous round's blocks where they cost less, as the compiled decision does."""
    state, p = group.known, group.parameters
    row = round_input(p, state, exact_drift=True)
    stay = np.empty_like(counts)
    if not staying_rows(state.processes["migration"]["blocks"], counts, row, p.costs.blocks, stay):
        return
    plans = []
    for blocks in (counts, stay):
        with torch.no_grad():
            _, power, logits = _completed(net, group, tokens, inputs, blocks)
        plans.append((blocks, power.numpy(), logits.argmax(dim=-1).numpy()))
    share = np.full(counts.shape[:2], 1.0 / counts.shape[1])
    keep_rows(*plans[0], share, *plans[1], row, group.record)


def learn_and_play(
    net: GraphNet,
    group: Group,
    samples: int,
    entropy: float,
    weights: Weights,
    rng: np.random.Generator,
) -> Losses:
    """Compute the loss of one round of a group, which then plays the most likely plan.

    Args:
        group: The environments.
        samples: Samples of the counts of each cluster, >= 2.
        entropy: Weight of the entropy of the counts.
        rng: Draws the samples.
    """
    p = group.parameters
    plan = planned(net, group, samples, rng)
    E, N, _ = plan.counts.shape
    # If a cluster sits out, the others play another round than the one that is priced.
    whole = group.whole
    power = np.ascontiguousarray(plan.power.detach().numpy())
    share, worth = np.full((E, N), 1.0 / N), np.empty((E, N))
    sample_cost, choice_cost = np.empty((E, N, samples)), np.empty((E, N, len(group.choices)))
    inputs = round_input(p, group.truth, plan.option, exact_drift=True)
    compare_counts(
        inputs, group.record, plan.counts, power, plan.option, plan.samples,
        share, worth, sample_cost, choice_cost,
    )  # fmt: skip
    objective, unit = _objective(plan, group, share, worth, whole)
    losses = losses_of(plan, objective, unit, sample_cost, choice_cost, whole, entropy, weights)
    group.play(plan.played(power, share))
    return losses


def losses_of(
    plan: Plan,
    objective: torch.Tensor,
    unit: FloatArray,
    sample_cost: FloatArray,
    choice_cost: FloatArray,
    whole: BoolArray,
    entropy: float,
    weights: Weights,
) -> Losses:
    """Losses of a plan from the costs of its alternatives.

    Args:
        objective: Sum of the clusters' objectives, relative to ``unit``.
        unit: Size of a cluster's objective in every environment (E,).
        sample_cost: Costs of the samples (E, N, S).
        choice_cost: Costs of the plan's blocks with each number of micro-batches (E, N, C).
        whole: Environments that count (E,).
        entropy: Weight of the entropy of the counts.
    """
    N, samples = sample_cost.shape[1:]
    counted = max(int(whole.sum()), 1)
    relative = (sample_cost - sample_cost.min(axis=-1, keepdims=True)) / unit[:, None, None]
    # Rare and very bad samples must not drown the others.
    relative = np.minimum(relative, 2.0) + entropy * plan.log_chance
    advantage = (relative - relative.mean(axis=-1, keepdims=True)) * (1.0 / (samples - 1))
    advantage[~whole] = 0.0
    taken = torch.gather(plan.logits, -1, torch.from_numpy(plan.samples).movedim(2, -1)).sum(dim=-2)
    counts = (torch.from_numpy(advantage).float() * taken).sum()

    regret = (choice_cost - choice_cost.min(axis=-1, keepdims=True)) / unit[:, None, None]
    regret[~whole] = 0.0
    regrets = torch.from_numpy(np.minimum(regret, 3.0)).float()
    micro_batches = (plan.choice_logits.softmax(dim=-1) * regrets).sum()

    total = (objective.float() + weights.counts * counts + weights.micro_batches * micro_batches) / (
        counted * N
    )
    likeliest = plan.choice_logits.argmax(dim=-1, keepdim=True)
    return Losses(
        total=total,
        objective=float(objective.detach()) / (counted * N),
        micro_batches=float(regrets.gather(-1, likeliest).sum()) / (counted * N),
        entropy=float(-plan.log_chance.mean()),
    )


def _objective(
    plan: Plan, group: Group, share: FloatArray, worth: FloatArray, whole: BoolArray
) -> tuple[torch.Tensor, FloatArray]:
    """Sum of the clusters' parts over the size of their environment's objective, and that size (E,).

    The sum is over the environments in which every cluster plays.
    """
    costs, drift, size = priced(group.parameters, group.truth, plan, torch.from_numpy(share))
    parts = torch.from_numpy(worth) * costs.cluster_delay + drift
    return (parts / size[:, None])[torch.from_numpy(whole)].sum(), size.numpy()


def priced(
    parameters: Parameters, truth: SystemState, plan: Plan, share: torch.Tensor
) -> tuple[RoundCosts, torch.Tensor, torch.Tensor]:
    """Costs of a plan with gradients, drifts of the clusters (R, N), and sizes of a cluster's objective (R,).

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
    return costs, drift, size

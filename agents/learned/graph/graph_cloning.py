"""Cloning, an optional phase before the graph net's own training, in which it learns DSSRA's decisions."""

from __future__ import annotations

import math

import numpy as np
import torch

from collapipe_env.agents.dssra import DSSRA

from .graph_step import Losses, planned
from .net import GraphNet
from .training_groups import Group

POWER_WEIGHT = 10.0
"""Weight of the powers relative to the negative log-likelihood of a device's blocks."""


def log_likelihood(logits: torch.Tensor, cap: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Log-likelihood of counts of blocks given their sum, differentiable.

    Args:
        logits: Logits of each device's count (..., K, L+1).
        cap: Most blocks of each device (..., K).
        counts: Blocks (..., K), with sum ``L``.

    Returns:
        (...,).
    """
    K, size = logits.shape[-2:]
    possible = torch.arange(size) <= cap[..., None]
    logits = logits.masked_fill(~possible, -torch.inf)
    # Log of the sum over the first devices' counts, by the blocks that they hold together.
    total = logits[..., 0, :]
    held = torch.arange(size)
    before = held[:, None] - held  # blocks of the earlier devices, by blocks in all and blocks of this one
    for k in range(1, K):
        earlier = total[..., before.clamp(min=0)].masked_fill(before < 0, -torch.inf)
        terms = earlier + logits[..., k, None, :]
        # Sums that no counts reach stay impossible, with gradients of 0.
        reached = torch.isfinite(terms).any(dim=-1)
        safe = torch.where(reached[..., None], terms, 0.0)
        total = torch.logsumexp(safe, dim=-1).masked_fill(~reached, -torch.inf)
    taken = torch.gather(logits, -1, counts[..., None])[..., 0].sum(dim=-1)
    return taken - total[..., -1]


def clone_and_play(net: GraphNet, group: Group, rng: np.random.Generator) -> Losses:
    """Compute the loss of imitating DSSRA in one round of a group, which then plays DSSRA's plan.

    Args:
        net: The net.
        group: The environments.
        rng: Draws the samples from which the entropy is estimated.
    """
    state, p = group.known, group.parameters
    wanted = DSSRA(group.scenario, threads=1).allocate(state)
    plan = planned(net, group, 2, rng, wanted.blocks)
    E, N, K = wanted.blocks.shape
    cap = torch.from_numpy(np.where(state.present, state.memory_cap, 0))
    blocks = torch.from_numpy(wanted.blocks)
    counts = -log_likelihood(plan.logits, cap, blocks).sum() / K
    span = math.log(p.power_max_w / p.power_min_w)
    power = torch.from_numpy(np.log(wanted.node_power / p.power_min_w) / span).float()
    used = torch.cat((torch.ones_like(blocks[..., :1]), blocks), dim=-1) > 0
    powers = ((plan.answer.power - power) ** 2 * used).sum() / (K + 1)
    chosen = np.searchsorted(group.choices, wanted.micro_batches)
    micro_batches = torch.nn.functional.cross_entropy(
        plan.choice_logits.reshape(E * N, -1), torch.from_numpy(chosen).reshape(-1), reduction="sum"
    )
    group.play(wanted)
    return Losses(
        total=(counts + POWER_WEIGHT * powers + micro_batches) / (E * N),
        objective=float(counts.detach()) / (E * N),
        micro_batches=float(micro_batches.detach()) / (E * N),
        entropy=float(-plan.log_chance.mean()),
    )

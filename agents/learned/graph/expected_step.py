"""A step of the graph net's training where rounds may differ from what is known: pay the expected cost.

Where gains are hidden, or devices fail, the net decides on what is known. The truth enters only in prices.
Shares of the uplink are the best ones at the known gains times the net's residual, and the round is played
with them.

1. Several draws stand for the rounds that may come: of the fading around the true path gains, and of failures
   by their estimated probabilities, with costs drawn from replays of the round.
2. Powers and the share residual follow the gradient of ``V mean_s max_n T_n`` plus the mean exact drift
   through the physics in PyTorch.
3. Counts of blocks and micro-batches are priced cluster by cluster, the others' held, by
   ``V mean_s max_m T_m`` plus the cluster's mean drift. Since delays differ from draw to draw, a cluster that
   is seldom the slowest pays little for its delay.

The best shares answer a change of plan: at the known gains they make the clusters end together. A change
that would make one cluster ``d`` later at given shares therefore makes every cluster a little later, by
:func:`answer`. Without that answer each cluster would pay up to ``N`` times what a change costs. To first
order all clusters are ``w d`` later, where ``w`` is the cluster's part of the worth of all delays. Powers
follow that (the envelope theorem, as in ``graph_step``), and where gains are exact counts do, too: all
clusters end together there, and what is too dear for one alone may pay off for all at once. For a large
change of one cluster alone that price is far too low. A bound by what its uplink can make up for is right for
one cluster, but the net trained with it was worse in Churn (`docs/graph_net.md`).
"""

from __future__ import annotations

import numpy as np
import torch

from collapipe_env.agents.dssra.cluster_costs import (
    delay_and_cost,
    node_drift,
    node_joules,
    noise_of,
    set_moving_noise,
    summarise_cluster,
)
from collapipe_env.agents.dssra.pricing import best_shares
from collapipe_env.agents.dssra.round_input import RoundInput, environment_row, round_input
from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled, compiled_inner
from collapipe_env.kernels.cluster_chain import chain_size
from collapipe_env.physics.parameters import Numbers
from collapipe_env.simulator.state import SystemState

from .graph_step import Losses, Plan, Weights, losses_of, planned, priced
from .net import GraphNet
from .shares import LEAST_ABOVE
from .training_groups import Group

_MORE, _LEAST_S, _HALVINGS = 1.05, 1e-9, 40


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


@compiled_inner
def answer(n: int, later: float, own: float, share: FloatArray, uplink: FloatArray) -> float:
    """Seconds by which all clusters end later if one would be later at its share, and shares are made anew.

    With delays ``a_m + u_m / b_m``, the shares ``b_m`` have the same sum if each cluster ends ``x`` later.

    Args:
        later: ``d``, by how much it would be later [s].
        own: ``u_n / b_n`` of its new plan [s], > 0.
        share: Shares ``b_m`` (N,).
        uplink: ``u_m / b_m`` of the plans so far (N, C) [s], > 0, in the first column.
    """
    whole, low = 0.0, later - own
    for m in range(len(share)):
        whole += share[m]
        if m != n:
            low = max(low, -uplink[m, 0])
    high = max(later, 0.0)
    for _ in range(_HALVINGS):
        x = 0.5 * (low + high)
        taken = share[n] * own / max(own + x - later, _LEAST_S)
        for m in range(len(share)):
            if m != n:
                taken += share[m] * uplink[m, 0] / max(uplink[m, 0] + x, _LEAST_S)
        if taken > whole:
            low = x
        else:
            high = x
    return high


@compiled_inner
def _summarise(
    row: RoundInput,
    parameters: Numbers,
    power: FloatArray,
    share: FloatArray,
    segments: IntArray,
    option: IntArray,
    summary: FloatArray,
    delay: FloatArray,
) -> None:
    """Write summaries (N, C, ...) and delays (N, C) of plans of single clusters."""
    N, C, _ = segments.shape
    noise = noise_of(segments[:, 0], power, row, parameters)
    set_moving_noise(segments[:, 0], power, row, parameters)
    for n in range(N):
        for c in range(C):
            summarise_cluster(
                n, segments[n, c], power[n], option[n, c], noise[n], row, parameters, summary[n, c]
            )
            delay[n, c] = delay_and_cost(share[n], summary[n, c], parameters)[0]


@compiled
def expected_costs(
    known: RoundInput,
    inputs: RoundInput,
    parameters: Numbers,
    power: FloatArray,
    share: FloatArray,
    part: FloatArray,
    segments: IntArray,
    option: IntArray,
    longer: FloatArray,
    exact: bool,
    cost: FloatArray,
) -> None:
    """Expected costs of other plans of single clusters: ``V mean_s max_m T_m + mean drift``.

    Args:
        known: Known states (E, ...).
        inputs: True states (E G, ...), the G draws of an environment's gains together.
        power: Powers (E, N, K+1) [W].
        share: Shares of the uplink (E, N).
        part: Each cluster's part of the worth of all delays (E, N); shares do not answer one without worth.
        segments: Blocks (E, N, C, K); those at 0 are the plan's, which the other clusters play.
        option: Options (E, N, C).
        longer: Delays that failures add to rounds, over these (E G F, N, K): F draws for each of the gains.
        exact: Whether gains are known: changes are then priced by ``part``.
        cost: Receives the costs (E, N, C).
    """
    E, N, C, K = segments.shape
    gains, failures = len(inputs.system.d2d_gain) // E, len(longer) // len(inputs.system.d2d_gain)
    summary, delay, uplink = np.empty((N, C, chain_size(K + 1))), np.empty((N, C)), np.empty((N, C))
    change, all_later, ends = np.empty((N, C)), np.empty((N, C)), np.empty((N, C))
    cost[:] = 0.0
    for e in range(E):
        row = environment_row(known, e)
        _summarise(row, parameters, power[e], share[e], segments[e], option[e], summary, change)
        if not exact:
            for n in range(N):
                for c in range(C):
                    faster = delay_and_cost(share[e, n] * _MORE, summary[n, c], parameters)[0]
                    uplink[n, c] = max((change[n, c] - faster) / (1.0 - 1.0 / _MORE), _LEAST_S)
        for n in range(N):
            for c in range(C - 1, -1, -1):
                change[n, c] = change[n, c] - change[n, 0] if part[e, n] > 0.0 else 0.0
                all_later[n, c] = 0.0
                if exact:
                    all_later[n, c] = part[e, n] * change[n, c]
                elif change[n, c] != 0.0:
                    all_later[n, c] = answer(n, change[n, c], uplink[n, c], share[e], uplink)
        for g in range(e * gains, (e + 1) * gains):
            row = environment_row(inputs, g)
            _summarise(row, parameters, power[e], share[e], segments[e], option[e], summary, delay)
            for n in range(N):
                for c in range(C):
                    drift = 0.0
                    for i in range(K + 1):
                        joules = node_joules(i, share[e, n], summary[n, c], parameters)
                        ratio = joules / row.system.budget[n, i]
                        drift += node_drift(row.backlog[n, i], ratio, row.common[0].allowance)
                    cost[e, n, c] += drift / gains
            for f in range(g * failures, (g + 1) * failures):
                for n in range(N):
                    for c in range(C):
                        worst = 0.0
                        for i in range(K):
                            if segments[e, n, c, i] > 0:
                                worst = max(worst, longer[f, n, i])
                        ends[n, c] = (delay[n, c] - change[n, c]) * (1.0 + worst)
                for n in range(N):
                    others = 0.0
                    for m in range(N):
                        others = max(others, ends[m, 0] if m != n else 0.0)
                    for c in range(C):
                        latest = max(ends[n, c], others) + all_later[n, c]
                        cost[e, n, c] += parameters.tradeoff_v * latest / (gains * failures)


def learn_for_the_expected_round(
    net: GraphNet,
    group: Group,
    samples: int,
    entropy: float,
    weights: Weights,
    rng: np.random.Generator,
    draws: int,
) -> Losses:
    """Compute the loss of one round of a group with surprises, which then plays the most likely plan.

    Args:
        group: The environments.
        samples: Samples of the counts of each cluster, >= 2.
        entropy: Weight of the entropy of the counts.
        rng: Draws the samples, the fading and the failures.
        draws: Draws of the fading of every environment.
    """
    whole, plan = group.whole, planned(net, group, samples, rng)
    power = np.ascontiguousarray(plan.power.detach().numpy())
    known = group.known
    seen = round_input(group.parameters, known, plan.option, exact_drift=True)
    shares, part = _shares(plan, group, seen, power)
    share = np.ascontiguousarray(shares.detach().numpy())
    played = plan.played(power, share)
    truths = group.possible_truths(draws, rng)
    longer = group.possible_failures(played, len(truths.present) // len(whole), rng)
    objective, unit = _expected(plan, group, known, shares, part, truths, longer)
    cost = _alternatives(plan, group, seen, power, share, part, truths, longer)
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
    group.play(played)
    return losses


def _shares(plan: Plan, group: Group, seen: RoundInput, power: FloatArray) -> tuple[torch.Tensor, FloatArray]:
    """Shares that are played (E, N), and the clusters' parts of the worth of all delays (E, N).

    The shares are the net's departures from the best ones at the known gains.
    """
    E, N, _ = plan.counts.shape
    share, worth = np.full((E, N), 1.0 / N), np.empty((E, N))
    best_shares(seen, group.record, plan.counts, power, share, worth)
    found = departed(share, plan.answer.share_residual, group.parameters.bandwidth_floor)
    return found, worth / np.maximum(worth.sum(axis=-1, keepdims=True), 1e-300)


def _expected(
    plan: Plan,
    group: Group,
    known: SystemState,
    shares: torch.Tensor,
    part: FloatArray,
    truths: SystemState,
    longer: FloatArray,
) -> tuple[torch.Tensor, FloatArray]:
    """Expected drift plus penalty of the plan, and the size of a cluster's part (E,)."""
    E, N, K = plan.counts.shape
    costs, drift, size = priced(group.parameters, truths, plan, shares)
    at_known = priced(group.parameters, known, plan, shares.detach())[0].cluster_delay
    change = at_known - at_known.detach()
    draws = longer.reshape(E, -1, N, K)
    worst = np.where(plan.counts[:, None] > 0, draws, 0.0).max(axis=-1)
    delay = costs.cluster_delay.reshape(E, -1, N) - change[:, None]
    delay = delay.repeat_interleave(worst.shape[1] // delay.shape[1], dim=1)
    ends = (delay * torch.from_numpy(1.0 + worst)).amax(dim=-1).mean(dim=-1)
    latest = ends + (torch.from_numpy(part) * change).sum(dim=-1)
    drifts = drift.sum(dim=-1).reshape(E, -1).mean(dim=-1)
    return group.parameters.tradeoff_v * latest + drifts, size.reshape(E, -1).mean(dim=-1).numpy()


def _alternatives(
    plan: Plan,
    group: Group,
    seen: RoundInput,
    power: FloatArray,
    share: FloatArray,
    part: FloatArray,
    truths: SystemState,
    longer: FloatArray,
) -> FloatArray:
    """Expected costs (E, N, 1 + S + C) of the plan, of the samples, and of all numbers of micro-batches."""
    own, choices = plan.counts[:, :, None], len(group.choices)
    segments = np.concatenate((own, plan.samples, np.repeat(own, choices, axis=2)), axis=2)
    option = np.repeat(plan.option[:, :, None], segments.shape[2], axis=2)
    option[:, :, -choices:] = np.arange(choices)
    cost = np.empty(option.shape)
    inputs = round_input(group.parameters, truths, exact_drift=True)
    expected_costs(
        seen, inputs, group.record, power, share, part, segments, option, longer, group.exact, cost
    )
    return cost

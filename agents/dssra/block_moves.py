"""Single blocks moved between two devices of a cluster, judged by the true objective of the whole round.

Prices are slopes, so the answers of ``cluster_answers.propose`` can settle where no cluster's proposal helps
although one block elsewhere would: the segments have local optima. Trying every move at the powers at hand
leaves the worst of them. A move is first priced for its cluster alone, shares kept: the objective is convex
in the clusters' delays, so that this is hardly ever more than the move really costs, and only moves that
promise a gain are tried on the whole round, the most promising first.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.arrays import FloatArray
from collapipe_env.compiled import compiled_inner, compiled_leaf
from collapipe_env.physics.parameters import Parameters

from .cluster_costs import SUMMARY
from .options import cap_at
from .power_search import cluster_cost
from .round_input import ClusterTerms, RoundInput
from .round_plan import RoundPlan, evaluate, interference_prices

MOST_MOVES = 4  # single moves at the end, each followed by refining
_TRIED = 6  # moves tried on the whole round
_LARGEST_SYSTEM = 1000  # moves of the largest system that is not too large for them


@compiled_leaf
def most_moves(clusters: int, devices: int) -> int:
    """Most single moves to make; none in systems in which there are too many, ``N K (K - 1)``, to try."""
    return MOST_MOVES if clusters * devices * (devices - 1) <= _LARGEST_SYSTEM else 0


@compiled_leaf
def largest(gain: FloatArray) -> int:
    """Index of the largest number, the first of equal ones (N,)."""
    found = 0
    for i in range(1, gain.shape[0]):
        if gain[i] > gain[found]:
            found = i
    return found


@compiled_inner
def best_move(
    objective: float, plan: RoundPlan, inputs: RoundInput, parameters: Parameters
) -> tuple[float, RoundPlan]:
    """The single move that lowers the objective most, powers kept and shares settled anew.

    Args:
        objective: Of the plan as it is.
        plan: The plan.
        inputs: The environment.
        parameters: The scenario.

    Returns:
        Objective and plan after the move; the present ones if no move helps.
    """
    clusters, devices = plan.segments.shape
    prices = interference_prices(plan, plan.weight, inputs, parameters)
    summary = np.empty(SUMMARY + plan.power.shape[1])
    gain = np.empty(clusters * devices * devices)
    for move in range(gain.shape[0]):
        gain[move] = 0.0
    for n in range(clusters):
        segments = plan.segments[n].copy()
        power = plan.power[n]
        M = plan.micro_batches[n]
        terms = ClusterTerms(M, plan.noise[n], plan.share[n], plan.weight[n], prices[n])
        now = cluster_cost(n, segments, power, terms, inputs, parameters, summary)
        for giver in range(devices):
            if segments[giver] == 0:
                continue
            segments[giver] -= 1
            for taker in range(devices):
                if taker == giver or segments[taker] >= cap_at(n, taker, M, inputs):
                    continue
                segments[taker] += 1
                gain[(n * devices + giver) * devices + taker] = now - cluster_cost(
                    n, segments, power, terms, inputs, parameters, summary
                )
                segments[taker] -= 1
            segments[giver] += 1
    best, best_plan = objective, plan
    for _ in range(_TRIED):
        move = largest(gain)
        if gain[move] <= objective - best:
            break
        gain[move] = 0.0
        n, giver, taker = move // (devices * devices), move // devices % devices, move % devices
        moved = plan.segments.copy()
        moved[n, giver] -= 1
        moved[n, taker] += 1
        value, found = evaluate(moved, plan.power, plan.micro_batches, plan.share, inputs, parameters)
        if value < best:
            best, best_plan = value, found
    return best, best_plan

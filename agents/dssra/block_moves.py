"""Single blocks moved between devices of a cluster and the server, judged by the true objective of the round.

Prices are slopes, so the answers of ``cluster_answers.propose`` can settle at a local optimum of the
segments: no cluster's proposal helps, although moving one block would. Trying every move at the present
powers escapes the worst optima. Each move is first priced for its cluster alone, at the present shares. The
objective is convex in the clusters' delays, so this price is hardly ever above the true cost of the move.
Only moves that promise a gain are tried on the whole round, the most promising first.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.compiled import compiled_inner, compiled_leaf
from collapipe_env.kernels.cluster_chain import chain_size
from collapipe_env.physics.parameters import Numbers

from .options import server_blocks_of, setting_of, with_server_blocks
from .power_search import cluster_cost
from .round_input import ClusterTerms, RoundInput
from .round_plan import RoundPlan, evaluate, interference_prices

MOST_MOVES = 4  # single moves at the end, each followed by refining
_TRIED = 6  # moves tried on the whole round
_LARGEST_SYSTEM = 1000  # possible moves in the largest system for which they are tried


@compiled_leaf
def most_moves(clusters: int, devices: int) -> int:
    """Most single moves to make; 0 in systems with too many possible moves, ``N K (K - 1)``, to try."""
    return MOST_MOVES if clusters * devices * (devices - 1) <= _LARGEST_SYSTEM else 0


@compiled_leaf
def largest(gain: FloatArray) -> int:
    """Index of the largest number of an array (N,); the first among equals."""
    found = 0
    for i in range(1, gain.shape[0]):
        if gain[i] > gain[found]:
            found = i
    return found


@compiled_inner
def best_move(
    objective: float, plan: RoundPlan, inputs: RoundInput, parameters: Numbers
) -> tuple[float, RoundPlan]:
    """Find the single move that lowers the objective most, with powers kept and shares settled anew.

    Args:
        objective: Objective of the plan as it is.

    Returns:
        Objective and plan after the move; the present ones if no move helps.
    """
    clusters, devices = plan.segments.shape
    places = devices + (1 if inputs.common[0].most_server > 0 else 0)  # the last one is the server
    prices = interference_prices(plan, plan.weight, inputs, parameters)
    summary = np.empty(chain_size(plan.power.shape[1]))
    gain = np.empty(clusters * places * places)
    for move in range(gain.shape[0]):
        gain[move] = 0.0
    for n in range(clusters):
        segments = plan.segments[n].copy()
        power, option = plan.power[n], plan.option[n]
        kept, setting = server_blocks_of(option, inputs), setting_of(option, inputs)
        placed = 0
        for k in range(devices):
            placed += segments[k]
        terms = ClusterTerms(option, plan.noise[n], plan.share[n], plan.weight[n], prices[n])
        now = cluster_cost(n, segments, power, terms, inputs, parameters, summary)
        for giver in range(places):
            if kept == 0 if giver == devices else segments[giver] == 0:
                continue
            if giver < devices:
                segments[giver] -= 1
            for taker in range(places):
                if taker == giver:
                    continue
                if taker == devices:
                    if kept >= inputs.common[0].most_server or placed == 1:
                        continue
                elif segments[taker] >= inputs.cap[setting, n, taker]:
                    continue
                else:
                    segments[taker] += 1
                trial = option
                if giver == devices or taker == devices:
                    trial = with_server_blocks(option, kept + (1 if taker == devices else -1), inputs)
                other = ClusterTerms(trial, plan.noise[n], plan.share[n], plan.weight[n], prices[n])
                gain[(n * places + giver) * places + taker] = now - cluster_cost(
                    n, segments, power, other, inputs, parameters, summary
                )
                if taker < devices:
                    segments[taker] -= 1
            if giver < devices:
                segments[giver] += 1
    best, best_plan = objective, plan
    for _ in range(_TRIED):
        move = largest(gain)
        if gain[move] <= objective - best:
            break
        gain[move] = 0.0
        n, giver, taker = move // (places * places), move // places % places, move % places
        moved, options = plan.segments.copy(), plan.option
        if giver < devices:
            moved[n, giver] -= 1
        if taker < devices:
            moved[n, taker] += 1
        if giver == devices or taker == devices:
            options = options.copy()
            kept = server_blocks_of(options[n], inputs) + (1 if taker == devices else -1)
            options[n] = with_server_blocks(options[n], kept, inputs)
        value, found = evaluate(moved, plan.power, options, plan.share, inputs, parameters)
        if value < best:
            best, best_plan = value, found
    return best, best_plan

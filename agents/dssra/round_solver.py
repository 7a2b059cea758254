"""One environment's round: segments, powers and shares by block-coordinate search (`algorithms.md` 1.5, [R]).

The clusters are coupled by the slowest one's delay, by the shared uplink and by interference. Given segments
and powers, ``bandwidth.share_band`` settles the first two exactly and tells what each cluster's delay is
worth (``w_n``, with sum ``V``); the slope of the other clusters' costs with respect to their interference
tells what a watt of mean power costs them. At these prices every cluster improves its segments and powers on
its own. The search alternates two phases, beginning each turn with equal weights:

* exploring: all clusters move at once, whether or not the true objective falls. Powers move half-way (on a
  logarithmic scale) and weights are averaged with the earlier ones. Prices are slopes, so a large step can
  overshoot, and from some plans no single cluster's move helps; the averages settle nevertheless.
* refining, from the best plan found: only moves that lower the true objective, all clusters together with
  shorter and shorter steps, or one after another, or the powers alone.

At the end single blocks are moved between devices of a cluster and the server while that helps
(:func:`best_move`): prices are slopes, so the search can settle where no cluster's proposal helps, although
moving one block would. Each move is first priced for its cluster alone, at the present shares. The objective
is convex in the clusters' delays, so this price is hardly ever above the true cost of the move. Only moves
that promise a gain are tried on the whole round, the most promising first.

A sweep finds a cluster's exact segments for its number of micro-batches, and the best number for its
segments; another number with other segments may be better than either. Where no single move helps (in large
systems at once) the neighbouring numbers are therefore tried with exact segments of their own, one cluster at
a time (:func:`best_segments_alone`).

Under the bound ``sum z e`` the price of a node's energy is its queue before the round. The exact drift
``L(t+1) - L(t)`` is convex in the energies: its slope, the queue after the round, is the price, which every
sweep works out anew from the present plan. The objective, the choice of segments (computing takes most of a
device's energy) and the comparison of a cluster's plans use the drift itself.

With budgets per second a round grants ``a = T / T_ref``, so a second costs ``V - sum z / T_ref``. The bound
uses the queues before the round; the exact drift uses those after it and updates the cost with the prices of
energy. The search keeps this cost above a small part of ``V``, and clusters answer as if ``a`` were the
present plan's. The exact objective, which compares plans, makes neither simplification.

Everything that ``solve_rounds`` calls is compiled as part of it, not on its own (``compiled_inner``). The
code neither assigns slices nor calculates with whole arrays: for either, Numba spends seconds on compiling
general code.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.compiled import compiled, compiled_inner, compiled_leaf
from collapipe_env.kernels.cluster_chain import chain_size
from collapipe_env.physics.parameters import Numbers

from .cluster_answers import first_guess, propose, segments_of_near_sizes, worth_of_delay
from .cluster_costs import delay_price
from .power_search import cluster_cost
from .round_input import (
    ClusterTerms,
    RoundInput,
    environment_row,
    server_blocks_of,
    setting_of,
    with_server_blocks,
)
from .round_plan import RoundPlan, evaluate, interference_prices, reprice

REPLANS = 3  # most changes of a cluster's segments in one sweep
STEPS = 5  # step lengths tried: 1, 1/2, 1/4, ... of the way on a logarithmic scale
SETTLED = 2  # sweeps in a row that change next to nothing and so end an exploring phase
FEW_TURNS = 1  # most turns in systems that are too large for single moves
MOST_ALONE = 8  # most clusters that are tried one after the other when no common step helps
MOST_MOVES = 4  # changes of one cluster at the end, each followed by refining
FEW_MOVES = 2  # the same in systems that are too large for single moves
_TRIED = 6  # moves tried on the whole round
_LARGEST_SYSTEM = 1000  # possible moves in the largest system for which they are tried


class SearchBudget(NamedTuple):
    """Limits of the search of one round.

    Attributes:
        turns: Most turns of both phases; from the second on they start from the best plan found.
        exploring_sweeps: Most sweeps of each exploring phase.
        refining_sweeps: Most sweeps of each refining phase.
        tolerance: Relative improvement below which a turn is the last one; a refining phase ends after two
            such sweeps in a row.
    """

    turns: int
    exploring_sweeps: int
    refining_sweeps: int
    tolerance: float


@compiled_inner
def half_way(first: FloatArray, second: FloatArray) -> FloatArray:
    """Powers half-way between two plans' on a logarithmic scale (N, K+1)."""
    middle = np.empty(first.shape)
    for n in range(first.shape[0]):
        for i in range(first.shape[1]):
            middle[n, i] = math.sqrt(first[n, i] * second[n, i])
    return middle


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


@compiled_inner
def best_segments_alone(
    objective: float, plan: RoundPlan, inputs: RoundInput, parameters: Numbers
) -> tuple[float, RoundPlan]:
    """Find the cluster whose exact segments, with its own or a neighbouring M, lower the objective most.

    Args:
        objective: Objective of the plan as it is.

    Returns:
        Objective and plan after the change, with powers kept and shares settled anew; the present ones if no
        change helps.
    """
    clusters, devices = plan.segments.shape
    prices = interference_prices(plan, plan.weight, inputs, parameters)
    summary = np.empty(chain_size(plan.power.shape[1]))
    segments, option, gain = plan.segments.copy(), plan.option.copy(), np.empty(clusters)
    for n in range(clusters):
        power, worth = plan.power[n], worth_of_delay(plan.weight[n], clusters, inputs, parameters)
        terms = ClusterTerms(option[n], plan.noise[n], plan.share[n], worth, prices[n])
        now = cluster_cost(n, segments[n], power, terms, inputs, parameters, summary)
        planned, terms = segments_of_near_sizes(n, segments[n], power, terms, inputs, parameters)
        gain[n] = now - cluster_cost(n, planned, power, terms, inputs, parameters, summary)
        option[n] = terms.option
        for k in range(devices):
            segments[n, k] = planned[k]
    best, best_plan = objective, plan
    for _ in range(_TRIED):
        n = largest(gain)
        if gain[n] <= objective - best:
            break
        gain[n] = 0.0
        moved, options = plan.segments.copy(), plan.option.copy()
        options[n] = option[n]
        for k in range(devices):
            moved[n, k] = segments[n, k]
        value, found = evaluate(moved, plan.power, options, plan.share, inputs, parameters)
        if value < best:
            best, best_plan = value, found
    return best, best_plan


@compiled_inner
def sweep(
    objective: float,
    plan: RoundPlan,
    weight: FloatArray,
    replans: int,
    exploring: bool,
    inputs: RoundInput,
    parameters: Numbers,
) -> tuple[float, RoundPlan]:
    """Let every cluster answer the present plan, and adopt the answers.

    Exploring adopts them all, with powers half-way. Refining adopts them with the longest step that lowers
    the objective; if no step does, it adopts the single answers that lower it, the most promising first.

    Args:
        objective: Objective of the present plan.
        weight: ``w`` to use for the answers (N,) [1/s].
        replans: Most changes of a cluster's segments; 0 for the powers alone.
        exploring: Whether to explore.

    Returns:
        The objective and plan afterwards; refining returns the present ones if nothing helped.
    """
    segments, power, option, gain = propose(plan, weight, replans, inputs, parameters)
    trial_segments, trial_power, trial_option = segments, power, option
    if exploring:
        trial_power = half_way(plan.power, power)
    together = True
    for trial in range(STEPS + min(gain.shape[0], MOST_ALONE)):
        if trial >= STEPS:
            if trial == STEPS and (gain.shape[0] == 1 or replans == 0):
                break
            together = False
            n = largest(gain)
            gain[n] = -np.inf
            trial_segments, trial_power = plan.segments.copy(), plan.power.copy()
            trial_option = plan.option.copy()
            trial_power[n, 0], trial_option[n] = power[n, 0], option[n]
            for k in range(segments.shape[1]):
                trial_segments[n, k], trial_power[n, k + 1] = segments[n, k], power[n, k + 1]
        value, found = evaluate(trial_segments, trial_power, trial_option, plan.share, inputs, parameters)
        if value < objective or exploring:
            objective, plan = value, found
            if together:
                break
        trial_power = half_way(trial_power, plan.power)
    return objective, plan


@compiled
def solve_rounds(
    first: int,
    last: int,
    inputs: RoundInput,
    parameters: Numbers,
    budget: SearchBudget,
    started: bool,
    segments: IntArray,
    power: FloatArray,
    share: FloatArray,
    option: IntArray,
) -> None:
    """Minimise ``V max_n T_n`` and the drift for some environments of a batch, each on its own.

    Args:
        first: First environment.
        last: The one after the last environment.
        inputs: All environments, with a leading axis.
        budget: How long to search each environment.
        started: Whether the arrays below hold plans to begin with; otherwise the search makes its own.
        segments: Receives the blocks (E, N, K).
        power: Receives the powers (E, N, K+1) [W].
        share: Receives the shares (E, N).
        option: Receives the options (E, N) (see :mod:`.option_table`).
    """
    clusters, devices = segments.shape[1:]
    moves = most_moves(clusters, devices)
    turns = budget.turns if moves > 0 else min(budget.turns, FEW_TURNS)
    for e in range(first, last):
        row = environment_row(inputs, e)
        if started:
            first_segments, first_power = segments[e].copy(), power[e].copy()
            first_option, first_share = option[e].copy(), share[e].copy()
        else:
            first_segments, first_power, first_option, first_share = first_guess(row, parameters)
        objective, plan = evaluate(first_segments, first_power, first_option, first_share, row, parameters)
        exact = row.common[0].exact > 0.0
        if exact:
            reprice(plan, row, parameters)
            objective, plan = evaluate(plan.segments, plan.power, plan.option, plan.share, row, parameters)
        turn, moved = 0, 0
        while True:
            start = objective
            exploring = 0
            if turn < turns:
                exploring = budget.exploring_sweeps
                weight = np.empty(clusters)
                for n in range(clusters):
                    weight[n] = delay_price(row, parameters) / clusters
            elif moved < (moves if moves > 0 else FEW_MOVES):
                moved += 1
                if exact:
                    reprice(plan, row, parameters)
                if moves > 0:
                    objective, plan = best_move(objective, plan, row, parameters)
                if start - objective <= budget.tolerance * abs(start):
                    objective, plan = best_segments_alone(objective, plan, row, parameters)
                if start - objective <= budget.tolerance * abs(start):
                    break
                weight = plan.weight.copy()
            else:
                break
            best, best_plan = objective, plan
            settled, idle, powers_alone = 0, 0, False
            enough = budget.tolerance * abs(objective)
            left = exploring + budget.refining_sweeps
            while left > 0 and idle < 2:
                left -= 1
                explores = exploring > 0
                for n in range(clusters):
                    weight[n] = 0.5 * (weight[n] + plan.weight[n])
                if exact:
                    reprice(plan, row, parameters)
                before = objective
                replans = 0 if powers_alone else REPLANS
                objective, plan = sweep(objective, plan, weight, replans, explores, row, parameters)
                if explores:
                    exploring -= 1
                    if objective < best:
                        best, best_plan = objective, plan
                    settled = settled + 1 if abs(before - objective) <= enough else 0
                    if exploring == 0 or settled == SETTLED:
                        exploring, left = 0, budget.refining_sweeps
                        objective, plan = best, best_plan
                elif objective == before and not powers_alone:
                    powers_alone = True
                else:
                    powers_alone = False
                    idle = idle + 1 if before - objective <= enough else 0
            if turn < turns:
                turn += 1
                if start - objective <= budget.tolerance * abs(start):
                    turn = turns
        for n in range(clusters):
            share[e, n], option[e, n] = plan.share[n], plan.option[n]
            power[e, n, 0] = plan.power[n, 0]
            for k in range(devices):
                segments[e, n, k], power[e, n, k + 1] = plan.segments[n, k], plan.power[n, k + 1]

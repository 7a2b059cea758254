"""One environment's round: segments, powers and shares by block-coordinate search (`algorithms.md` 1.5, [R]).

The clusters are coupled by the slowest one's delay, by the shared uplink and by interference. Given segments
and powers, ``bandwidth.share_band`` settles the first two exactly and tells what each cluster's delay is
worth (``w_n``, with sum ``V``); the slope of the other clusters' costs with respect to their interference
tells what a watt of mean power is worth. With these prices every cluster improves its segments and powers
alone. The search alternates two phases, beginning each turn with equal weights:

* exploring: all clusters move at once, powers half-way (on a logarithmic scale) and weights averaged with
  the earlier ones, whether or not the true objective falls. Prices are slopes, so a large step can overshoot,
  and from some plans no single cluster's move helps; the averages settle all the same.
* refining, from the best plan met: only moves that lower the true objective, all clusters together with
  shorter and shorter steps, or one after the other, or the powers alone.

At the end single blocks are moved between devices while that helps (``block_moves``).

What runs often is compiled; the two loops on top are plain Python, because compiling a caller means compiling
all that it calls once more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapipe_env.agents.block_moves import best_move, move_count
from collapipe_env.agents.cluster_costs import RoundConstants, RoundInput
from collapipe_env.agents.round_plan import RoundPlan, evaluate, first_guess, propose

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

REPLANS = 3  # most changes of a cluster's segments in one sweep
STEPS = 5  # step lengths tried: 1, 1/2, 1/4, ... of the way on a logarithmic scale


class SearchBudget(NamedTuple):
    """How long to search one round.

    Attributes:
        turns: Most turns of both phases; from the second on they start from the best plan met.
        exploring_sweeps: Sweeps of each exploring phase.
        refining_sweeps: Most sweeps of each refining phase.
        tolerance: Relative improvement below which a turn is the last one; a refining phase ends after two
            such sweeps in a row.
        moves: Most single moves of a block at the end, each followed by refining.
        most_tried: Systems in which one such move means trying more than this many are too large for them.
    """

    turns: int = 4
    exploring_sweeps: int = 8
    refining_sweeps: int = 8
    tolerance: float = 1e-3
    moves: int = 4
    most_tried: int = 100


def step_towards(
    objective: float,
    plan: RoundPlan,
    segments: IntArray,
    power: FloatArray,
    inputs: RoundInput,
    constants: RoundConstants,
) -> tuple[float, RoundPlan]:
    """Take proposed segments with the longest step towards the proposed powers that lowers the objective.

    Args:
        objective: Of the present plan.
        plan: The present plan.
        segments: Proposed blocks (N, K).
        power: Proposed powers (N, K+1) [W].
        inputs: The environment.
        constants: The scenario.

    Returns:
        The objective and plan afterwards: the present ones if no step helped.
    """
    for _ in range(STEPS):
        value, trial = evaluate(segments, power, plan.share, inputs, constants)
        if value < objective:
            return value, trial
        power = np.sqrt(power * plan.power)
    return objective, plan


def refine(
    objective: float, plan: RoundPlan, weight: FloatArray, inputs: RoundInput, constants: RoundConstants
) -> tuple[float, RoundPlan]:
    """One sweep that only improves: all clusters together, else one after the other, else the powers alone.

    Args:
        objective: Of the present plan.
        plan: The present plan.
        weight: ``w`` to use for the proposals (N,) [1/s].
        inputs: The environment.
        constants: The scenario.

    Returns:
        The objective and plan afterwards: the present ones if nothing helped.
    """
    before = objective
    segments, power = propose(plan, weight, REPLANS, inputs, constants)
    objective, plan = step_towards(objective, plan, segments, power, inputs, constants)
    if objective < before:
        return objective, plan
    for n in range(segments.shape[0]):
        one_segments, one_power = plan.segments.copy(), plan.power.copy()
        one_segments[n], one_power[n] = segments[n], power[n]
        value, trial = evaluate(one_segments, one_power, plan.share, inputs, constants)
        if value < objective:
            objective, plan = value, trial
    if objective < before:
        return objective, plan
    segments, power = propose(plan, plan.weight, 0, inputs, constants)
    return step_towards(objective, plan, segments, power, inputs, constants)


def explore(
    objective: float,
    plan: RoundPlan,
    weight: FloatArray,
    sweeps: int,
    inputs: RoundInput,
    constants: RoundConstants,
) -> tuple[float, RoundPlan, FloatArray]:
    """The exploring phase: averaged steps that may pass through worse plans.

    Args:
        objective: Of the present plan.
        plan: The present plan.
        weight: ``w`` to begin with (N,) [1/s].
        sweeps: Number of steps.
        inputs: The environment.
        constants: The scenario.

    Returns:
        Objective and plan of the best plan met (the present one included), and the averaged weights.
    """
    best, best_plan = objective, plan
    for _ in range(sweeps):
        weight = 0.5 * (weight + plan.weight)
        segments, power = propose(plan, weight, REPLANS, inputs, constants)
        objective, plan = evaluate(segments, np.sqrt(plan.power * power), plan.share, inputs, constants)
        if objective < best:
            best, best_plan = objective, plan
    return best, best_plan, weight


def solve_round(
    inputs: RoundInput, constants: RoundConstants, budget: SearchBudget
) -> tuple[float, RoundPlan]:
    """Minimise ``V max_n T_n + sum z e`` over segments, powers and shares.

    Args:
        inputs: The environment.
        constants: The scenario.
        budget: How long to search.

    Returns:
        The objective (without the broadcast, which nothing decides) and the plan.
    """
    objective, plan = evaluate(*first_guess(inputs, constants), inputs, constants)
    for _ in range(budget.turns):
        start = objective
        weight = np.full(plan.weight.shape[0], constants.tradeoff_v / plan.weight.shape[0])
        objective, plan, weight = explore(objective, plan, weight, budget.exploring_sweeps, inputs, constants)
        objective, plan = refine_while_it_helps(objective, plan, weight, inputs, constants, budget)
        if start - objective <= budget.tolerance * abs(start):
            break
    if move_count(*plan.segments.shape) > budget.most_tried:
        return objective, plan
    for _ in range(budget.moves):
        value, segments = best_move(objective, plan, inputs, constants)
        if objective - value <= budget.tolerance * abs(objective):
            break
        objective, plan = evaluate(segments, plan.power, plan.share, inputs, constants)
        objective, plan = refine_while_it_helps(objective, plan, plan.weight, inputs, constants, budget)
    return objective, plan


def refine_while_it_helps(
    objective: float,
    plan: RoundPlan,
    weight: FloatArray,
    inputs: RoundInput,
    constants: RoundConstants,
    budget: SearchBudget,
) -> tuple[float, RoundPlan]:
    """The refining phase: sweeps until two in a row bring next to nothing.

    Args:
        objective: Of the present plan.
        plan: The present plan.
        weight: ``w`` to begin with (N,) [1/s].
        inputs: The environment.
        constants: The scenario.
        budget: Most sweeps, and what counts as nothing.

    Returns:
        The objective and plan afterwards, never worse than before.
    """
    idle = 0
    for _ in range(budget.refining_sweeps):
        weight = 0.5 * (weight + plan.weight)
        before = objective
        objective, plan = refine(objective, plan, weight, inputs, constants)
        idle = idle + 1 if before - objective <= budget.tolerance * abs(before) else 0
        if idle == 2:
            break
    return objective, plan

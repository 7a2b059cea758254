"""Value iteration for the average cost of a Markov decision process with finitely many states and actions.

Nothing here depends on pipelines. Costs and transitions are arrays, and the answer comes with bounds on the
least average cost that hold whether or not the iteration has converged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from collapipe_env.ground.arrays import FloatArray, IntArray

DAMPING = 0.7
"""Share of a sweep that is taken, below 1: without it, values of a periodic chain would swing for ever."""


class Decisions(NamedTuple):
    """A Markov decision process with ``S`` states and ``A`` actions in each.

    Attributes:
        cost: Cost of an action (S, A); ``inf`` for one that is not allowed.
        successors: Probability of every next state (S A, S); row ``s A + a`` for action ``a`` in state ``s``.
    """

    cost: FloatArray
    successors: csr_array


class Solution(NamedTuple):
    """Least average cost and the policy that has it.

    Attributes:
        mean: Least average cost of a step, the middle of the bounds.
        low: Lower bound on it, from any state.
        high: Upper bound on the average cost of ``action``.
        value: Relative values (S,): total cost from a state beyond that from state 0.
        action: Best action of every state (S,), int.
        sweeps: Sweeps over all states and actions that it took.
    """

    mean: float
    low: float
    high: float
    value: FloatArray
    action: IntArray
    sweeps: int


def action_values(decisions: Decisions, value: FloatArray) -> FloatArray:
    """Cost of every action plus the expected value of the state after it (S, A).

    Args:
        decisions: The process.
        value: Value of every state (S,).
    """
    return np.asarray(decisions.cost + (decisions.successors @ value).reshape(decisions.cost.shape))


def solve(
    decisions: Decisions,
    tolerance: float = 1e-4,
    most_sweeps: int = 4000,
    evaluations: int = 40,
    start: FloatArray | None = None,
) -> Solution:
    """Find the least average cost by relative value iteration.

    Between two sweeps over all actions, the present policy alone is swept some times (modified policy
    iteration), which costs little; if that does not close the bounds, it is done less and less. Let
    ``T`` be the sweep over all actions. Then ``min (T v - v) <= g* <= max (T v - v)`` for any ``v``, where
    the right side also bounds the average cost of the actions that ``T`` chose.

    Args:
        decisions: The process.
        tolerance: Gap of the bounds over the mean at which it ends.
        most_sweeps: Most sweeps over all actions.
        evaluations: Sweeps of the present policy after each of them.
        start: Values to begin with (S,); zeros by default.

    Raises:
        RuntimeError: The bounds are still apart after ``most_sweeps``.
    """
    states, actions = decisions.cost.shape
    value = np.zeros(states) if start is None else start.astype(np.float64)
    first = np.arange(states) * actions
    least = np.inf
    for sweep in range(1, most_sweeps + 1):
        found = action_values(decisions, value)
        action = np.argmin(found, axis=1)
        gained = found[np.arange(states), action] - value
        low, high = float(gained.min()), float(gained.max())
        value += DAMPING * gained
        value -= value[0]
        if high - low <= tolerance * abs(high):
            return Solution(0.5 * (low + high), low, high, value, action, sweep)
        if high - low >= least:
            # A policy with several recurrent classes lets their values drift apart.
            evaluations //= 2
        least = min(least, high - low)
        value = _swept(decisions, action, value, evaluations, first)
    raise RuntimeError(
        f"the least average cost is only known to lie in [{low:g}, {high:g}]: allow more sweeps"
    )


def _swept(
    decisions: Decisions, action: IntArray, value: FloatArray, sweeps: int, first: IntArray
) -> FloatArray:
    """Values after some damped sweeps of one policy."""
    cost = decisions.cost[np.arange(len(action)), action]
    chain = decisions.successors[first + action]
    for _ in range(sweeps):
        value = value + DAMPING * (cost + chain @ value - value)
        value -= value[0]
    return value

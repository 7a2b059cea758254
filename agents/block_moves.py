"""Single blocks moved between two devices of a cluster, judged by the true objective of the whole round.

Prices are slopes, so the answers of ``round_plan.propose`` can settle where no cluster's proposal helps
although one block elsewhere would: the segments have local optima. Trying every move at the powers at hand
leaves the worst of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapipe_env.agents.cluster_costs import RoundConstants, RoundInput
from collapipe_env.agents.compiled import compiled
from collapipe_env.agents.round_plan import RoundPlan, evaluate

IntArray = npt.NDArray[np.int64]


def move_count(clusters: int, devices: int) -> int:
    """Moves to try for one plan, ``N K (K - 1)``."""
    return clusters * devices * (devices - 1)


@compiled
def best_move(
    objective: float, plan: RoundPlan, inputs: RoundInput, constants: RoundConstants
) -> tuple[float, IntArray]:
    """The single move that lowers the objective most, powers kept and shares settled anew.

    Args:
        objective: Of the plan as it is.
        plan: The plan.
        inputs: The environment.
        constants: The scenario.

    Returns:
        The objective and the segments (N, K) after the move; those of the plan if no move helps.
    """
    clusters, devices = plan.segments.shape
    best, best_segments = objective, plan.segments
    for n in range(clusters):
        for giver in range(devices):
            if plan.segments[n, giver] == 0:
                continue
            for taker in range(devices):
                if taker == giver or plan.segments[n, taker] >= inputs.cap[n, taker]:
                    continue
                segments = plan.segments.copy()
                segments[n, giver] -= 1
                segments[n, taker] += 1
                value, _ = evaluate(segments, plan.power, plan.share, inputs, constants)
                if value < best:
                    best, best_segments = value, segments
    return best, best_segments

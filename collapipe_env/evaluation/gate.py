"""Energy gate: the condition under which a scheduler's delay counts.

A scheduler that overdraws its energy budgets is faster because of it, so its delay cannot be compared with
those of schedulers that keep them. In the long run a budget is kept if its queue does not grow without bound.
Over an episode of T rounds the worst node must meet two conditions [X]:

* its time-average energy is at most 2 % above its budget. Episodes begin with empty queues, and filling them
  to their steady level costs a few budgets once, which weighs as 1 / T;
* the largest queue of any node has stopped growing: over the last half of the episode, its slope by least
  squares is at most 0.005 budgets a round.

The second condition uses the largest queue of all nodes, round by round, rather than the largest slope of any
node's queue. Where queues are steady, the slope of the former is zero on average, whereas the latter grows
with the number of nodes. A queue that grows for ever becomes the largest in the end. A mean over nodes would
hide one of many.

Each condition applies to the mean over the held-out episodes. With several training runs the worst one
decides, because a user of a learned scheduler uses one run of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FROM_ROUNDS = 500
"""Smallest number of rounds to which the gate applies; in shorter episodes the queues are still filling."""
MOST_EXCESS = 0.02
"""Largest allowed excess of the worst node: time-average energy over its budget, less 1."""
MOST_SLOPE = 0.005
"""Largest allowed growth of the largest queue over the last half of an episode [budgets a round]."""
BELOW_LINE = ("below the line:", "over its energy budget")
"""Heading of the schedulers that do not count, in two lines."""


@dataclass(frozen=True)
class Gate:
    """Result of the gate for one scheduler.

    Attributes:
        rounds: Rounds of an episode.
        energy_excess: Worst node's time-average energy over its budget, less 1: mean over episodes of the run
            where it is largest.
        backlog_slope: Growth of the largest queue over the last half of an episode [budgets a round], in the
            same way; NaN for episodes of an earlier version.
        verdict: ``"passed"``, ``"failed"``, ``"too short"`` (not applied) or ``"not known"``.
    """

    rounds: int
    energy_excess: float
    backlog_slope: float
    verdict: str

    @property
    def failed(self) -> bool:
        """Whether the scheduler is listed below the line."""
        return self.verdict == "failed"


def judge(rounds: int, energy_excess: npt.ArrayLike, backlog_slope: npt.ArrayLike) -> Gate:
    """Apply the gate to a scheduler.

    Args:
        rounds: Rounds of an episode.
        energy_excess: Excess of each training run and episode, (R, E).
        backlog_slope: Slope of each [budgets a round], (R, E); NaN where not known.
    """
    # A mean with NaN is NaN, and so is the largest of several means if one is NaN.
    excess, slope = (
        float(np.max(np.mean(np.atleast_2d(np.asarray(values, dtype=np.float64)), axis=-1)))
        for values in (energy_excess, backlog_slope)
    )
    if rounds < FROM_ROUNDS:
        verdict = "too short"
    elif excess > MOST_EXCESS or slope > MOST_SLOPE:
        verdict = "failed"
    else:
        verdict = "not known" if np.isnan(excess) or np.isnan(slope) else "passed"
    return Gate(rounds, excess, slope, verdict)


def late_slope(values: Sequence[float]) -> float:
    """Slope by least squares over the last half of a list, including the middle value of an odd number.

    Args:
        values: One value per round.

    Returns:
        Change per round; NaN for fewer than three rounds or if a value of that half is NaN.
    """
    late = np.asarray(values, dtype=np.float64)[len(values) // 2 :]
    if late.size < 2:
        return float("nan")
    place = np.arange(late.size) - (late.size - 1) / 2.0
    return float(place @ late / (place @ place))


def gate_note(rounds: int) -> str:
    """The gate in a sentence, and whether it is applied to episodes of this many rounds."""
    rule = (
        f"worst node's mean energy at most {100.0 * MOST_EXCESS:g} % over its budget, and the largest queue "
        f"grows by at most {100.0 * MOST_SLOPE:g} % of a budget a round in the last half"
    )
    if rounds < FROM_ROUNDS:
        return f"Energy gate ({rule}): not applied to {rounds} rounds, only from {FROM_ROUNDS} on."
    return (
        f"Energy gate over {rounds} rounds: {rule}. Schedulers that fail are listed below the line and "
        "have no rank."
    )

"""Over budget: the mark of schedulers whose energy does not keep to its budgets.

A scheduler that overdraws its energy budgets is faster because of it. The mark says so: such schedulers stand
below the line of a table and have no rank.

Episodes begin with empty queues, and filling them to their steady level costs a few budgets once, which
weighs as 1 / T over T rounds. So the mark is set only in episodes of at least the scenario's own rounds, and
of at least 100, and only where both hold [X]:

* the worst node's time-average energy is more than 2 % above its budget;
* it still is after the queues have had time to fill: over the last half of the episode, the largest queue
  grows by more than 2 % of a budget a round (slope by least squares).

The second condition uses the largest queue of all nodes, round by round, whose slope is zero on average where
queues are steady; the largest slope of any node's queue would grow with the number of nodes. Both are means
over episodes. With several training runs one that fails decides, because a user uses one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LEAST_ROUNDS = 100
"""Fewest rounds of an episode in which the mark is set, however short the scenario's own episodes are."""
MOST_EXCESS = 0.02
"""Largest allowed energy over budget: of the worst node's budget, on average and in the last half."""
BELOW_LINE = ("below the line:", "over its energy budget")
"""Heading of the schedulers that do not count, in two lines."""


@dataclass(frozen=True)
class Gate:
    """Result of the gate for one scheduler.

    Attributes:
        energy_excess: Worst node's time-average energy over its budget, less 1: mean over episodes of the run
            where it is largest.
        backlog_slope: Growth of the largest queue over the last half of an episode [budgets a round], in the
            same way.
        verdict: ``"passed"``, ``"failed"`` or ``"too short"`` (not applied).
    """

    energy_excess: float
    backlog_slope: float
    verdict: str

    @property
    def failed(self) -> bool:
        """Whether the scheduler is listed below the line."""
        return self.verdict == "failed"


def is_whole(rounds: int, own_rounds: int) -> bool:
    """Whether the mark is set in episodes of some length.

    Args:
        rounds: Rounds of an episode.
        own_rounds: Rounds of the scenario.
    """
    return rounds >= max(own_rounds, LEAST_ROUNDS)


def judge(whole: bool, energy_excess: npt.ArrayLike, backlog_slope: npt.ArrayLike) -> Gate:
    """Apply the gate to a scheduler.

    Args:
        whole: Whether the episodes are long enough, see :func:`is_whole`.
        energy_excess: Excess of each training run and episode, (R, E).
        backlog_slope: Slope of each [budgets a round], (R, E).
    """
    excess, slope = (
        np.mean(np.atleast_2d(np.asarray(values, dtype=np.float64)), axis=-1)
        for values in (energy_excess, backlog_slope)
    )
    over = bool(np.any((excess > MOST_EXCESS) & (slope > MOST_EXCESS)))
    verdict = "too short" if not whole else "failed" if over else "passed"
    return Gate(float(np.max(excess)), float(np.max(slope)), verdict)


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


def gate_note(rounds: int, own_rounds: int) -> str:
    """The mark in a sentence, and whether it is set in these episodes.

    Args:
        rounds: Rounds of an episode.
        own_rounds: Rounds of the scenario.
    """
    if not is_whole(rounds, own_rounds):
        return (
            f"Episodes have {rounds} rounds, and energy queues are still filling: only from "
            f"{max(own_rounds, LEAST_ROUNDS)} rounds on is a scheduler marked as over its energy budget. The "
            "priced delay charges for what the queues hold by then, so compare it at equal rounds."
        )
    return (
        f"Over its energy budget: the worst node's mean energy is more than {100.0 * MOST_EXCESS:g} % above "
        f"its budget over {rounds} rounds, and in the last half, after the queues have filled, the largest "
        f"queue still grows by more than {100.0 * MOST_EXCESS:g} % of a budget a round. Such schedulers "
        "stand below the line and have no rank."
    )

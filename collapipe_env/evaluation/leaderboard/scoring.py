"""Scores: 0 is the even split, 100 is the cell's bar, in the same episodes.

A cell's score is that of the mean return over its episodes, as ``SuiteEntry.score`` gives it; the overall
score is the mean of the scores of all cells. Intervals draw the same episodes of the player and both anchors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collapipe_env.envs.suite import scores_between
from collapipe_env.evaluation.resampling import Estimate, Floats, estimate, stratified_estimate

NOTHING = Estimate(math.nan)


@dataclass(frozen=True)
class CellReturns:
    """Returns of a player in a cell, and those of the anchors in the same episodes.

    Attributes:
        own: Return of each training run and episode, (R, E).
        zero: Returns of the even split, (E,).
        hundred: Returns of the bar, (E,).
    """

    own: Floats
    zero: Floats
    hundred: Floats

    @property
    def places(self) -> Floats:
        """Numbers of the episodes, run by run (R, E): what :meth:`score` takes."""
        return np.arange(self.own.size, dtype=np.float64).reshape(self.own.shape)

    def score(self, places: Floats, axis: int = -1) -> Any:
        """Score of the mean return over the episodes at these places along an axis.

        It is NaN where the bar gains nothing over the even split.
        """
        at = places.astype(np.int64)
        episode = at % len(self.zero)
        picked = (self.own, at), (self.zero, episode), (self.hundred, episode)
        own, even, bar = (np.mean(np.take(values, where), axis=axis) for values, where in picked)
        return scores_between(own, even, np.where(bar > even, bar, np.nan))


def cell_score(cell: CellReturns) -> Estimate:
    """Score of a cell, with its bootstrap interval over episodes and training runs."""
    return estimate(cell.places, statistic=cell.score)


def overall_score(cells: Sequence[CellReturns]) -> Estimate:
    """Mean over cells of their scores; each cell's episodes are resampled separately; NaN without cells."""
    ends = np.cumsum([cell.own.size for cell in cells])[:-1]

    def mean_of_scores(places: Floats, axis: int = -1) -> Any:
        parts = zip(cells, np.split(places, ends, axis=axis), strict=True)
        return np.mean([cell.score(part, axis=axis) for cell, part in parts], axis=0)

    return stratified_estimate([cell.places for cell in cells], statistic=mean_of_scores)


def shared_ranks(scores: Sequence[Estimate | None]) -> list[int | None]:
    """Rank of each score: 1 more than the number of scores whose intervals lie wholly above its own.

    Args:
        scores: Scores with their intervals; ``None`` for a player without a rank, which others then ignore.
    """
    ends = [None if one is None or math.isnan(one.mean) else _ends(one) for one in scores]
    return [
        None if own is None else 1 + sum(other is not None and other[0] > own[1] for other in ends)
        for own in ends
    ]


def _ends(score: Estimate) -> tuple[float, float]:
    """Ends of an interval; a value without an interval is both of its ends."""
    if math.isnan(score.low):
        return score.mean, score.mean
    return score.low, score.high

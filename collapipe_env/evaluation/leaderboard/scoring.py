"""Scores: 0 is the even split, 100 is the cell's bar, in the same episodes.

In each episode the score is 100 log(R_even / R) / log(R_even / R_bar), where R is the return. A cell's
score is the interquartile mean over its episodes, the overall score the mean of the scores of all cells. Each
quantity is averaged once: scores over episodes, and cells over the suite.

In an episode where the bar gains almost nothing over the even split, the quotient is meaningless for every
player. Such episodes are left out for all; the anchors alone decide which.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.envs.suite import scores_between
from collapipe_env.evaluation.resampling import (
    Estimate,
    Floats,
    estimate,
    interquartile_mean,
    stratified_estimate,
)

LEAST_GAIN = 0.01
"""Smallest gain of the bar, as a share of the even split's return, for which an episode counts."""
NOTHING = Estimate(math.nan)


def counted(zero: npt.ArrayLike, hundred: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Whether each episode counts, (E,).

    Args:
        zero: Return of the even split in each, (E,).
        hundred: Return of the bar in each, (E,).
    """
    even, bar = np.asarray(zero, dtype=np.float64), np.asarray(hundred, dtype=np.float64)
    enough: npt.NDArray[np.bool_] = bar - even >= LEAST_GAIN * np.abs(even)
    return enough


def episode_scores(returns: npt.ArrayLike, zero: npt.ArrayLike, hundred: npt.ArrayLike) -> Floats:
    """Scores of a scheduler in the episodes that count, (R, E').

    Args:
        returns: Return of the scheduler in each episode of each training run, (E,) or (R, E).
        zero: Returns of the even split, (E,).
        hundred: Returns of the bar, (E,).
    """
    even, bar = np.asarray(zero, dtype=np.float64), np.asarray(hundred, dtype=np.float64)
    own = np.atleast_2d(np.asarray(returns, dtype=np.float64))
    counts = counted(even, bar)
    scores: Floats = scores_between(own[:, counts], even[counts], bar[counts])
    return scores


def cell_score(scores: Floats) -> Estimate:
    """Interquartile mean of the scores of a cell, with its bootstrap interval; NaN if no episode counts.

    Args:
        scores: As :func:`episode_scores` returns them.
    """
    return estimate(scores, statistic=interquartile_mean)


def overall_score(cells: Sequence[Floats]) -> Estimate:
    """Mean over cells of their scores; each cell's episodes are resampled separately.

    Args:
        cells: Scores of each cell, as :func:`episode_scores` returns them.
    """
    if not cells or any(scores.size == 0 for scores in cells):
        return NOTHING
    ends = np.cumsum([scores.size for scores in cells])[:-1]

    def mean_of_means(values: Floats, axis: int = -1) -> Any:
        parts = np.split(values, ends, axis=axis)
        return np.mean([interquartile_mean(part, axis=axis) for part in parts], axis=0)

    return stratified_estimate(cells, statistic=mean_of_means)


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

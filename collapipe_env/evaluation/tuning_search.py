"""Candidates of a search for scalars: at random first, then by CMA-ES from the best of these."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from collapipe_env.evaluation.tuning_space import coordinates_of, neutral_scalars, scalars_at
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.errors import DataError

RANDOM_SHARE = 3
"""One in this many candidates is drawn at random, rounded up."""
SPREAD = 0.2
"""Initial standard deviation of CMA-ES, in coordinates from 0 to 1."""

Scalars = dict[str, float]
"""Values of the tuned scalars by name."""


class Search:
    """Proposes candidates, generation by generation; the same for the same seed and scores.

    The first generation, a third of all candidates, holds the neutral scalars and uniform draws in the
    coordinates of :mod:`~collapipe_env.evaluation.tuning_space`. CMA-ES continues from the best of them.

    Args:
        names: Scalars to search.
        candidates: Number of candidates, >= 1.
        seed: Seed of the draws.

    Raises:
        DataError: If the package ``cma`` is missing.
    """

    def __init__(self, names: Sequence[str], candidates: int, seed: int) -> None:
        require_cma()
        self._names, self._left = tuple(names), candidates
        self._random = np.random.default_rng([seed, len(self._names)])
        self._first = max(1, math.ceil(candidates / RANDOM_SHARE))
        self._best: tuple[float, Scalars] | None = None
        self._strategy: Any = None
        self._points: list[FloatArray] = []

    def generations(self) -> Iterator[tuple[list[Scalars], list[float]]]:
        """Yield candidates of a generation with an empty list, which the caller fills with their scores.

        Smaller scores are better; all are finite.
        """
        asked = self._drawn()
        while True:
            candidates, scores = asked[: self._left], list[float]()
            self._left -= len(candidates)
            yield candidates, scores
            assert len(scores) == len(candidates)
            for candidate, score in zip(candidates, scores, strict=True):
                if self._best is None or score < self._best[0]:
                    self._best = score, candidate
            if self._left <= 0:
                return
            if self._strategy is None:
                self._start()
            else:
                self._strategy.tell(self._points, scores)
            self._points = self._strategy.ask()
            asked = [scalars_at(self._names, np.asarray(point)[: len(self._names)]) for point in self._points]

    def _drawn(self) -> list[Scalars]:
        """The first generation."""
        drawn = self._random.random((self._first - 1, len(self._names)))
        return [neutral_scalars(self._names), *(scalars_at(self._names, at) for at in drawn)]

    def _start(self) -> None:
        """Begin CMA-ES at the best candidate so far."""
        import cma

        assert self._best is not None
        start = coordinates_of(self._best[1])
        if len(start) == 1:
            # CMA-ES needs two coordinates: a meaningless one does no harm.
            start = np.append(start, 0.5)

        def normal(*shape: int) -> FloatArray:
            return self._random.standard_normal(shape)

        # Its own generator: other code may draw from NumPy's global one.
        options = {"bounds": [0.0, 1.0], "verbose": -9, "seed": math.nan, "randn": normal}
        self._strategy = cma.CMAEvolutionStrategy(start, SPREAD, options)


def require_cma() -> None:
    """Refuse to search without the package ``cma``.

    Raises:
        DataError: If it is not installed.
    """
    try:
        import cma  # noqa: F401
    except ImportError:
        raise DataError(
            "tuning needs the package cma, which is not installed: pip install 'collapipe-env[tune]'"
        ) from None

"""The suite: the ids to report on, what is hard in each of them, and the returns that were measured there."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.errors import DataError, ScenarioError, shown

FILE = __file__.removesuffix("py") + "json"
"""Path of the measured returns, which ``python -m tools.docs suite`` writes."""
ZERO = "pipeline"
"""Scheduler whose score is 0: the even split."""


@cache
def _measured() -> dict[str, Any]:
    with open(FILE, encoding="utf-8") as file:  # not pathlib, which `import collapipe_env` does not load
        content: dict[str, Any] = json.load(file)
    return content


def scores_between(returns: npt.ArrayLike, even: npt.ArrayLike, bar: npt.ArrayLike) -> Any:
    """Scores of returns, ``100 log(R_even / R) / log(R_even / R_bar)``.

    Returns are minus priced times, so their quotients are those of priced delays: equal steps of the score
    are equal relative savings. A linear scale would not resolve savings where the even split's queues run
    away.

    Args:
        returns: Returns, below 0.
        even: Returns of the even split, whose score is 0.
        bar: Returns of the bar, whose score is 100.
    """
    zero = np.asarray(even, dtype=np.float64)
    return 100.0 * (np.log(zero / np.asarray(returns)) / np.log(zero / np.asarray(bar)))


@dataclass(frozen=True)
class SuiteEntry:
    """An id of the suite.

    Attributes:
        id: The id.
        hard: What is hard in it, in words.
        bar: Scheduler whose mean return is the id's ``reward_threshold`` and has the score 100.
        also: Further schedulers that were measured, besides ``random``, ``pipeline``, ``dssra`` and the bar.
        episodes: Held-out episodes of a result on this id: those with the seeds 1,300,000,000 and following.

    Example:
        >>> from collapipe_env import suite
        >>> next(entry.id for entry in suite() if entry.bar == "dssra-plus")
        'CollaPipeSurrogate-Large-Stale-v0'
    """

    id: str
    hard: str
    bar: str = "dssra-plus"
    also: tuple[str, ...] = ()
    episodes: int = 20

    @property
    def scenario(self) -> str:
        """Name of its scenario."""
        return "-".join(self.id.lower().split("-")[1:-1])

    @property
    def learner(self) -> str:
        """``"real"`` or ``"surrogate"``."""
        return "surrogate" if self.id.startswith("CollaPipeSurrogate-") else "real"

    @property
    def until_target(self) -> bool:
        """Whether episodes end at a target loss."""
        return self.scenario.endswith("-target")

    @property
    def schedulers(self) -> tuple[str, ...]:
        """Names of the measured schedulers."""
        return tuple(dict.fromkeys(("random", ZERO, "dssra", self.bar, *self.also)))

    @property
    def made_from(self) -> str:
        """Digest of the scenario that was measured; empty if nothing was."""
        return str(_measured().get(self.id, {}).get("made_from", ""))

    @property
    def agents(self) -> Mapping[str, str]:
        """Digests of the shipped agents that were measured, by their names."""
        found: dict[str, str] = _measured().get(self.id, {}).get("agents", {})
        return found

    @property
    def returns(self) -> Mapping[str, tuple[float, ...]]:
        """Returns of the held-out episodes, in their order, by scheduler; empty if none were measured."""
        found = _measured().get(self.id, {}).get("returns", {})
        return {name: tuple(values) for name, values in found.items()}

    @property
    def reward_threshold(self) -> float | None:
        """Mean return of the bar over its episodes; ``None`` if it was not measured."""
        found = self.returns.get(self.bar)
        return sum(found) / len(found) if found else None

    def score(self, mean_return: float) -> float:
        """Return the score of a mean return over all held-out episodes: 0 is the even split, 100 the bar.

        The scale is logarithmic in the priced delay: see :func:`scores_between`.

        Raises:
            DataError: If nothing was measured on this id, so that there is no scale.
            ScenarioError: If the return is no number below 0, as every mean return under an id's reward is.
        """
        zero, hundred = self.returns.get(ZERO), self.reward_threshold
        if not zero or hundred is None:
            raise DataError(
                f"{self.id} has no measured returns: run python -m tools.docs suite in a checkout"
            )
        given: object = mean_return
        if not isinstance(given, Real) or not -math.inf < float(given) < 0.0:
            raise ScenarioError(
                f"the mean return is {shown(mean_return)}: returns are minus a priced time, so give one "
                f"number below 0, the mean over whole episodes of {self.id} with its own reward"
            )
        return float(scores_between(mean_return, sum(zero) / len(zero), hundred))


SUITE = (
    SuiteEntry(
        "CollaPipeSurrogate-Small-v0",
        "nothing: two clusters, and everything is known; a check in minutes",
        bar="dssra",
    ),
    SuiteEntry(
        "CollaPipeSurrogate-Large-Stale-v0",
        "devices walk, and gains are known a round late and with an error of 3 dB",
        also=("dssra-truth", "zoo:graph-wild"),
        episodes=5,
    ),
    SuiteEntry("CollaPipeSurrogate-Medium-Thermal-v0", "phones warm up, and pause when they are hot"),
    SuiteEntry(
        "CollaPipeSurrogate-Large-Churn-v0",
        "devices leave, come back and fail in the middle of rounds, some 25 times as often as others",
        also=("zoo:graph-wild",),
        episodes=5,
    ),
    SuiteEntry(
        "CollaPipeSurrogate-Large-Wild-v0",
        "all of it, a new layout in every episode, and moving blocks costs time",
        also=("dssra-truth", "zoo:graph-wild"),
        episodes=5,
    ),
    SuiteEntry(
        "CollaPipeSurrogate-Xlarge-Wild-v0",
        "all of it, with 64 clusters of 16 devices",
        also=("dssra-truth", "zoo:graph-wild"),
        episodes=2,
    ),
    SuiteEntry(
        "CollaPipeSurrogate-Medium-Target-v0",
        "which clusters take part, and in how many local steps, is open; a target loss ends the episode",
        bar="dssra-target",
        episodes=10,
    ),
    SuiteEntry(
        "CollaPipe-Small-Target-v0",
        "the same with real training, whose losses are noisy and follow no known curve",
        bar="dssra-target",
        episodes=5,
    ),
)
"""The ids, easiest first."""


def suite() -> tuple[SuiteEntry, ...]:
    """Return the ids to report results on, with what is hard in them and the returns measured there."""
    return SUITE

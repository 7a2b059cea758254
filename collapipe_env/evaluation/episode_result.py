"""Figures of one scheduler's rounds on one held-out episode, and reading them from files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

import numpy as np

from collapipe_env.evaluation.gate import late_slope
from collapipe_env.ground.errors import DataError, shown
from collapipe_env.learners.expected_progress import LEAST_PROGRESS

COLUMNS = (
    "delay", "reward", "worst_energy", "backlog", "largest_backlog", "loss", "smoothed_loss", "metric",
    "memory_bytes", "decision_s", "energy_j", "progress",
)  # fmt: skip
"""Lists of an :class:`EpisodeResult` with one entry per round."""
TABLES = ("energy_ratio", "device_memory_bytes", "offered_memory_bytes")
"""Its nested lists, one row per cluster."""
REMEDY = "run again to measure this episode again"
"""Remedy for a damaged file, for errors."""
LARGEST = 1e300
"""Larger than any real figure; a larger number comes from a damaged file."""

Plain = TypeVar("Plain")


@dataclass(frozen=True)
class EpisodeResult:
    """The rounds of one episode; lists have one entry per round.

    Attributes:
        scheduler: Its requested name.
        title: The scheduler's own name, for tables.
        episode: Number of the held-out episode, from 0.
        delay: Round delays [s].
        reward: Default rewards of the rounds, ``lyapunov``, whatever the scenario's own reward is.
        reference_delay_s: Delay to which these rewards are relative, ``T_ref`` [s].
        worst_energy: Largest ratio of energy to budget of any node or the server in each round; a ratio of
            powers where budgets are per second.
        backlog: Sum of the energy queues after each round [budgets].
        largest_backlog: Largest energy queue of any node or the server after each round [budgets].
        loss: Latest evaluation loss after each round [nat].
        smoothed_loss: The environment's running mean of the loss [nat].
        initial_loss: Evaluation loss of the untrained model [nat].
        metric: The task's headline metric after each round, mostly in [0, 1]; NaN with the surrogate
            learner.
        metrics: All of the task's metrics at the end by name; empty with the surrogate learner.
        memory_bytes: Largest memory that any device needed in each round [byte].
        decision_s: Wall-clock time that each decision took [s].
        energy_j: Energy of all nodes in each round [J].
        progress: Progress that each round was expected to make under the surrogate's fitted law
            (:mod:`collapipe_env.learners.expected_progress`), in its units; NaN unless the scenario opens
            participation or local steps.
        energy_ratio: Time-average energy over budget of every node, (N, K+1) as nested lists; a ratio of
            mean powers where budgets are per second.
        device_memory_bytes: Largest memory that each device needed in any round [byte], (N, K).
        offered_memory_bytes: Memory that each device offers at the start [byte], (N, K); 0 where there is no
            device.
        server_blocks: Largest number of encoder blocks that the edge server ran for a cluster in any round; 0
            under CollaPipe's own plans.
        server_energy_ratio: The server's time-average energy over its budget, as ``energy_ratio``; 0 where it
            has no budget.
        run: Training run of a learned scheduler, from 0.
        samples: Continuations that the trained model wrote at the end, texts by kind; empty unless requested.
    """

    scheduler: str
    title: str
    episode: int
    delay: list[float]
    reward: list[float]
    reference_delay_s: float
    worst_energy: list[float]
    backlog: list[float]
    largest_backlog: list[float]
    loss: list[float]
    smoothed_loss: list[float]
    initial_loss: float
    metric: list[float]
    metrics: dict[str, float]
    memory_bytes: list[float]
    decision_s: list[float]
    energy_j: list[float]
    progress: list[float]
    energy_ratio: list[list[float]]
    device_memory_bytes: list[list[float]]
    offered_memory_bytes: list[list[float]]
    server_blocks: int = 0
    server_energy_ratio: float = 0.0
    run: int = 0
    samples: list[dict[str, str]] = field(default_factory=list)

    @property
    def peak_memory_bytes(self) -> float:
        """Largest memory that any device needed in any round [byte]."""
        return max(self.memory_bytes)

    @property
    def worst_energy_ratio(self) -> float:
        """Largest time-average energy over budget of any node or the server; above 1 a budget is broken."""
        return max(float(np.max(self.energy_ratio)), self.server_energy_ratio)

    @property
    def return_per_round(self) -> float:
        """Return of the episode under the default reward, per round."""
        return float(np.mean(self.reward))

    @property
    def priced_delay(self) -> float:
        """Mean round delay with the price of the queues' growth [s].

        It is ``(V sum T + L(end) - L(start)) / (V rounds)``. ``L`` is half the sum of the squares of all
        energy queues, the server's included, and of the participation queues. It is the negative return per
        round times ``T_ref``. Delay that is bought with energy over budget is no gain.
        """
        return -self.return_per_round * self.reference_delay_s

    @property
    def seconds_per_progress(self) -> float:
        """Priced time per unit of expected progress [s]; NaN where progress is not known."""
        made = float(np.sum(self.progress))
        time = self.priced_delay * len(self.delay)
        return math.nan if math.isnan(made) else time / max(made, LEAST_PROGRESS)

    @property
    def measure(self) -> float:
        """Number by which schedulers are compared [s], the lower the better.

        It is the priced delay; where a scenario opens participation or local steps, the priced time per unit
        of progress, because the shortest rounds train least there.
        """
        own = self.seconds_per_progress
        return self.priced_delay if math.isnan(own) else own

    @property
    def backlog_slope(self) -> float:
        """Growth of the largest energy queue over the last half of the episode [budgets a round]."""
        return late_slope(self.largest_backlog)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], place: str) -> EpisodeResult:
        """The inverse of :meth:`to_dict`, for data read from JSON (``null`` for NaN).

        Raises:
            DataError: If a field is missing or has the wrong shape.
        """
        names = {field.name for field in fields(cls)}
        if set(data) != names:
            odd = ", ".join(sorted(names ^ set(data)))
            raise DataError(f"{place}: {odd} missing or unknown: {REMEDY}")
        try:
            lists: dict[str, Any] = {name: [_number(v) for v in _of(list, data[name])] for name in COLUMNS}
            tables: dict[str, Any] = {name: _table(data[name]) for name in TABLES}
            if len({len(v) for v in lists.values()}) != 1 or not lists["delay"]:
                raise ValueError("lists of different lengths, or empty")
            (clusters, nodes), *others = (_shape(table) for table in tables.values())
            if any(shape != (clusters, nodes - 1) for shape in others):
                raise ValueError("tables that do not fit each other")
            return cls(
                scheduler=_of(str, data["scheduler"]),
                title=_of(str, data["title"]),
                episode=_count(data["episode"]),
                server_blocks=_count(data["server_blocks"]),
                server_energy_ratio=_number(data["server_energy_ratio"]),
                run=_count(data["run"]),
                samples=[
                    {key: _of(str, text) for key, text in _of(dict, one).items()}
                    for one in _of(list, data["samples"])
                ],
                initial_loss=_number(data["initial_loss"]),
                reference_delay_s=_number(data["reference_delay_s"]),
                metrics={name: _number(value) for name, value in _of(dict, data["metrics"]).items()},
                **tables,
                **lists,
            )
        except ValueError as error:
            raise DataError(f"{place} is damaged ({error}): {REMEDY}") from None


def _number(value: Any) -> float:
    """A number read from JSON."""
    if value is None:
        return math.nan
    # Whole numbers larger than any figure might not even fit into a float.
    if isinstance(value, bool) or not isinstance(value, float | int) or not abs(value) < LARGEST:
        raise ValueError(f"{shown(value, 60)} where a number is expected")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError(f"{shown(value, 60)} where a whole number from 0 on is expected")
    return value


def _of(kind: type[Plain], value: Any) -> Plain:
    if not isinstance(value, kind):
        raise ValueError(f"{shown(value, 60)} where a {kind.__name__} is expected")
    return value


def _table(value: Any) -> list[list[float]]:
    """Rows of equal lengths, none of them empty."""
    rows = [[_number(entry) for entry in _of(list, row)] for row in _of(list, value)]
    if len({len(row) for row in rows}) != 1 or not rows[0]:
        raise ValueError(f"{shown(value, 60)} where a table is expected")
    return rows


def _shape(table: list[list[float]]) -> tuple[int, int]:
    return len(table), len(table[0])

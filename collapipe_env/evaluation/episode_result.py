"""Figures of one scheduler's rounds on one held-out episode, and reading them from files."""

from __future__ import annotations

import functools
import math
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from collapipe_env.evaluation.gate import late_slope
from collapipe_env.ground.errors import DataError, fault_line, shortened
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


def _plausible(value: float) -> float:
    if abs(value) >= LARGEST:  # but not for NaN, which stands where there is no number
        raise ValueError(f"beyond {LARGEST:g}")
    return value


Number = Annotated[float, AfterValidator(_plausible)]
Whole = Annotated[int, Field(ge=0, lt=2**31)]


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

    __pydantic_config__: ClassVar = ConfigDict(strict=True, extra="forbid")

    scheduler: str
    title: str
    episode: Whole
    delay: list[Number]
    reward: list[Number]
    reference_delay_s: Number
    worst_energy: list[Number]
    backlog: list[Number]
    largest_backlog: list[Number]
    loss: list[Number]
    smoothed_loss: list[Number]
    initial_loss: Number
    metric: list[Number]
    metrics: dict[str, Number]
    memory_bytes: list[Number]
    decision_s: list[Number]
    energy_j: list[Number]
    progress: list[Number]
    energy_ratio: list[list[Number]]
    device_memory_bytes: list[list[Number]]
    offered_memory_bytes: list[list[Number]]
    server_blocks: Whole = 0
    server_energy_ratio: Number = 0.0
    run: Whole = 0
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
    def from_json(cls, text: str | bytes, place: str) -> EpisodeResult:
        """The inverse of :meth:`to_dict`, for its JSON with ``NaN``.

        Raises:
            DataError: If a field is missing or has the wrong shape.
        """
        try:
            read = _form().validate_json(text)
        except ValidationError as error:
            fault = fault_line(error.errors(include_url=False)[0])
            raise DataError(f"{place} is damaged ({shortened(fault, 120)}): {REMEDY}") from None
        rounds = {len(getattr(read, name)) for name in COLUMNS}
        if len(rounds) > 1 or not read.delay:
            raise DataError(f"{place} is damaged (lists of different lengths, or empty): {REMEDY}")
        energy, *others = ([len(row) for row in getattr(read, name)] for name in TABLES)
        if len({*energy}) != 1 or 0 in energy or others != [[size - 1 for size in energy]] * len(others):
            raise DataError(f"{place} is damaged (tables that do not fit each other): {REMEDY}")
        return read


@functools.cache
def _form() -> TypeAdapter[EpisodeResult]:
    return TypeAdapter(EpisodeResult)

"""Conditions of the real runs for the fit: survival, micro-batches, skews, clusters, local steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray
from collapipe_env.ground.errors import DataError
from collapipe_env.learners.surrogate_fits import REMEDY
from collapipe_env.scenario import Scenario

Partition = Literal["iid", "dirichlet", "length", "quantity"]
ALPHA = 0.3
"""Concentration of the skewed partitions."""


@dataclass(frozen=True)
class Condition:
    """Condition of real runs; runs of one condition differ in their seeds only.

    Attributes:
        survival: Probability that a micro-batch arrives, in [0, 1], for the clusters in turn: with two
            values every other cluster has the second.
        micro_batches: Micro-batches that each mini-batch is cut into; if these do not divide the batch size,
            its next smaller divisor is used.
        local_steps: ``H``.
        clusters_share: Share of the scenario's clusters that take part, in (0, 1]; at least one does.
        partition: Spread of the training data.
        later_survival: Survival in the second half of the run; None for the same.
        taking_part: Share of these clusters that take part in a round, drawn anew every round, in (0, 1]; at
            least one does. The others sit the round out.
        head: Server's head in rounds of several local steps, ``common`` or ``copies``.
    """

    survival: tuple[float, ...] = (1.0,)
    micro_batches: int = 16
    local_steps: int = 1
    clusters_share: float = 1.0
    partition: Partition = "iid"
    later_survival: tuple[float, ...] | None = None
    taking_part: float = 1.0
    head: Literal["common", "copies"] = "common"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], place: str) -> Self:
        """The condition from its fields by name; JSON may have turned tuples into lists.

        Raises:
            DataError: If the fields are not those of a condition.
        """
        if set(data) != set(asdict(cls())):
            raise DataError(f"{place}: {sorted(data)} are not the fields of a condition; {REMEDY}")
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**values)

    def __str__(self) -> str:
        """One line for tables and legends."""
        parts = [_percent(self.survival)]
        if self.later_survival is not None:
            parts[0] += f", then {_percent(self.later_survival)}"
        parts.append(f"M = {self.micro_batches}")
        if self.local_steps > 1:
            parts.append(f"H = {self.local_steps}" + (", copies" if self.head == "copies" else ""))
        if self.clusters_share < 1.0:
            parts.append(f"{self.clusters_share:g} N")
        if self.taking_part < 1.0:
            parts.append(f"{100 * self.taking_part:g} % take part")
        if self.partition != "iid":
            parts.append(self.partition)
        return ", ".join(parts)

    def clusters(self, scenario: Scenario) -> int:
        """The number of clusters ``N`` that take part."""
        return max(1, round(scenario.clusters * self.clusters_share))

    def micro_batches_of(self, batch_size: int) -> int:
        """The largest divisor of the batch size that is not above :attr:`micro_batches`."""
        return max(m for m in range(1, min(self.micro_batches, batch_size) + 1) if batch_size % m == 0)

    def survival_table(self, clusters: int, rounds: int) -> FloatArray:
        """The survival in each round and cluster (rounds, clusters)."""
        table = np.empty((rounds, clusters))
        half = rounds // 2
        table[:half] = np.resize(self.survival, clusters)
        table[half:] = np.resize(self.later_survival or self.survival, clusters)
        return table

    def players(self, clusters: int, rounds: int, rng: np.random.Generator) -> BoolArray | None:
        """The clusters that take part in each round, drawn (rounds, clusters); None if all do."""
        if self.taking_part == 1.0:
            return None
        count = max(1, round(clusters * self.taking_part))
        return rng.random((rounds, clusters)).argsort(axis=-1).argsort(axis=-1) < count

    def overrides(self, scenario: Scenario) -> dict[str, object]:
        """Overrides of the scenario, by dotted path, for training under this condition."""
        clusters = self.clusters(scenario)
        changes: dict[str, object] = {
            "workload.local_steps": self.local_steps,
            # A common head steps with all samples, as the surrogate's law assumes.
            "workload.head": self.head,
            "learning.partition": self.partition,
            "learning.dirichlet_alpha": ALPHA,
        }
        if clusters != scenario.clusters:
            counts = scenario.cluster.devices
            changes["cluster.clusters"] = clusters
            changes["cluster.devices"] = list(counts[:clusters]) if isinstance(counts, tuple) else counts
        return changes


def _percent(survival: tuple[float, ...]) -> str:
    return "/".join(f"{100 * p:g}" for p in survival) + " % arrive"


FITTED = (
    Condition(),
    Condition((0.7,), micro_batches=4),
    Condition((0.4,), micro_batches=64),
    Condition((0.4,), micro_batches=1),
    Condition((0.15,)),
    Condition((0.15,), micro_batches=1),
    Condition((1.0, 0.15)),
    Condition(local_steps=2),
    Condition((0.4,), micro_batches=4, local_steps=2),
    Condition(clusters_share=0.5),
    Condition((0.4,), clusters_share=0.5),
    Condition(partition="dirichlet"),
    Condition((0.7,), micro_batches=1, partition="dirichlet"),
    Condition((0.7,), local_steps=2, partition="dirichlet"),
    Condition(partition="quantity"),
    Condition((0.4,), partition="quantity"),
    Condition(partition="length"),
    Condition((0.4,), micro_batches=4, partition="length"),
)
"""Conditions of the runs that constants are fitted to."""

HELD_OUT = (
    Condition((0.7,), micro_batches=64),
    Condition((0.15,), micro_batches=4),
    Condition((0.7,), micro_batches=1),
    Condition((0.7, 0.15), micro_batches=4),
    Condition((0.15,), later_survival=(1.0,)),
    Condition((0.7,), micro_batches=1, local_steps=2),
    Condition((0.15,), local_steps=2),
    Condition((0.7,), micro_batches=4, clusters_share=0.5),
    Condition((0.4,), micro_batches=4, partition="dirichlet"),
    Condition((0.7,), micro_batches=4, partition="quantity"),
)
"""Conditions of the runs that test the fit, which has seen none of them."""

FITTED_OPENED = (
    Condition(local_steps=4, head="copies"),
    Condition(local_steps=16, head="copies"),
    Condition((0.4,), micro_batches=4, local_steps=4, head="copies"),
    Condition(local_steps=4, partition="dirichlet", head="copies"),
    Condition(local_steps=16, partition="dirichlet", head="copies"),
    Condition(taking_part=0.5),
    Condition(taking_part=0.5, local_steps=4, head="copies"),
    Condition(taking_part=0.5, partition="dirichlet"),
)
"""Conditions in addition to :data:`FITTED` for scenarios that open local steps and participation."""

HELD_OUT_OPENED = (
    Condition(local_steps=8, head="copies"),
    Condition((0.4,), micro_batches=4, local_steps=16, head="copies"),
    Condition((0.7,), local_steps=4, partition="dirichlet", head="copies"),
    Condition(taking_part=0.5, local_steps=8, head="copies"),
    Condition(taking_part=0.5, local_steps=4, partition="dirichlet", head="copies"),
)
"""Conditions in addition to :data:`HELD_OUT` for such scenarios."""

"""Reports, systems and played rounds as trees of arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from collapipe_env.allocation import Allocation, own_arrays
from collapipe_env.arrays import Array
from collapipe_env.errors import AllocationError, StateError, shortened
from collapipe_env.learners.base import Arrivals, IntArray, LearningReport
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.state import SystemParameters, SystemState
from collapipe_env.simulator.state_checks import SMALLEST, require_ranges
from collapipe_env.state_trees import REMEDY, Tree, require_alike, require_array, require_within


def report_tree(report: LearningReport) -> Tree:
    """A learner's report."""
    return {
        "loss": report.loss.copy(),
        "metric": report.metric.copy(),
        "train_loss": report.train_loss.copy(),
        "metrics": {name: values.copy() for name, values in report.metrics.items()},
    }


def report_of(tree: Any, num_envs: int, place: str) -> LearningReport:
    """The report that :func:`report_tree` has written down.

    Raises:
        StateError: If the tree is damaged.
    """
    metrics = tree.get("metrics") if isinstance(tree, Mapping) else None
    column = np.zeros(num_envs)
    names = metrics if isinstance(metrics, Mapping) else {}
    if not all(isinstance(name, str) for name in names):
        raise StateError(f"{place}/metrics has names that are no text: {REMEDY}")
    template = dict.fromkeys(("loss", "metric", "train_loss"), column)
    require_alike(tree, {**template, "metrics": dict.fromkeys(names, column)}, place)
    return LearningReport(
        tree["loss"].copy(),
        tree["metric"].copy(),
        tree["train_loss"].copy(),
        {name: values.copy() for name, values in names.items()},
    )


def system_tree(state: SystemState) -> Tree:
    """The system before a round."""
    return {f.name: np.array(getattr(state, f.name)) for f in fields(SystemState)}


def system_of(tree: Tree) -> SystemState:
    """The system that :func:`system_tree` has written down."""
    return SystemState(**{name: values.copy() for name, values in tree.items()})


@dataclass(frozen=True)
class SavedRound:
    """A round of which only that is kept from which the rest can be worked out again.

    Attributes:
        state: The system before it.
        allocation: What was played.
        arrivals: Micro-batches whose gradients arrived.
        learning: Report of the learner after it.
    """

    state: SystemState
    allocation: Allocation
    arrivals: Arrivals
    learning: LearningReport

    @classmethod
    def of(cls, record: RoundRecord) -> SavedRound:
        """Keep a round that was played."""
        return cls(record.state, record.allocation, record.arrivals, record.learning)

    def tree(self) -> Tree:
        """As arrays by name."""
        given = {f.name: getattr(self.allocation, f.name) for f in fields(Allocation)}
        return {
            "system": system_tree(self.state),
            "allocation": {name: np.array(v) for name, v in given.items() if v is not None},
            "counts": self.arrivals.counts.copy(),
            "pick": self.arrivals.pick.copy(),
            "learning": report_tree(self.learning),
        }

    @classmethod
    def from_tree(
        cls, tree: Any, parameters: SystemParameters, system: Tree, local_steps: int, place: str
    ) -> SavedRound:
        """The round that :meth:`tree` has written down.

        Args:
            tree: As arrays by name.
            parameters: Scalars of the scenario.
            system: Any system of the environment, for shapes and types.
            local_steps: ``H``.
            place: Its name, for errors.

        Raises:
            StateError: If the tree is damaged. Whether the round can have been played is checked later, by
                :meth:`check`, as that takes as long as playing one.
        """
        names = ("system", "allocation", "counts", "pick", "learning")
        if not isinstance(tree, Mapping) or set(tree) != set(names):
            raise StateError(f"{place} is not a round with {', '.join(names)}: {REMEDY}")
        require_alike(tree["system"], system, f"{place}/system")
        require_ranges(tree["system"], f"{place}/system")
        require_within(tree["system"]["budget"], SMALLEST, np.inf, f"{place}/system/budget")
        shape = (*system["uplink_gain"].shape, local_steps)
        require_array(tree["counts"], shape, np.int64, f"{place}/counts")
        require_array(tree["pick"], shape, np.uint64, f"{place}/pick")
        state = system_of(tree["system"])
        try:
            allocation = own_arrays(Allocation(**{name: _array(v) for name, v in tree["allocation"].items()}))
            whole: IntArray = np.ascontiguousarray(allocation.micro_batches, dtype=np.int64)
        except (AllocationError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"{place}/allocation is none ({shortened(str(error))}): {REMEDY}") from None
        require_array(whole, shape[:-1], np.int64, f"{place}/allocation/micro_batches")
        counts = tree["counts"].copy()
        most = parameters.micro_batch_choices[-1]
        learning = report_of(tree["learning"], len(whole), f"{place}/learning")
        return cls(state, allocation, Arrivals(counts, whole, tree["pick"].copy(), most), learning)

    def check(self, parameters: SystemParameters) -> None:
        """Refuse a round that cannot have been played: compiled code does not look again.

        Raises:
            StateError: Names the fault.
        """
        try:
            check_allocation(parameters, self.state, self.allocation)
        except AllocationError as error:
            raise StateError(f"last_round/allocation cannot have been played ({error}): {REMEDY}") from None
        counts, most = self.arrivals.counts, self.arrivals.micro_batches[..., None]
        if ((counts < 0) | (counts > most)).any():
            raise StateError(f"last_round/counts are not between 0 and the micro-batches: {REMEDY}")


def _array(value: Any) -> Array:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{type(value).__name__} instead of an array")
    return value.copy()

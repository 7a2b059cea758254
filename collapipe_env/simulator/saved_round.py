"""Reports, systems and played rounds as trees of arrays, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import Array, IntArray
from collapipe_env.ground.errors import AllocationError, StateError, shortened
from collapipe_env.ground.records import mapped, tree_of
from collapipe_env.ground.state_trees import (
    LARGEST_NUMBER,
    REMEDY,
    Tree,
    require_alike,
    require_array,
    require_within,
)
from collapipe_env.physics.allocation import Allocation, own_arrays
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.failed_records import NOBODY, FailedRounds, unscathed
from collapipe_env.simulator.learner import Arrivals, LearningReport
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.round import Interruption
from collapipe_env.simulator.state import Parameters, SystemState
from collapipe_env.simulator.state_checks import require_ranges


def report_of(tree: Any, num_envs: int, dtype: Any, place: str) -> LearningReport:
    """Rebuild a report from its tree.

    Args:
        tree: Arrays by name.
        num_envs: ``E``.
        dtype: Type of the report's numbers.
        place: Name of the tree, for errors.

    Raises:
        StateError: If the tree is damaged.
    """
    metrics = tree.get("metrics") if isinstance(tree, Mapping) else None
    column = np.zeros(num_envs, dtype=dtype)
    names = metrics if isinstance(metrics, Mapping) else {}
    if not all(isinstance(name, str) for name in names):
        raise StateError(f"{place}/metrics has names that are not text: {REMEDY}")
    template = dict.fromkeys(("loss", "metric", "train_loss"), column)
    require_alike(tree, {**template, "metrics": dict.fromkeys(names, column)}, place)
    return LearningReport(**mapped(tree, np.copy))


@dataclass(frozen=True)
class SavedRound:
    """A round reduced to the data from which its full record can be computed again.

    Attributes:
        state: The system before the round.
        allocation: The plan that was played.
        arrivals: Micro-batches whose gradients arrived.
        learning: Report of the learner after the round.
        interruption: Events of processes inside the round; ``None`` where there can be none.
    """

    state: SystemState
    allocation: Allocation
    arrivals: Arrivals
    learning: LearningReport
    interruption: Interruption | None = None

    @classmethod
    def of(cls, record: RoundRecord, host: Callable[[Array], npt.NDArray[Any]]) -> SavedRound:
        """Keep a round that was played.

        Args:
            host: Copies an array to the host.
        """
        given = record.arrivals
        pick = np.zeros(tuple(given.counts.shape), np.uint64) if given.pick is None else given.pick
        arrivals = Arrivals(
            host(given.counts).astype(np.int64), host(given.micro_batches).astype(np.int64), pick, given.most
        )
        report = mapped(record.learning, host)
        interruption = record.interruption
        if interruption is not None:
            interruption = interruption_on(interruption, host)
        return cls(record.state.map(host), record.allocation.map(host), arrivals, report, interruption)

    def tree(self) -> Tree:
        """The round as arrays by name."""
        return {
            "system": tree_of(self.state),
            "allocation": tree_of(self.allocation),
            "counts": self.arrivals.counts.copy(),
            "pick": np.array(self.arrivals.pick, dtype=np.uint64),
            "learning": tree_of(self.learning),
            "interruption": None if self.interruption is None else tree_of(self.interruption),
        }

    @classmethod
    def from_tree(
        cls, tree: Any, parameters: Parameters, system: Tree, local_steps: int, place: str
    ) -> SavedRound:
        """Rebuild a round from its :meth:`tree`.

        Args:
            tree: Arrays by name.
            system: Any system of the environment, for shapes and types.
            local_steps: ``H``.
            place: Name of the tree, for errors.

        Raises:
            StateError: If the tree is damaged. :meth:`check` tests later whether the round can have been
                played, because that takes as long as playing it.
        """
        names = ("system", "allocation", "counts", "pick", "learning", "interruption")
        if not isinstance(tree, Mapping) or set(tree) != set(names):
            raise StateError(f"{place} is not a round with {', '.join(names)}: {REMEDY}")
        require_alike(tree["system"], system, f"{place}/system")
        require_ranges(tree["system"], SystemState, f"{place}/system")
        shape = (*system["uplink_gain"].shape, local_steps)
        require_array(tree["counts"], shape, np.int64, f"{place}/counts")
        require_array(tree["pick"], shape, np.uint64, f"{place}/pick")
        state = SystemState(**mapped(tree["system"], np.copy))
        try:
            own = {**tree["allocation"]}
            others = {name: _array(value) for name, value in own.pop("others", {}).items()}
            own = {name: _array(value) for name, value in own.items()}
            allocation = own_arrays(Allocation(**own, others=others))
            real = system["budget"].dtype
            allocation = allocation.map(lambda a: a.astype(real, copy=False) if a.dtype.kind == "f" else a)
            whole: IntArray = np.ascontiguousarray(allocation.micro_batches, dtype=np.int64)
        except (AllocationError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"{place}/allocation is no plan ({shortened(str(error))}): {REMEDY}") from None
        require_array(whole, shape[:-1], np.int64, f"{place}/allocation/micro_batches")
        counts = tree["counts"].copy()
        most = parameters.micro_batch_choices[-1]
        learning = report_of(tree["learning"], len(whole), system["loss"].dtype, f"{place}/learning")
        arrivals = Arrivals(counts, whole, tree["pick"].copy(), most)
        interruption = _interruption_of(tree["interruption"], allocation, state, f"{place}/interruption")
        return cls(state, allocation, arrivals, learning, interruption)

    def check(self, parameters: Parameters) -> None:
        """Refuse a round that cannot have been played; compiled code does not check again.

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


def interruption_on(interruption: Interruption, function: Callable[[Any], Any]) -> Interruption:
    """An interruption with a function applied to its arrays; records of failures stay on the host."""
    return mapped(interruption._replace(failed=None), function)._replace(failed=interruption.failed)


def _interruption_of(tree: Any, plan: Allocation, state: SystemState, place: str) -> Interruption | None:
    if tree is None:
        return None
    clusters = np.zeros_like(state.uplink_gain)
    template: Tree = {
        "cluster_delay": clusters,
        "energy": np.zeros_like(state.backlog),
        "trained": clusters > 0.0,
    }
    found = None
    if isinstance(tree, Mapping) and isinstance(given := tree.get("failed"), Mapping):
        depth = np.asarray(given.get("reset")).shape[-1:]
        template["failed"] = unscathed(plan, *depth)._asdict() if depth else {}
        require_alike(tree, template, place)
        found = FailedRounds(**mapped(given, np.copy))
        if ((found.device < NOBODY) | (found.device >= plan.blocks.shape[-1])).any():
            raise StateError(f"{place}/failed/device is not a device: {REMEDY}")
    require_alike(tree, template, place)
    for name in ("cluster_delay", "energy"):
        require_within(tree[name], -LARGEST_NUMBER, LARGEST_NUMBER, f"{place}/{name}")
    arrays = {name: tree[name].copy() for name in ("cluster_delay", "energy", "trained")}
    return Interruption(**arrays, failed=found)


def _array(value: Any) -> Array:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{type(value).__name__} instead of an array")
    return value.copy()

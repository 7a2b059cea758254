"""Checks that a state's arrays can be those of a system; compiled code and the physics do not check again."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.errors import AllocationError, StateError
from collapipe_env.ground.records import declarations
from collapipe_env.ground.state_trees import REMEDY, Tree, require_within
from collapipe_env.simulator.moving_system import MovingSystem
from collapipe_env.simulator.refusal import require_room
from collapipe_env.simulator.state import Parameters, SystemState
from collapipe_env.simulator.system import System

MOST_ROUNDS = 1_000_000
"""Most rounds that a state may have, unless the scenario's episodes are longer."""


def require_ranges(arrays: Tree, record: type, place: str) -> None:
    """Refuse arrays of a record that hold impossible numbers.

    Args:
        arrays: The arrays, of the right shapes and types.
        record: The record, which declares their ranges.
        place: Name of the arrays, for the error.

    Raises:
        StateError: Names the array, the number and its range.
    """
    for name, values in arrays.items():
        is_ = declarations(record).get(name)
        if is_ is not None and is_.kind != "truth":
            # The loss of real training that has diverged is NaN.
            require_within(values, is_.low, is_.high, f"{place}/{name}", unknown=name == "loss")


def require_rounds(system: Tree, own_budget: npt.NDArray[Any], scenario_rounds: int) -> None:
    """Refuse a system of more rounds than can be played, or of other budgets than the scenario's.

    Args:
        system: The system's arrays, of the right shapes and types.
        own_budget: The scenario's energy budgets (E, N, K+1) [J].
        scenario_rounds: Rounds of an episode.

    Raises:
        StateError: Names the array at fault.
    """
    most = max(scenario_rounds, MOST_ROUNDS)
    require_within(system["round_index"], 0, most, "simulator/system/round_index")
    _require_agreement(system["budget"], own_budget, "system/budget", "the scenario's budgets")


def require_consistent(tree: Tree, parameters: Parameters, system: MovingSystem) -> None:
    """Refuse a world's state whose arrays are impossible or disagree with each other.

    Rows that were never reset hold no system yet, and are checked only for impossible numbers.

    Args:
        tree: The state, with arrays of the right shapes and types.
        system: The world's layouts and processes, left as they are.

    Raises:
        StateError: Names the array at fault.
    """
    found, rows = tree["system"], tree["was_reset"]
    require_ranges(tree["layout"], System, "simulator/layout")
    require_ranges(found, SystemState, "simulator/system")
    try:
        if not parameters.may_sit_out:
            require_room(found["memory_cap"][rows], parameters.costs.blocks)
    except AllocationError as error:
        raise StateError(f"simulator/system/memory_cap: {error}") from None
    with np.errstate(all="ignore"):  # results of damaged arrays are refused below
        expected = system.expected(tree)
    for name, values in expected.items():
        _require_agreement(found[name][rows], values[rows], f"system/{name}", "layout and processes")
    shown = {name: tree["processes"][name] for name in found["processes"]}
    for process, carried in found["processes"].items():
        for name, values in carried.items():
            place = f"system/processes/{process}/{name}"
            _require_agreement(values[rows], shown[process][name][rows], place, "processes")


def _require_agreement(found: npt.NDArray[Any], expected: npt.NDArray[Any], place: str, parts: str) -> None:
    """Refuse an array that differs from the one computed from other parts of the state.

    Args:
        found: The array.
        expected: The computed array; floating-point numbers may differ in their last digits, as they do
            between machines.
        place: Name of the array in the simulator, for the error.
        parts: The other parts, for the error.

    Raises:
        StateError: Names both.
    """
    # Same as np.allclose, which takes ten times as long; infinity equals nothing.
    with np.errstate(all="ignore"):
        if found.dtype == np.bool_:
            alike = found == expected
        else:
            alike = np.abs(found - expected) <= 1e-6 * np.minimum(np.abs(found), np.abs(expected))
    if not alike.all():
        raise StateError(f"simulator/{place} does not agree with {parts}: {REMEDY}")

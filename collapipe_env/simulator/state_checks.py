"""Whether a state's arrays can be those of a system: compiled code and the physics do not look again."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.errors import AllocationError, StateError
from collapipe_env.physics.energy import compute_power
from collapipe_env.simulator.build import memory_caps
from collapipe_env.simulator.channels import Fading, LoadChain, laid_out
from collapipe_env.simulator.refusal import require_room
from collapipe_env.simulator.state import SystemParameters
from collapipe_env.state_trees import LARGEST_NUMBER, REMEDY, Tree, require_within

SMALLEST = 1e-100
"""Below any positive quantity of a system, and far from where numbers lose their digits."""
MOST_ROUNDS = 1_000_000
"""Rounds that a state may have, unless the scenario's episodes are longer."""

_RANGES = {
    "uplink_gain": (SMALLEST, LARGEST_NUMBER),
    "d2d_gain": (0.0, LARGEST_NUMBER),
    "cross_gain": (0.0, LARGEST_NUMBER),
    "speed": (SMALLEST, LARGEST_NUMBER),
    "compute_power": (0.0, LARGEST_NUMBER),
    "memory_bytes": (0.0, LARGEST_NUMBER),
    "memory_cap": (0, np.inf),
    "backlog": (0.0, LARGEST_NUMBER),
    "loss": (-LARGEST_NUMBER, np.inf),
    "mean_gain": (0.0, LARGEST_NUMBER),
    "full_speed": (SMALLEST, LARGEST_NUMBER),
    "flops_per_cycle": (SMALLEST, LARGEST_NUMBER),
    "capacitance": (0.0, LARGEST_NUMBER),
    "active_power": (0.0, LARGEST_NUMBER),
}


def require_ranges(arrays: Tree, place: str) -> None:
    """Refuse arrays of a system or its layout that hold numbers which no system has.

    Args:
        arrays: The arrays, of the right shapes and types.
        place: Their name, for the error.

    Raises:
        StateError: Names the array, the number and its range.
    """
    for name, values in arrays.items():
        if name in _RANGES:
            # The loss of real training that has diverged is NaN.
            require_within(values, *_RANGES[name], f"{place}/{name}", unknown=name == "loss")


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


def require_consistent(tree: Tree, parameters: SystemParameters, fading: Fading, load: LoadChain) -> None:
    """Refuse a simulator's state whose arrays no system has, or disagree with each other.

    Rows that were never reset hold no system yet, and are only looked at for impossible numbers.

    Args:
        tree: The state, with arrays of the right shapes and types.
        parameters: Scalars of the scenario.
        fading: The simulator's fading, of which only the settings are used.
        load: The simulator's loads, likewise.

    Raises:
        StateError: Names the array at fault.
    """
    system, layout, rows = tree["system"], tree["layout"], tree["was_reset"]
    require_ranges(layout, "simulator/layout")
    require_ranges(system, "simulator/system")
    try:
        require_room(system["memory_cap"][rows], parameters.costs.blocks)
    except AllocationError as error:
        raise StateError(f"simulator/system/memory_cap: {error}") from None
    devices, present = system["present"].shape, system["present"]
    with np.errstate(all="ignore"):  # whatever damaged arrays come to is refused below
        uplink, d2d = laid_out(layout["mean_gain"], fading.gains_in(tree["fading"]), devices)
        speed = layout["full_speed"] * load.factors_in(tree["load"])
        power = compute_power(
            speed,
            layout["flops_per_cycle"],
            layout["capacitance"],
            layout["active_power"],
            layout["full_speed"],
        )
        caps = memory_caps(parameters.costs, system["memory_bytes"])
    for name, expected, parts in (
        ("uplink_gain", uplink, "layout and fading"),
        ("d2d_gain", d2d, "layout and fading"),
        ("speed", speed, "layout and load"),
        ("compute_power", power, "layout and load"),
        ("memory_cap", caps, "memory_bytes"),
        ("memory_bytes", system["memory_bytes"] * present, "present"),
    ):
        _require_agreement(system[name][rows], expected[rows], f"system/{name}", parts)
    streams = {"fading/stream": tree["fading"]["stream"]}
    if not load.constant:
        streams["load/stream"] = tree["load"]["stream"]
    if tree["losses"]:
        streams["losses"] = tree["losses"]
    for name, stream in streams.items():
        rounds = system["round_index"][rows]
        _require_agreement(stream["rounds"][rows], rounds, f"{name}/rounds", "system/round_index")


def _require_agreement(found: npt.NDArray[Any], expected: npt.NDArray[Any], place: str, parts: str) -> None:
    """Refuse an array that differs from what other parts of the state come to.

    Args:
        found: The array.
        expected: What it should be; floating-point numbers may differ in last digits, as those of another
            machine do.
        place: Its name in the simulator, for the error.
        parts: The other parts, for the error.

    Raises:
        StateError: Names both.
    """
    # As np.allclose, which takes ten times as long; infinity is like nothing.
    with np.errstate(all="ignore"):
        alike = np.abs(found - expected) <= 1e-6 * np.minimum(np.abs(found), np.abs(expected))
    if not alike.all():
        raise StateError(f"simulator/{place} does not agree with {parts}: {REMEDY}")

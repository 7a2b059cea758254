"""Kinds of observation by name, ``"flat"`` and ``"graph"``, and rows of either; light to import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from collapipe_env.ground.errors import SchedulerError, nearest_name, shown

OBSERVATIONS = ("flat", "graph")
"""Kinds of observation; the first is the default."""

Observation: TypeAlias = Any
"""An array, or a dictionary of arrays by name; of one environment, or of all with a leading axis."""


def observation_kind(scheduler: object) -> str:
    """Return the kind of observation that a scheduler requests with its attribute ``observation``.

    Raises:
        SchedulerError: If there is no such kind.
    """
    return declared(scheduler, "observation", OBSERVATIONS)


def declared(scheduler: object, attribute: str, values: Sequence[str]) -> str:
    """Return what a scheduler declares with an attribute: the first value if it lacks it, or it is no string.

    Raises:
        SchedulerError: If the value is unknown.
    """
    try:
        value = getattr(scheduler, attribute, None)
    except Exception:  # the user's code may raise anything for a missing attribute
        value = None
    if not isinstance(value, str):
        return values[0]
    if value not in values:
        raise SchedulerError(f"its {attribute} = {shown(value)} is not known: {nearest_name(value, values)}")
    return value


def row_of_observation(observation: Observation, row: int) -> Observation:
    """Observation of one environment, as views into the batch."""
    if isinstance(observation, dict):
        return {name: array[row] for name, array in observation.items()}
    return observation[row]


def copied_row(observation: Observation, row: int) -> Observation:
    """Observation of one environment, as copies."""
    if isinstance(observation, dict):
        return {name: array[row].copy() for name, array in observation.items()}
    return observation[row].copy()

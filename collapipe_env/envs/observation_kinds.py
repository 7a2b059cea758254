"""Kinds of observation by name, ``"flat"`` and ``"graph"``, and rows of either; light to import."""

from __future__ import annotations

from typing import Any, TypeAlias

from collapipe_env.errors import SchedulerError, nearest_name, shown

OBSERVATIONS = ("flat", "graph")
"""Kinds of observation; the first is the default."""

Observation: TypeAlias = Any
"""An array, or a dictionary of arrays by name; of one environment, or of all with a leading axis."""


def observation_kind(scheduler: object) -> str:
    """Return the kind of observation that a scheduler asks for with its attribute ``observation``.

    Args:
        scheduler: The scheduler; one without a text of that name reads flat ones.

    Raises:
        SchedulerError: If there is no such kind.
    """
    try:
        kind = getattr(scheduler, "observation", None)
    except Exception:  # the user's code may fail at being asked for what it does not have
        kind = None
    if not isinstance(kind, str):
        return OBSERVATIONS[0]
    if kind not in OBSERVATIONS:
        hint = nearest_name(kind, OBSERVATIONS)
        raise SchedulerError(f"its observation = {shown(kind)} is not known: {hint}")
    return kind


def row_of_observation(observation: Observation, row: int) -> Observation:
    """Observation of one environment, as views of those of all."""
    if isinstance(observation, dict):
        return {name: array[row] for name, array in observation.items()}
    return observation[row]


def copied_row(observation: Observation, row: int) -> Observation:
    """The same as a copy."""
    if isinstance(observation, dict):
        return {name: array[row].copy() for name, array in observation.items()}
    return observation[row].copy()

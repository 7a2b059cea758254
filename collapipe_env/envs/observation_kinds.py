"""Kinds of observation by name, ``"flat"`` and ``"graph"``, and rows of either; light to import."""

from __future__ import annotations

from typing import Any, TypeAlias

from collapipe_env.ground.errors import SchedulerError, nearest_name, shown

OBSERVATIONS = ("flat", "graph")
"""Kinds of observation; the first is the default."""

Observation: TypeAlias = Any
"""An array, or a dictionary of arrays by name; of one environment, or of all with a leading axis."""


def observation_kind(scheduler: object) -> str:
    """Return the kind of observation that a scheduler requests with its attribute ``observation``.

    Args:
        scheduler: The scheduler; if it lacks that attribute, or it is not a string, it reads flat ones.

    Raises:
        SchedulerError: If there is no such kind.
    """
    try:
        kind = getattr(scheduler, "observation", None)
    except Exception:  # the user's code may raise anything for a missing attribute
        kind = None
    if not isinstance(kind, str):
        return OBSERVATIONS[0]
    if kind not in OBSERVATIONS:
        hint = nearest_name(kind, OBSERVATIONS)
        raise SchedulerError(f"its observation = {shown(kind)} is not known: {hint}")
    return kind


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

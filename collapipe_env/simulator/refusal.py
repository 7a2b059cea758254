"""Refusing a faulty array with the name, the place and the value of its first fault."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import Array
from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.ground.records import Declared
from collapipe_env.physics.parameters import Parameters

SLACK = 1e-9
"""Relative slack for powers, shares and memory that were computed in floating point."""


def require_declared(name: str, value: Array, declared: Declared, devices: tuple[int, ...]) -> None:
    """Refuse an array of another shape, or numbers of another kind, than its declaration says.

    Compiled code does not check again.

    Args:
        devices: Shape of arrays over devices, (..., N, K).

    Raises:
        AllocationError: Names both shapes, the first number that is not whole, or the type.
    """
    axes = len(declared.axes.split())
    expected = devices[: len(devices) - 2 + axes]
    if np.shape(value) != expected:
        raise AllocationError(f"{name} has shape {np.shape(value)}, expected {expected}")
    numbers = np.asarray(value)
    if declared.kind != "whole" or np.issubdtype(numbers.dtype, np.integer):
        return
    # Words, None and complex numbers cannot be compared below: the error names their type.
    if numbers.dtype.kind in "biuf":
        with np.errstate(invalid="ignore"):
            refuse(~(np.isfinite(numbers) & (numbers == np.round(numbers))), numbers, name, "a whole number")
    raise AllocationError(f"{name} has type {numbers.dtype}, expected integers")


def place_name(place: tuple[int, ...]) -> str:
    """An index as words: environment, cluster, device (or stage slot)."""
    names = ("environment", "cluster", "device")
    return ", ".join(f"{name} {index}" for name, index in zip(names, place, strict=False))


def require_budgets_per_round(caller: str, parameters: Parameters) -> None:
    """Refuse budgets per second, for callers that price energy by the round.

    Raises:
        ScenarioError: Names the field, the caller, and schedulers that can follow such budgets.
    """
    if parameters.budget_period_s is not None:
        raise ScenarioError(
            f"{caller} weighs energy against budgets per round, and budgets.per is 'second': set it to "
            "'round', or use dssra, dssra-bound, dssra-target or greedy_dpp"
        )


def require_room(cap: Array, blocks: int) -> None:
    """Refuse a system in which some cluster's devices cannot hold the encoder.

    Args:
        cap: Blocks that each device can hold (E, N, K), 0 for absent ones.
        blocks: ``L``.

    Raises:
        AllocationError: Names the first such cluster and what its devices hold.
    """
    room = np.asarray(cap).sum(axis=-1)
    short = room < blocks
    if short.any():
        e, n = (int(i) for i in np.argwhere(short)[0])
        raise AllocationError(
            f"environment {e}, cluster {n}: its devices can hold only {room[e, n]} blocks, but the "
            f"encoder has {blocks}: no plan exists"
        )


def refuse(fault: np.ndarray, value: Array, name: str, expected: str) -> None:
    """Refuse an array where ``fault`` is true anywhere.

    Args:
        fault: True where the array is wrong.

    Raises:
        AllocationError: Names the first fault.
    """
    if not fault.any():
        return
    place = tuple(int(i) for i in np.argwhere(fault)[0])
    raise AllocationError(f"{name} of {place_name(place)} is {np.asarray(value)[place]}, expected {expected}")

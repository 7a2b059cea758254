"""Registry of processes: what may be registered, and which processes are on in a scenario."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType
from typing import Any, TypeVar, overload

from collapipe_env.ground.errors import ScenarioError, shown
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.process_names import PROCESSES as PROCESSES
from collapipe_env.simulator.process import EVERY_OTHER, CarriedArray, Process
from collapipe_env.simulator.system import axis_sizes

_CALLED = ("begin", "advance", "apply", "known", "events")
"""Methods that are called with positional arguments."""
_COUNTS = {"numbers": 0, "factors": 1}
"""Attributes that are whole numbers, and their least values."""


def check_process(name: object, process: object) -> None:
    """Refuse an object that is not a process of this name."""
    if not (isinstance(process, type) and issubclass(process, Process)):
        raise ScenarioError(
            f"{process!r} is not a process: derive a class from collapipe_env.dynamics.Process"
        )
    if name is None or getattr(process, "name", None) != name:
        raise ScenarioError(
            f"the process {process.__qualname__} has no name: give its class an attribute name, a word of "
            "lower-case letters, digits and underscores"
        )
    after: object = process.after
    if not isinstance(after, tuple) or not all(isinstance(other, str) for other in after):
        raise ScenarioError(
            f"after of the process {name!r} is {after!r}: use a tuple of names, say ('fading',)"
        )
    for part in _CALLED:
        own = inspect.getattr_static(process, part)
        if not isinstance(own, FunctionType):
            continue
        expected = inspect.signature(getattr(Process, part))
        try:
            inspect.signature(own).bind(*expected.parameters)
        except TypeError as error:
            raise ScenarioError(
                f"{part} of the process {name!r} cannot be called as {part}{expected} ({error})"
            ) from None
    spec = process.Spec
    if spec is not None and not (isinstance(spec, type) and _is_frozen(spec)):
        raise ScenarioError(
            f"the Spec of the process {name!r} is {spec!r}: use a frozen dataclass, as scenarios are hashable"
        )


def _check_attributes(process: Process, scenario: Scenario) -> None:
    """Refuse a user's own process whose attributes the environment could not work with."""
    for name, least in _COUNTS.items():
        count = getattr(process, name)
        if not isinstance(count, int) or count < least:
            raise ScenarioError(
                f"{name} of the process {process.name!r} is {shown(count)}: use a whole number of at least "
                f"{least}"
            )
    carries: object = process.carries
    if not isinstance(carries, Mapping) or not all(isinstance(a, CarriedArray) for a in carries.values()):
        raise ScenarioError(
            f"carries of the process {process.name!r} is {shown(carries)}: use a dictionary of "
            "CarriedArray(...) by name"
        )
    sizes = axis_sizes(scenario)
    for name, array in carries.items():
        for axis in array.axes.split():
            if not axis.isdigit() and axis not in sizes:
                raise ScenarioError(
                    f"the process {process.name!r} carries {name!r} with an axis {axis!r}: use numbers, "
                    f"{', '.join(sizes)}"
                )


def _is_frozen(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) and bool(getattr(kind, "__dataclass_params__").frozen)  # noqa: B009


def leaves_clusters_short(name: str) -> bool:
    """Whether a process may leave too few devices of a cluster to hold the encoder.

    Args:
        name: Name of the process; for an unknown one the result is False.
    """
    return name in PROCESSES and bool(PROCESSES.get(name).leaves_clusters_short)


Kind = TypeVar("Kind", bound=type[Process])


@overload
def register_process(process: Kind, *, replace: bool = False) -> Kind: ...


@overload
def register_process(*, replace: bool = False) -> Callable[[Kind], Kind]: ...


def register_process(process: Any = None, *, replace: bool = False) -> Any:
    """Register a process so that scenarios can name it under ``dynamics.processes``; a class decorator.

    Args:
        process: A subclass of :class:`Process` with a ``name`` and a ``Spec``; ``None`` for a decorator.
        replace: Whether to replace another process registered under this name.

    Returns:
        The process, or a decorator if none was given.

    Raises:
        ScenarioError: If it is not such a class, or another process has its name.
    """
    if process is None:
        return partial(register_process, replace=replace)
    check_process(getattr(process, "name", None), process)
    return PROCESSES.register(process.name, process, replace=replace)


def active_processes(scenario: Scenario) -> tuple[Process, ...]:
    """The active processes of a scenario, each after those in its ``after``.

    Raises:
        ScenarioError: If processes wait for each other in a cycle.
    """
    for name, _ in scenario.dynamics.processes:
        PROCESSES.require(name)
    # By name, so that results do not depend on which module was imported first.
    names = (*PROCESSES.shipped(), *sorted(PROCESSES.added()))
    kinds = {name: PROCESSES.get(name) for name in names}
    waiting = {name: on for name, kind in kinds.items() if (on := kind.of(scenario)) is not None}
    for name in waiting.keys() & PROCESSES.added():
        _check_attributes(waiting[name], scenario)
    ordered: list[Process] = []
    while waiting:
        ready = next((name for name, p in waiting.items() if not _awaited(p, waiting)), None)
        if ready is None:
            raise ScenarioError(
                f"the processes {', '.join(waiting)} wait for each other: take a name out of one's `after`"
            )
        ordered.append(waiting.pop(ready))
    return tuple(ordered)


def _awaited(process: Process, waiting: Mapping[str, Process]) -> set[str]:
    """Names of the waiting processes that have to act before one of them."""
    if process.after == EVERY_OTHER:
        return {name for name, other in waiting.items() if other.after != EVERY_OTHER}
    return waiting.keys() & set(process.after)

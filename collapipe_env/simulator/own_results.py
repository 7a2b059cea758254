"""Checks of the results of a user's own process.

The package's own processes have tests instead. For tensors, only the shapes and types of carried arrays are
checked: reading their numbers would mean waiting for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from collapipe_env.ground.errors import ScenarioError, fits_a_line, nearest_name, shown
from collapipe_env.ground.records import Declared, declarations
from collapipe_env.ground.state_trees import LARGEST_NUMBER
from collapipe_env.simulator.failed_records import FailedRounds
from collapipe_env.simulator.own_arrays import (
    Place,
    in_words,
    numbers,
    require_finite,
    require_plain,
    truths,
)
from collapipe_env.simulator.process import Carried, Process
from collapipe_env.simulator.round import PHYSICS_PHASES, Interruption, RoundCosts, Terms
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.system import System


def require_begun(process: Process, found: Carried, running: Carried | None) -> None:
    """Refuse an invalid result of `begin`, in NumPy, of which :func:`require_rows` has seen the rows.

    Args:
        running: Arrays of environments that are in an episode, in the same batch; ``None`` if there are none.
    """
    for name, values in found.items():
        require_plain(Place(process.name, "begin", name), values)
        values.setflags(write=False)  # a process that keeps it must not change a state that was handed out
    if running is not None:
        for name in {**running, **found}:
            old, new = running.get(name), found.get(name)
            if _layout(old) != _layout(new):
                raise Place(process.name, "begin", name).error(
                    f"{name!r} as {in_words(new)}, for other environments as {in_words(old)}",
                    "return the same names, shapes and types in every episode",
                )


def require_rows(process: Process, found: Carried, rows: int) -> None:
    """Refuse a result of `begin` without arrays, or without a row for each environment, on any library."""
    _require_mapping(process, "begin", found)
    for name, values in found.items():
        shape = getattr(values, "shape", None)
        if not hasattr(values, "dtype") or not shape or shape[0] != rows:
            raise Place(process.name, "begin", name).error(
                f"{name!r} "
                + (f"of shape {tuple(shape)}" if shape is not None else f"as {in_words(values)}"),
                f"expected an array with one row for each of {rows} environments",
            )


def require_shown(process: Process, found: Carried, rows: int) -> None:
    """Refuse carried arrays without those that the process shows, or with others of their shape."""
    for seen in process.observed:
        if seen.carried not in found:
            raise ScenarioError(
                f"the process {process.name!r} shows {seen.carried!r}, which its begin does not return: "
                f"{nearest_name(seen.carried, found)}"
            )
        expected = (rows, *seen.shape)
        if tuple(found[seen.carried].shape) != expected:
            raise Place(process.name, "begin", seen.carried).error(
                f"{seen.carried!r} of shape {tuple(found[seen.carried].shape)}",
                f"expected {expected}, as its Observed says",
            )


def require_like(process: Process, found: Carried, before: Carried) -> None:
    """Refuse a result of `advance` with other names, shapes or types than before."""
    _require_mapping(process, "advance", found)
    for name in {**before, **found}:
        old, new = before.get(name), found.get(name)
        if not _alike(new, old):
            raise Place(process.name, "advance", name).error(
                f"{name!r} as {in_words(new)}, begin as {in_words(old)}",
                "return the same names, shapes and types",
            )


def require_advanced(process: Process, found: Carried) -> None:
    """Refuse numbers of `advance` that are not finite, in NumPy; the arrays can no longer be written to."""
    for name, values in found.items():
        require_finite(Place(process.name, "advance", name), values)
        values.setflags(write=False)


def system_of_own(process: Process, found: object, before: System) -> System:
    """Return the result of `apply`; refuse other shapes, and numbers that no round can be computed with."""
    if not isinstance(found, System):
        raise _no(process, "apply", found, "system._replace(...)")
    sound: dict[str, Any] = {}
    for name, values in found._asdict().items():
        old = getattr(before, name)
        if values is old:
            continue
        at, is_ = Place(process.name, "apply", name), declarations(System)[name]
        shape = _expected(before, name, is_.axes)
        if shape is None:
            raise at.wrong_kind(values, "None, as before")
        sound[name] = _ranged(at, is_, values, shape)
    return found._replace(**sound)


def checked_price(name: str, price: Callable[..., Any]) -> Callable[..., Any]:
    """Return a price of one's own that refuses terms with which no round can be computed, in NumPy.

    Args:
        name: Its name.
        price: See :data:`collapipe_env.simulator.costs.PRICES`.
    """

    def checked(costs: RoundCosts, *others: Any) -> Any:
        found = price(costs, *others)
        return found if found is None or type(costs.delay) is not np.ndarray else _terms(name, found, costs)

    return checked


def _terms(name: str, found: object, costs: RoundCosts) -> Terms:
    if not isinstance(found, Terms):
        raise ScenarioError(f"the price {name!r} returned {type(found).__name__}: return Terms(...)")

    def of(part: str, values: Any, like: Any, least: float, range_: str) -> Any:
        at = Place(name, "the price", part)
        return numbers(at, values, like.shape, low=least, stretch=True, range_=range_)

    def phases(part: str, given: Mapping[str, Any]) -> dict[str, Any]:
        for label in given:
            if not isinstance(label, str) or not fits_a_line(label) or label in PHYSICS_PHASES:
                raise ScenarioError(
                    f"the price {name!r} returned a phase named {shown(label)}: name it by one line of text, "
                    f"other than {', '.join(PHYSICS_PHASES)}"
                )
        seconds = "finite seconds, at least 0"
        return {k: of(f"{part}[{k!r}]", v, costs.cluster_delay, 0.0, seconds) for k, v in given.items()}

    return found._replace(
        once=phases("once", found.once),
        step=phases("step", found.step),
        delay=of("delay", found.delay, costs.cluster_delay, 0.0, "finite seconds, at least 0"),
        energy=of("energy", found.energy, costs.energy, -LARGEST_NUMBER, "finite joules"),
        memory=of("memory", found.memory, costs.memory, 0.0, "finite bytes, at least 0"),
        server_j=of("server_j", found.server_j, costs.cluster_delay, 0.0, "finite joules, at least 0"),
    )


def interruption_of_own(process: Process, found: object, energy_shape: tuple[int, ...]) -> Interruption:
    """Return the result of `interrupt`, with numbers of which a round can be computed.

    Args:
        energy_shape: (E, N, K+1).
    """
    if not isinstance(found, Interruption):
        raise _no(process, "interrupt", found, "Interruption(...)")
    if not (found.failed is None or isinstance(found.failed, FailedRounds)):
        raise Place(process.name, "interrupt", "failed").wrong_kind(found.failed, "None")
    at = Place(process.name, "interrupt", "cluster_delay")
    seconds = "finite seconds, at least 0"
    delay = numbers(at, found.cluster_delay, energy_shape[:-1], low=0.0, range_=seconds)
    # Energies may be negative, for instance if harvested.
    energy = numbers(at._replace(name="energy"), found.energy, energy_shape, range_="finite joules")
    trained = truths(at._replace(name="trained"), found.trained, energy_shape[:-1])
    return Interruption(delay, energy, trained, found.failed)


def moments_of_own(process: Process, found: Any, device_shape: tuple[int, ...]) -> Any:
    """Return the result of `failures`.

    Args:
        device_shape: (E, N, K).
    """
    at = Place(process.name, "failures", "its times")
    return numbers(at, found, device_shape, low=0.0, high=np.inf, range_="seconds, at least 0, or infinity")


def estimate_of_own(process: Process, found: object, before: SystemState) -> SystemState:
    """Return the result of `known`; refuse other fields, shapes and ranges than the truth has.

    Args:
        before: The state that it was given.
    """
    if not isinstance(found, SystemState):
        raise _no(process, "known", found, "replace(truth, ...)")
    sound: dict[str, Any] = {}
    for field in fields(before):
        old, new, at = (
            getattr(before, field.name),
            getattr(found, field.name),
            Place(process.name, "known", field.name),
        )
        if new is old:
            continue
        if field.name == "processes":
            _require_same_processes(at, new, old)
        elif old is None:
            raise at.wrong_kind(new, "nothing, as in the truth")
        else:
            is_ = declarations(SystemState)[field.name]
            sound[field.name] = _ranged(at, is_, new, old.shape).astype(old.dtype, copy=False)
    return replace(found, **sound)


def _require_mapping(process: Process, method: str, found: object) -> None:
    """Refuse what is no dictionary."""
    if not isinstance(found, Mapping):
        raise _no(process, method, found, "a dictionary of arrays by name")


def _require_same_processes(at: Place, found: object, before: Mapping[str, Carried]) -> None:
    if not isinstance(found, Mapping) or found.keys() != before.keys():
        raise at.wrong_kind(found, "the arrays of the same processes as in the truth")
    for name, arrays in found.items():
        if not isinstance(arrays, Mapping) or arrays.keys() != before[name].keys():
            raise at.wrong_kind(arrays, f"the same arrays of the process {name!r} as in the truth")
        for key, values in arrays.items():
            inner = at._replace(name=f"{at.name}[{name!r}][{key!r}]")
            old = before[name][key]
            if not _alike(values, old):
                raise inner.wrong_kind(values, in_words(old))
            require_finite(inner, values)


def _ranged(at: Place, is_: Declared, values: Any, shape: tuple[int, ...]) -> Any:
    """An array of a system or a state, in its declared range."""
    if is_.kind == "truth":
        return truths(at, values, shape)
    high = min(is_.high, LARGEST_NUMBER)
    return numbers(at, values, shape, low=is_.low, high=high, range_=is_.words)


def _expected(system: System, name: str, axes: str) -> tuple[int, ...] | None:
    """Shape of an array of a system; ``None`` for one that is missing and may not be added."""
    return _shape(system.link_gain if axes == "links" else getattr(system, name))  # gains may be added


def _no(process: Process, method: str, found: object, expected: str) -> ScenarioError:
    return ScenarioError(
        f"{method} of the process {process.name!r} returned {type(found).__name__}: return {expected}"
    )


def _alike(array: Any, other: Any) -> bool:
    """Whether both are arrays, of the same type and shape."""
    shape = _shape(array)
    return shape is not None and shape == _shape(other) and array.dtype == getattr(other, "dtype", None)


def _layout(array: Any) -> tuple[Any, ...] | None:
    """Type of an array and shape of its rows."""
    shape = _shape(array)
    return None if not shape else (array.dtype, *shape[1:])


def _shape(array: Any) -> tuple[int, ...] | None:
    shape = getattr(array, "shape", None)
    return None if shape is None else tuple(shape)

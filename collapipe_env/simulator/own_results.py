"""Checks of the results of a user's own code: of processes and prices.

The package's own have tests instead. Compiled loops read and write arrays without looking at their shapes, so
a wrong one must not reach them. For tensors, only the shapes and types of carried arrays are checked: reading
their numbers would mean waiting for the device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, get_args

import numpy as np

from collapipe_env.ground.arrays import Array
from collapipe_env.ground.errors import ScenarioError, fits_a_line, shown
from collapipe_env.ground.records import Declared, Kind, Sizes, declared_in, parts_of, sizes_of
from collapipe_env.ground.state_trees import first_outside
from collapipe_env.simulator.process import Carried, Process
from collapipe_env.simulator.round import PHYSICS_PHASES, Events, RoundCosts, Terms

T = TypeVar("T")
_FINITE = Declared("")
_WORDS: Mapping[Kind, str] = {"real": "numbers", "whole": "whole numbers", "truth": "truth values"}
_KINDS: Mapping[Kind, str] = {"real": "f", "whole": "iu", "truth": "b"}
"""Kinds of NumPy's types."""


def own_result(process: Process, method: str, found: Any, kind: type[T], like: Any) -> T:
    """Return the result of a method with whole arrays of the declared shapes, types and ranges.

    Args:
        found: What it returned, in NumPy arrays.
        kind: The record that it should be.
        like: The record that it was given; the result may be this one with other arrays.

    Raises:
        ScenarioError: Names the process, the method, the array at fault and what is expected.
    """
    before = like if isinstance(like, kind) else None
    sound: T = _record(_at(process, method), found, kind, sizes_of(like), before)
    return sound


def own_events(process: Process, found: Any, costs: RoundCosts) -> Events:
    """Return the events of a round, each number as a whole array; see :func:`own_result`."""
    sound: Events = _record(_at(process, "events"), found, Events, sizes_of(costs), stretch=True)
    return sound


def checked_price(name: str, price: Callable[..., Any]) -> Callable[..., Any]:
    """Return a price of one's own that refuses terms with which no round can be computed, in NumPy.

    Args:
        price: See :data:`collapipe_env.simulator.costs.PRICES`.
    """

    def checked(costs: RoundCosts, *others: Any) -> Any:
        found = price(costs, *others)
        if found is None or type(costs.delay) is not np.ndarray:
            return found
        like = Terms(delay=costs.cluster_delay, energy=costs.energy, memory=costs.memory)
        return _record(f"the price {name!r}", found, Terms, sizes_of(like), stretch=True)

    return checked


def require_carried(
    process: Process, method: str, found: Carried, sizes: Sizes, before: Carried, *, numbers: bool
) -> None:
    """Refuse arrays other than those that a process declares in ``carries``.

    Args:
        method: ``begin`` or ``advance``, which returned them.
        before: Arrays of another round or other environments, which have the same types; empty if there are
            none.
        numbers: Whether to check numbers; the arrays of NumPy can then no longer be written to, because a
            process may keep them.
    """
    at = _at(process, method)
    if not isinstance(found, Mapping):
        raise _not_returned(at, found, "a dictionary of arrays by name")
    for name in {**process.carries, **found}:
        is_ = process.carries.get(name)
        values: Any = found.get(name)
        if is_ is None:
            raise ScenarioError(
                f"{at} returned {shown(name)}, which its `carries` does not declare: declare it there, as a "
                "CarriedArray(...)"
            )
        shape = is_.shape(sizes)
        expected = f"{_WORDS[is_.kind]} {shape}"
        if not hasattr(values, "dtype") or _shape(values) != shape:
            raise _wrong(at, repr(name), values, expected)
        if name in before and values.dtype != before[name].dtype:
            raise _wrong(at, repr(name), values, f"{before[name].dtype} {shape}, as before")
        if not numbers:
            continue
        if _kind(values) not in tuple(_KINDS[is_.kind]) or not values.dtype.isnative:
            raise _wrong(at, repr(name), values, expected)
        if is_.kind != "truth":
            _require_within(at, repr(name), values, is_)
        values.setflags(write=False)


def _record(
    at: str, found: Any, kind: Any, sizes: Sizes, before: Any = None, *, stretch: bool = False
) -> Any:
    """A record with sound arrays.

    Args:
        before: The record whose arrays may be replaced; ``None`` if the record is new.
    """
    if not isinstance(found, kind):
        name = kind.__name__
        other = f"{name}(...)" if before is None else f"the {name} that it was given, with other arrays"
        raise _not_returned(at, found, other)
    sound: dict[str, Any] = {}
    for name, (is_, optional) in parts_of(kind).items():
        values, old = getattr(found, name), getattr(before, name, None)
        if values is old and (optional or before is not None):
            continue
        if isinstance(is_, Declared):
            # Gains of all links may be added, other arrays may not.
            if before is not None and old is None and is_.axes != "links":
                raise _wrong(at, repr(name), values, "nothing, as before")
            array = _array(at, repr(name), values, is_, sizes, stretch=stretch)
            sound[name] = array if old is None else array.astype(old.dtype, copy=False)
        elif isinstance(is_, type):
            if not (isinstance(values, is_) or (optional and values is None)):
                raise _wrong(at, repr(name), values, f"None or {is_.__name__}")
        elif before is not None:
            _require_same(at, repr(name), values, old)
        elif declared := declared_in(get_args(is_)[1]):
            sound[name] = {
                label: _array(at, f"{name}[{label!r}]", value, declared, sizes, stretch=stretch)
                for label, value in _phases(at, name, values).items()
            }
    return found._replace(**sound) if hasattr(found, "_replace") else replace(found, **sound)


def _phases(at: str, name: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise _wrong(at, repr(name), given, "a dictionary of phases by name")
    for label in given:
        if not isinstance(label, str) or not fits_a_line(label) or label in PHYSICS_PHASES:
            raise ScenarioError(
                f"{at} returned a phase named {shown(label)}: name it by one line of text, other than "
                f"{', '.join(PHYSICS_PHASES)}"
            )
    found: Mapping[str, Any] = given
    return found


def _array(at: str, name: str, values: Any, is_: Declared, sizes: Sizes, *, stretch: bool = False) -> Array:
    """An array in its declared range, contiguous: float64, or truth values."""
    shape, truth = is_.shape(sizes), is_.kind == "truth"
    expected = f"{'truth values' if truth else 'numbers'} {shape}"
    fits = _kind(values) == "b" if truth else _kind(values) in ("f", "i", "u")
    if stretch and not fits:
        fits = type(values) is bool if truth else type(values) in (float, int)
    if not fits:
        raise _wrong(at, name, values, expected)
    with np.errstate(over="ignore"):
        array: Any = np.asarray(values, dtype=np.bool_ if truth else np.float64)
    if stretch:
        with contextlib.suppress(ValueError):
            array = np.broadcast_to(array, shape)
    if array.shape != shape:
        raise _wrong(at, name, values, expected)
    if not truth:
        # Nobody's own code may make a round shorter.
        least = max(is_.low, 0.0) if is_.unit == "s" else is_.low
        _require_within(at, name, array, replace(is_, low=least))
    # Broadcasting hands out single numbers as whole arrays, which compiled loops would step beyond.
    return np.ascontiguousarray(array)


def _require_same(at: str, name: str, new: Any, old: Any) -> None:
    """Refuse other names, shapes and types than those before, and numbers that are not finite.

    Args:
        new: An array, or a dictionary of them, nested or not.
        old: The same before.
    """
    if not isinstance(old, Mapping):
        if _shape(new) is None or _shape(new) != _shape(old) or getattr(new, "dtype", None) != old.dtype:
            raise _wrong(at, name, new, _words(old))
        if old.dtype.kind == "f":
            _require_within(at, name, new, _FINITE)
        return
    if not isinstance(new, Mapping):
        raise _wrong(at, name, new, "a dictionary of arrays by name")
    for key in {**old, **new}:
        _require_same(at, f"{name}[{key!r}]", new.get(key), old.get(key))


def _require_within(at: str, name: str, values: Any, is_: Declared) -> None:
    place = first_outside(values, is_.low, is_.high)
    if place is not None:
        raise ScenarioError(f"{at} returned {values[place]} in {name} at {list(place)}: return {is_.words}")


def _at(process: Process, method: str) -> str:
    return f"{method} of the process {process.name!r}"


def _wrong(at: str, name: str, values: Any, expected: str) -> ScenarioError:
    return ScenarioError(f"{at} returned {name} as {_words(values)}: expected {expected}")


def _not_returned(at: str, found: Any, expected: str) -> ScenarioError:
    return ScenarioError(f"{at} returned {type(found).__name__}: return {expected}")


def _words(array: Any) -> str:
    """Type and shape of an array, in words."""
    if array is None:
        return "nothing"
    shape = _shape(array)
    if shape is None or isinstance(array, np.ma.MaskedArray):
        return type(array).__name__
    return f"{getattr(array, 'dtype', type(array).__name__)} {shape}"


def _kind(values: Any) -> str | None:
    """Kind of a NumPy array; ``None`` for anything else."""
    plain = isinstance(values, np.ndarray | np.generic) and not isinstance(values, np.ma.MaskedArray)
    return values.dtype.kind if plain else None


def _shape(array: Any) -> tuple[int, ...] | None:
    shape = getattr(array, "shape", None)
    return None if shape is None else tuple(shape)

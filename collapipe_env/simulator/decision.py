"""A decision that a scenario may open, told once: everything else loops over these rows.

A row says which fields of a plan it sets, which entries it adds to an action, how the two are turned into
each other, what is allowed, and what a scheduler has to see of the system to decide. A new decision is one
file with a row, and one line that names it in :data:`collapipe_env.scenario.decision_names.ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from collapipe_env.ground.arrays import Array, FloatArray, namespace
from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.ground.records import Declared, declarations
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.decision_names import ROWS
from collapipe_env.simulator.feature import Feature
from collapipe_env.simulator.refusal import refuse
from collapipe_env.simulator.state import Parameters, SystemState


class Jump(NamedTuple):
    """Other values of some fields of plans, for a local search.

    Attributes:
        kind: What changes; jumps of one kind compete with each other first.
        values: New arrays (E, N, ...) by field; a cluster that has no such value keeps its own.
    """

    kind: str
    values: Mapping[str, Array]


Check: TypeAlias = "Callable[[Decision, Parameters, Allocation, float], None]"
"""Refuses values of a plan (E, ...) out of their range, with a relative slack for rounding."""


class Part(NamedTuple):
    """Entries of an action that a decision adds.

    Attributes:
        name: Its name in :meth:`~collapipe_env.simulator.codec.ActionCodec.split`.
        axes: ``N`` for an entry of each cluster, ``N K`` for one of each device.
        meaning: Meaning of the entries in [-1, 1].
        levels: Number of choices that the entries name; 0 where they name any number of a range.
        encode: Entries of plans (..., *axes), the inverse of decoding; -1 where a plan does not read them.
    """

    name: str
    axes: str
    meaning: Callable[[Parameters], str]
    levels: Callable[[Parameters], int]
    encode: Callable[[Parameters, Allocation], FloatArray]


def _in_range(row: Decision, parameters: Parameters, plan: Allocation, slack: float) -> None:  # noqa: ARG001
    """Refuse values outside the declared range."""
    for name, value in row.values(plan):
        low, high = row.fields[name].low, row.fields[name].high
        refuse(~((value >= low) & (value <= high)), value, name, f"a number in [{low:g}, {high:g}]")


def stays_neutral(row: Decision, parameters: Parameters, plan: Allocation, slack: float) -> None:  # noqa: ARG001
    """Refuse everything but neutral numbers."""
    for name, value in row.values(plan):
        neutral = row.fields[name].neutral
        if neutral is not None:
            expected = f"{neutral:g}: this scenario's decisions do not list {row.name}{row.otherwise}"
            refuse(value != neutral, value, name, expected)


def _next_numbers(
    row: Decision,
    parameters: Parameters,  # noqa: ARG001 - part of the interface
    state: SystemState,  # noqa: ARG001
    plan: Allocation,
) -> Iterator[Jump]:
    """The next whole numbers of the declared ranges, and real numbers an eighth of the range away."""
    for name, declared in row.fields.items():
        now = plan.said(name, declared)
        step = 1.0 if declared.kind == "whole" else 0.125 * (declared.high - declared.low)
        for way in (-step, step):
            value = np.clip(now + way, declared.low, declared.high).astype(np.asarray(now).dtype)
            yield Jump(row.name, {name: value})


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A decision that a scenario may open.

    Attributes:
        name: Its name in ``decisions`` of a scenario.
        fields: Fields of the plan that it sets: the plan's own (:func:`plan_fields`), or new ones, which
            need a neutral number and are kept in :attr:`Allocation.others`.
        parts: Entries that it adds to an action, in order.
        decode: Values of fields from the entries of all of its parts, by their names; nothing for decisions
            that :mod:`collapipe_env.simulator.memory_choices` settles together.
        otherwise: End of the error for a plan that sets a field although the scenario does not open it: who
            settles the value then.
        allowed: Check where the decision is open; by default, of the declared ranges.
        closed: Check where it is not open; by default, that numbers are neutral.
        playable: Further check of plans (E, ...) in a state (E, ...); all numbers are in their ranges.
        expressible: Further check of plans (E, ...), of what actions cannot express.
        jumps: Other values that DSSRA tries; by default the neighbours in the declared ranges. Nothing where
            its objective, which knows delay and energy alone, cannot judge the decision.
        slides: Ranges of fields of positive numbers that DSSRA changes by any factor, instead of jumps.
        settled: Values that follow from the rest of a plan (E, ...) in a state, by field.
        features: What schedulers have to see of a scenario's system, in columns of the graph observation's
            ``opened`` or an array of their own.
    """

    name: str
    fields: Mapping[str, Declared]
    parts: tuple[Part, ...]
    decode: Callable[[Parameters, Mapping[str, Array]], Mapping[str, Array]] = lambda *_: {}
    otherwise: str = ""
    allowed: Check = _in_range
    closed: Check = stays_neutral
    playable: Callable[[Parameters, SystemState, Allocation], None] = lambda *_: None
    expressible: Callable[[Parameters, Allocation], None] = lambda *_: None
    jumps: Callable[[Decision, Parameters, SystemState, Allocation], Iterable[Jump]] = _next_numbers
    slides: Callable[[Parameters], Mapping[str, tuple[float, float]]] = lambda _: {}
    settled: Callable[[Parameters, SystemState, Allocation], Mapping[str, Array]] = lambda *_: {}
    features: Callable[[Scenario, Parameters], Iterable[Feature]] = lambda *_: ()

    def values(self, plan: Allocation) -> list[tuple[str, Array]]:
        """Fields that a plan gives, and their values."""
        found = ((name, plan.given(name)) for name in self.fields)
        return [(name, np.asarray(value)) for name, value in found if value is not None]

    def check(self, parameters: Parameters, plan: Allocation, slack: float) -> None:
        """Refuse values out of their range, or that the scenario does not leave to schedulers.

        Args:
            plan: The plan (E, ...), its values of the declared shapes and kinds.

        Raises:
            AllocationError: Names field, place and what is allowed.
        """
        check = self.allowed if self.name in parameters.opened else self.closed
        check(self, parameters, plan, slack)


def check_decision(name: str, row: object) -> None:
    """Refuse an object that is not the row of this decision."""
    if not isinstance(row, Decision) or row.name != name:
        raise ScenarioError(f"the decision {name!r} is {row!r}: register a Decision of that name")
    own = declarations(Allocation)
    for field, declared in row.fields.items():
        if field not in own and (declared.neutral is None or hasattr(Allocation, field)):
            raise ScenarioError(
                f"the field {field!r} of the decision {name!r} needs a neutral number, and a name that plans "
                "do not use"
            )


_ROWS_FOUND: dict[tuple[tuple[str, ...], int], tuple[Decision, ...]] = {}


def opened_rows(names: tuple[str, ...]) -> tuple[Decision, ...]:
    """Rows of decisions, in their order."""
    key = names, ROWS.changes
    if key not in _ROWS_FOUND:  # a dictionary, because PyTorch's compiler goes through caches of functools
        _ROWS_FOUND[key] = tuple(ROWS.get(name) for name in names)
    return _ROWS_FOUND[key]


def rows_of(plan: Allocation) -> tuple[Decision, ...]:
    """Rows of the decisions of which a plan says something.

    Raises:
        AllocationError: If the plan has a value that belongs to no decision.
    """
    rows = opened_rows(ROWS.names())
    unknown = set(plan.others).difference(*(row.fields for row in rows))
    if unknown:
        raise AllocationError(f"{', '.join(sorted(unknown))}: no decision has such a field: leave it out")
    return tuple(row for row in rows if row.values(plan))


def nothing(*_: object) -> tuple[()]:
    """No jumps."""
    return ()


def plan_fields(*names: str) -> dict[str, Declared]:
    """Declarations of some of a plan's own fields."""
    return {name: declarations(Allocation)[name] for name in names}


def nearest_choice(scores: Array, choices: int) -> Array:
    """Return the indices of the nearest choices, spread evenly over [-1, 1]; half-way cases go up.

    Args:
        scores: Entries of actions, any shape.
        choices: Number of choices, >= 1.

    Returns:
        Indices 0..choices - 1 of the same shape, int64.
    """
    xp = namespace(scores)
    unit = 0.5 * (xp.clip(scores, -1.0, 1.0) + 1.0)
    index = xp.astype(xp.floor(unit * (choices - 1) + 0.5), xp.int64)
    # Bounded in case the actions were not checked: NaN must not read beyond the choices.
    return xp.clip(index, 0, choices - 1)


def nearest_of(choices: tuple[int, ...], scores: Array) -> Array:
    """Return the nearest of some numbers that are spread evenly over [-1, 1], int64."""
    index = nearest_choice(scores, len(choices))
    xp = namespace(index)
    found = xp.zeros_like(index)
    for place, value in enumerate(choices):
        found = xp.where(index == place, found + value, found)
    return found


def spread(places: Array, choices: int) -> FloatArray:
    """Return the entries for indices of choices that are spread evenly over [-1, 1]."""
    entries: FloatArray = 2.0 * places / max(choices - 1, 1) - 1.0
    return entries

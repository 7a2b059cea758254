"""Overrides of scenario fields by their dotted paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from collapipe_env.ground.errors import ScenarioError, nearest_name, shortened, shown
from collapipe_env.scenario.device_catalogue import BASE
from collapipe_env.scenario.inheritance import MODEL, giving_way, layered, merge
from collapipe_env.scenario.plain_data import MAX_DEPTH, dumped, plain_data, validated

PROCESSES = ["dynamics", "processes"]
"""Path of the one mapping whose names users choose; a new one is checked with its fields."""

T = TypeVar("T")


def overridden(scenario: T, overrides: Mapping[str, object]) -> T:
    """Return a copy of a scenario with some fields changed.

    Raises:
        ScenarioError: If a path does not exist or the result is not a valid scenario.
    """
    source = f"overrides of scenario {shown(getattr(scenario, 'name', ''))}"
    data = dumped(scenario)
    changes = plain_data(overrides, "overrides")
    keys = ("task", MODEL, "vocabulary")  # the outputs of a language model follow the last one
    bringing = {key: changes[f"workload.{key}"] for key in keys if f"workload.{key}" in changes}
    if isinstance(changes.get("workload"), dict):
        bringing |= changes["workload"]
    place = "budgets."
    budgets = {key[len(place) :]: item for key, item in changes.items() if key.startswith(place)}
    if isinstance(changes.get("budgets"), dict):
        budgets |= changes["budgets"]
    data = layered(giving_way(data, budgets), {"workload": bringing}, source)
    for dotted, value in changes.items():
        if dotted == "workload" and isinstance(value, dict):
            value = {key: item for key, item in value.items() if key != MODEL}
        if dotted != f"workload.{MODEL}":
            assign(data, dotted, value)
    return validated(type(scenario), data, source)


def assign(data: dict[str, Any], dotted: str, value: object) -> None:
    """Set one field of a complete scenario by its dotted path, in place; a mapping changes what it names."""
    steps = dotted.split(".")

    def fault(text: str) -> ScenarioError:
        return ScenarioError(f"override {shortened(dotted)!r}: {text}")

    if len(steps) > MAX_DEPTH:
        raise fault(f"{len(steps)} steps, but a scenario has at most {MAX_DEPTH}")
    above: Any = None
    current: Any = data
    for depth, step in enumerate(steps):
        place = ".".join(steps[:depth]) or "the scenario"
        key: int | str = step
        if isinstance(current, list):
            if not step.isdecimal() or len(step) > 9 or int(step) >= len(current):
                raise fault(
                    f"{shortened(step)!r} is not an index into {place}, which has {len(current)} entries (0 "
                    "is the first)"
                )
            key = int(step)
        elif not isinstance(current, dict):
            raise fault(f"{place} is {shown(current)}; override it as a whole")
        elif step not in current and steps[:-1] != PROCESSES:
            raise fault(f"there is no field {shortened(step)!r} here; {nearest_name(step, current)}")
        above, current = current, current[key] if isinstance(key, int) else current.get(key)
    # A device of the catalogue takes the place of a profile; it does not keep its fields.
    both = isinstance(value, dict) and isinstance(current, dict) and BASE not in value
    above[key] = merge(current, value) if both else value  # type: ignore[arg-type]

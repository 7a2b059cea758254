"""Idle fields: fields of processes that were set but have no effect with the values of the others."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from functools import lru_cache

from collapipe_env.ground.errors import ScenarioError, nearest_name, shown
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.process_registry import PROCESSES


class IdleFieldWarning(UserWarning):
    """A field of a process was set and has no effect."""


def idle_fields(scenario: Scenario) -> dict[str, str]:
    """Return the fields of a scenario's processes that are not at their defaults and have no effect.

    Returns:
        The condition for an effect, by the dotted path of each field with its value:
        ``{"dynamics.processes.mobility.roaming = 2": "it is used only with area: open"}``.
    """
    found = {}
    for name, spec in scenario.dynamics.processes:
        own = {field.name: field for field in dataclasses.fields(spec)}
        given = PROCESSES.get(name).idle_fields(spec)
        if not isinstance(given, Mapping) or not all(isinstance(text, str) for text in given.values()):
            raise ScenarioError(
                f"idle_fields of the process {name!r} returned {shown(given)}: return a dictionary "
                "of texts by field"
            )
        for field, reason in given.items():
            if field not in own:
                raise ScenarioError(
                    f"idle_fields of the process {name!r} names {shown(field)}: "
                    f"{nearest_name(str(field), own)}"
                )
            value = getattr(spec, field)
            made = own[field].default_factory
            if value != (own[field].default if made is dataclasses.MISSING else made()):
                found[f"dynamics.processes.{name}.{field} = {shown(value)}"] = reason
    return found


@lru_cache(maxsize=64)
def warn_of_idle_fields(scenario: Scenario) -> None:
    """Warn once for each scenario with fields that were set and have no effect.

    Warns:
        IdleFieldWarning: Names every such field, its value, and the condition for an effect.
    """
    found = [f"{place} has no effect: {reason}" for place, reason in idle_fields(scenario).items()]
    if found:
        text = "; ".join(found)
        warnings.warn(f"scenario {scenario.name!r}: {text}", IdleFieldWarning, stacklevel=4)

"""Idle fields: fields of the radio and of processes that were set, but not to an effect with the others."""

from __future__ import annotations

import warnings
from functools import lru_cache

from collapipe_env.ground.errors import shown
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.fields import conditions


class IdleFieldWarning(UserWarning):
    """A field was set and has no effect."""


def idle_fields(scenario: Scenario) -> dict[str, str]:
    """Return the fields of the radio and of processes that are not at their defaults and have no effect.

    Returns:
        The condition for an effect, by the dotted path of each field with its value:
        ``{"dynamics.processes.mobility.roaming = 2": "it is used only with area: open"}``.
    """
    found = {}
    processes = ((f"dynamics.processes.{name}", spec) for name, spec in scenario.dynamics.processes)
    for section, spec in (("radio", scenario.radio), *processes):
        for field, condition in conditions(type(spec)).items():
            value = getattr(spec, field)
            if value != spec.__pydantic_fields__[field].default and not condition.holds(spec):
                place = f"{section}.{field} = {shown(value)}"
                found[place] = f"it is used only {condition.words}"
    return found


@lru_cache(maxsize=64)
def warn_of_idle_fields(scenario: Scenario) -> None:
    """Warn once for each scenario with fields that were set and have no effect.

    Warns:
        IdleFieldWarning: Names every such field, its value, and the condition for an effect.
    """
    found = [f"{place} has no effect: {reason}" for place, reason in idle_fields(scenario).items()]
    warn_of(scenario, found, IdleFieldWarning)


def warn_of(scenario: Scenario, found: list[str], kind: type[UserWarning]) -> None:
    """Warn whoever builds an environment of what was found in its scenario, if anything was."""
    if found:
        warnings.warn(f"scenario {scenario.name!r}: {'; '.join(found)}", kind, stacklevel=6)

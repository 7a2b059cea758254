"""Scenarios on a command line: shipped ones, YAML files, and scenarios in a user's own Python files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collapipe_env.evaluation.own_code import blamed, import_own, is_reference
from collapipe_env.ground.errors import ScenarioError, shortened
from collapipe_env.ground.registry import Registry
from collapipe_env.scenario import Scenario, load_scenario

_FORMS = "a mapping of fields, a Scenario, or a function without arguments that returns one"
_SCENARIOS: Registry[Any] = Registry("scenario", use=f"is {_FORMS}")


def is_own_scenario(text: str) -> bool:
    """Whether a text names a scenario in a Python file or module."""
    return is_reference(text) and not text.endswith((".yaml", ".yml"))


def named_scenario(text: str) -> Scenario:
    """Return the scenario that a command line names.

    A Python file may also register the user's own processes and tasks that its scenario uses. A mapping
    without a ``name`` is named after its name in the file.

    Args:
        text: A shipped scenario, a YAML file, ``path/to/file.py:Name`` or ``package.module:Name``.

    Raises:
        ScenarioError: If there is no such scenario, the code cannot be imported or fails, or the named object
            is not a scenario.
    """
    if not is_own_scenario(text):
        return load_scenario(text)
    found = import_own(text, _SCENARIOS, called=False)
    with blamed(ScenarioError, f"scenario {shortened(text)!r} failed", f"name {_FORMS}"):
        given = found() if callable(found) else found
        if isinstance(given, Mapping):
            given = {"name": text.rpartition(":")[2], **given}  # mappings may be the user's code, too
    if isinstance(given, Mapping | Scenario | str | Path):
        return load_scenario(given)
    raise ScenarioError(
        f"scenario {shortened(text)!r} is an object of type {type(given).__name__}: name {_FORMS}"
    )

"""Scenarios from presets, YAML files, mappings and objects."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from collapipe_env.ground.errors import ScenarioError, nearest_name, shown
from collapipe_env.ground.files import json_digest
from collapipe_env.scenario.inheritance import layered
from collapipe_env.scenario.names import SCENARIOS, scenario_names
from collapipe_env.scenario.plain_data import dumped, parse, plain_data, scenario_text, validated
from collapipe_env.scenario.schema import Scenario

_OTHER_FORMS = " (or give FILE.yaml, on the command line also file.py:Name, in Python also a mapping)"
_ID = re.compile(r"CollaPipe\w*(-[\w-]+)?-v\d+")


def register_scenario(
    name: str,
    source: str | os.PathLike[str] | Mapping[str, Any] | Scenario,
    *,
    replace: bool = False,
) -> Scenario:
    """Register your own scenario under a name, for this process, to load it or to base others on it.

    Args:
        name: Lower-case letters, digits and underscores, at most 40, beginning with a letter.
        source: As for :func:`load_scenario`. It is read now; later changes of a file have no effect.
        replace: Whether to replace another scenario registered under this name.

    Returns:
        The scenario. Without a ``name`` of its own it takes this one.

    Raises:
        ScenarioError: If the name is taken or malformed, or the source is not a scenario.
    """
    scenario: Scenario = SCENARIOS.register(name, _named(source, name), replace=replace)
    return scenario


def load_scenario(source: str | os.PathLike[str] | Mapping[str, Any] | Scenario) -> Scenario:
    """Load and check a scenario.

    Args:
        source: A name (see ``scenario_names``), the path of a YAML file (``.yaml`` or ``.yml``), a
            mapping of sections, or a scenario, which is returned unchanged. Files and mappings may name a
            preset under ``base``; their fields then replace the preset's, section by section (lists are
            replaced whole). A ``workload.task`` other than the base's sets the fields that it needs, and
            ``workload.model`` those of a published model (``bert-base``, ``bert-small``,
            ``transformer-base``). ``devices.profiles`` may name devices of the catalogue (``orin-nano``,
            ``pi-5``). Omitted fields keep their defaults.

    Returns:
        The scenario. A file or mapping without a ``name`` is named after its file, or ``custom``.

    Raises:
        ScenarioError: With one line per fault: dotted path, offending value, allowed values.
    """
    if isinstance(source, Scenario):
        return source
    if isinstance(source, Mapping):
        return _build(plain_data(source, "scenario mapping"), "scenario mapping", "custom")
    # No scenario has a dot in its name; what has one is a file, whose ending is checked when it is read.
    if isinstance(source, os.PathLike) or (isinstance(source, str) and {".", "/", os.sep} & set(source)):
        path = Path(source)
        return scenario_from_text(scenario_text(path), f"scenario file {path}", path.stem)
    if isinstance(source, str):
        return _load_preset(source)
    raise ScenarioError(
        f"a scenario is the name of a shipped one, a path to a YAML file, a mapping or a Scenario, not "
        f"{type(source).__name__}: {shown(source)}; names: {', '.join(scenario_names())}"
    )


def scenario_digest(scenario: Scenario) -> str:
    """Return the SHA-256 of a scenario's contents, defaults included, in hexadecimal digits."""
    return json_digest(dumped(scenario))


def _load_preset(name: str) -> Scenario:
    known = _known_preset(name, "scenario", _OTHER_FORMS)
    return _preset(known) if (added := SCENARIOS.get(known)) is None else _named(added, known)


@cache
def _preset(name: str) -> Scenario:
    return _build(_preset_data(name), f"preset {name!r}", name)


def _named(source: Any, name: str) -> Scenario:
    """A scenario that is added under a name; it takes the name if it has none of its own."""
    scenario = load_scenario(source)
    unnamed = isinstance(source, Mapping) and "name" not in source
    return dataclasses.replace(scenario, name=name) if unnamed else scenario


def _known_preset(name: object, place: str, more: str = "") -> str:
    if isinstance(name, str) and name in scenario_names():
        return name
    if (of_id := _ID.fullmatch(str(name))) is not None:
        raise ScenarioError(
            f"{place}: {of_id[0]} is the id of an environment: give the name of its scenario, such as small "
            "for CollaPipeSurrogate-Small-v0, and medium where the id has none"
        )
    kind = "shipped or registered" if SCENARIOS.added() else "shipped"
    raise ScenarioError(
        f"{place}: there is no {kind} scenario {shown(name)}; {nearest_name(name, scenario_names())}{more}"
    )


@cache
def _preset_data(name: str) -> dict[str, Any]:
    file = resources.files("collapipe_env.scenario").joinpath("presets", f"{name}.yaml")
    return parse(file.read_text(encoding="utf-8"), f"preset {name!r}")


def scenario_from_text(text: str, source: str, name: str) -> Scenario:
    """Return the scenario that YAML text from a source describes; it has this name if the text has none.

    Raises:
        ScenarioError: If the text is not a scenario.
    """
    return _build(parse(text, source), source, name)


def _build(data: dict[str, Any], source: str, name: str) -> Scenario:
    """Merge the data with its base, name the result and check it."""
    merged = _with_base(data, source) | {"name": data.get("name", name)}
    return validated(Scenario, merged, source)


def _with_base(data: dict[str, Any], source: str) -> dict[str, Any]:
    rest = {key: value for key, value in data.items() if key != "base"}
    if "base" not in data:
        return layered({}, rest, source)
    name = _known_preset(data["base"], f"{source}: base")
    # A preset inherits from another preset only, and a registered scenario is complete: there is no cycle.
    base = _preset_data(name) if SCENARIOS.get(name) is None else _load_preset(name).to_dict()
    return layered(_with_base(base, f"preset {name!r}"), rest, source)

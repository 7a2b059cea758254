"""Scenarios from presets, YAML files, mappings and objects, and back to plain data."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from collapipe_env.ground.errors import LARGEST_BITS, ScenarioError, nearest_name, shortened, shown
from collapipe_env.ground.files import json_digest, read_regular
from collapipe_env.scenario.inheritance import MODEL, layered
from collapipe_env.scenario.names import SCENARIOS, scenario_names
from collapipe_env.scenario.overrides import MAX_DEPTH, assign
from collapipe_env.scenario.schema import Scenario
from collapipe_env.scenario.validation_errors import fault_text
from collapipe_env.scenario.yaml_places import line_of, open_brackets

YAML_SUFFIXES = (".yaml", ".yml")
MAX_BYTES = 1_000_000
"""Largest size of a scenario file [byte]."""
MAX_MARKS = 20_000
"""Largest number of lines, commas and opening brackets of a scenario file; parsing time grows with them."""
MAX_NODES = 100_000
"""Largest number of sections, lists and values of a mapping."""
MAX_BRACKETS = 100
"""Largest number of brackets open at once in a scenario file."""
_MARKS = "\n\r,[{"
_OTHER_FORMS = " (or give FILE.yaml, on the command line also file.py:Name, in Python also a mapping)"


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
            ``transformer-base``). Omitted fields keep their defaults.

    Returns:
        The scenario. A file or mapping without a ``name`` is named after its file, or ``custom``.

    Raises:
        ScenarioError: With one line per fault: dotted path, offending value, allowed values.
    """
    if isinstance(source, Scenario):
        return source
    if isinstance(source, Mapping):
        return _build(_plain(source, "scenario mapping"), "scenario mapping", "custom")
    if isinstance(source, os.PathLike) or (isinstance(source, str) and _looks_like_path(source)):
        path = Path(source)
        return scenario_from_text(scenario_text(path), f"scenario file {path}", path.stem)
    if isinstance(source, str):
        return _load_preset(source)
    raise ScenarioError(
        f"a scenario is the name of a shipped one, a path to a YAML file, a mapping or a Scenario, not "
        f"{type(source).__name__}: {shown(source)}; names: {', '.join(scenario_names())}"
    )


def scenario_to_dict(scenario: Scenario) -> dict[str, Any]:
    """Return plain mappings, lists, numbers, strings and ``None``; the inverse of ``load_scenario``.

    Args:
        scenario: Any scenario.
    """
    return _dumped(scenario)


def scenario_digest(scenario: Scenario) -> str:
    """Return the SHA-256 of a scenario's contents other than defaults, in hexadecimal digits."""
    return json_digest(_dumped(scenario, exclude_defaults=True))


def _dumped(scenario: Scenario, *, exclude_defaults: bool = False) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = _adapter().dump_python(
            scenario, mode="json", exclude_defaults=exclude_defaults
        )
    except PydanticSerializationError as error:
        # Pydantic wraps anything that the fields' serializers raise, even a Ctrl-C at that moment.
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise
    return plain


def scenario_to_yaml(scenario: Scenario) -> str:
    """Return a scenario as YAML text with every field."""
    return plain_yaml(scenario_to_dict(scenario))


def plain_yaml(data: Mapping[str, Any]) -> str:
    """Return plain data, such as sections of a scenario file, as YAML text in the same order."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment] # keep the fields' order
    text = io.StringIO()
    yaml.dump(dict(data), text)
    return text.getvalue()


def override_scenario(scenario: Scenario, overrides: Mapping[str, object]) -> Scenario:
    """Return a copy of a scenario with some fields changed.

    Args:
        scenario: Scenario to start from.
        overrides: New values by dotted path.

    Raises:
        ScenarioError: If a path does not exist or the result is not a valid scenario.
    """
    source = f"overrides of scenario {shown(scenario.name)}"
    data = scenario_to_dict(scenario)
    changes = _plain(overrides, "overrides")
    keys = ("task", MODEL, "vocabulary")  # the outputs of a language model follow the last one
    bringing = {key: changes[f"workload.{key}"] for key in keys if f"workload.{key}" in changes}
    if isinstance(changes.get("workload"), dict):
        bringing |= changes["workload"]
    data = layered(data, {"workload": bringing}, _task_fields(), source)
    for dotted, value in changes.items():
        if dotted == "workload" and isinstance(value, dict):
            value = {key: item for key, item in value.items() if key != MODEL}
        if dotted != f"workload.{MODEL}":
            assign(data, dotted, value)
    return _validate(data, source)


def _looks_like_path(text: str) -> bool:
    # No scenario has a dot in its name; what has one is a file, whose ending is checked when it is read.
    return "." in text or "/" in text or os.sep in text


def _load_preset(name: str) -> Scenario:
    known = _known_preset(name, "scenario", _OTHER_FORMS)
    return _preset(known) if (added := SCENARIOS.get(known)) is None else _named(added, known)


@cache
def _preset(name: str) -> Scenario:
    return _build(_preset_data(name), f"preset {name!r}", name)


def _named(source: Any, name: str) -> Scenario:
    """A scenario that is added under a name; it takes the name if it has none of its own."""
    scenario = load_scenario(source)
    if isinstance(source, Mapping) and "name" not in source:
        scenario = dataclasses.replace(scenario, name=name)
    return scenario


def _known_preset(name: object, place: str, more: str = "") -> str:
    if isinstance(name, str) and name in scenario_names():
        return name
    kind = "shipped or registered" if SCENARIOS.added() else "shipped"
    raise ScenarioError(
        f"{place}: there is no {kind} scenario {shown(name)}; {nearest_name(name, scenario_names())}{more}"
    )


@cache
def _task_fields() -> dict[str, dict[str, Any]]:
    """Fields that each task needs, by its name."""
    folder = resources.files("collapipe_env.scenario").joinpath("tasks")
    return {
        file.name.removesuffix(".yaml"): _parse(file.read_text(encoding="utf-8"), f"task file {file.name!r}")
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".yaml")
    }


def _base_data(name: str) -> dict[str, Any]:
    """Sections of a scenario that another scenario names as its base."""
    return _preset_data(name) if SCENARIOS.get(name) is None else scenario_to_dict(_load_preset(name))


@cache
def _preset_data(name: str) -> dict[str, Any]:
    text = (_preset_folder() / f"{name}.yaml").read_text(encoding="utf-8")
    return _parse(text, f"preset {name!r}")


def _preset_folder() -> Any:
    return resources.files("collapipe_env.scenario").joinpath("presets")


def scenario_text(path: Path) -> str:
    """Return the text of a scenario file.

    Raises:
        ScenarioError: If the file is not one of UTF-8 text that ends in ``.yaml`` or ``.yml``, or cannot be
            read.
    """
    source = f"scenario file {path}"
    if path.suffix not in YAML_SUFFIXES:
        raise ScenarioError(f"{source}: the name must end in .yaml or .yml, not in {path.suffix!r}")
    try:
        content = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise ScenarioError(f"{source}: cannot be read: {error.strerror}") from None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ScenarioError(f"{source}, line {line}: not UTF-8 text; save the file as UTF-8") from None


def scenario_from_text(text: str, source: str, name: str) -> Scenario:
    """Return the scenario that YAML text describes.

    Args:
        text: The text of a scenario file.
        source: Place of the text, for errors.
        name: Name of the scenario if the text has none.

    Raises:
        ScenarioError: If the text is not a scenario.
    """
    return _build(_parse(text, source), source, name)


def _parse(text: str, source: str) -> dict[str, Any]:
    """Parse YAML 1.2 safely: no tags, no duplicate keys, a mapping on top."""
    _require_quick(text, source)
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.Constructor = _Constructor
        data = yaml.load(text)
    except MarkedYAMLError as error:
        start = f" (begun in line {error.context_mark.line + 1})" if error.context_mark is not None else ""
        context = f"{error.context}{start}: " if error.context else ""
        raise ScenarioError(f"{source}{line_of(error)}: {_one_line(f'{context}{error.problem}')}") from None
    except YAMLError as error:
        position = getattr(error, "position", None)
        line = f", line {text[:position].count(chr(10)) + 1}" if isinstance(position, int) else ""
        raise ScenarioError(f"{source}{line}: {_one_line(str(error))}") from None
    # An impossible number or nesting, or a tag such as !!bool on another value.
    except (ValueError, RecursionError, KeyError) as error:
        raise ScenarioError(f"{source}: cannot be parsed as a scenario: {_one_line(str(error))}") from None
    if data is None:
        raise ScenarioError(f"{source}, line 1: the file is empty; a scenario is a mapping of sections")
    if not isinstance(data, Mapping):
        raise ScenarioError(
            f"{source}, line 1: a scenario is a mapping of sections such as 'radio:', "
            f"not a {type(data).__name__}"
        )
    return _plain(data, source)


class _Constructor(SafeConstructor):
    """YAML constructor whose error names the line of an integer with more digits than Python reads."""

    def construct_yaml_int(self, node: Any) -> int:
        try:
            return int(super().construct_yaml_int(node))
        except ValueError:
            if len(node.value) <= LARGEST_BITS:
                raise  # no integer at all
            problem = f"an integer of {len(node.value):,} characters is more than any field takes"
            raise ConstructorError(problem=problem, problem_mark=node.start_mark) from None


_Constructor.add_constructor("tag:yaml.org,2002:int", _Constructor.construct_yaml_int)


def _require_quick(text: str, source: str) -> None:
    """Refuse YAML that takes long to parse; the time also grows with the square of the nesting."""
    marks = sum(text.count(mark) for mark in _MARKS)
    if marks > MAX_MARKS:
        raise ScenarioError(
            f"{source}: {marks:,} lines, commas and brackets, above the limit of {MAX_MARKS:,}; is this a "
            "scenario?"
        )
    for position, depth in open_brackets(text):
        if depth > MAX_BRACKETS:
            line = text.count("\n", 0, position) + 1
            raise ScenarioError(
                f"{source}, line {line}: nested too deeply for a scenario: {depth} open brackets"
            )


def _one_line(text: str) -> str:
    return shortened(" ".join(text.split()))


def _plain(data: Mapping[Any, Any], source: str) -> dict[str, Any]:
    """Copy nested mappings and lists into dicts and lists; refuse anything that cannot be a scenario.

    The copy breaks shared references, so a file with recursive or exploding aliases must be stopped here.
    """
    left = MAX_NODES

    def copy_of(value: object, path: str, depth: int) -> Any:
        nonlocal left
        left -= 1
        if depth > MAX_DEPTH or left < 0:
            raise ScenarioError(
                f"{source}: {shortened(path) or 'the top level'}: nested too deeply or too large for a "
                f"scenario, which has at most {MAX_DEPTH} levels and {MAX_NODES:,} entries"
            )
        value = _plain_value(value)
        if isinstance(value, int) and value.bit_length() > LARGEST_BITS:
            raise ScenarioError(f"{source}: {shortened(path)}: {shown(value)} is more than any field takes")
        if isinstance(value, Mapping):
            for key in value:
                if not isinstance(key, str):
                    raise ScenarioError(
                        f"{source}: {shortened(path) or 'top level'}: field names are text, not {shown(key)}"
                    )
            return {key: copy_of(item, f"{path}.{key}".lstrip("."), depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [copy_of(item, f"{path}.{index}", depth + 1) for index, item in enumerate(value)]
        return value

    plain: dict[str, Any] = copy_of(data, "", 0)
    return plain


def _plain_value(value: object) -> object:
    """Turn a section object (such as a ``RadioSpec`` in a mapping) or a NumPy scalar into plain data."""
    if isinstance(value, np.generic):
        return value.item()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value


def _build(data: dict[str, Any], source: str, name: str) -> Scenario:
    """Merge the data with its base, name the result and check it."""
    merged = _with_base(data, source)
    merged["name"] = data.get("name", name)
    return _validate(merged, source)


def _with_base(data: dict[str, Any], source: str) -> dict[str, Any]:
    rest = {key: value for key, value in data.items() if key != "base"}
    if "base" not in data:
        return layered({}, rest, _task_fields(), source)
    name = _known_preset(data["base"], f"{source}: base")
    # A preset inherits from another preset only, and a registered scenario is complete: there is no cycle.
    return layered(_with_base(_base_data(name), f"preset {name!r}"), rest, _task_fields(), source)


def _validate(data: dict[str, Any], source: str) -> Scenario:
    try:
        return _adapter().validate_python(data)
    except ValidationError as error:
        raise ScenarioError(fault_text(error, Scenario, data, source)) from None


@cache
def _adapter() -> TypeAdapter[Scenario]:
    return TypeAdapter(Scenario)

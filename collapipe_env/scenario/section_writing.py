"""Write one section into a scenario file and leave everything else unchanged."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.ground.files import write_text
from collapipe_env.scenario.dssra_plus_section import NEUTRAL, DSSRAPlusSpec
from collapipe_env.scenario.loading import scenario_from_text
from collapipe_env.scenario.plain_data import scenario_text
from collapipe_env.scenario.schema import Scenario

SECTION = "dssra_plus"
_LINE_END = re.compile(r"[^\r\n]*(\r\n|\r|\n|$)")


def section_lines(scalars: Mapping[str, float], notes: Sequence[str]) -> list[str]:
    """Return the section ``dssra_plus`` of a scenario file, line by line, with comments above its scalars."""
    return [
        f"{SECTION}:",
        *(f"  # {note}" for note in notes),
        *(f"  {name}: {value!r}" for name, value in scalars.items()),
    ]


def with_section(text: str, lines: Sequence[str]) -> str:
    """Return a scenario file's text with other lines in place of its section ``dssra_plus``.

    The section reaches to the end of its last value's line; without one, the lines are added at the end. New
    lines end as most of the text's lines do; all other characters stay unchanged.
    """
    ending = "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"
    new = "".join(line + ending for line in lines)
    for key, value in YAML().compose(text).value:
        if key.value == SECTION:
            last = value
            while isinstance(last, MappingNode) and last.value and not last.flow_style:
                last = last.value[-1][1]
            end = _LINE_END.match(text, last.end_mark.index)
            assert end is not None
            return text[: key.start_mark.index] + new + text[end.end() :]
    text += "" if text.endswith(("\n", "\r")) else ending
    return text + (ending if text.splitlines()[-1].strip() else "") + new


def require_replaceable(path: Path, scenario: Scenario, names: Sequence[str]) -> None:
    """Refuse, before the search, a scenario file into which tuned scalars cannot be written.

    Raises:
        ScenarioError: As :func:`write_scalars`; also if the file's folder cannot be written to.
    """
    _text_with(path, scenario, {name: NEUTRAL[name] for name in names}, ())
    folder = path.resolve().parent
    if not os.access(folder, os.W_OK):
        raise ScenarioError(
            f"{path}: cannot be written, as its folder {folder} is not writable: leave out --write and copy "
            "the printed lines into it"
        )


def write_scalars(
    path: Path, scenario: Scenario, scalars: Mapping[str, float], notes: Sequence[str] = ()
) -> None:
    """Write tuned scalars into a scenario file, with comments above; everything else in it stays.

    Raises:
        ScenarioError: If the file cannot be read, describes another scenario, or holds the section in a form
            that cannot be replaced; the file then stays unchanged.
        DataError: If it cannot be written.
    """
    text = _text_with(path, scenario, scalars, notes)
    # Write to the target of a link, not over the link.
    write_text(path.resolve(), text)


def _text_with(path: Path, scenario: Scenario, scalars: Mapping[str, float], notes: Sequence[str]) -> str:
    """The file's text with new scalars, checked to read as the scenario with these scalars."""
    text, place = scenario_text(path), f"scenario file {path}"
    found = scenario_from_text(text, place, path.stem)
    if _with_scalars(found, {}) != _with_scalars(scenario, {}):
        raise ScenarioError(
            f"{path} is not the scenario {scenario.name!r} that is tuned: name its file, or tune this one "
            f"(collapipe scenario diff names the differences)"
        )
    text = with_section(text, section_lines(scalars, notes))
    try:
        fits = _with_scalars(scenario, scalars) == dataclasses.replace(
            scenario_from_text(text, place, path.stem), name=""
        )
    except ScenarioError:
        fits = False
    if not fits:
        raise ScenarioError(
            f"{path}: its section {SECTION} cannot be replaced: write the file in lines, with "
            f"'{SECTION}:' on one of its own, or leave out --write and copy the printed lines into it"
        )
    return text


def _with_scalars(scenario: Scenario, scalars: Mapping[str, float]) -> Scenario:
    return dataclasses.replace(scenario, name="", dssra_plus=DSSRAPlusSpec(**scalars))

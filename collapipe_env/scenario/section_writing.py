"""Write one section into a scenario file and leave everything else unchanged."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.ground.files import read_regular, write_text
from collapipe_env.scenario.loading import MAX_BYTES, YAML_SUFFIXES, scenario_from_text
from collapipe_env.scenario.schema import Scenario

SECTION = "dssra_plus"


def section_lines(scalars: Mapping[str, float], notes: Sequence[str]) -> list[str]:
    """Return the section ``dssra_plus`` of a scenario file, line by line.

    Args:
        scalars: Values by name.
        notes: Comments above them, one line each.
    """
    return [
        f"{SECTION}:",
        *(f"  # {note}" for note in notes),
        *(f"  {name}: {value!r}" for name, value in scalars.items()),
    ]


def with_section(text: str, lines: Sequence[str]) -> str:
    """Return a scenario file's text with other lines in place of its section ``dssra_plus``.

    The section reaches from its name to the next line that is not indented. If there is none, the lines are
    added at the end. New lines end as most of the text's lines do; all other bytes stay unchanged.

    Args:
        lines: The section's new lines, its name first.
    """
    ending = "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"
    # Unlike str.splitlines, this knows the line ends of YAML only.
    old = io.StringIO(text, newline="").readlines()
    new = [line + ending for line in lines]
    starts = [at for at, line in enumerate(old) if line.startswith(SECTION) and _names(line)]
    if not starts:
        if old and not old[-1].endswith(("\n", "\r")):
            old[-1] += ending
        gap = [ending] if old and old[-1].strip() else []
        return "".join([*old, *gap, *new])
    start = starts[0]
    end = start + 1
    while end < len(old) and (not old[end].strip() or old[end][0] in " \t"):
        end += 1
    while not old[end - 1].strip():  # blank lines belong to what follows
        end -= 1
    return "".join([*old[:start], *new, *old[end:]])


def _names(line: str) -> bool:
    return line[len(SECTION) :].lstrip().startswith(":")


def file_of(path: Path, scenario: Scenario) -> str:
    """Return the text of a scenario file that will receive new scalars.

    Args:
        scenario: The scenario that was tuned.

    Raises:
        ScenarioError: If the file cannot be read or describes another scenario, apart from its scalars.
    """
    if path.suffix not in YAML_SUFFIXES:
        raise ScenarioError(f"{path}: scalars are written into a scenario file, which ends in .yaml or .yml")
    try:
        text = read_regular(path, MAX_BYTES).decode("utf-8")
    except OSError as error:
        raise ScenarioError(
            f"{path}: cannot be read ({error.strerror}): name the file of the scenario that is tuned"
        ) from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: not UTF-8 text; save the file as UTF-8") from None
    found = scenario_from_text(text, f"scenario file {path}", path.stem)
    if _untuned(found) != _untuned(scenario):
        raise ScenarioError(
            f"{path} is not the scenario {scenario.name!r} that is tuned: name its file, or tune this one "
            f"(collapipe scenario diff names the differences)"
        )
    return text


def require_replaceable(path: Path, scenario: Scenario, names: Sequence[str]) -> None:
    """Refuse, before the search, a scenario file into which tuned scalars cannot be written.

    Args:
        scenario: The scenario to tune.
        names: Scalars that will be written.

    Raises:
        ScenarioError: As :func:`write_scalars`; also if the file's folder cannot be written to.
    """
    neutral = _neutral(scenario)
    _text_with(path, scenario, {name: neutral[name] for name in names}, ())
    folder = path.resolve().parent
    if not os.access(folder, os.W_OK):
        raise ScenarioError(
            f"{path}: cannot be written, as its folder {folder} is not writable: leave out --write and copy "
            "the printed lines into it"
        )


def write_scalars(
    path: Path, scenario: Scenario, scalars: Mapping[str, float], notes: Sequence[str] = ()
) -> None:
    """Write tuned scalars into a scenario file; everything else in it stays, including comments.

    Args:
        scenario: The scenario that was tuned.
        scalars: Values by name.
        notes: Comments above them, one line each.

    Raises:
        ScenarioError: If the file cannot be read, describes another scenario, or holds the section in a form
            that cannot be replaced line by line; the file then stays unchanged.
        DataError: If it cannot be written.
    """
    text = _text_with(path, scenario, scalars, notes)
    # Write to the target of a link, not over the link.
    write_text(path.resolve(), text)


def _text_with(path: Path, scenario: Scenario, scalars: Mapping[str, float], notes: Sequence[str]) -> str:
    """The file's text with new scalars, checked to read as the scenario with these scalars."""
    text = with_section(file_of(path, scenario), section_lines(scalars, notes))
    wanted = scenario.with_overrides({SECTION: {**_neutral(scenario), **scalars}})
    try:
        written = scenario_from_text(text, f"scenario file {path}", path.stem)
    except ScenarioError:
        written = None
    if written is None or dataclasses.replace(written, name=wanted.name) != wanted:
        raise ScenarioError(
            f"{path}: its section {SECTION} cannot be replaced line by line: write the file in lines, with "
            f"'{SECTION}:' on one of its own, or leave out --write and copy the printed lines into it"
        )
    return text


def _neutral(scenario: Scenario) -> dict[str, float]:
    return dataclasses.asdict(type(scenario.dssra_plus)())


def _untuned(scenario: Scenario) -> Scenario:
    return dataclasses.replace(scenario, name="untuned", dssra_plus=type(scenario.dssra_plus)())

"""The frozen anchors: delays of the even split and of DSSRA+ in every episode of a season's cells.

The file holds a checksum of itself. A frozen cell never changes within a season, so scores of different days
use the same two anchors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, Field, TypeAdapter, ValidationError

from collapipe_env.evaluation.leaderboard.season import FOLDER, Season, cell_of
from collapipe_env.ground.errors import DataError, ScenarioError, fault_line, fits_a_line
from collapipe_env.ground.files import json_digest, read_json, write_json
from collapipe_env.ground.version import __version__

FORMAT = "collapipe-env leaderboard anchors"
FORMAT_VERSION = 1
ZERO, HUNDRED = "pipeline", "dssra-plus"
"""Names of the schedulers whose scores are 0 (the even split) and 100 (DSSRA+)."""
TOLERANCE = 1e-9
"""Largest relative difference of a number on another machine."""


def _shown(text: str) -> str:
    """Text that may be shown: a line break or a control character would act on the terminal."""
    if not fits_a_line(text):
        raise ValueError("it holds line breaks or control characters")
    return text


Line = Annotated[str, AfterValidator(_shown)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Above0 = Annotated[float, Field(strict=True, gt=0.0, lt=1e15)]


@dataclass(frozen=True)
class CellAnchors:
    """Anchors of one cell.

    Attributes:
        scenario_digest: SHA-256 of the scenario that was played.
        zero: Mean round delay of the even split in each episode [s].
        hundred: Mean round delay of DSSRA+ in each episode [s].
        seeds: Seeds of the episodes.
        package_version: Version of the package that played them.
    """

    scenario_digest: Digest
    zero: Annotated[tuple[Above0, ...], Field(validation_alias=AliasChoices(ZERO, "zero"))]
    hundred: Annotated[tuple[Above0, ...], Field(validation_alias=AliasChoices(HUNDRED, "hundred"))]
    seeds: tuple[Annotated[int, Field(strict=True)], ...]
    package_version: Line = __version__


def anchors_path(season: Season) -> Path:
    """Return the path of the anchors that come with the package."""
    return FOLDER / f"season-{season.name}-anchors.json"


def read_anchors(path: Path, season: Season) -> dict[str, CellAnchors]:
    """Return the anchors of the cells that are frozen, by names of their scenarios.

    Args:
        path: The file; without one no cell is frozen.
        season: Required season of the file.

    Raises:
        DataError: If it is damaged, or of another season.
    """
    if not path.exists():
        return {}
    remedy = "install the package again"
    content = read_json(path, remedy)
    checksum = content.pop("checksum", None)
    if checksum != json_digest(content):
        raise DataError(f"{path} is damaged or was edited (its checksum differs): {remedy}")
    asked = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "season": season.name,
        "rounds": season.rounds,
    }
    for name, value in asked.items():
        if content.get(name) != value:
            raise DataError(f"{path}: {name} is {content.get(name)!r}, not {value!r}: {remedy}")
    cells = content.get("cells")
    if not isinstance(cells, dict):
        raise DataError(f"{path}: cells is not an object: {remedy}")
    return {
        name: _cell_anchors(name, entry, season, f"{path}: {name}", remedy) for name, entry in cells.items()
    }


def write_anchors(path: Path, season: Season, cells: Mapping[str, CellAnchors]) -> None:
    """Write anchors; the old file stays until the new one is complete.

    Args:
        season: Season of the anchors.
        cells: Anchors by names of scenarios.

    Raises:
        DataError: If it cannot be written.
    """
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "season": season.name,
        "rounds": season.rounds,
        "cells": {
            name: {
                "scenario_digest": cell.scenario_digest,
                "package_version": cell.package_version,
                "seeds": list(cell.seeds),
                ZERO: list(cell.zero),
                HUNDRED: list(cell.hundred),
            }
            for name, cell in cells.items()
        },
    }
    write_json(path, {**content, "checksum": json_digest(content)})


def with_frozen(before: Mapping[str, CellAnchors], name: str, new: CellAnchors) -> dict[str, CellAnchors]:
    """Return anchors with one more cell.

    Args:
        before: Anchors that are frozen.
        name: Name of the cell's scenario.

    Raises:
        ScenarioError: If the cell is frozen already, with other numbers.
    """
    old = before.get(name)
    if old is None:
        return {**before, name: new}
    require_digest(name, old, new.scenario_digest)
    for title, was, now in ((ZERO, old.zero, new.zero), (HUNDRED, old.hundred, new.hundred)):
        for episode, (first, second) in enumerate(zip(was, now, strict=True)):
            if not math.isclose(first, second, rel_tol=TOLERANCE, abs_tol=0.0):
                raise ScenarioError(
                    f"{name}: {title} was frozen with a mean delay of {first!r} s in episode {episode}, "
                    f"now it is {second!r} s: find out what changed, or begin a new season"
                )
    return dict(before)


def require_digest(name: str, anchors: CellAnchors, digest: str) -> None:
    """Refuse a scenario that is not the one whose anchors are frozen.

    Args:
        name: Name of the scenario.
        digest: SHA-256 of the scenario at hand.

    Raises:
        ScenarioError: Names both digests and the remedy.
    """
    if digest != anchors.scenario_digest:
        raise ScenarioError(
            f"scenario {name!r} has the digest {digest[:12]}..., but the leaderboard's anchors were frozen "
            f"for {anchors.scenario_digest[:12]}... (collapipe-env {anchors.package_version}): it was "
            "changed, so scores would not compare. Install that version, or begin a new season with "
            "collapipe leaderboard freeze"
        )


def _cell_anchors(name: str, entry: Any, season: Season, place: str, remedy: str) -> CellAnchors:
    cell = cell_of(name)
    if cell is None or not isinstance(entry, dict):
        raise DataError(f"{place} is not a cell of the leaderboard: {remedy}")
    try:
        found = _READER.validate_python(entry)
    except ValidationError as error:
        raise DataError(f"{place}: {fault_line(error.errors()[0])}: {remedy}") from None
    count = season.episodes[cell.size]
    for title, values in (("seeds", found.seeds), (ZERO, found.zero), (HUNDRED, found.hundred)):
        if len(values) != count:
            raise DataError(f"{place}: {title} has {len(values)} entries, not {count}: {remedy}")
    return found


_READER = TypeAdapter(CellAnchors)

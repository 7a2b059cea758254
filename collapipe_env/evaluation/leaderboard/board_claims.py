"""Submitted results compared with the season: its cells, its episodes and seeds, and its frozen anchors.

The comparison shows whether the results can belong to the season. Only a re-run shows whether they are true.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from collapipe_env.evaluation.leaderboard.anchor_files import (
    HUNDRED,
    TOLERANCE,
    ZERO,
    CellAnchors,
    require_digest,
)
from collapipe_env.evaluation.leaderboard.board_results import BoardResults, CellResults
from collapipe_env.evaluation.leaderboard.season import Cell, Season, cell_of
from collapipe_env.ground.errors import DataError, ScenarioError, shown

_REMEDY = "make them again with collapipe leaderboard run"


def require_of_season(
    place: Path, results: BoardResults, season: Season, anchors: Mapping[str, CellAnchors]
) -> None:
    """Refuse results that cannot belong to a season.

    Args:
        place: Path of the results, for the error.
        anchors: Frozen anchors of the season.

    Raises:
        DataError: If they have more rounds or episodes than the season, other seeds, another scenario than
            the one whose anchors are frozen, or anchors of their own that differ from the frozen ones.
    """
    for name, one in results.cells.items():
        cell = cell_of(name)
        assert cell is not None  # reading refuses other names
        fault = _fault(cell, one, season)
        frozen = anchors.get(name)
        if not fault and frozen is not None:
            try:
                require_digest(name, frozen, one.scenario_digest)
            except ScenarioError as error:
                raise DataError(f"{place}: {error}") from None
            fault = _anchor_fault(one, season, frozen)
        if fault:
            raise DataError(f"{place}: {name}: {fault}: {_REMEDY}")


def require_single(places: Sequence[Path], runs: Sequence[BoardResults]) -> None:
    """Refuse results that appear twice, even under different names.

    Args:
        places: Paths of the results, for the error.

    Raises:
        DataError: Names both places.
    """
    found: dict[tuple[str, str], Path] = {}
    for place, results in zip(places, runs, strict=True):
        row = (results.scheduler, results.submission_sha256)
        if row in found:
            raise DataError(
                f"{place}: {shown(results.name)} (scheduler {shown(results.scheduler)}) is in "
                f"{found[row]} already: name each row once, with all its cells in one folder"
            )
        found[row] = place


def _fault(cell: Cell, one: CellResults, season: Season) -> str:
    """Reason why a cell's results cannot belong to the season; empty if they can."""
    numbers = {episode.episode for episode in one.episodes}
    most = season.episodes[cell.size]
    if one.rounds > season.rounds:
        return f"{one.rounds} rounds, where the season has {season.rounds}"
    if len(numbers) > most:
        return f"{len(numbers)} episodes, where the season has {most}"
    if one.anchors is not None and len(one.anchors.zero) > most:
        return f"anchors of {len(one.anchors.zero)} episodes, where the season has {most}"
    for episode in one.episodes:
        if episode.seed != (seed := season.seeds[episode.episode]):
            return f"episode {episode.episode} has the seed {episode.seed}, not {seed}"
    return ""


def _anchor_fault(one: CellResults, season: Season, frozen: CellAnchors) -> str:
    """Difference of a run's own anchors from the frozen ones; those of shorter episodes may differ."""
    if one.anchors is None:
        return ""
    if one.anchors.scenario_digest != frozen.scenario_digest:
        return "its anchors belong to another scenario than the frozen ones"
    if one.rounds != season.rounds:
        return ""
    for title, own, known in (
        (ZERO, one.anchors.zero, frozen.zero),
        (HUNDRED, one.anchors.hundred, frozen.hundred),
    ):
        for episode, (mine, theirs) in enumerate(zip(own, known, strict=False)):
            if not math.isclose(mine, theirs, rel_tol=TOLERANCE, abs_tol=0.0):
                return f"anchor {title}, episode {episode}: {mine!r} s, where {theirs!r} s is frozen"
    return ""

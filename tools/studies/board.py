"""The leaderboard: the package's own schedulers on the public seeds, and the verified rows of submissions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from player import KEPT, sources

from collapipe_env.evaluation.leaderboard.board_row import CellResult, Row, play, read_row
from collapipe_env.evaluation.leaderboard.board_table import board_markdown
from collapipe_env.evaluation.leaderboard.season import CELLS, present_season
from collapipe_env.evaluation.leaderboard.submission import named_player
from collapipe_env.evaluation.pool import LocalExecutor
from collapipe_env.evaluation.run_directory import folder_name
from collapipe_env.ground.errors import CollaPipeError
from studies.suite import PROCESSES
from studies.suite import digest as digest

ROWS = Path(__file__).parents[2] / "benchmarks" / "leaderboard"
"""Folder of the rows that ``collapipe leaderboard verify --hidden --out`` wrote, by season."""


def study(entry: Mapping[str, Any], quick: bool) -> str:
    """Play what is not kept, and return the board.

    Args:
        entry: Names the ``schedulers``. A cell that one of them cannot play is left out of its row.
        quick: Whether to play least: an episode of two rounds of the first scheduler in the first cell.
    """
    season = present_season()
    rows = [own_row(name, quick) for name in entry["schedulers"][: 1 if quick else None]]
    found = sorted((ROWS / f"season-{season.name}").glob("*.json"))
    return board_markdown([*filter(None, rows), *(read_row(file, season) for file in found)])


def own_row(name: str, quick: bool) -> Row | None:
    """The row of a scheduler of the package; ``None`` if it can play no cell."""
    season, player, row = present_season(), named_player(name), None
    least = {"episodes": 1, "rounds": 2} if quick else {}
    cells: dict[str, CellResult] = {}
    folder = KEPT / ("quick" if quick else "board") / sources()[:8] / folder_name(name)
    for cell in list(CELLS.values())[: 1 if quick else None]:
        try:
            row = play(season, player, (cell,), folder, LocalExecutor(PROCESSES), **least)
        except CollaPipeError as error:
            print(f"{name} does not play {cell.scenario}: {error}", flush=True)
        else:
            cells |= row.cells
    return None if row is None else replace(row, cells=cells)

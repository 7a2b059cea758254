"""Folder of a run for the leaderboard, whose results grow cell by cell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from collapipe_env.evaluation.leaderboard.board_results import (
    BoardResults,
    CellResults,
    read_results,
)
from collapipe_env.evaluation.leaderboard.board_run import BoardPlan
from collapipe_env.evaluation.leaderboard.board_table import run_page
from collapipe_env.evaluation.leaderboard.result_folders import RESULTS, is_results
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.ground.errors import DataError
from collapipe_env.ground.files import write_text

IGNORED = "# Episodes, for going on: what is submitted is leaderboard.json.\nevaluation/\n.lock*\n"
"""Content of the folder's ``.gitignore``."""


def results_of(plan: BoardPlan, cells: dict[str, CellResults], command: str) -> BoardResults:
    """Return the results of cells that were played.

    Args:
        plan: The requested plan.
        cells: Results by names of scenarios.
        command: Command that played them.
    """
    scored = bool(cells) and all(
        plan.is_whole(cell) and plan.frozen(cell) is not None and not cells[cell.name].impossible
        for cell in plan.cells
    )
    return BoardResults(
        season=plan.season.name,
        scored=scored,
        name=plan.player.name,
        scheduler=plan.player.shown_scheduler,
        submission_sha256=plan.player.digest,
        about=plan.player.about,
        command=command,
        cells=cells,
    )


def added(run: RunDirectory, results: BoardResults) -> BoardResults:
    """Return results together with the cells of an earlier run in the same folder that are still valid.

    Cells of another submission are left out.

    Raises:
        DataError: If the existing results cannot be read.
    """
    file = run / "leaderboard.json"
    if not file.exists():
        return results
    before, intact = read_board(file)
    same = ("season", "name", "scheduler", "submission_sha256")
    if not intact or any(getattr(before, name) != getattr(results, name) for name in same):
        print(f"note: {file} belongs to another submission, or was edited: its other cells are left out")
        return results
    cells = {**before.cells, **results.cells}
    scored = results.scored and (before.scored or set(before.cells) <= set(results.cells))
    return replace(results, cells=cells, scored=scored)


def write_run(run: RunDirectory, results: BoardResults, plan: BoardPlan) -> None:
    """Write results and their table.

    Args:
        plan: The plan that was played.

    Raises:
        DataError: If a file cannot be written.
    """
    results.write(run / "leaderboard.json")
    write_text(run / "table.md", run_page(results, plan.season, plan.anchors).markdown())
    write_text(run.path / ".gitignore", IGNORED)


def read_board(path: Path) -> tuple[BoardResults, bool]:
    """Read results, given their file, their folder or the folder of a submission.

    Returns:
        The results, and whether their digest matches their numbers.

    Raises:
        DataError: If there are no results, or they are malformed.
    """
    return read_results(board_file(path))


def board_file(path: Path) -> Path:
    """Return the path of the results in a folder.

    Args:
        path: The file, the folder of a run, or that of a submission.

    Raises:
        DataError: If there are no results.
    """
    places = [path, path / "leaderboard.json", path / RESULTS / "leaderboard.json"]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        others = sorted(
            file.parent for file in path.glob("*/leaderboard.json") if is_results(file.parent.name)
        )
        remedy = f"name {others[0]}" if others else "make them with collapipe leaderboard run"
        raise DataError(
            f"{path}: there are no results (leaderboard.json), neither here nor in {RESULTS}/: {remedy}"
        )
    return found

"""Play rows of the leaderboard, freeze its anchors, and write the tables of ``docs/leaderboard.md``.

Run ``python tools/make_leaderboard.py``: cell by cell, small ones first, the anchors play before the others,
and are frozen; each row's results are a file in ``benchmarks/leaderboard``. Ctrl-C keeps finished episodes,
and the same command continues from there. Cells already in a row's file are left alone. ``--page`` plays
nothing and writes the tables of what is there; ``--cells`` and ``--schedulers`` choose.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from generated_parts import write_parts

from collapipe_env.evaluation.leaderboard.anchor_files import (
    HUNDRED,
    ZERO,
    anchors_path,
    read_anchors,
    with_frozen,
    write_anchors,
)
from collapipe_env.evaluation.leaderboard.board_folder import results_of
from collapipe_env.evaluation.leaderboard.board_results import BoardResults, read_results
from collapipe_env.evaluation.leaderboard.board_run import BoardPlan, play_cells
from collapipe_env.evaluation.leaderboard.board_table import board_markdown
from collapipe_env.evaluation.leaderboard.season import (
    BOARD_SIZES,
    BOARD_TIERS,
    STATIC,
    Cell,
    Season,
    cell_of,
    present_season,
)
from collapipe_env.evaluation.leaderboard.submission import named_player
from collapipe_env.evaluation.pool import LocalExecutor
from collapipe_env.schedulers import scheduler_names

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "leaderboard.md"
ROWS = ROOT / "benchmarks" / "leaderboard"
FIRST = (ZERO, HUNDRED, "dssra", "zoo:graph", "random")
"""Rows that are played first."""
LAST = ("adaptis", "pipar", "optpipe", "flexpipe")
"""Rows that take longest."""
NOT_ON_BOARD = ("dssra-truth", "dssra-target")
"""Schedulers that see what others do not, or aim at something other than the delay."""
EARLY = (Cell(STATIC, "small"), Cell("wild", "small"), Cell(STATIC, "medium"))
"""Cells that are played before all others."""


def schedulers() -> tuple[str, ...]:
    """Rows of the board, the cheap ones first."""
    others = [name for name in scheduler_names() if name not in (*FIRST, *LAST, *NOT_ON_BOARD)]
    return (*FIRST, *others, *LAST)


def cells() -> tuple[Cell, ...]:
    """All cells, in the order in which they are played."""
    every = [Cell(tier, size) for size in BOARD_SIZES for tier in BOARD_TIERS]
    return (*EARLY, *(cell for cell in every if cell not in EARLY))


def row_file(season: Season, name: str) -> Path:
    """File of the results of a row."""
    return ROWS / f"season-{season.name}" / f"{name.replace(':', '-')}.json"


def played(season: Season, name: str, cell: Cell) -> bool:
    """Whether a row's file has results of a cell with its present scenario."""
    file = row_file(season, name)
    if not file.exists():
        return False
    found = read_results(file)[0].cells.get(cell.name)
    return found is not None and found.scenario_digest == cell.digest(season.rounds)


def play(season: Season, name: str, cell: Cell, folder: Path, processes: int) -> None:
    """Play a row in a cell, freeze the cell's anchors if need be, and add the results to the row's file.

    Args:
        name: Name of the scheduler.
        folder: Folder of the episodes.
        processes: Episodes at once.
    """
    place = anchors_path(season)
    frozen = read_anchors(place, season)
    plan = BoardPlan(season, named_player(name), (cell,), folder, frozen)
    found = play_cells(plan, LocalExecutor(processes))[cell.name]
    if found.anchors is not None:
        frozen = with_frozen(frozen, cell.name, found.anchors)
        write_anchors(place, season, frozen)
        found, plan = replace(found, anchors=None), replace(plan, anchors=frozen)
    file = row_file(season, name)
    before = read_results(file)[0].cells if file.exists() else {}
    command = f"python tools/make_leaderboard.py --schedulers {name}"
    results_of(plan, {**before, cell.name: found}, command).write(file)


def rows(season: Season) -> list[BoardResults]:
    """Results of all rows that have a file."""
    return [read_results(file)[0] for file in sorted((ROWS / f"season-{season.name}").glob("*.json"))]


def write_page(season: Season) -> None:
    """Write the tables of the page."""
    found = rows(season)
    missing = [
        f"`{cell.name}`" for cell in cells() if not any(cell.name in results.cells for results in found)
    ]
    table = board_markdown(found, season, read_anchors(anchors_path(season), season))
    sizes = ", ".join(f"{size} {season.episodes[size]}" for size in BOARD_SIZES)
    caption = (
        f"`python tools/make_leaderboard.py` (season {season.name}, episodes of each cell: "
        f"{sizes}; {season.rounds} rounds, surrogate)"
    )
    there = {results.scheduler for results in found}
    absent = [f"`{name}`" for name in schedulers() if name not in there]
    if absent:
        caption += f". Rows not played yet: {', '.join(absent)}"
    if missing:
        caption += f". Cells not played yet: {', '.join(missing)}"
    write_parts(PAGE, {"board": f"{table}\n\n{caption}."})
    print(f"wrote {PAGE}")


def main() -> None:
    """Play what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "leaderboard")
    parser.add_argument("--cells", nargs="+", default=[cell.name for cell in cells()])
    parser.add_argument("--schedulers", nargs="+", default=schedulers())
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--page", action="store_true", help="play nothing; write the tables from existing results"
    )
    options = parser.parse_args()
    season = present_season()
    if not options.page:
        for name in options.cells:
            cell = cell_of(name)
            if cell is None:
                parser.error(f"--cells {name}: there are {', '.join(cell.name for cell in cells())}")
            for scheduler in options.schedulers:
                if not played(season, scheduler, cell):
                    play(season, scheduler, cell, options.folder / "evaluation", options.processes)
                    print(f"{cell.name}: {scheduler}", flush=True)
    write_page(season)


if __name__ == "__main__":
    main()

"""Keepers' part of the leaderboard: freeze anchors, and write the board of verified rows.

``python tools/make_leaderboard.py --freeze small medium-wild`` plays the anchors of cells and adds them to
the season's file. Without options it writes the rows in ``benchmarks/leaderboard/season-N`` (which
``collapipe leaderboard verify --hidden --out`` made) into ``docs/leaderboard.md``.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from generated_parts import write_parts

from collapipe_env.evaluation.leaderboard.board_row import play, read_row
from collapipe_env.evaluation.leaderboard.board_table import board_markdown
from collapipe_env.evaluation.leaderboard.season import CELLS, HUNDRED, Anchors, present_season
from collapipe_env.evaluation.leaderboard.submission import named_player
from collapipe_env.evaluation.pool import LocalExecutor

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Freeze the cells that are named, or write the board."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--freeze", nargs="+", choices=CELLS, default=[])
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    season = present_season()
    for name in options.freeze:
        with tempfile.TemporaryDirectory() as folder:
            executor = LocalExecutor(options.processes)
            row = play(season, named_player(HUNDRED), [CELLS[name]], Path(folder), executor)
        season.freeze(CELLS[name], Anchors(row.cells[name].zero, row.cells[name].hundred))
    if not options.freeze:
        files = sorted((ROOT / "benchmarks" / "leaderboard" / f"season-{season.name}").glob("*.json"))
        board = board_markdown([read_row(file, season) for file in files], season)
        write_parts(ROOT / "docs" / "leaderboard.md", {"board": board})


if __name__ == "__main__":
    main()

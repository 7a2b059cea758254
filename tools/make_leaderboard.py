"""Keepers' part of the leaderboard: write the board of verified rows into ``docs/suite.md``.

``collapipe leaderboard verify --hidden --out`` makes the rows in ``benchmarks/leaderboard/season-N``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from generated_parts import write_parts

from collapipe_env.evaluation.leaderboard.board_row import read_row
from collapipe_env.evaluation.leaderboard.board_table import board_markdown
from collapipe_env.evaluation.leaderboard.season import present_season

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Write the board."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    season = present_season()
    files = sorted((ROOT / "benchmarks" / "leaderboard" / f"season-{season.name}").glob("*.json"))
    board = board_markdown([read_row(file, season) for file in files])
    write_parts(ROOT / "docs" / "suite.md", {"board": board})


if __name__ == "__main__":
    main()

r"""Score a scheduler on the suite (even split: 0, bar: 100), or verify scores.

run plays the public episodes of a season and scores them; after Ctrl-C, the
same command goes on. verify plays them again in an empty folder and compares
every number, or plays a keeper's hidden episodes. The code of a submission
decides in a process of its own; verify runs it only with --trust-code.

Examples:
  collapipe leaderboard run --scheduler dssra --cells large-wild
  collapipe leaderboard run --agent runs/*/checkpoints/best.safetensors
  collapipe leaderboard run --scheduler dssra --episodes 2   # provisional
  collapipe leaderboard run --submission my_submission --out my_run
  collapipe leaderboard verify --submission my_submission --trust-code \
      --results my_run/leaderboard.json
"""

from __future__ import annotations

import contextlib
import getpass
import io
import os
import stat
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from collapipe_env.cli.common import opened, print_pages, run_folder
from collapipe_env.cli.early_end import Call
from collapipe_env.cli.option_types import Count, ExecutorOptions, Folder, Fresh, Processes, Within, about
from collapipe_env.ground.errors import DataError, ScenarioError, SchedulerError
from collapipe_env.ground.files import write_text

if TYPE_CHECKING:
    from collapipe_env.envs.suite import SuiteEntry
    from collapipe_env.evaluation.leaderboard.season import Season
    from collapipe_env.evaluation.leaderboard.submission import Player


QUICK = ("small",)
"""Default cells of a named scheduler."""

CELLS_HELP = "small, large-stale, medium-thermal, large-churn, large-wild, xlarge-wild, medium-target."
Names = tuple[str, ...] | None


@dataclass(frozen=True)
class Playing(ExecutorOptions):
    """Player and cells, and the place where the episodes are played."""

    scheduler: Annotated[str | None, about("NAME", "none")] = None
    """Scheduler to score: one of the package, an agent of collapipe zoo, or file.py:Name."""
    agent: Annotated[tuple[Path, ...], about("FILE ...", "none")] = ()
    """Saved agent, instead of --scheduler; several are the training runs of one row."""
    submission: Annotated[Path | None, about("FOLDER", "none")] = None
    """Folder of a submission, instead of --scheduler."""
    cells: Annotated[Names, about("NAME ...", "the submission's, or small", CELLS_HELP)] = None
    processes: Processes = None

    def player(self) -> Player:
        """Return the player; nothing of a submission is executed."""
        from collapipe_env.evaluation.leaderboard.submission import (
            named_player,
            read_submission,
            trained_player,
        )

        if sum((self.scheduler is not None, bool(self.agent), self.submission is not None)) != 1:
            raise ScenarioError("give one of --scheduler NAME, --agent FILE and --submission FOLDER")
        if self.submission is not None:
            return read_submission(self.submission)
        return trained_player(self.agent) if self.scheduler is None else named_player(self.scheduler)

    def chosen(self, player: Player) -> tuple[SuiteEntry, ...]:
        """Return the cells to play, each of which saved agents fit."""
        from collapipe_env.evaluation.agent_runs import require_runs
        from collapipe_env.evaluation.leaderboard.season import chosen_cells
        from collapipe_env.scenario import load_scenario

        named = None if self.cells is None else chosen_cells(self.cells)
        for cell in named or ():
            if player.cells and cell not in player.cells:
                raise ScenarioError(
                    f"--cells {cell.scenario}: submission.json does not name it: add it there, or leave the "
                    "option out"
                )
        cells = named or player.cells or chosen_cells(QUICK)
        for cell in cells:
            require_runs("--agent" if self.agent else "weights", player.agents, load_scenario(cell.scenario))
        return cells


@dataclass(frozen=True)
class Run:
    """Play public episodes of the season and score them."""

    episodes: Annotated[Count, about(default="the id's")] = None
    """Episodes per cell; with fewer than the id's the score is not comparable with the board."""
    rounds: Annotated[Count, about(default="the id's")] = None
    """Most rounds per episode; with fewer than the id's the score is not comparable with the board."""
    out: Annotated[Folder, about(default="runs/leaderboard-<name>")] = None
    fresh: Fresh = False
    playing: tyro.conf.OmitArgPrefixes[Playing] = field(default_factory=Playing)

    def run(self, call: Call) -> None:
        """Play, write and print."""
        from collapipe_env.evaluation.leaderboard.board_row import own_rounds, play
        from collapipe_env.evaluation.leaderboard.board_table import row_page
        from collapipe_env.evaluation.leaderboard.season import present_season

        executor = self.playing.build(self.playing.processes)
        season, player = present_season(), self.playing.player()
        cells = self.playing.chosen(player)
        Within(1, max(cell.episodes for cell in cells)).require("--episodes", self.episodes)
        Within(1, max(map(own_rounds, cells))).require("--rounds", self.rounds)
        run = run_folder(self.out, "leaderboard", player.name)
        asked = {"kind": "leaderboard", "season": season.name, "scheduler": player.scheduler}
        with opened(run, call, {**asked, "submission_sha256": player.digest}, fresh=self.fresh):
            print(_playing(player, cells, season, executor.where))
            row = play(season, player, cells, run / "evaluation", executor, None, self.episodes, self.rounds)
            row.write(run / "leaderboard.json")
            page = row_page(row)
            write_text(run / "table.md", page.markdown())
        print_pages(page)
        print(f"results: {run / 'leaderboard.json'}")


@dataclass(frozen=True)
class Verify:
    """Play results again in an empty folder, or the hidden episodes."""

    results: Annotated[Path | None, about("FILE", "none")] = None
    """The leaderboard.json whose every number is compared."""
    hidden: bool = False
    """For keepers: ask for the season's salt, and score the episodes whose seeds follow from it."""
    trust_code: bool = False
    """Run the scheduler.py of a submission, in a process of its own but with your rights: read it first."""
    out: Annotated[Path | None, about("FILE", "none")] = None
    """File for the row of the hidden episodes."""
    playing: tyro.conf.OmitArgPrefixes[Playing] = field(default_factory=Playing)

    def run(self, _: Call) -> None:
        """Play, compare, and print.

        Raises:
            DataError: If anything differs.
        """
        from collapipe_env.evaluation.leaderboard.board_row import differences, play, read_row
        from collapipe_env.evaluation.leaderboard.board_table import row_page
        from collapipe_env.evaluation.leaderboard.season import CELLS, present_season
        from collapipe_env.evaluation.scheduler_loading import own_factory

        named = self.playing.scheduler
        if named is not None and own_factory(named) is not None:  # and nothing of it was run
            raise SchedulerError(f"{named} is code of your own: make a submission of it")
        executor = self.playing.build(self.playing.processes)
        season, player = present_season(), self.playing.player()
        if (self.results is None) == (not self.hidden):
            raise ScenarioError("give one of --results FILE, to play it again, and --hidden")
        if player.runs_code and not self.trust_code:
            raise SchedulerError(
                f"{self.playing.submission}/scheduler.py is code, which verify would run with all your "
                "rights: read it, use a container without network, and add --trust-code"
            )
        claimed = None if self.results is None else read_row(self.results, season)
        salt = _salt() if self.hidden else None
        cells, episodes, rounds = self.playing.chosen(player), None, None
        if claimed is not None:
            cells = tuple(CELLS[name] for name in claimed.cells)
            episodes = max(len(cell.zero) for cell in claimed.cells.values())
            if not all(map(claimed.is_whole, claimed.cells)):
                rounds = max(cell.rounds for cell in claimed.cells.values())
        print(_playing(player, cells, season, executor.where))
        with tempfile.TemporaryDirectory(prefix="collapipe-") as folder:
            row = play(season, player, cells, Path(folder), executor, salt, episodes, rounds)
        faults = [] if claimed is None else list(differences(claimed, row))
        for fault in faults[:20]:
            print(fault)
        if faults:
            raise DataError(f"{self.results} is not verified: differences from the re-run: {len(faults)}")
        print_pages(row_page(row))
        print(f"verified: {', '.join(row.cells)}")
        if self.out is not None:
            row.write(self.out)


def _salt() -> str:
    """The keepers' salt, which stands in no file and no command line that played code could read.

    Raises:
        ScenarioError: If standard input is a file.
    """
    if sys.stdin.isatty():
        return getpass.getpass("salt of the season: ")
    with contextlib.suppress(io.UnsupportedOperation):  # no file at all
        if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
            raise ScenarioError("standard input is a file, which code could read: give the salt by a pipe")
    return sys.stdin.readline().strip()


def _playing(player: Player, cells: tuple[SuiteEntry, ...], season: Season, where: str) -> str:
    names = ", ".join(cell.scenario for cell in cells)
    return f"playing {player.name} on {names}: season {season.name}, {where}"


Options = Run | Verify


def run(options: Options, call: Call) -> None:
    """Do what the subcommand says."""
    options.run(call)

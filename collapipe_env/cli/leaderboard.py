"""``collapipe leaderboard``: play for it, verify results, print its tables, freeze its anchors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

from collapipe_env.cli.common import command, opened
from collapipe_env.cli.early_end import Call
from collapipe_env.cli.executor_options import ExecutorOptions
from collapipe_env.cli.option_types import PROCESSES, Count, Folder, Fresh, Within, about
from collapipe_env.evaluation.labels import counted
from collapipe_env.evaluation.run_directory import RunDirectory, folder_name
from collapipe_env.ground.errors import DataError, ScenarioError

if TYPE_CHECKING:
    from collapipe_env.evaluation.executor import Executor
    from collapipe_env.evaluation.leaderboard.board_run import BoardPlan
    from collapipe_env.evaluation.leaderboard.submission import Player

DESCRIPTION = """Score a scheduler (the even split is 0, DSSRA+ is 100), or verify scores.

run plays the episodes of a season and scores them; verify plays them again
and compares every number; table prints tables of several runs; freeze plays
the anchors of a season. After Ctrl-C, finished episodes are kept and the same
command resumes there. A scheduler.py is code: run executes your own, verify
needs --trust-code.

Examples:
  collapipe leaderboard run --scheduler dssra --tier wild --size small
  collapipe leaderboard run --scheduler dssra --episodes 2   # provisional
  collapipe leaderboard run --submission my_submission
  collapipe leaderboard verify my_submission
"""
QUICK_TIER, QUICK_SIZE = ("wild",), ("small",)
"""Default cells of a named scheduler."""

Names = tuple[str, ...] | None
Tiers = Annotated[
    Names, about("NAME ...", text="Tiers: static, migration, channel, thermal, mobile, churn, wild.")
]
Sizes = Annotated[Names, about("NAME ...", text="Sizes: small, medium, large.")]


@dataclass(frozen=True)
class Playing(ExecutorOptions):
    """Place where episodes are played: this machine or Ray."""

    processes: Annotated[Count, PROCESSES, about(default="2, or 1 on a single core")] = None
    """Number of episodes played at once."""
    fresh: Fresh = False

    def engine(self) -> Executor:
        """Return the executor of the episodes."""
        return self.build(self.processes)


How = tyro.conf.OmitArgPrefixes[Playing]


@dataclass(frozen=True)
class Run:
    """Play episodes of the season and score them."""

    scheduler: Annotated[str | None, about("NAME", "none")] = None
    """Scheduler to score: one of the package, an agent of collapipe zoo, or file.py:Name."""
    submission: Annotated[Path | None, about("FOLDER", "none")] = None
    """Folder of a submission, instead of --scheduler."""
    tier: Annotated[Tiers, about(default="the submission's, or wild")] = None
    size: Annotated[Sizes, about(default="the submission's, or small")] = None
    episodes: Annotated[Count, about(default="the season's")] = None
    """Episodes per cell; with fewer than the season's the score is not comparable with the board."""
    rounds: Annotated[Count, about(default="the season's")] = None
    """Rounds per episode; with fewer than the season's the score is not comparable with the board."""
    out: Annotated[
        Folder, about(default="results in the submission's folder, or runs/leaderboard-<scheduler>")
    ] = None
    """Folder for episodes, results and table."""
    where: How = field(default_factory=Playing)

    def run(self, call: Call) -> None:
        """Play, write and print."""
        from collapipe_env.evaluation.leaderboard.result_folders import RESULTS, require_apart, short_suffix
        from collapipe_env.evaluation.leaderboard.submission import named_player, read_submission

        if (self.scheduler is None) == (self.submission is None):
            raise ScenarioError("give one of --scheduler NAME and --submission FOLDER")
        if self.submission is not None:
            player = read_submission(self.submission)
            default = self.submission / RESULTS
            require_apart(self.out, self.submission)
        else:
            player = named_player(self.scheduler or "")
            default = Path("runs") / f"leaderboard-{folder_name(player.scheduler)}"
        default = default.with_name(default.name + short_suffix(self.episodes, self.rounds))
        run = RunDirectory(self.out or default)
        plan = _plan(self, player, run)
        if player.runs_code:
            print(f"note: this runs the code of {self.submission}")
        _play(plan, run, self.where, call)


@dataclass(frozen=True)
class Verify:
    """Play the episodes of a result again and compare every number."""

    folder: Annotated[tyro.conf.Positional[Path], about("FOLDER")]
    """A submission or the folder of a run, with leaderboard.json."""
    trust_code: bool = False
    """Run the submission's scheduler.py with your own rights; do so only in a container."""
    tier: Annotated[Tiers, about(default="all of the results")] = None
    size: Annotated[Sizes, about(default="all of the results")] = None
    episodes: Annotated[Count, about(default="all of the results")] = None
    """Verify only this many first episodes of each cell."""
    out: Annotated[Folder, about(default="runs/leaderboard-verify-<name>")] = None
    """Folder for the repeated episodes."""
    where: How = field(default_factory=Playing)

    def run(self, call: Call) -> None:
        """Play again, compare, and print the differences.

        Raises:
            DataError: If anything differs.
        """
        from collapipe_env.evaluation.leaderboard.rerun import Rerun

        self.where.check()
        rerun = Rerun.of(self.folder, self.trust_code, self.tier, self.size, self.episodes)
        run = RunDirectory(self.out or Path("runs") / f"leaderboard-verify-{folder_name(rerun.claimed.name)}")
        asked = {"kind": "leaderboard", "verified": rerun.claimed.scheduler}
        if rerun.player.digest:
            asked["submission_sha256"] = rerun.player.digest
        with opened(run, call, asked, fresh=self.where.fresh):
            faults = rerun.faults(run / "evaluation", self.where.engine())
        for note in rerun.notes:
            print(f"note: {note}")
        for fault in faults[:20]:
            print(fault)
        if len(faults) > 20:
            print(f"... and {len(faults) - 20} more")
        if faults:
            raise DataError(
                f"{self.folder}: {counted(len(faults), 'difference')} from the re-run: it is not verified"
            )
        print(f"verified: {rerun.verdict}")


@dataclass(frozen=True)
class Table:
    """Print the tables of several runs."""

    folders: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        about("RUN ...", text="Submissions or folders of runs, with leaderboard.json."),
        tyro.conf.arg(help_behavior_hint="(required)"),
    ]

    def run(self, call: Call) -> None:
        """Print the tables."""
        del call
        from collapipe_env.evaluation.leaderboard.anchor_files import anchors_path, read_anchors
        from collapipe_env.evaluation.leaderboard.board_claims import require_of_season, require_single
        from collapipe_env.evaluation.leaderboard.board_folder import read_board
        from collapipe_env.evaluation.leaderboard.board_table import board_markdown
        from collapipe_env.evaluation.leaderboard.season import present_season

        if not self.folders:
            raise ScenarioError("name at least one folder with leaderboard.json")
        season = present_season()
        frozen = read_anchors(anchors_path(season), season)
        runs = []
        for folder in self.folders:
            results, intact = read_board(folder)
            if not intact or results.season != season.name:
                why = f"of season {results.season}" if intact else "edited by hand"
                raise DataError(
                    f"{folder}: its results are {why}, not as collapipe leaderboard run wrote them for "
                    f"season {season.name}: leave it out, or run it again"
                )
            require_of_season(folder, results, season, frozen)
            runs.append(results)
        require_single(self.folders, runs)
        print(board_markdown(runs, season, frozen))


@dataclass(frozen=True)
class Freeze:
    """For those who run a season: play both anchors and add them to its file."""

    tier: Annotated[Tiers, about(default="all")] = None
    size: Annotated[Sizes, about(default="all")] = None
    out: Annotated[Folder, about(default="runs/leaderboard-anchors")] = None
    """Folder for the episodes."""
    where: How = field(default_factory=Playing)

    def run(self, call: Call) -> None:
        """Play the anchors cell by cell, and add each to the file."""
        from collapipe_env.evaluation.leaderboard.anchor_files import (
            HUNDRED,
            anchors_path,
            read_anchors,
            with_frozen,
            write_anchors,
        )
        from collapipe_env.evaluation.leaderboard.board_run import BoardPlan, play_cells
        from collapipe_env.evaluation.leaderboard.season import (
            BOARD_SIZES,
            BOARD_TIERS,
            chosen_cells,
            present_season,
        )
        from collapipe_env.evaluation.leaderboard.submission import named_player

        self.where.check()
        season = present_season()
        file = anchors_path(season)
        run = RunDirectory(self.out or Path("runs") / "leaderboard-anchors")
        asked = {"kind": "leaderboard", "season": season.name, "anchors": True}
        with opened(run, call, asked, fresh=self.where.fresh):
            executor = self.where.engine()
            for cell in chosen_cells(self.tier or BOARD_TIERS, self.size or BOARD_SIZES):
                before = read_anchors(file, season)
                plan = BoardPlan(season, named_player(HUNDRED), (cell,), run / "evaluation")
                new = play_cells(plan, executor)[cell.name].anchors
                assert new is not None  # no frozen ones were given
                write_anchors(file, season, with_frozen(before, cell.name, new))
                print(f"{cell.name}: {'as frozen before' if cell.name in before else 'frozen'}")
        print(f"anchors: {file}")


def _plan(options: Run, player: Player, run: RunDirectory) -> BoardPlan:
    """The plan of a run."""
    from collapipe_env.evaluation.leaderboard.anchor_files import anchors_path, read_anchors
    from collapipe_env.evaluation.leaderboard.board_run import BoardPlan
    from collapipe_env.evaluation.leaderboard.season import chosen_cells, present_season

    season = present_season()
    Within(1, max(season.episodes.values())).require("--episodes", options.episodes)
    Within(1, season.rounds).require("--rounds", options.rounds)
    options.where.check()
    tiers, sizes = options.tier, options.size
    if player.cells:
        every = player.cells
        tiers = tuple(dict.fromkeys(cell.tier for cell in every)) if tiers is None else tiers
        sizes = tuple(dict.fromkeys(cell.size for cell in every)) if sizes is None else sizes
        cells = chosen_cells(tiers, sizes)
        for cell in cells:
            if cell not in every:
                raise ScenarioError(
                    f"--tier {cell.tier} --size {cell.size}: submission.yaml does not name it: add it "
                    "there, or leave the options out"
                )
    else:
        cells = chosen_cells(tiers or QUICK_TIER, sizes or QUICK_SIZE)
    return BoardPlan(
        season=season,
        player=player,
        cells=cells,
        folder=run / "evaluation",
        anchors=read_anchors(anchors_path(season), season),
        episodes=options.episodes,
        rounds=options.rounds,
    )


def _play(plan: BoardPlan, run: RunDirectory, how: Playing, call: Call) -> None:
    from collapipe_env.evaluation.leaderboard.board_folder import added, results_of, write_run
    from collapipe_env.evaluation.leaderboard.board_run import play_cells
    from collapipe_env.evaluation.leaderboard.board_table import run_page

    asked = {
        "kind": "leaderboard",
        "season": plan.season.name,
        "scheduler": plan.player.shown_scheduler,
        "rounds": plan.length,
        **({"submission_sha256": plan.player.digest} if plan.player.digest else {}),
    }
    with opened(run, call, asked, fresh=how.fresh):
        executor = how.engine()
        print(
            f"playing {plan.player.name} on {', '.join(cell.name for cell in plan.cells)}: season "
            f"{plan.season.name}, {plan.length} rounds, {executor.where}"
        )
        results = results_of(plan, play_cells(plan, executor), str(call))
        page = run_page(results, plan.season, plan.anchors)
        write_run(run, added(run, results), plan)
    page.print(Console(highlight=False))
    print(f"\nresults: {run / 'leaderboard.json'}")


Options = Run | Verify | Table | Freeze


main = command(Options, lambda asked, call: asked.run(call), DESCRIPTION)

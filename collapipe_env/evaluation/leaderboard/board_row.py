"""A row of the leaderboard: the episodes of a player, played, written, read, and compared with a re-run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from collapipe_env.envs.suite import ZERO, SuiteEntry
from collapipe_env.evaluation.declared_sight import is_marked, title_of
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.executor import Executor
from collapipe_env.evaluation.leaderboard.season import CELLS, Anchors, Season, measured_anchors
from collapipe_env.evaluation.leaderboard.submission import CODE, FACTORY, Line, Player, Title
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.resampling import Floats
from collapipe_env.evaluation.run_directory import folder_name
from collapipe_env.evaluation.runner import evaluate_all
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.evaluation.suite_plays import episode_return, made_from, plan_of
from collapipe_env.ground.errors import DataError, SchedulerError, fault_line
from collapipe_env.ground.files import read_json, without_nan, write_json
from collapipe_env.ground.version import __version__
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import LEARNED, scheduler_names

FORMAT = "collapipe-env leaderboard row 3"
TOLERANCE = 1e-9
"""Largest relative difference of a number on another machine."""

Whole = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
From0 = Annotated[float, Field(strict=True, ge=0.0, lt=1e15)]
Number = Annotated[float, Field(strict=True, gt=-1e15, lt=1e15)]


@dataclass(frozen=True)
class EpisodeFigures:
    """Figures of one episode; every one must be the same in a re-run.

    Attributes:
        run: Training run of a learned scheduler, from 0.
        episode: Number of the episode, from 0.
        total_reward: Return of the episode.
        worst_energy_ratio: Largest time-average energy over budget of any node or the server.
        backlog_slope: Growth of the largest energy queue over the last half [budgets a round]; 0 for fewer
            than three rounds.
        energy_j: Energy of all nodes in all rounds [J].
        server_blocks: Most encoder blocks of a cluster that the edge server ran.
    """

    run: Whole
    episode: Whole
    total_reward: Number
    worst_energy_ratio: From0
    backlog_slope: Number
    energy_j: From0
    server_blocks: Whole


@dataclass(frozen=True)
class CellResult:
    """A player's episodes in one cell, and the anchors' in the same episodes.

    Attributes:
        made_from: Digest of the scenario that was played, and of the bar's scalars.
        rounds: Most rounds of an episode; fewer where it ended at a target loss.
        episodes: Figures, run by run and in order.
        zero: Return of the even split in each episode.
        hundred: Return of the bar in each episode.
        decision_s: Median wall-clock time of a decision [s]; the only number that a re-run may change.
    """

    made_from: Line
    rounds: Annotated[int, Field(strict=True, ge=1)]
    episodes: tuple[EpisodeFigures, ...]
    zero: tuple[Number, ...]
    hundred: tuple[Number, ...]
    decision_s: From0

    def matrix(self, name: str) -> Floats:
        """One figure of each training run and episode, (R, E)."""
        values = np.array([getattr(episode, name) for episode in self.episodes], dtype=np.float64)
        return values.reshape(-1, len(self.zero))


@dataclass(frozen=True)
class Row:
    """Results of a player.

    Attributes:
        season: Name of the season.
        hidden: Whether the episodes have the season's hidden seeds.
        name: Title of the player.
        scheduler: Name from which it was built.
        submission_sha256: Digest of the submission's files; empty for a scheduler given by name.
        version: Version of the package that played.
        cells: Results by names of cells.
    """

    season: Line
    hidden: bool
    name: Title
    scheduler: Line
    submission_sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
    version: Line
    cells: dict[str, CellResult]

    def write(self, path: Path) -> None:
        """Write the row.

        Raises:
            DataError: If it cannot be written.
        """
        write_json(path, without_nan({"format": FORMAT, **asdict(self)}))

    def is_whole(self, name: str) -> bool:
        """Whether a cell was played in all its episodes and rounds, so that its score counts."""
        played, cell = self.cells[name], CELLS[name]
        return played.rounds == own_rounds(cell) and len(played.zero) == cell.episodes


_READER = TypeAdapter(Row)


def own_rounds(cell: SuiteEntry) -> int:
    """Rounds of an episode of a cell."""
    return load_scenario(cell.scenario).dynamics.rounds


def read_row(path: Path, season: Season) -> Row:
    """Read a row that ``collapipe leaderboard`` wrote.

    Raises:
        DataError: If it is missing, malformed or of another season.
    """
    remedy = "make it again with collapipe leaderboard"
    content = read_json(path, remedy)
    if content.pop("format", None) != FORMAT:
        raise DataError(f"{path} does not say format = {FORMAT!r}: {remedy}")
    try:
        row = _READER.validate_python(content)
    except ValidationError as error:
        raise DataError(f"{path}: {fault_line(error.errors()[0])}: {remedy}") from None
    if row.season != season.name or not row.cells:
        raise DataError(f"{path} has no results of season {season.name}: {remedy}")
    for name, cell in row.cells.items():
        count = len(cell.zero)
        whole = range(len(cell.episodes) // max(count, 1)), range(count)
        expected = [(run, episode) for run in whole[0] for episode in whole[1]]
        if name not in CELLS or not expected or len(cell.hundred) != count:
            raise DataError(f"{path}: {name}: no cell of the season with episodes and anchors: {remedy}")
        if [(episode.run, episode.episode) for episode in cell.episodes] != expected:
            raise DataError(f"{path}: {name}: episodes are missing, or appear twice: {remedy}")
    return row


def play(
    season: Season,
    player: Player,
    cells: Sequence[SuiteEntry],
    folder: Path,
    executor: Executor,
    salt: str | None = None,
    episodes: int | None = None,
    rounds: int | None = None,
) -> Row:
    """Play a player's episodes, and the anchors' where the suite's do not serve.

    Args:
        folder: Folder of finished episodes, which are not played again.
        executor: Plays the episodes.
        salt: The keepers' salt, for the hidden seeds; by default the seeds are the public ones.
        episodes: Most episodes of a cell; its own by default.
        rounds: Most rounds of an episode; the cell's own by default.

    Raises:
        CollaPipeError: If the player cannot play a cell, sees the true system, or a file cannot be read or
            written. A cell that is refused is a row that is refused.
        KeyboardInterrupt: If the user interrupts; finished episodes are kept.
    """
    seeds = {cell: season.seeds(cell, salt)[:episodes] for cell in cells}

    def plan(cell: SuiteEntry, names: tuple[str, ...], **options: Any) -> EvaluationPlan:
        place = folder / folder_name(cell.scenario)
        return plan_of(cell, place, names, seeds=seeds[cell], rounds=rounds, **options)

    name = player.scheduler
    if name in scheduler_names():  # of other code only its plays tell
        scenarios = [load_scenario(cell.scenario) for cell in cells]
        _refuse_oracles(player, [title_of(make_scheduler(name, each), each) for each in scenarios])
    own = {cell: plan(cell, (name,), agents=player.agents, blind=player.blind) for cell in cells}
    anchors = {
        cell: measured_anchors(cell) if salt is None and each.rounds == own_rounds(cell) else None
        for cell, each in own.items()
    }
    along = [
        plan(cell, tuple(anchor for anchor in dict.fromkeys((ZERO, cell.bar)) if anchor != name))
        for cell in cells
        if anchors[cell] is None
    ]
    # The anchors play afterwards: their decisions and delays must not lie there while the player decides.
    outcomes = evaluate_all(list(own.values()), executor)
    played = {cell: outcome.results[name] for cell, outcome in zip(cells, outcomes, strict=True)}
    _refuse_oracles(player, [result.title for results in played.values() for result in results])
    anchored = iter(evaluate_all(along, executor))
    found = {}
    for cell, results in played.items():
        known = anchors[cell]
        if known is None:
            both = {**next(anchored).results, name: results}
            known = Anchors(*(tuple(map(episode_return, both[anchor])) for anchor in (ZERO, cell.bar)))
        count = len(seeds[cell])
        found[cell.scenario] = CellResult(
            made_from=made_from(cell),
            rounds=own[cell].rounds,
            episodes=tuple(map(_figures, results)),
            zero=known.zero[:count],
            hundred=known.hundred[:count],
            decision_s=float(np.median(np.concatenate([result.decision_s for result in results]))),
        )
    return Row(
        season=season.name,
        hidden=salt is not None,
        name=next(iter(played.values()))[0].title if player.name == LEARNED else player.name,
        scheduler=f"{CODE}:{FACTORY}" if player.runs_code else player.scheduler,
        submission_sha256=player.digest,
        version=__version__,
        cells=found,
    )


def _refuse_oracles(player: Player, titles: Sequence[str]) -> None:
    if any(map(is_marked, titles)):
        raise SchedulerError(
            f"{player.name} sees the true system, which no real scheduler knows: the leaderboard is for "
            "schedulers that decide from known information; play it with collapipe compare"
        )


def _figures(result: EpisodeResult) -> EpisodeFigures:
    slope = result.backlog_slope
    return EpisodeFigures(
        run=result.run,
        episode=result.episode,
        total_reward=episode_return(result),
        worst_energy_ratio=result.worst_energy_ratio,
        backlog_slope=0.0 if math.isnan(slope) else slope,
        energy_j=float(np.sum(result.energy_j)),
        server_blocks=result.server_blocks,
    )


def differences(claimed: Row, again: Row) -> Iterator[str]:
    """Yield every number of a claimed row that a re-run did not reproduce, in words.

    Args:
        again: The re-run, of the same cells.
    """
    for entry in ("season", "hidden", "name", "scheduler", "submission_sha256"):
        if getattr(claimed, entry) != getattr(again, entry):
            yield f"{entry} is {getattr(claimed, entry)!r} in the results, {getattr(again, entry)!r} in fact"
    for name, found in again.cells.items():
        before = claimed.cells[name]
        pairs: list[tuple[str, object, object]] = [
            ("made_from", before.made_from, found.made_from),
            ("rounds", before.rounds, found.rounds),
            ("number of episodes", len(before.episodes), len(found.episodes)),
        ]
        for anchor in ("zero", "hundred"):
            both = zip(getattr(before, anchor), getattr(found, anchor), strict=False)
            pairs += [(f"{anchor}, episode {place}", *pair) for place, pair in enumerate(both)]
        for ours, theirs in zip(before.episodes, found.episodes, strict=False):
            pairs += [
                (f"{figure}, run {ours.run}, episode {ours.episode}", value, getattr(theirs, figure))
                for figure, value in asdict(ours).items()
            ]
        for place, one, other in pairs:
            close = (
                isinstance(one, float)
                and isinstance(other, float)
                and math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-12)
            )
            if one != other and not close:
                yield f"{name}, {place}: {one!r} in the results, {other!r} in the re-run"

"""Episodes of a run for the leaderboard: schedulers and their cells, and anchors where none are frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from collapipe_env.evaluation.columns import mean_delay
from collapipe_env.evaluation.declared_sight import sees_truth
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.executor import Executor
from collapipe_env.evaluation.leaderboard.anchor_files import HUNDRED, ZERO, CellAnchors, require_digest
from collapipe_env.evaluation.leaderboard.board_results import CellResults, figures_of, machine_fingerprint
from collapipe_env.evaluation.leaderboard.season import Cell, Season
from collapipe_env.evaluation.leaderboard.submission import Player
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.run_directory import folder_name
from collapipe_env.evaluation.runner import Outcome, evaluate_all
from collapipe_env.evaluation.scheduler_loading import load_scheduler
from collapipe_env.ground.errors import CollaPipeError, SchedulerError
from collapipe_env.schedulers import StateScheduler

LEARNER = "surrogate"
"""Learner of all episodes; delays and energies equal those of real training."""


@dataclass(frozen=True)
class BoardPlan:
    """Episodes to play for the leaderboard.

    Attributes:
        season: The season.
        player: The player.
        cells: Cells that are played.
        folder: Folder of finished episodes, with one folder for each cell.
        anchors: Frozen anchors by names of scenarios.
        episodes: Episodes of each cell; the season's by default.
        rounds: Rounds of an episode; the season's by default.
    """

    season: Season
    player: Player
    cells: Sequence[Cell]
    folder: Path
    anchors: Mapping[str, CellAnchors] = field(default_factory=dict)
    episodes: int | None = None
    rounds: int | None = None

    @property
    def length(self) -> int:
        """Rounds of an episode."""
        return self.season.rounds if self.rounds is None else min(self.rounds, self.season.rounds)

    def count(self, cell: Cell) -> int:
        """Episodes of a cell."""
        most = self.season.episodes[cell.size]
        return most if self.episodes is None else min(self.episodes, most)

    def is_whole(self, cell: Cell) -> bool:
        """Whether a cell is played as the season says, so that its score counts."""
        return self.length == self.season.rounds and self.count(cell) == self.season.episodes[cell.size]

    def frozen(self, cell: Cell) -> CellAnchors | None:
        """Frozen anchors of a cell's episodes; ``None`` where there are none for episodes of this length."""
        found = self.anchors.get(cell.name)
        if found is None or self.length != self.season.rounds:
            return None
        count = self.count(cell)
        return replace(found, zero=found.zero[:count], hundred=found.hundred[:count])

    def evaluation(self, cell: Cell, schedulers: tuple[str, ...], player: Player | None) -> EvaluationPlan:
        """The plan of a cell's episodes.

        Args:
            schedulers: Names of the schedulers that play.
            player: The player, if it is among them.
        """
        seeds = self.season.seeds[: self.count(cell)]
        usual = tuple(HELD_OUT_SEED + index for index in range(len(seeds)))
        return EvaluationPlan(
            scenario=cell.scenario(self.season.rounds),
            schedulers=schedulers,
            agents=() if player is None else player.agents_of(cell),
            episodes=self.count(cell),
            rounds=self.length,
            learner=LEARNER,
            folder=self.folder / folder_name(cell.name),
            seeds=() if seeds == usual else seeds,
            blind=player is not None and player.blind,
        )


def play_cells(plan: BoardPlan, executor: Executor, *, anchoring: bool = True) -> dict[str, CellResults]:
    """Play the cells' episodes that are not finished yet.

    Args:
        plan: The plan to play.
        executor: Plays the episodes.
        anchoring: Whether the anchors play along where none are frozen.

    Returns:
        Results by names of scenarios.

    Raises:
        CollaPipeError: If a scenario is not the one whose anchors are frozen, the player may not play for the
            leaderboard, or a file cannot be read or written.
        KeyboardInterrupt: If the user interrupts; finished episodes are kept.
    """
    digests = {cell.name: cell.digest(plan.season.rounds) for cell in plan.cells}
    for cell in plan.cells:
        frozen = plan.anchors.get(cell.name)
        if frozen is not None:
            require_digest(cell.name, frozen, digests[cell.name])
        _require_fair(plan)
    name = plan.player.scheduler
    own = [plan.evaluation(cell, (name,), plan.player) for cell in plan.cells]
    unfrozen = [cell for cell in plan.cells if anchoring and plan.frozen(cell) is None]
    beside = tuple(anchor for anchor in (ZERO, HUNDRED) if anchor != name)
    along = [plan.evaluation(cell, beside, None) for cell in unfrozen]
    outcomes = evaluate_all([*along, *own], executor, tolerant=True)
    anchored = dict(zip([cell.name for cell in unfrozen], outcomes, strict=False))
    found = {}
    for cell, outcome in zip(plan.cells, outcomes[len(along) :], strict=True):
        anchors = None
        if cell.name in anchored:
            both = {**anchored[cell.name].results, **outcome.results}
            anchors = _anchors(plan, cell, digests[cell.name], both)
        found[cell.name] = _results(plan, digests[cell.name], outcome, anchors)
    return found


def _require_fair(plan: BoardPlan) -> None:
    """Refuse a player that sees more than its track allows, as far as this is known before it plays."""
    player = plan.player
    for cell in plan.cells:
        agents = player.agents_of(cell)
        try:
            scheduler = load_scheduler(
                player.scheduler, cell.scenario(plan.season.rounds), agents[0] if agents else None
            )
        except CollaPipeError:
            continue  # it cannot play there; the cell's results will say so
        if sees_truth(scheduler):
            raise SchedulerError(
                f"{player.name} sees the true system, which no real scheduler knows: the leaderboard is for "
                "schedulers that decide from known information; play it with collapipe compare"
            )
        if player.blind and isinstance(scheduler, StateScheduler):
            raise SchedulerError(
                f"{player.name} decides from the state: use the track model-based, or decide from the "
                "observation"
            )
        return


def _anchors(
    plan: BoardPlan, cell: Cell, digest: str, results: Mapping[str, Sequence[EpisodeResult]]
) -> CellAnchors:
    """Anchors that were played."""
    delays = {
        name: tuple(mean_delay(result) for result in sorted(results[name], key=lambda r: r.episode))
        for name in (ZERO, HUNDRED)
    }
    return CellAnchors(digest, delays[ZERO], delays[HUNDRED], plan.season.seeds[: plan.count(cell)])


def _results(plan: BoardPlan, digest: str, outcome: Outcome, anchors: CellAnchors | None) -> CellResults:
    name = plan.player.scheduler
    if name in outcome.impossible:
        return CellResults(
            digest,
            plan.length,
            (),
            machine_fingerprint(),
            anchors=anchors,
            impossible=outcome.impossible[name],
        )
    episodes = outcome.results[name]
    decisions = np.concatenate([episode.decision_s for episode in episodes])
    return CellResults(
        scenario_digest=digest,
        rounds=plan.length,
        episodes=tuple(figures_of(e, plan.season.seeds[e.episode]) for e in episodes),
        machine=machine_fingerprint(),
        decision_median_s=float(np.median(decisions)),
        decision_p99_s=float(np.percentile(decisions, 99)),
        anchors=anchors,
    )

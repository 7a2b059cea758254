"""Results for the leaderboard, played again from the submission or the scheduler that they name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collapipe_env.evaluation.executor import Executor
from collapipe_env.evaluation.labels import counted
from collapipe_env.evaluation.leaderboard.anchor_files import anchors_path, read_anchors
from collapipe_env.evaluation.leaderboard.board_claims import require_of_season
from collapipe_env.evaluation.leaderboard.board_folder import read_board
from collapipe_env.evaluation.leaderboard.board_results import BoardResults, CellResults, machine_fingerprint
from collapipe_env.evaluation.leaderboard.board_run import BoardPlan, play_cells
from collapipe_env.evaluation.leaderboard.season import (
    Cell,
    Season,
    cell_of,
    present_season,
)
from collapipe_env.evaluation.leaderboard.submission import (
    FILE,
    Player,
    is_own,
    named_player,
    read_submission,
    require_trust,
)
from collapipe_env.evaluation.leaderboard.verification import differences, differing_entries
from collapipe_env.ground.errors import DataError, SchedulerError, shown


@dataclass(frozen=True)
class Rerun:
    """Everything that a verification needs.

    Attributes:
        claimed: The results.
        intact: Whether their digest matches their numbers.
        player: The player.
        season: Their season.
        cells: Cells that are verified.
        episodes: Largest number of episodes of each cell; all by default.
        other: Names of the fingerprint's entries in which the results' machines differ from this one.
    """

    claimed: BoardResults
    intact: bool
    player: Player
    season: Season
    cells: tuple[Cell, ...]
    episodes: int | None
    other: tuple[str, ...]

    @classmethod
    def of(
        cls,
        folder: Path,
        trusted: bool,
        tiers: Sequence[str] | None = None,
        sizes: Sequence[str] | None = None,
        episodes: int | None = None,
    ) -> Rerun:
        """Read the results to verify; nothing is executed yet.

        Args:
            folder: A submission, or the folder of a run.
            trusted: Whether code of a submission may run.
            tiers: Tiers to verify; all of the results by default.
            sizes: Sizes to verify; all of the results by default.
            episodes: Largest number of episodes of each cell.

        Raises:
            CollaPipeError: If something is missing or malformed, or the user has not agreed to run code.
        """
        claimed, intact = read_board(folder)
        season = present_season()
        if claimed.season != season.name:
            raise DataError(
                f"{folder}: its results come from season {claimed.season}, but this version plays season "
                f"{season.name}: install the version that made them"
            )
        require_of_season(folder, claimed, season, read_anchors(anchors_path(season), season))
        player = _player(folder, claimed)
        require_trust(player, trusted, folder)
        if player.digest != claimed.submission_sha256:
            raise DataError(
                f"{folder}: the submission was changed after its results were made: run collapipe "
                "leaderboard run again"
            )
        known = [cell for name in claimed.cells if (cell := cell_of(name)) is not None]
        for option, names, there in (
            ("--tier", tiers, {cell.tier: None for cell in known}),
            ("--size", sizes, {cell.size: None for cell in known}),
        ):
            for name in names or ():
                if name not in there:
                    raise DataError(
                        f"{option} {shown(name)}: the results of {folder} have none of it: they have "
                        f"{', '.join(there)}"
                    )
        cells = tuple(
            cell
            for cell in known
            if (tiers is None or cell.tier in tiers) and (sizes is None or cell.size in sizes)
        )
        if not cells:
            raise DataError(f"{folder}: its results have none of the requested cells: name others, or none")
        if episodes is not None and episodes < 1:
            raise DataError(f"--episodes = {episodes}: use a number from 1 on")
        here = machine_fingerprint()
        other = dict.fromkeys(
            name for c in cells for name in differing_entries(claimed.cells[c.name].machine, here)
        )
        return cls(claimed, intact, player, season, cells, episodes, tuple(other))

    def faults(self, folder: Path, executor: Executor) -> list[str]:
        """Play again, and return all differences in words.

        Args:
            folder: Folder of the re-run's finished episodes.
            executor: Plays the episodes.
        """
        found = (
            []
            if self.intact
            else ["the digest of the results does not match their numbers: they were edited"]
        )
        found += self._wrong_names()
        here = machine_fingerprint()
        for cell in self.cells:
            claimed = self.claimed.cells[cell.name]
            exact = not differing_entries(claimed.machine, here)
            again = self._played(cell, claimed, folder, executor)
            found += map(str, differences(cell.name, claimed, again, exact=exact, episodes=self.episodes))
        return found

    def _wrong_names(self) -> list[str]:
        """Names in the results that differ from the player's, in words."""
        return [
            f"{what} is {shown(claimed)} in the results, {shown(own)} in fact"
            for what, claimed, own in (
                ("name", self.claimed.name, self.player.name),
                ("scheduler", self.claimed.scheduler, self.player.shown_scheduler),
            )
            if claimed != own
        ]

    def _played(self, cell: Cell, claimed: CellResults, folder: Path, executor: Executor) -> CellResults:
        count = len({episode.episode for episode in claimed.episodes}) or self.season.episodes[cell.size]
        plan = BoardPlan(
            season=self.season,
            player=self.player,
            cells=(cell,),
            folder=folder,
            episodes=count if self.episodes is None else min(count, self.episodes),
            rounds=claimed.rounds,
        )
        return play_cells(plan, executor, anchoring=False)[cell.name]

    @property
    def notes(self) -> list[str]:
        """Remarks on how strictly numbers were compared."""
        if not self.other:
            return []
        return [
            f"another machine or other versions ({', '.join(self.other)} differ): numbers are compared "
            "to 1e-9"
        ]

    @property
    def verdict(self) -> str:
        """The extent of the agreement, in words."""
        most = max(len(one.episodes) for one in self.claimed.cells.values())
        part = (
            "all episodes"
            if self.episodes is None or self.episodes >= most
            else f"the first {counted(self.episodes, 'episode')}"
        )
        how = "bit by bit"
        if self.other:
            how = (
                "to 1e-9; the digests of rounds were not compared, because the machine or versions differ "
                f"({', '.join(self.other)})"
            )
        return f"{part} of {', '.join(cell.name for cell in self.cells)} agree {how}"


def _player(folder: Path, claimed: BoardResults) -> Player:
    """The player of the results: a submission's folder, or a scheduler that they name."""
    if (folder / FILE).exists():
        return read_submission(folder)
    if claimed.submission_sha256:  # the folder, or the file, of a run inside the submission's folder
        inside = folder.resolve()
        around = next((above for above in list(inside.parents)[:2] if (above / FILE).exists()), folder)
        return read_submission(around)
    if is_own(claimed.scheduler):
        raise SchedulerError(
            f"{folder}: the results come from code that they name ({claimed.scheduler}), which is never run "
            "from a file: make a submission of it"
        )
    return named_player(claimed.scheduler)

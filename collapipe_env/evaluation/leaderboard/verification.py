"""Verification of results: the same episodes are played again, and every number is compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from collapipe_env.evaluation.leaderboard.anchor_files import TOLERANCE
from collapipe_env.evaluation.leaderboard.board_results import FIGURES, CellResults, EpisodeFigures

LEAST = 1e-12
"""Smaller differences count only on the same machine: slopes of constant queues are noise."""


@dataclass(frozen=True)
class Difference:
    """A number that a re-run did not reproduce.

    Attributes:
        cell: Name of the scenario.
        place: The episode in words; empty for the whole cell.
        figure: Name of the number.
        claimed: The claimed value.
        found: The value of the re-run.
    """

    cell: str
    place: str
    figure: str
    claimed: object
    found: object

    def __str__(self) -> str:
        where = f"{self.cell}, {self.place}" if self.place else self.cell
        return f"{where}: {self.figure} is {self.claimed!r} in the results, {self.found!r} in the re-run"


def differing_entries(claimed: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Names of the entries in which the fingerprints of two machines differ; empty for the same machine.

    Args:
        claimed: Fingerprint of the machine of the results.
        here: Fingerprint of this machine.
    """
    return [name for name in (*here, *claimed.keys() - here.keys()) if claimed.get(name) != here.get(name)]


def differences(
    name: str, claimed: CellResults, found: CellResults, *, exact: bool, episodes: int | None = None
) -> Iterator[Difference]:
    """Yield every number of a cell that differs, and every episode that only one side has.

    Args:
        name: Name of its scenario.
        claimed: Results that are verified.
        found: Results of the re-run, for all episodes or the first few.
        exact: Whether numbers must agree bit for bit, as on the same machine; otherwise to 1e-9.
        episodes: Number of first episodes that were played again; ``None`` for all, in which case any further
            claimed episode is a difference.
    """
    for figure in ("scenario_digest", "rounds"):
        ours, theirs = getattr(claimed, figure), getattr(found, figure)
        if ours != theirs:
            yield Difference(name, "", figure, ours, theirs)
    if bool(claimed.impossible) != bool(found.impossible):
        yield Difference(name, "", "impossible", claimed.impossible, found.impossible)
        return  # its episodes are all missing on one side
    by_place = {(before.run, before.episode): before for before in claimed.episodes}
    played = {(again.run, again.episode) for again in found.episodes}
    for place, before in by_place.items():
        if place not in played and (episodes is None or before.episode < episodes):
            yield Difference(name, before.place, "episode", "there", "not played")
    for again in found.episodes:
        there = by_place.get((again.run, again.episode))
        if there is None:
            yield Difference(name, again.place, "episode", "missing", "played")
        else:
            yield from _episode_differences(name, there, again, exact=exact)


def _episode_differences(
    name: str, before: EpisodeFigures, again: EpisodeFigures, *, exact: bool
) -> Iterator[Difference]:
    if before.seed != again.seed:
        yield Difference(name, again.place, "seed", before.seed, again.seed)
    for figure in FIGURES:
        ours, theirs = getattr(before, figure), getattr(again, figure)
        if not _agree(ours, theirs, exact):
            yield Difference(name, again.place, figure, ours, theirs)
    if exact and before.rounds_sha256 != again.rounds_sha256:
        yield Difference(name, again.place, "rounds_sha256", before.rounds_sha256, again.rounds_sha256)


def _agree(ours: float, theirs: float, exact: bool) -> bool:
    if math.isnan(ours) or math.isnan(theirs):
        return math.isnan(ours) and math.isnan(theirs)
    return ours == theirs if exact else math.isclose(ours, theirs, rel_tol=TOLERANCE, abs_tol=LEAST)

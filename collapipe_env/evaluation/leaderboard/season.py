"""A season of the leaderboard: its cells, the seeds of their episodes, and the anchors."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from collapipe_env.envs.suite import SUITE, ZERO, SuiteEntry
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.suite_plays import made_from
from collapipe_env.ground.errors import ScenarioError, nearest_name

CELLS = {entry.scenario: entry for entry in SUITE if entry.learner == "surrogate"}
"""Cells by name, easiest first: the suite's ids but the one with real training, whose losses differ in their
last digits between machines, so that nobody could verify them."""


@dataclass(frozen=True)
class Anchors:
    """Returns of the anchors in the episodes of a cell.

    Attributes:
        zero: Of the even split.
        hundred: Of the cell's bar.
    """

    zero: tuple[float, ...]
    hundred: tuple[float, ...]


@dataclass(frozen=True)
class Season:
    """Protocol of a season.

    Attributes:
        name: Its name.
        salt_sha256: SHA-256 of the keepers' secret salt, in hexadecimal digits, from which the hidden seeds
            follow; empty as long as none is published.
    """

    name: str
    salt_sha256: str = ""

    def seeds(self, cell: SuiteEntry, salt: str | None = None) -> tuple[int, ...]:
        """Seeds of a cell's episodes: the public ones, or the hidden ones of a salt, below 2^62.

        Args:
            salt: The keepers' salt.

        Raises:
            ScenarioError: If the season did not publish the salt's digest.
        """
        if salt is None:
            return tuple(range(HELD_OUT_SEED, HELD_OUT_SEED + cell.episodes))
        found = hashlib.sha256(salt.encode()).hexdigest()
        if found != self.salt_sha256:
            published = f"the one with {self.salt_sha256[:12]}..." if self.salt_sha256 else "none yet"
            raise ScenarioError(
                f"the salt with the SHA-256 {found[:12]}... is not that of season {self.name}, which "
                f"published {published}: give that salt, on one line"
            )
        texts = (f"{salt}|{self.name}|{cell.scenario}|{episode}" for episode in range(cell.episodes))
        return tuple(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 2 for text in texts)


def present_season() -> Season:
    """Return the present season."""
    return Season("1")


def measured_anchors(cell: SuiteEntry) -> Anchors | None:
    """The anchors in a cell's public episodes, as the suite measured them; ``None`` where it did not.

    Raises:
        ScenarioError: If they were measured in another scenario, or with other scalars of DSSRA+.
    """
    if not cell.returns:
        return None
    if cell.made_from != (now := made_from(cell)):
        raise ScenarioError(
            f"{cell.id} is made from {now}, but its returns were measured from {cell.made_from}: scores "
            "would not compare. Install the version of the season, or, in a checkout, measure anew: "
            "python -m tools.docs suite"
        )
    return Anchors(cell.returns[ZERO], cell.returns[cell.bar])


def chosen_cells(names: tuple[str, ...]) -> tuple[SuiteEntry, ...]:
    """Return cells by their names or ids, easiest first.

    Raises:
        ScenarioError: If a name is not known, or is that of the id with real training.
    """
    known = {**CELLS, **{cell.id: cell for cell in CELLS.values()}}
    apart = {word for entry in SUITE if entry.learner == "real" for word in (entry.scenario, entry.id)}
    for name in names:
        if name in apart:
            raise ScenarioError(
                f"--cells {name!r} really trains, and its losses differ between machines: nobody could "
                f"verify its row. The cells are {', '.join(CELLS)}"
            )
        if name not in known:
            raise ScenarioError(f"--cells {name!r} is not known: {nearest_name(name, known)}")
    asked = [known[name] for name in names]
    return tuple(cell for cell in CELLS.values() if cell in asked)

"""A season of the leaderboard: its cells, the episodes and their seeds, and the frozen anchors."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path

from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.ground.errors import ScenarioError, nearest_name
from collapipe_env.ground.files import write_json
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.dssra_plus_section import DSSRAPlusSpec
from collapipe_env.scenario.loading import scenario_digest
from collapipe_env.scenario.names import TIER_SIZES

FOLDER = Path(__file__).parent / "seasons"
"""Folder of the files of all seasons and their anchors."""
PRESENT = "1"
"""Name of the present season."""
ZERO, HUNDRED = "pipeline", "dssra-plus"
"""Names of the anchors: the schedulers whose scores are 0 (the even split) and 100 (DSSRA+)."""
STATIC = "static"
"""Tier of the ladder's scenarios, in which plans affect later rounds only through queues and training."""
BOARD_TIERS = (STATIC, "migration", "channel", "thermal", "mobile", "churn", "wild")
"""The season's own list, since tiers that are added later must not change its scores."""
BOARD_SIZES = TIER_SIZES


@dataclass(frozen=True)
class Cell:
    """A tier in one size, the unit that has a score.

    Attributes:
        tier: One of :data:`BOARD_TIERS`.
        size: One of :data:`BOARD_SIZES`.
    """

    tier: str
    size: str

    @property
    def name(self) -> str:
        """Name of its scenario."""
        return self.size if self.tier == STATIC else f"{self.size}-{self.tier}"

    def scenario(self, rounds: int) -> Scenario:
        """Its scenario, with episodes of at least this many rounds."""
        return lasting(load_scenario(self.name), rounds)

    def digest(self, rounds: int) -> str:
        """SHA-256 of its scenario without DSSRA+'s scalars, which describe an agent, not the system."""
        return scenario_digest(replace(self.scenario(rounds), dssra_plus=DSSRAPlusSpec()))


CELLS = {cell.name: cell for cell in (Cell(tier, size) for size in BOARD_SIZES for tier in BOARD_TIERS)}
"""All cells by the names of their scenarios, smallest size first."""


@dataclass(frozen=True)
class Anchors:
    """Mean round delays of the anchors in the episodes of a cell [s].

    Attributes:
        zero: Of the even split.
        hundred: Of DSSRA+.
    """

    zero: tuple[float, ...]
    hundred: tuple[float, ...]


@dataclass(frozen=True)
class Season:
    """Protocol of a season.

    Attributes:
        name: Its name.
        rounds: Rounds of an episode.
        episodes: Episodes of each size.
        salt_sha256: SHA-256 of the keepers' secret salt, in hexadecimal digits, from which the hidden seeds
            follow; empty as long as none is published.
        digests: SHA-256 of the scenarios whose anchors are frozen, by names of cells.
        anchors: Frozen anchors of the public episodes, by names of cells.
    """

    name: str
    rounds: int
    episodes: dict[str, int]
    salt_sha256: str = ""
    digests: dict[str, str] = field(default_factory=dict)
    anchors: dict[str, Anchors] = field(default_factory=dict)

    def seeds(self, cell: Cell, salt: str | None = None) -> tuple[int, ...]:
        """Seeds of a cell's episodes: the public ones, or the hidden ones of a salt, below 2^62.

        Args:
            salt: The keepers' salt.

        Raises:
            ScenarioError: If the season did not publish the salt's digest.
        """
        count = self.episodes[cell.size]
        if salt is None:
            return tuple(range(HELD_OUT_SEED, HELD_OUT_SEED + count))
        found = hashlib.sha256(salt.encode()).hexdigest()
        if found != self.salt_sha256:
            published = f"the one with {self.salt_sha256[:12]}..." if self.salt_sha256 else "none yet"
            raise ScenarioError(
                f"the salt with the SHA-256 {found[:12]}... is not that of season {self.name}, which "
                f"published {published}: give that salt, on one line"
            )
        texts = (f"{salt}|{self.name}|{cell.name}|{episode}" for episode in range(count))
        return tuple(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 2 for text in texts)

    def frozen(self, cell: Cell) -> Anchors | None:
        """Frozen anchors of a cell; ``None`` where there are none.

        Raises:
            ScenarioError: If the cell's scenario is not the one whose anchors are frozen.
        """
        frozen, digest = self.digests.get(cell.name), cell.digest(self.rounds)
        if frozen is not None and frozen != digest:
            raise ScenarioError(
                f"scenario {cell.name!r} has the digest {digest[:12]}..., but the leaderboard's anchors were "
                f"frozen for {frozen[:12]}...: it was changed, so scores would not compare. Install the "
                "version of the season, or begin a new one"
            )
        return self.anchors.get(cell.name)

    def freeze(self, cell: Cell, anchors: Anchors) -> None:
        """Add anchors to the season's file; a cell that is frozen never changes.

        Raises:
            ScenarioError: If the cell is frozen.
        """
        if cell.name in self.anchors:
            raise ScenarioError(f"the anchors of {cell.name} are frozen: begin a new season to change them")
        self.digests[cell.name], self.anchors[cell.name] = cell.digest(self.rounds), anchors
        cells = {
            name: {
                "scenario_digest": self.digests[name],
                ZERO: list(self.anchors[name].zero),
                HUNDRED: list(self.anchors[name].hundred),
            }
            for name in CELLS
            if name in self.anchors
        }
        write_json(FOLDER / f"season-{self.name}-anchors.json", {"cells": cells})


def present_season() -> Season:
    """Return the present season, as its files in the package say."""
    about = json.loads((FOLDER / f"season-{PRESENT}.json").read_text())
    frozen = json.loads((FOLDER / f"season-{PRESENT}-anchors.json").read_text())["cells"]
    return Season(
        name=about["season"],
        rounds=about["rounds"],
        episodes=about["episodes"],
        salt_sha256=about["salt_sha256"],
        digests={name: cell["scenario_digest"] for name, cell in frozen.items()},
        anchors={name: Anchors(tuple(cell[ZERO]), tuple(cell[HUNDRED])) for name, cell in frozen.items()},
    )


def chosen_cells(tiers: tuple[str, ...], sizes: tuple[str, ...]) -> tuple[Cell, ...]:
    """Return the cells of some tiers and sizes, smallest size first.

    Args:
        tiers: Names of tiers, in any order.
        sizes: Names of sizes.

    Raises:
        ScenarioError: If a name is not known, or none is given.
    """
    for option, names, known in (("--tier", tiers, BOARD_TIERS), ("--size", sizes, BOARD_SIZES)):
        if not names:
            raise ScenarioError(f"{option} is empty: name at least one of {', '.join(known)}")
        for name in names:
            if name not in known:
                raise ScenarioError(f"{option} {name!r} is not known: {nearest_name(name, known)}")
    return tuple(cell for cell in CELLS.values() if cell.tier in tiers and cell.size in sizes)

"""A season of the leaderboard: its cells, the length and number of episodes, and their seeds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collapipe_env.evaluation.rounds import lasting
from collapipe_env.ground.errors import DataError, ScenarioError, nearest_name, shown
from collapipe_env.ground.files import read_json
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.dssra_plus_section import DSSRAPlusSpec
from collapipe_env.scenario.loading import scenario_digest
from collapipe_env.scenario.names import TIER_SIZES

FORMAT = "collapipe-env leaderboard season"
FORMAT_VERSION = 1
FOLDER = Path(__file__).parent / "seasons"
"""Folder of the files of all seasons and their anchors."""
PRESENT = "1"
"""Name of the present season."""
STATIC = "static"
"""Tier of the ladder's scenarios, in which plans affect later rounds only through queues and training."""
BOARD_TIERS = (STATIC, "migration", "channel", "thermal", "mobile", "churn", "wild")
"""The season's own list, since tiers that are added later must not change its scores."""
BOARD_SIZES = TIER_SIZES
SEEDS = 2**31
"""Upper bound of seeds, exclusive."""
_REMEDY = "install the package again"


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

    @property
    def environment(self) -> str:
        """Id of its environment with real training."""
        middle = "" if self.tier == STATIC else f"-{self.tier.capitalize()}"
        return f"CollaPipe-{self.size.capitalize()}{middle}-v0"

    def scenario(self, rounds: int) -> Scenario:
        """Its scenario, with episodes of at least this many rounds."""
        return lasting(load_scenario(self.name), rounds)

    def digest(self, rounds: int) -> str:
        """SHA-256 of its scenario without DSSRA+'s scalars, which describe an agent, not the system."""
        return scenario_digest(replace(self.scenario(rounds), dssra_plus=DSSRAPlusSpec()))


@dataclass(frozen=True)
class Season:
    """Protocol of a season.

    Attributes:
        name: Its name.
        rounds: Rounds of an episode.
        episodes: Episodes of each size.
        seeds: Seeds of the episodes; a size with fewer episodes takes the first ones.
    """

    name: str
    rounds: int
    episodes: dict[str, int]
    seeds: tuple[int, ...]


def present_season(folder: Path = FOLDER) -> Season:
    """Return the present season.

    Args:
        folder: Folder of the seasons' files.

    Raises:
        DataError: If its file is missing or damaged.
    """
    place = folder / f"season-{PRESENT}.json"
    content = read_json(place, _REMEDY)
    if content.get("format") != FORMAT or content.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{place} does not say format = {FORMAT!r}, format_version = {FORMAT_VERSION}: {_REMEDY}"
        )
    name: Any = content.get("season")
    rounds: Any = content.get("rounds")
    episodes, seeds = content.get("episodes"), content.get("seeds")
    if not isinstance(name, str) or not _is_count(rounds):
        raise DataError(f"{place}: season or rounds is of the wrong type: {_REMEDY}")
    if not isinstance(seeds, list) or not all(_is_count(seed) and seed < SEEDS for seed in seeds):
        raise DataError(f"{place}: seeds is not a list of seeds: {_REMEDY}")
    if not isinstance(episodes, dict) or set(episodes) != set(BOARD_SIZES):
        raise DataError(f"{place}: episodes does not name the sizes {', '.join(BOARD_SIZES)}: {_REMEDY}")
    for size, count in episodes.items():
        if not _is_count(count) or count > len(seeds):
            raise DataError(f"{place}: episodes of {size} are {shown(count)}: {_REMEDY}")
    return Season(name, rounds, episodes, tuple(seeds))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


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
    return tuple(
        Cell(tier, size) for size in BOARD_SIZES if size in sizes for tier in BOARD_TIERS if tier in tiers
    )


def cell_of(name: str) -> Cell | None:
    """Return the cell whose scenario has a name; ``None`` if there is none."""
    every = (Cell(tier, size) for size in BOARD_SIZES for tier in BOARD_TIERS)
    return next((cell for cell in every if cell.name == name), None)

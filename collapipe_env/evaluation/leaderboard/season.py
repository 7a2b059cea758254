"""A season of the leaderboard: its cells, the length and number of episodes, and their seeds.

Seeds of the split ``dev`` are public. Those of ``test`` follow from a salt that the season's keepers publish
when it ends. The salt's SHA-256 is in the season's file from the start, so nobody can choose the salt later.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collapipe_env.evaluation.rounds import lasting
from collapipe_env.ground.errors import DataError, ScenarioError, nearest_name, shown
from collapipe_env.ground.files import read_json, read_regular
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
SPLITS = ("dev", "test")
SALT_VARIABLE = "COLLAPIPE_LEADERBOARD_SALT"
"""Environment variable that may hold the salt of the test split."""
SALT_BYTES = 4096
"""Largest file of a salt."""
SEEDS = 2**31
"""Upper bound of public seeds, exclusive."""
SALTED_SEEDS = 2**128
"""Upper bound of salted seeds, exclusive: too many to try, as whoever sees an episode begin could."""
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
        dev_seeds: Seeds of the split ``dev``; a size with fewer episodes takes the first ones.
        test_salt_sha256: SHA-256 of the salt of the split ``test``; ``None`` while that split is not open.
    """

    name: str
    rounds: int
    episodes: dict[str, int]
    dev_seeds: tuple[int, ...]
    test_salt_sha256: str | None

    def seeds(self, split: str, cell: Cell, salt: str | None = None) -> tuple[int, ...]:
        """Seeds of the episodes of a cell.

        Args:
            split: ``"dev"`` or ``"test"``.
            salt: Salt of the split ``test``; see :func:`read_salt`.

        Raises:
            ScenarioError: If there is no such split, or the salt is missing or wrong.
        """
        count = self.episodes[cell.size]
        if split == "dev":
            return self.dev_seeds[:count]
        if split != "test":
            raise ScenarioError(f"--split {split!r} is not known: {nearest_name(split, SPLITS)}")
        return salted_seeds(self.checked_salt(salt), cell, count)

    def checked_salt(self, salt: str | None) -> str:
        """Return the salt if it is the promised one.

        Raises:
            ScenarioError: If the test split is not open, or the salt is missing or wrong.
        """
        if self.test_salt_sha256 is None:
            raise ScenarioError(
                f"--split test: the test split of season {self.name} is not open yet, no salt was promised "
                "for it: use --split dev"
            )
        if salt is None:
            raise ScenarioError(
                "--split test needs the season's salt, which its keepers have: give a file with --salt-file, "
                f"or the salt in {SALT_VARIABLE}; use --split dev without it"
            )
        found = hashlib.sha256(salt.encode()).hexdigest()
        if found != self.test_salt_sha256:
            raise ScenarioError(
                f"the salt has the SHA-256 {found[:12]}..., season {self.name} promised "
                f"{self.test_salt_sha256[:12]}...: give the season's own"
            )
        return salt


def salted_seeds(salt: str, cell: Cell, count: int) -> tuple[int, ...]:
    """Seeds from a salt: SHA-256 of ``salt|tier|size|i`` as a whole number, most significant byte first.

    Args:
        count: Number of seeds; ``i`` counts from 0.
    """
    texts = (f"{salt}|{cell.tier}|{cell.size}|{index}" for index in range(count))
    return tuple(int(hashlib.sha256(text.encode()).hexdigest(), 16) % SALTED_SEEDS for text in texts)


def read_salt(file: Path | None) -> str | None:
    """Return the salt of the test split, without white space around it; ``None`` where none is given.

    Args:
        file: File that holds it; ``None`` for the environment variable :data:`SALT_VARIABLE`.

    Raises:
        DataError: If the file cannot be read, is empty or no text, or the variable is not text.
    """
    if file is None:
        salt = (os.environ.get(SALT_VARIABLE) or "").strip()
        try:
            salt.encode()
        except UnicodeEncodeError:  # bytes of the environment that are no text
            raise DataError(f"{SALT_VARIABLE}: not UTF-8 text: give the season's salt") from None
        return salt or None
    try:
        salt = read_regular(file, SALT_BYTES).decode("utf-8").strip()
    except OSError as error:
        raise DataError(f"--salt-file {file}: cannot be read ({error.strerror}): give its path") from None
    except UnicodeDecodeError:
        raise DataError(f"--salt-file {file}: not UTF-8 text: give the file of the salt") from None
    if not salt:
        raise DataError(f"--salt-file {file}: it is empty: give the file of the salt")
    return salt


def salt_of(season: Season, split: str, file: Path | None) -> str | None:
    """Return the salt of a split's seeds, checked by :meth:`Season.checked_salt`.

    Args:
        split: The split that is played.
        file: The file that was named.

    Returns:
        The salt; ``None`` for a split whose seeds need none.

    Raises:
        DataError: If the file cannot be read.
        ScenarioError: If the salt is missing or not the promised one, or a file was named for a split that
            needs none.
    """
    if split == "test":
        return season.checked_salt(read_salt(file))
    if file is not None:
        raise ScenarioError(
            f"--salt-file {file}: the seeds of the split {split} do not depend on a salt: leave it out, or "
            "name the split test"
        )
    return None


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
    promised: Any = content.get("test_salt_sha256")
    episodes, seeds = content.get("episodes"), content.get("dev_seeds")
    if not isinstance(name, str) or not _is_count(rounds) or not isinstance(promised, str | None):
        raise DataError(f"{place}: season, rounds or test_salt_sha256 is of the wrong type: {_REMEDY}")
    if not isinstance(seeds, list) or not all(_is_count(seed) and seed < SEEDS for seed in seeds):
        raise DataError(f"{place}: dev_seeds is not a list of seeds: {_REMEDY}")
    if not isinstance(episodes, dict) or set(episodes) != set(BOARD_SIZES):
        raise DataError(f"{place}: episodes does not name the sizes {', '.join(BOARD_SIZES)}: {_REMEDY}")
    for size, count in episodes.items():
        if not _is_count(count) or count > len(seeds):
            raise DataError(f"{place}: episodes of {size} are {shown(count)}: {_REMEDY}")
    return Season(name, rounds, episodes, tuple(seeds), promised)


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

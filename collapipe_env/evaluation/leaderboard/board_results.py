"""Results of a run for the leaderboard: plain numbers with a digest that a re-run must reproduce."""

from __future__ import annotations

import hashlib
import math
import platform
import re
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from collapipe_env.evaluation.episode_result import COLUMNS, EpisodeResult
from collapipe_env.evaluation.leaderboard.anchor_files import CellAnchors
from collapipe_env.evaluation.leaderboard.season import SEEDS, cell_of
from collapipe_env.evaluation.provenance import versions
from collapipe_env.evaluation.statistics import mean_delay
from collapipe_env.ground.errors import DataError, fits_a_line, shown
from collapipe_env.ground.files import json_digest, read_json, without_nan, write_json

FORMAT = "collapipe-env leaderboard results"
FORMAT_VERSION = 1
MEASURED = "decision_s"
"""Column of an episode with measured times, which no re-run reproduces."""
FIGURES = (
    "delay_s", "delay_p95_s", "worst_energy_ratio", "backlog_slope", "final_backlog", "energy_j",
    "peak_memory_bytes", "final_smoothed_loss_nat",
)  # fmt: skip
"""Numbers of an episode that a re-run must reproduce."""
SLOPED = 3
"""Smallest number of rounds for which an episode's queues have a slope."""
UNKNOWN = ("backlog_slope", "final_smoothed_loss_nat")
"""Figures that may be missing, such as the slope of fewer than three rounds."""
MACHINE = (
    "machine", "processor", "collapipe-env", "surrogate-fits-sha256", "python", "platform", "numpy", "scipy",
    "numba", "torch", "gymnasium",
)  # fmt: skip
"""Entries that every fingerprint of a machine has."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class EpisodeFigures:
    """Figures of one episode.

    Attributes:
        run: Training run of a learned scheduler, from 0.
        episode: Number of the episode, from 0.
        seed: Its seed; ``None`` in the split ``test``.
        delay_s: Mean delay of a round [s].
        delay_p95_s: 95th percentile of the delay of a round [s].
        worst_energy_ratio: Largest time-average energy over budget of any node or the server.
        backlog_slope: Growth of the largest energy queue over the last half [budgets a round]; NaN for fewer
            than three rounds.
        final_backlog: Sum of the energy queues at the end [budgets].
        energy_j: Energy of all nodes in all rounds [J].
        peak_memory_bytes: Largest memory that any device needed [byte].
        final_smoothed_loss_nat: Running mean of the loss at the end [nat].
        rounds_sha256: SHA-256 over every number of every round except measured times.
    """

    run: int
    episode: int
    seed: int | None
    delay_s: float
    delay_p95_s: float
    worst_energy_ratio: float
    backlog_slope: float
    final_backlog: float
    energy_j: float
    peak_memory_bytes: float
    final_smoothed_loss_nat: float
    rounds_sha256: str

    @property
    def place(self) -> str:
        """The episode in words."""
        run = f"run {self.run}, " if self.run else ""
        return f"{run}episode {self.episode}" + ("" if self.seed is None else f" (seed {self.seed})")


@dataclass(frozen=True)
class CellResults:
    """Results in one cell.

    Attributes:
        scenario_digest: SHA-256 of the scenario that was played.
        rounds: Rounds of an episode.
        episodes: Episodes, run by run and in order; empty if it could not play.
        machine: Fingerprint of the machine that played them, with versions.
        decision_median_s: Median wall-clock time of a decision [s].
        decision_p99_s: 99th percentile of that time [s].
        anchors: Anchors that were played along, where none are frozen for these episodes.
        impossible: Reason why it could not play; empty if it could.
    """

    scenario_digest: str
    rounds: int
    episodes: tuple[EpisodeFigures, ...]
    machine: Mapping[str, str] = field(default_factory=dict)
    decision_median_s: float | None = None
    decision_p99_s: float | None = None
    anchors: CellAnchors | None = None
    impossible: str = ""

    def matrix(self, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """One figure of each training run and episode, (R, E)."""
        runs = sorted({e.run for e in self.episodes})
        return np.array(
            [
                [getattr(e, name) for e in sorted(self.episodes, key=lambda e: e.episode) if e.run == run]
                for run in runs
            ],
            dtype=np.float64,
        )


@dataclass(frozen=True)
class BoardResults:
    """Content of ``leaderboard.json``.

    Attributes:
        season: Name of the season.
        split: ``"dev"`` or ``"test"``.
        scored: Whether all of the season's episodes were played, with frozen anchors.
        name: Title of the player.
        scheduler: Name from which it was built.
        submission_sha256: Digest of the submission's files; empty for a scheduler given by name.
        about: Fields of ``submission.yaml``.
        command: Command that made it.
        cells: Results by names of scenarios.
    """

    season: str
    split: str
    scored: bool
    name: str
    scheduler: str
    submission_sha256: str
    about: Mapping[str, Any]
    command: str
    cells: dict[str, CellResults] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 over every number that a re-run on the same machine reproduces bit for bit."""
        numbers = {
            name: {
                "scenario_digest": cell.scenario_digest,
                "rounds": cell.rounds,
                "impossible": bool(cell.impossible),
                "episodes": [asdict(episode) for episode in cell.episodes],
            }
            for name, cell in self.cells.items()
        }
        return json_digest(without_nan({"season": self.season, "split": self.split, "cells": numbers}))

    def write(self, path: Path) -> None:
        """Write the file.

        Raises:
            DataError: If it cannot be written.
        """
        cells = {name: asdict(self.cells[name]) for name in self.cells}
        head = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "cells"}
        head = {"format": FORMAT, "format_version": FORMAT_VERSION, **head, "digest": self.digest}
        write_json(path, {**head, "cells": cells})


def figures_of(result: EpisodeResult, seed: int | None) -> EpisodeFigures:
    """Return the figures of an episode.

    Args:
        seed: Seed of the episode; ``None`` to keep it secret.
    """
    return EpisodeFigures(
        run=result.run,
        episode=result.episode,
        seed=seed,
        delay_s=mean_delay(result),
        delay_p95_s=float(np.percentile(result.delay, 95)),
        worst_energy_ratio=result.worst_energy_ratio,
        backlog_slope=result.backlog_slope,
        final_backlog=result.backlog[-1],
        energy_j=float(np.sum(result.energy_j)),
        peak_memory_bytes=result.peak_memory_bytes,
        final_smoothed_loss_nat=result.smoothed_loss[-1],
        rounds_sha256=rounds_digest(result),
    )


def rounds_digest(result: EpisodeResult) -> str:
    """SHA-256 over all rounds of an episode, except measured times: columns by name, as 64-bit floats."""
    digest = hashlib.sha256()
    tables = (result.energy_ratio, result.device_memory_bytes, result.offered_memory_bytes)
    columns = [(name, getattr(result, name)) for name in COLUMNS if name != MEASURED]
    columns += [(str(index), [value for row in table for value in row]) for index, table in enumerate(tables)]
    for name, values in columns:
        digest.update(f"{name}\0{len(values)}\0".encode())
        digest.update(struct.pack(f"<{len(values)}d", *values))
    return digest.hexdigest()


def machine_fingerprint() -> dict[str, str]:
    """Return what bit-identical numbers depend on: processor, system, and versions of the libraries."""
    found = versions()
    del found["cpus"]
    return {"machine": platform.machine(), "processor": _processor(), **found}


def _processor() -> str:
    """Name of the processor; empty where the system does not tell."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
            return next(names, "")
    except OSError:
        return platform.processor()


def read_results(path: Path) -> tuple[BoardResults, bool]:
    """Read the results of a run.

    Returns:
        The results, and whether their digest matches their numbers.

    Raises:
        DataError: If it is missing or malformed.
    """
    remedy = "make it again with collapipe leaderboard run"
    content = read_json(path, remedy)
    if content.get("format") != FORMAT or content.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{path} does not say format = {FORMAT!r}, format_version = {FORMAT_VERSION}: {remedy}"
        )
    try:
        cells = {name: _cell(name, entry) for name, entry in _of(dict, content, "cells").items()}
        results = BoardResults(
            season=_line(content, "season"),
            split=_line(content, "split"),
            scored=_of(bool, content, "scored"),
            name=_line(content, "name"),
            scheduler=_line(content, "scheduler"),
            submission_sha256=_digest(content, "submission_sha256", empty=True),
            about=_of(dict, content, "about"),
            command=_of(str, content, "command"),
            cells=cells,
        )
        claimed = _of(str, content, "digest")
    except ValueError as error:
        raise DataError(f"{path}: {error}: {remedy}") from None
    return results, claimed == results.digest


def _of(kind: type, content: Mapping[str, Any], name: str) -> Any:
    value = content.get(name)
    if type(value) is not kind:
        raise ValueError(f"{name} = {shown(value)} where a {kind.__name__} is expected")
    return value


def _line(content: Mapping[str, Any], name: str) -> str:
    """Text that may be shown: a line break or a control character would act on the terminal."""
    value: str = _of(str, content, name)
    if not fits_a_line(value):
        raise ValueError(f"{name} = {shown(value)} holds line breaks or control characters")
    return value


def _digest(content: Mapping[str, Any], name: str, *, empty: bool = False) -> str:
    value: str = _of(str, content, name)
    if not (_SHA256.fullmatch(value) or (empty and not value)):
        raise ValueError(f"{name} = {shown(value)} where a SHA-256 is expected")
    return value


def _cell(name: str, entry: Any) -> CellResults:
    if cell_of(name) is None or not isinstance(entry, dict):
        raise ValueError(f"{shown(name)} is not a cell of the leaderboard")
    try:
        return _cell_results(entry)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _cell_results(entry: Mapping[str, Any]) -> CellResults:
    anchors = entry.get("anchors")
    median, slow = (
        None if entry.get(name) is None else _number(entry, name)
        for name in ("decision_median_s", "decision_p99_s")
    )
    found = CellResults(
        scenario_digest=_digest(entry, "scenario_digest"),
        rounds=_whole(entry, "rounds", least=1),
        episodes=tuple(_episode(one) for one in _of(list, entry, "episodes")),
        machine=_machine(_of(dict, entry, "machine")),
        decision_median_s=median,
        decision_p99_s=slow,
        anchors=None if anchors is None else _anchors(anchors),
        # An error message, which may have several lines.
        impossible="".join(c if c.isprintable() else " " for c in _of(str, entry, "impossible")),
    )
    runs = {e.run for e in found.episodes}
    numbers = sorted({e.episode for e in found.episodes})
    expected = [(run, episode) for run in range(len(runs)) for episode in range(len(numbers))]
    if sorted((e.run, e.episode) for e in found.episodes) != expected or bool(expected) == bool(
        found.impossible
    ):
        raise ValueError("episodes are missing, or appear twice")
    if found.rounds >= SLOPED and any(math.isnan(e.backlog_slope) for e in found.episodes):
        raise ValueError("backlog_slope = None where a number is expected")
    if found.anchors is not None and numbers and len(found.anchors.zero) != len(numbers):
        raise ValueError(f"anchors of {len(found.anchors.zero)} episodes, where {len(numbers)} were played")
    return found


def _machine(entry: Mapping[str, Any]) -> dict[str, str]:
    """A fingerprint with all its entries; without some, a claim could choose how strictly it is verified."""
    missing = [name for name in MACHINE if name not in entry]
    if missing:
        raise ValueError(f"machine does not say {', '.join(missing)}")
    for name, value in entry.items():
        if not name.isprintable() or not isinstance(value, str) or not value.isprintable():
            raise ValueError(f"machine: {shown(name)} = {shown(value)} where a line of text is expected")
    return dict(entry)


def _episode(entry: Any) -> EpisodeFigures:
    if not isinstance(entry, dict):
        raise ValueError(f"{shown(entry)} where an episode is expected")
    seed = None if entry.get("seed") is None else _whole(entry, "seed")
    numbers = {
        name: _number(entry, name)
        if name in UNKNOWN
        else _positive(name, entry.get(name), zero=not name.startswith("delay_"))
        for name in FIGURES
    }
    digest = _digest(entry, "rounds_sha256")
    return EpisodeFigures(
        run=_whole(entry, "run"), episode=_whole(entry, "episode"), seed=seed, rounds_sha256=digest, **numbers
    )


def _anchors(entry: Any) -> CellAnchors:
    if not isinstance(entry, dict):
        raise ValueError(f"anchors = {shown(entry)} where an object is expected")
    lists = {name: _of(list, entry, name) for name in ("zero", "hundred")}
    delays = {
        name: tuple(_positive(f"anchors: {name}", value) for value in values)
        for name, values in lists.items()
    }
    if not delays["zero"] or len(delays["zero"]) != len(delays["hundred"]):
        raise ValueError("anchors: zero and hundred hold no delay for each episode")
    return CellAnchors(
        scenario_digest=_digest(entry, "scenario_digest"),
        package_version=_line(entry, "package_version"),
        zero=delays["zero"],
        hundred=delays["hundred"],
    )


def _number(content: Mapping[str, Any], name: str) -> float:
    value = content.get(name)
    if value is None and name in content:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise ValueError(f"{name} = {shown(value)} where a number is expected")
    return float(value)


def _positive(name: str, value: Any, *, zero: bool = False) -> float:
    """A finite number above 0, or from 0 on."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0.0 <= value < 1e300 or (value == 0.0 and not zero):
        least = "from 0 on" if zero else "above 0"
        raise ValueError(f"{name} = {shown(value)} where a number {least} is expected")
    return float(value)


def _whole(content: Mapping[str, Any], name: str, least: int = 0) -> int:
    value = content.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < SEEDS:
        raise ValueError(f"{name} = {shown(value)} where a whole number from {least} on is expected")
    return value

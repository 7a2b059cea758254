"""Results of a run for the leaderboard: a file of plain numbers, and a digest that a re-run has to meet."""

from __future__ import annotations

import hashlib
import platform
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from collapipe_env.errors import DataError, shown
from collapipe_env.evaluation.episode_result import COLUMNS, EpisodeResult
from collapipe_env.evaluation.leaderboard.anchor_files import CellAnchors
from collapipe_env.evaluation.leaderboard.season import SEEDS, cell_of
from collapipe_env.evaluation.provenance import versions
from collapipe_env.evaluation.statistics import mean_delay
from collapipe_env.files import json_digest, read_json, without_nan, write_json

FORMAT = "collapipe-env leaderboard results"
FORMAT_VERSION = 1
MEASURED = "decision_s"
"""Column of an episode that a clock measured, and no re-run repeats."""
FIGURES = (
    "delay_s", "delay_p95_s", "worst_energy_ratio", "backlog_slope", "final_backlog", "energy_j",
    "peak_memory_bytes", "final_smoothed_loss_nat",
)  # fmt: skip
"""Numbers of an episode that a re-run has to meet."""


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
        backlog_slope: Growth of the largest energy queue over the last half [budgets a round]; NaN for less
            than three rounds.
        final_backlog: Sum of the energy queues at the end [budgets].
        energy_j: Energy of all nodes in all rounds [J].
        peak_memory_bytes: Most memory that any device needed [byte].
        final_smoothed_loss_nat: Running mean of the loss at the end [nat].
        rounds_sha256: SHA-256 over every number of every round but measured times.
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
        decision_p99_s: 99th percentile of it [s].
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
        scored: Whether the episodes are all of the season's, and the anchors frozen.
        name: Title of who played.
        scheduler: Name that it was built by.
        submission_sha256: Digest of the submission's files; empty for a scheduler that was named.
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
        """SHA-256 over every number that a re-run on the same machine meets bit by bit."""
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

        Args:
            path: Its path.

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
        result: The episode.
        seed: Its seed; ``None`` to keep it secret.
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
    """SHA-256 over all rounds of an episode, but for measured times: columns by name, as 64-bit floats."""
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

    Args:
        path: The file.

    Returns:
        The results, and whether their digest is that of their numbers.

    Raises:
        DataError: If it is missing or malformed.
    """
    remedy = "make it anew with collapipe leaderboard run"
    content = read_json(path, remedy)
    if content.get("format") != FORMAT or content.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{path} does not say format = {FORMAT!r}, format_version = {FORMAT_VERSION}: {remedy}"
        )
    try:
        cells = {name: _cell(name, entry) for name, entry in _of(dict, content, "cells").items()}
        results = BoardResults(
            season=_of(str, content, "season"),
            split=_of(str, content, "split"),
            scored=_of(bool, content, "scored"),
            name=_of(str, content, "name"),
            scheduler=_of(str, content, "scheduler"),
            submission_sha256=_of(str, content, "submission_sha256"),
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


def _cell(name: str, entry: Any) -> CellResults:
    cell = cell_of(name)
    if cell is None or not isinstance(entry, dict):
        raise ValueError(f"{shown(name)} is no cell of the leaderboard")
    anchors = entry.get("anchors")
    median, slow = (
        None if entry.get(name) is None else _number(entry, name)
        for name in ("decision_median_s", "decision_p99_s")
    )
    found = CellResults(
        scenario_digest=_of(str, entry, "scenario_digest"),
        rounds=_whole(entry, "rounds"),
        episodes=tuple(_episode(one) for one in _of(list, entry, "episodes")),
        machine=_of(dict, entry, "machine"),
        decision_median_s=median,
        decision_p99_s=slow,
        anchors=None if anchors is None else _anchors(anchors),
        impossible=_of(str, entry, "impossible"),
    )
    runs = {e.run for e in found.episodes}
    numbers = sorted({e.episode for e in found.episodes})
    expected = [(run, episode) for run in range(len(runs)) for episode in range(len(numbers))]
    if sorted((e.run, e.episode) for e in found.episodes) != expected or bool(expected) == bool(
        found.impossible
    ):
        raise ValueError(f"{name}: episodes are missing, or there twice")
    return found


def _episode(entry: Any) -> EpisodeFigures:
    if not isinstance(entry, dict):
        raise ValueError(f"{shown(entry)} where an episode is expected")
    seed = None if entry.get("seed") is None else _whole(entry, "seed")
    numbers = {name: _number(entry, name) for name in FIGURES}
    digest = _of(str, entry, "rounds_sha256")
    return EpisodeFigures(
        run=_whole(entry, "run"), episode=_whole(entry, "episode"), seed=seed, rounds_sha256=digest, **numbers
    )


def _anchors(entry: Any) -> CellAnchors:
    if not isinstance(entry, dict):
        raise ValueError(f"anchors = {shown(entry)} where an object is expected")
    lists = {name: _of(list, entry, name) for name in ("zero", "hundred")}
    delays = {name: tuple(_number({name: value}, name) for value in values) for name, values in lists.items()}
    return CellAnchors(
        scenario_digest=_of(str, entry, "scenario_digest"),
        package_version=_of(str, entry, "package_version"),
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


def _whole(content: Mapping[str, Any], name: str) -> int:
    value = content.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < SEEDS:
        raise ValueError(f"{name} = {shown(value)} where a whole number from 0 on is expected")
    return value

"""Results of a run for the leaderboard: plain numbers with a digest that a re-run must reproduce."""

from __future__ import annotations

import hashlib
import math
import platform
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, WrapValidator

from collapipe_env.evaluation.columns import mean_delay
from collapipe_env.evaluation.episode_result import COLUMNS, EpisodeResult
from collapipe_env.evaluation.leaderboard.anchor_files import Above0, CellAnchors, Digest, Line
from collapipe_env.evaluation.leaderboard.season import SEEDS, cell_of
from collapipe_env.evaluation.provenance import versions
from collapipe_env.ground.errors import DataError, fault_line, shown
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
MACHINE = (
    "machine", "processor", "collapipe-env", "surrogate-fits-sha256", "python", "platform", "numpy", "scipy",
    "numba", "torch", "gymnasium",
)  # fmt: skip
"""Entries that every fingerprint of a machine has."""
Whole = Annotated[int, Field(strict=True, ge=0, lt=SEEDS)]
From0 = Annotated[float, Field(strict=True, ge=0.0, lt=1e15)]
Number = Annotated[
    float,
    Field(strict=True, gt=-1e15, lt=1e15),
    WrapValidator(lambda value, inner: math.nan if value is None else inner(value)),
]
"""A number; NaN for ``null``."""
OneLine = Annotated[str, AfterValidator(lambda text: "".join(c if c.isprintable() else " " for c in text))]
"""A message, which may have had several lines."""


@dataclass(frozen=True)
class EpisodeFigures:
    """Figures of one episode.

    Attributes:
        run: Training run of a learned scheduler, from 0.
        episode: Number of the episode, from 0.
        seed: Its seed.
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

    run: Whole
    episode: Whole
    seed: Whole
    delay_s: Above0
    delay_p95_s: Above0
    worst_energy_ratio: From0
    backlog_slope: Number
    final_backlog: From0
    energy_j: From0
    peak_memory_bytes: From0
    final_smoothed_loss_nat: Number
    rounds_sha256: Digest

    @property
    def place(self) -> str:
        """The episode in words."""
        run = f"run {self.run}, " if self.run else ""
        return f"{run}episode {self.episode} (seed {self.seed})"


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

    scenario_digest: Digest
    rounds: Annotated[int, Field(strict=True, ge=1, lt=SEEDS)]
    episodes: tuple[EpisodeFigures, ...]
    machine: Mapping[Line, Line] = field(default_factory=dict)
    decision_median_s: From0 | None = None
    decision_p99_s: From0 | None = None
    anchors: CellAnchors | None = None
    impossible: OneLine = ""

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
        scored: Whether all of the season's episodes were played, with frozen anchors.
        name: Title of the player.
        scheduler: Name from which it was built.
        submission_sha256: Digest of the submission's files; empty for a scheduler given by name.
        about: Fields of ``submission.yaml``.
        command: Command that made it.
        cells: Results by names of scenarios.
    """

    season: Line
    scored: Annotated[bool, Field(strict=True)]
    name: Line
    scheduler: Line
    submission_sha256: Digest | Literal[""]
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
        return json_digest(without_nan({"season": self.season, "cells": numbers}))

    def write(self, path: Path) -> None:
        """Write the file.

        Raises:
            DataError: If it cannot be written.
        """
        cells = {name: asdict(self.cells[name]) for name in self.cells}
        head = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "cells"}
        head = {"format": FORMAT, "format_version": FORMAT_VERSION, **head, "digest": self.digest}
        write_json(path, {**head, "cells": cells})


def figures_of(result: EpisodeResult, seed: int) -> EpisodeFigures:
    """Return the figures of an episode."""
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
        results = _READER.validate_python(content)
        for name, cell in results.cells.items():
            _require_whole(name, cell)
    except ValidationError as error:
        raise DataError(f"{path}: {fault_line(error.errors()[0])}: {remedy}") from None
    except ValueError as error:
        raise DataError(f"{path}: {error}: {remedy}") from None
    return results, content.get("digest") == results.digest


def _require_whole(name: str, cell: CellResults) -> None:
    """Refuse results of a cell that fields alone cannot show to be wrong."""
    if cell_of(name) is None:
        raise ValueError(f"{shown(name)} is not a cell of the leaderboard")
    # Without some of a fingerprint's entries, a claim could choose how strictly it is verified.
    missing = [entry for entry in MACHINE if entry not in cell.machine]
    if missing:
        raise ValueError(f"{name}: machine does not say {', '.join(missing)}")
    runs = {e.run for e in cell.episodes}
    numbers = {e.episode for e in cell.episodes}
    expected = [(run, episode) for run in range(len(runs)) for episode in range(len(numbers))]
    found = sorted((e.run, e.episode) for e in cell.episodes)
    if found != expected or bool(expected) == bool(cell.impossible):
        raise ValueError(f"{name}: episodes are missing, or appear twice")
    if cell.rounds >= SLOPED and any(math.isnan(e.backlog_slope) for e in cell.episodes):
        raise ValueError(f"{name}: backlog_slope is null where a number is expected")
    if cell.anchors is not None:
        pair = (cell.anchors.zero, cell.anchors.hundred)
        if not all(pair) or len(pair[0]) != len(pair[1]):
            raise ValueError(f"{name}: anchors: zero and hundred hold no delay for each episode")
        if numbers and len(pair[0]) != len(numbers):
            raise ValueError(f"{name}: anchors of {len(pair[0])} episodes, where {len(numbers)} were played")


_READER = TypeAdapter(BoardResults)

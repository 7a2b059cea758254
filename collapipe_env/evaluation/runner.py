"""Evaluates schedulers on the same held-out episodes, in parallel, and picks up where it was stopped."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import collapipe_env
from collapipe_env.allocation import Allocation
from collapipe_env.errors import CheckpointError, CollaPipeError, DataError
from collapipe_env.evaluation.episode import (
    EpisodeResult,
    pack_allocations,
    play_episode,
    unpack_allocations,
)
from collapipe_env.evaluation.pool import run_tasks
from collapipe_env.evaluation.registry import LEARNED, load_scheduler
from collapipe_env.files import ARCHIVE_BYTES, read_json, read_regular, write_bytes, write_json
from collapipe_env.scenario import Scenario

FORMAT = 3
"""Of an episode's file; episodes in another format are measured again."""
EPISODE_BYTES = 4 * 1024**3
"""Largest such file that is read: it has some 220 bytes a round, and there may be millions of rounds."""


@dataclass(frozen=True)
class EvaluationPlan:
    """What to evaluate.

    Attributes:
        scenario: The scenario.
        schedulers: Names, ``"agent"`` for the learned one.
        agent: File of the learned one.
        episodes: Held-out episodes that each scheduler plays.
        rounds: Rounds of an episode.
        learner: ``"torch"`` or ``"surrogate"``.
        folder: Where finished episodes are kept.
        processes: Worker processes.
        threads: Threads of PyTorch in each.
    """

    scenario: Scenario
    schedulers: tuple[str, ...]
    agent: Path | None
    episodes: int
    rounds: int
    learner: str
    folder: Path
    processes: int = 1
    threads: int = 1


@dataclass(frozen=True)
class Unit:
    """One scheduler on one episode.

    Attributes:
        plan: What it belongs to.
        scheduler: Name of the scheduler.
        episode: Number of the episode.
        key: Digest of everything that the result depends on.
    """

    plan: EvaluationPlan
    scheduler: str
    episode: int
    key: str

    def __str__(self) -> str:
        return f"scheduler {self.scheduler!r}, episode {self.episode}"

    @property
    def figures(self) -> Path:
        """JSON file of the result."""
        return self.plan.folder / f"{self.scheduler}-{self.episode}.json"

    @property
    def decisions(self) -> Path:
        """File of the decisions, arrays with the rounds in front."""
        return self.plan.folder / f"{self.scheduler}-{self.episode}.npz"


@dataclass(frozen=True)
class Outcome:
    """What came of a plan.

    Attributes:
        results: Each scheduler's episodes, in order, of those that could play them all.
        impossible: Why each of the others could not.
    """

    results: dict[str, list[EpisodeResult]]
    impossible: dict[str, str]


def evaluate(plan: EvaluationPlan) -> dict[str, list[EpisodeResult]]:
    """Play whatever is not finished yet, with a progress bar over rounds.

    Args:
        plan: What to evaluate.

    Returns:
        Each scheduler's episodes, in order.

    Raises:
        CollaPipeError: If a scheduler cannot be built or fails, or a file cannot be read or written.
        KeyboardInterrupt: If the user interrupts; finished episodes are kept.
    """
    return evaluate_all([plan], plan.processes)[0].results


def evaluate_all(plans: Sequence[EvaluationPlan], processes: int, *, tolerant: bool = False) -> list[Outcome]:
    """Play whatever of several plans is not finished yet, in one pool with one progress bar.

    Args:
        plans: What to evaluate, each in a folder of its own.
        processes: Worker processes in all; the plans' own numbers do not count here.
        tolerant: A scheduler that cannot play a scenario is left out there, and the rest goes on. Nothing is
            stored of that, so the next run tries again. Data and files that cannot be used still end
            everything.

    Returns:
        For each plan what came of it.

    Raises:
        CollaPipeError: As :func:`evaluate`.
        KeyboardInterrupt: If the user interrupts; finished episodes are kept.
    """
    # Episode by episode, so that an interrupted evaluation has something of everything.
    units = sorted((unit for plan in plans for unit in _units(plan)), key=lambda unit: unit.episode)
    missing = [unit for unit in units if not _finished(unit)]
    impossible: dict[tuple[int, str], str] = {}
    with _Progress(plans, units, missing) as progress:

        def failed(unit: Unit, error: CollaPipeError) -> None:
            if not tolerant or isinstance(error, DataError | CheckpointError):
                raise error
            impossible.setdefault((id(unit.plan), unit.scheduler), str(error))
            progress.failed(unit, error)

        def wanted(unit: Unit) -> bool:
            possible = (id(unit.plan), unit.scheduler) not in impossible
            if not possible:
                progress.skipped(unit)
            return possible

        run_tasks(_work, missing, processes, progress.round, progress.done, failed, wanted)
    return [_outcome(plan, impossible) for plan in plans]


def _outcome(plan: EvaluationPlan, impossible: Mapping[tuple[int, str], str]) -> Outcome:
    reasons = {name: reason for (key, name), reason in impossible.items() if key == id(plan)}
    results: dict[str, list[EpisodeResult]] = {n: [] for n in plan.schedulers if n not in reasons}
    for unit in _units(plan):
        if unit.scheduler in results:
            results[unit.scheduler].append(_read(unit))
    return Outcome(results, reasons)


class _Progress:
    """The progress bar over the rounds of all units, and a line for each that ends."""

    def __init__(
        self, plans: Sequence[EvaluationPlan], units: Sequence[Unit], missing: Sequence[Unit]
    ) -> None:
        self._several = len(plans) > 1
        self._rounds: Counter[str] = Counter()
        total = sum(unit.plan.rounds for unit in units)
        self._bar = tqdm(
            total=total,
            initial=total - sum(unit.plan.rounds for unit in missing),
            desc="evaluating",
            unit=" rounds",
            dynamic_ncols=True,
            disable=None,
        )

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def round(self, unit: Unit) -> None:
        self._rounds[unit.key] += 1
        self._bar.update(1)

    def done(self, unit: Unit) -> None:
        result = _read(unit)
        self._bar.write(
            f"{self._place(unit)}{result.title:>12}  episode {unit.episode}   round delay "
            f"{np.mean(result.delay):7.2f} s   energy {100.0 * (result.worst_energy_ratio - 1.0):+6.1f} %   "
            f"final loss {result.smoothed_loss[-1]:.4f}"
        )

    def failed(self, unit: Unit, error: CollaPipeError) -> None:
        self._bar.update(unit.plan.rounds - self._rounds[unit.key])
        self._bar.write(f"{self._place(unit)}{unit.scheduler:>12}  not possible: {error}")

    def skipped(self, unit: Unit) -> None:
        self._bar.update(unit.plan.rounds)

    def _place(self, unit: Unit) -> str:
        return f"{unit.plan.scenario.name:>8}  " if self._several else ""


def decisions_of(plan: EvaluationPlan, scheduler: str, episode: int) -> list[Allocation]:
    """The decisions of a finished episode.

    Raises:
        DataError: If their file is missing or damaged.
    """
    path = next(u for u in _units(plan) if (u.scheduler, u.episode) == (scheduler, episode)).decisions
    try:
        with np.load(io.BytesIO(read_regular(path, ARCHIVE_BYTES)), allow_pickle=False) as arrays:
            return unpack_allocations(dict(arrays))
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} is damaged ({error}); delete it and its .json to measure this episode again"
        ) from None


def _units(plan: EvaluationPlan) -> list[Unit]:
    agent = b"" if plan.agent is None else read_regular(plan.agent, ARCHIVE_BYTES)
    common = (FORMAT, collapipe_env.__version__, plan.scenario, plan.rounds, plan.learner)
    return [
        Unit(plan, name, episode, _key((*common, name, episode), agent if name == LEARNED else b""))
        for episode in range(plan.episodes)
        for name in plan.schedulers
    ]


def _key(parts: Iterable[object], agent: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(repr(part).encode())
        digest.update(b"\0")
    digest.update(agent)
    return digest.hexdigest()


def _finished(unit: Unit) -> bool:
    if not (unit.figures.exists() and unit.decisions.exists()):
        return False
    return _content(unit).get("key") == unit.key


def _content(unit: Unit) -> dict[str, Any]:
    return read_json(unit.figures, "delete it to measure this episode again", EPISODE_BYTES)


def _read(unit: Unit) -> EpisodeResult:
    result = _content(unit).get("result")
    if not isinstance(result, dict):
        raise DataError(f"{unit.figures} holds no result; delete it to measure this episode again")
    return EpisodeResult.from_dict(result, str(unit.figures))


def _work(unit: Unit, on_round: Any) -> None:
    import torch

    plan = unit.plan
    torch.set_num_threads(plan.threads)
    scheduler = load_scheduler(unit.scheduler, plan.scenario, plan.agent)
    played = play_episode(
        unit.scheduler, scheduler, plan.scenario, unit.episode, plan.rounds, plan.learner, on_round
    )
    arrays = io.BytesIO()
    np.savez_compressed(arrays, **pack_allocations(played.allocations))  # type: ignore[arg-type]
    write_bytes(unit.decisions, arrays.getvalue())
    # Written last: where it stands, the episode is finished.
    write_json(unit.figures, {"key": unit.key, "result": played.result.to_dict()})

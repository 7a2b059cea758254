"""Evaluates schedulers on the same held-out episodes, in parallel, and picks up where it was stopped."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import collapipe_env
from collapipe_env.allocation import Allocation
from collapipe_env.errors import DataError
from collapipe_env.evaluation.episode import (
    EpisodeResult,
    pack_allocations,
    play_episode,
    unpack_allocations,
)
from collapipe_env.evaluation.pool import run_tasks
from collapipe_env.evaluation.registry import LEARNED, load_scheduler
from collapipe_env.files import read_json, write_bytes, write_json
from collapipe_env.scenario import Scenario


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
    units = _units(plan)
    missing = [unit for unit in units if not _finished(unit)]
    with tqdm(
        total=len(units) * plan.rounds,
        initial=(len(units) - len(missing)) * plan.rounds,
        desc="evaluating",
        unit=" rounds",
        dynamic_ncols=True,
        disable=None,
    ) as bar:

        def done(unit: Unit) -> None:
            result = _read(unit)
            bar.write(
                f"{result.title:>12}  episode {unit.episode}   round delay {np.mean(result.delay):7.2f} s   "
                f"energy {100.0 * (result.worst_energy_ratio - 1.0):+6.1f} %   final loss "
                f"{result.smoothed_loss[-1]:.4f}"
            )

        run_tasks(_work, missing, plan.processes, lambda: _tick(bar), done)
    results: dict[str, list[EpisodeResult]] = {name: [] for name in plan.schedulers}
    for unit in units:
        results[unit.scheduler].append(_read(unit))
    return results


def decisions_of(plan: EvaluationPlan, scheduler: str, episode: int) -> list[Allocation]:
    """The decisions of a finished episode.

    Raises:
        DataError: If their file is missing or damaged.
    """
    path = next(u for u in _units(plan) if (u.scheduler, u.episode) == (scheduler, episode)).decisions
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            return unpack_allocations(dict(arrays))
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} is damaged ({error}); delete it and its .json to measure this episode again"
        ) from None


def _units(plan: EvaluationPlan) -> list[Unit]:
    # Episode by episode, so that an interrupted evaluation has something of every scheduler.
    return [
        Unit(plan, name, episode, _key(plan, name, episode))
        for episode in range(plan.episodes)
        for name in plan.schedulers
    ]


def _key(plan: EvaluationPlan, scheduler: str, episode: int) -> str:
    digest = hashlib.sha256()
    agent = plan.agent.read_bytes() if scheduler == LEARNED and plan.agent is not None else b""
    for part in (collapipe_env.__version__, plan.scenario, plan.rounds, plan.learner, scheduler, episode):
        digest.update(repr(part).encode())
        digest.update(b"\0")
    digest.update(agent)
    return digest.hexdigest()


def _finished(unit: Unit) -> bool:
    if not (unit.figures.exists() and unit.decisions.exists()):
        return False
    return _content(unit).get("key") == unit.key


def _content(unit: Unit) -> dict[str, Any]:
    return read_json(unit.figures, "delete it to measure this episode again")


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


def _tick(bar: tqdm[Any]) -> None:
    bar.update(1)

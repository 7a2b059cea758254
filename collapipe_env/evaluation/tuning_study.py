"""Optuna in a tuning: it proposes the candidates, and its study in a file keeps the played ones."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from collapipe_env.evaluation.gate import MOST_EXCESS
from collapipe_env.evaluation.tuning_space import RANGES, neutral_scalars
from collapipe_env.evaluation.tuning_trial import Candidate, Scalars, Trial
from collapipe_env.ground.errors import DataError, shown
from collapipe_env.ground.files import ARCHIVE_BYTES, open_regular, without_nan

try:
    import optuna
except ImportError:
    raise DataError(
        "tuning needs the package optuna, which is not installed: pip install 'collapipe-env[tune]'"
    ) from None

optuna.logging.set_verbosity(optuna.logging.ERROR)  # a tuning tells its progress itself

RANDOM_SHARE = 3
"""One in this many candidates is drawn at random, rounded up."""
BATCH = 6
"""Later candidates that are proposed, and may be played, at once."""


def search(
    names: Sequence[str], candidates: int, seed: int, play: Callable[[Mapping[str, Scalars]], list[Trial]]
) -> list[Trial]:
    """Return all candidates of a search; the same for the same seed and costs.

    The neutral scalars and random ones, a third of all, come first. A tree-structured Parzen estimator, which
    looks only at ranks, proposes the others. Costs may come from a file: an interrupted search repeats its
    proposals.

    Args:
        play: Returns the costs of candidates by place (``"candidate 3"``).
    """
    first = math.ceil(candidates / RANDOM_SHARE)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=first))
    study.enqueue_trial(_within_ranges(neutral_scalars(names)))
    trials: list[Trial] = []
    while len(trials) < candidates:
        size = min(BATCH if trials else first, candidates - len(trials))
        asked = [study.ask(_distributions(names)) for _ in range(size)]
        # Few digits, so that the played values can be written down exactly.
        scalars = [{name: float(f"{one.params[name]:.4g}") for name in names} for one in asked]
        if not trials:
            scalars[0] = neutral_scalars(names)
        found = play({f"candidate {index}": one for index, one in enumerate(scalars, len(trials))})
        for one, trial in zip(asked, found, strict=True):
            for name, value in _constraints(trial).items():
                one.set_constraint(name, value)
            study.tell(one, trial.score)
        trials += found
    return trials


def _distributions(names: Sequence[str]) -> dict[str, optuna.distributions.BaseDistribution]:
    return {
        name: optuna.distributions.FloatDistribution(RANGES[name].low, RANGES[name].high, RANGES[name].log)
        for name in names
    }


def _within_ranges(scalars: Mapping[str, float]) -> Scalars:
    """The nearest scalars that may be searched: neutral ones may be outside, such as a price of 0."""
    return {name: min(max(value, RANGES[name].low), RANGES[name].high) for name, value in scalars.items()}


def _constraints(trial: Trial) -> dict[str, float]:
    """Positive for a candidate over its energy budget; none in episodes too short to tell."""
    if not trial.whole:
        return {}
    return {"over_budget": min(trial.gate.energy_excess, trial.gate.backlog_slope) - MOST_EXCESS}


class Store:
    """Played candidates in an Optuna study in SQLite; it is made with the first one, and must be closed.

    All methods raise a ``DataError`` if the file is damaged or no such study, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._study: optuna.Study | None = None
        self._storage: optuna.storages.RDBStorage | None = None
        self._kept: dict[str, Mapping[str, Any]] = {}
        if path.exists():
            with self._told():
                open_regular(path, ARCHIVE_BYTES).close()  # SQLite would wait for a named pipe
                for one in self._opened().get_trials(deepcopy=False):
                    self._kept[one.user_attrs.get("key", "")] = one.user_attrs

    def find(self, task: Candidate) -> Trial | None:
        """Return a candidate's costs; ``None`` if it was not played."""
        kept = self._kept.get(task.key)
        if kept is None:
            return None
        with self._told():
            lists = {
                name: tuple(math.nan if value is None else float(value) for value in kept[name])
                for name in ("delay", "priced", "energy_excess", "backlog_slope")
            }
            if any(len(values) != task.episodes for values in lists.values()):
                raise ValueError(f"other than {task.episodes} episodes of {task.place}")
            trial = Trial(task.scalars, whole=task.whole, **lists)
            if not all(map(math.isfinite, (trial.score, *_constraints(trial).values()))):
                raise ValueError(f"{task.place} has costs that are not finite")
            return trial

    def add(self, task: Candidate, trial: Trial) -> None:
        """Keep a candidate's costs."""
        kept = {"candidate": task.place, "key": task.key, **without_nan(dataclasses.asdict(trial))}
        added = optuna.create_trial(
            value=trial.score,
            params=_within_ranges(task.scalars),
            distributions=_distributions(list(task.scalars)),
            user_attrs=kept,
            constraints=_constraints(trial),
        )
        with self._told():
            if not self._path.exists():
                self._create()
            (self._study or self._opened()).add_trial(added)
        self._kept[task.key] = kept

    def close(self) -> None:
        """Close the database; it is opened again when needed."""
        if self._storage is not None:
            self._storage.remove_session()
            self._storage.engine.dispose()
        self._study = self._storage = None

    def _create(self) -> None:
        """Make an empty study under a temporary name, so that the file is never half of one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # What a deleted database left behind would be played back into the new one.
        self._path.with_name(f"{self._path.name}-journal").unlink(missing_ok=True)
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.partial")
        partial.unlink(missing_ok=True)
        try:
            self._opened(partial)
            self.close()
            partial.replace(self._path)
        finally:
            self.close()
            partial.unlink(missing_ok=True)

    def _opened(self, new: Path | None = None) -> optuna.Study:
        """The study, in the file or a new one."""
        path = new or self._path
        self._storage = optuna.storages.RDBStorage(
            "sqlite:///study",  # any name: that of the file may have characters with a meaning in an address
            {"creator": lambda: sqlite3.connect(path, timeout=60.0)},
            skip_table_creation=new is None,  # none in a database of something else
        )
        names = optuna.get_all_study_names(self._storage)
        if new is None and names != ["candidates"]:
            raise ValueError(f"expected the study candidates, got {names}")
        self._study = optuna.create_study(storage=self._storage, study_name="candidates", load_if_exists=True)
        return self._study

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turn the errors of Optuna, SQLAlchemy and SQLite, which have many classes, into one line."""
        try:
            yield
        except Exception as error:
            self.close()
            reason = f"{type(error).__name__}: {error.__cause__ or error}".partition("\n")[0]
            raise DataError(
                f"cannot use {self._path} as the study of a tuning ({shown(reason)}): delete it, and the "
                "candidates are played again, or choose another place with --out"
            ) from None

"""Optuna in a tuning: it proposes the candidates, and a study in a file keeps the played ones."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from collapipe_env.evaluation.gate import MOST_EXCESS
from collapipe_env.evaluation.tuning_space import RANGES, neutral_scalars
from collapipe_env.evaluation.tuning_trial import Candidate, Scalars, Trial
from collapipe_env.ground.errors import DataError, reason
from collapipe_env.ground.files import ARCHIVE_BYTES, open_regular

try:
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
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
        names: Scalars to search.
        candidates: Their number, >= 1.
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
    """Played candidates in an Optuna study, a journal file to which each one adds its lines.

    Args:
        path: The file; it is made with the first candidate.

    Raises:
        DataError: If it is damaged, or something else than such a study.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, Mapping[str, Any]] = {}
        if path.exists():
            with self._told():
                open_regular(path, ARCHIVE_BYTES).close()  # Optuna would wait for a named pipe
                self._kept = {one.user_attrs["key"]: one.user_attrs for one in self._study.trials}

    @functools.cached_property
    def _study(self) -> optuna.Study:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = str(self._path)
        lock = JournalFileOpenLock(file)  # the usual one needs rights on Windows
        backend = JournalFileBackend(file, lock)
        storage = optuna.storages.JournalStorage(backend)
        return optuna.create_study(storage=storage, study_name="candidates", load_if_exists=True)

    def find(self, task: Candidate) -> Trial | None:
        """Return a candidate's costs; ``None`` if it was not played.

        Raises:
            DataError: If they are damaged.
        """
        if task.key not in self._kept:
            return None
        with self._told():
            kept = self._kept[task.key]
            lists = {
                name: tuple(map(float, kept[name]))
                for name in ("delay", "priced", "energy_excess", "backlog_slope")
            }
            if any(len(values) != task.episodes for values in lists.values()):
                raise ValueError(f"other than {task.episodes} episodes of {task.place}")
            trial = Trial(task.scalars, whole=kept["whole"], **lists)
            if not isinstance(trial.whole, bool) or not math.isfinite(trial.score):
                raise ValueError(f"{task.place} has costs that are no numbers")
            return trial

    def add(self, task: Candidate, trial: Trial) -> None:
        """Keep a candidate's costs.

        Raises:
            DataError: If the file cannot be written.
        """
        kept = {"candidate": task.place, "key": task.key, **dataclasses.asdict(trial)}
        added = optuna.create_trial(
            value=trial.score,
            params=_within_ranges(task.scalars),
            distributions=_distributions(list(task.scalars)),
            user_attrs=kept,
            constraints=_constraints(trial),
        )
        with self._told():
            self._study.add_trial(added)
        self._kept[task.key] = kept

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turn the errors of Optuna, which have many classes, into one line."""
        try:
            yield
        except Exception as error:
            raise DataError(
                f"cannot use {self._path} as the study of a tuning ({type(error).__name__}: {reason(error)}):"
                " delete it, and the candidates are played again, or choose another place with --out"
            ) from None

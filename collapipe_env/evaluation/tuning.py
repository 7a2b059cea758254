"""Tuning of DSSRA+: candidates play the same episodes, the best one is checked on fresh episodes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from collapipe_env.evaluation.executor import Executor, Hooks
from collapipe_env.evaluation.own_parts import knowing_all
from collapipe_env.evaluation.pool import LocalExecutor
from collapipe_env.evaluation.tuning_space import neutral_scalars
from collapipe_env.evaluation.tuning_study import Store, search
from collapipe_env.evaluation.tuning_trial import Candidate, Scalars, Trial, play_candidate
from collapipe_env.scenario import Scenario

TUNING_SEED = 1_000_000_000
"""Seed of the first episode that candidates play; training, validation and evaluation use others."""
CHECK_SEED = 1_050_000_000
"""Seed of the first episode on which the best candidate is checked."""
SEEDS_EACH = 10_000
"""Episodes set aside for each seed of a search."""


@dataclass(frozen=True)
class TuningPlan:
    """Search for scalars: the scalars, and the episodes on which they are tried.

    Attributes:
        scenario: The scenario, long enough for the rounds.
        scheduler: Name of the scheduler, which reads the scenario's section ``dssra_plus``.
        names: Scalars to search.
        check_episodes: Fresh episodes for the best candidate.
        seed: Seed of the search and of the episodes.
        store: File of finished candidates, an Optuna study in SQLite.
    """

    scenario: Scenario
    scheduler: str
    names: tuple[str, ...]
    candidates: int
    episodes: int
    check_episodes: int
    rounds: int
    seed: int
    store: Path

    def candidate(self, place: str, scalars: Scalars, seed: int, episodes: int) -> Candidate:
        """Return a candidate of the search by its place among all, in words, and its first episode's seed."""
        neutral = dataclasses.asdict(type(self.scenario.dssra_plus)())
        scenario = self.scenario.with_overrides({"dssra_plus": {**neutral, **scalars}})
        return Candidate(self.scheduler, scenario, scalars, seed, episodes, self.rounds, place)


@dataclass(frozen=True)
class Tuned:
    """Outcome of a search.

    Attributes:
        trials: All candidates in order; the first is neutral.
        best: Index of the best candidate.
        check: The best and the neutral candidate on fresh episodes; ``None`` if the best is neutral.
    """

    trials: tuple[Trial, ...]
    best: int
    check: tuple[Trial, Trial] | None

    @property
    def chosen(self) -> Scalars:
        """Scalars to write down: the best candidate's, unless fresh episodes favour the neutral ones."""
        kept = self.check is not None and self.check[0].rank < self.check[1].rank
        return self.trials[self.best if kept else 0].scalars


def tune(
    plan: TuningPlan,
    on_round: Callable[[], None] = lambda: None,
    on_trial: Callable[[str, Trial, bool], None] = lambda *_: None,
    executor: Executor | None = None,
    on_again: Callable[[str, str], None] = lambda *_: None,
) -> Tuned:
    """Search for scalars, and check the best ones; finished candidates are read from the plan's file.

    Args:
        on_round: Called after each round of all episodes at once; not by engines on other machines.
        on_trial: Called with each candidate's place (``"candidate 3"``, ``"check of the best"``), the
            candidate, and whether it was finished before.
        executor: Plays the candidates of a batch; by default this process, one after another.
        on_again: Called with the place of a restarted candidate, and the reason.

    Raises:
        CollaPipeError: If the scheduler cannot play, or the file cannot be read or written.
    """
    where = knowing_all(executor or LocalExecutor(1), [plan.scenario])
    first, fresh = (start + SEEDS_EACH * plan.seed for start in (TUNING_SEED, CHECK_SEED))
    with contextlib.closing(Store(plan.store)) as store:

        def tried(asked: Mapping[str, Scalars], seed: int, episodes: int) -> list[Trial]:
            """Costs of candidates by place; missing ones are played, in parallel where possible."""
            tasks = [plan.candidate(place, scalars, seed, episodes) for place, scalars in asked.items()]
            found = {task.place: trial for task in tasks if (trial := store.find(task)) is not None}
            for place, trial in found.items():
                on_trial(place, trial, True)

            def done(task: Candidate, trial: Trial) -> None:
                store.add(task, trial)
                found[task.place] = trial
                on_trial(task.place, trial, False)

            where.run(
                play_candidate,
                [task for task in tasks if task.place not in found],
                Hooks(done, lambda _: on_round(), again=lambda task, reason: on_again(task.place, reason)),
            )
            return [found[place] for place in asked]

        trials = search(
            plan.names, plan.candidates, plan.seed, lambda asked: tried(asked, first, plan.episodes)
        )
        best = min(range(len(trials)), key=lambda index: trials[index].rank)
        check = None
        if trials[best].scalars != neutral_scalars(plan.names):
            pair = {"check of the best": trials[best].scalars, "check of neutral": trials[0].scalars}
            of_best, of_neutral = tried(pair, fresh, plan.check_episodes)
            check = (of_best, of_neutral)
    return Tuned(tuple(trials), best, check)

"""Tuning of DSSRA+: candidates play the same episodes, and their costs are kept in files."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collapipe_env.envs.observation_kinds import observation_kind
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.executor import Executor, Hooks
from collapipe_env.evaluation.gate import Gate, is_whole, judge, late_slope
from collapipe_env.evaluation.own_parts import knowing_all
from collapipe_env.evaluation.pool import LocalExecutor
from collapipe_env.evaluation.resampling import Estimate, estimate
from collapipe_env.evaluation.scheduler_loading import load_scheduler
from collapipe_env.evaluation.tuning_search import Scalars, Search
from collapipe_env.evaluation.tuning_space import neutral_scalars
from collapipe_env.ground.errors import DataError, SchedulerError
from collapipe_env.ground.files import json_digest, read_json, write_json
from collapipe_env.ground.version import __version__
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.learners.surrogate_fits import has_fit
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.loading import scenario_digest
from collapipe_env.schedulers import Scheduler, scheduler_seed

TUNING_SEED = 1_000_000_000
"""Seed of the first episode that candidates play; training, validation and evaluation use others."""
CHECK_SEED = 1_050_000_000
"""Seed of the first episode on which the best candidate is checked."""
SEEDS_EACH = 10_000
"""Episodes set aside for each seed of a search."""
OVER_BUDGET = 1e9
"""Added to the score of a candidate that is over its energy budget [s]."""


@dataclass(frozen=True)
class Trial:
    """Episodes of one candidate.

    Attributes:
        scalars: Its scalars by name.
        delay: Mean delay of a round in each episode (E,) [s].
        priced: Mean delay with a price for the energy queues left at the end, ``(V sum T + L(end)) / (V
            rounds)`` (E,) [s]: the sum of DSSRA's objectives over all rounds. Delay saved with energy over
            budget is no gain here.
        energy_excess: Worst node's time-average energy over its budget, less 1 (E,).
        backlog_slope: Growth of the largest queue over the last half (E,) [budgets a round].
        whole: Whether an episode is long enough for the mark of energy over budget.
    """

    scalars: Scalars
    delay: tuple[float, ...]
    priced: tuple[float, ...]
    energy_excess: tuple[float, ...]
    backlog_slope: tuple[float, ...]
    whole: bool

    @property
    def gate(self) -> Gate:
        """Whether it is over its energy budget, as in an evaluation."""
        return judge(self.whole, [self.energy_excess], [self.backlog_slope])

    @property
    def score(self) -> float:
        """Mean priced delay [s]; candidates over their energy budgets rank after all others."""
        return float(np.mean(self.priced)) + (OVER_BUDGET if self.gate.failed else 0.0)

    def against(self, other: Trial) -> Estimate:
        """Relative difference of the priced delay to another candidate's in the same episodes.

        Args:
            other: The other candidate.
        """
        return estimate(np.asarray(self.priced) / np.asarray(other.priced) - 1.0)

    def delay_against(self, other: Trial) -> Estimate:
        """Relative difference of the mean delay to another candidate's in the same episodes.

        Args:
            other: The other candidate.
        """
        return estimate(np.asarray(self.delay) / np.asarray(other.delay) - 1.0)


@dataclass(frozen=True)
class TuningPlan:
    """Search for scalars: the scalars, and the episodes on which they are tried.

    Attributes:
        scenario: The scenario, long enough for the rounds.
        scheduler: Name of the scheduler, which reads the scenario's section ``dssra_plus``.
        names: Scalars to search.
        candidates: Number of candidates.
        episodes: Episodes that each candidate plays.
        check_episodes: Fresh episodes for the best candidate.
        rounds: Rounds of an episode.
        seed: Seed of the draws and of the episodes.
        folder: Folder of finished candidates.
    """

    scenario: Scenario
    scheduler: str
    names: tuple[str, ...]
    candidates: int
    episodes: int
    check_episodes: int
    rounds: int
    seed: int
    folder: Path

    def with_scalars(self, scalars: Mapping[str, float]) -> Scenario:
        """Return the scenario with other scalars.

        Args:
            scalars: Values by name.
        """
        return self.scenario.with_overrides(
            {"dssra_plus": {**dataclasses.asdict(type(self.scenario.dssra_plus)()), **scalars}}
        )


@dataclass(frozen=True)
class Tuned:
    """Outcome of a search.

    Attributes:
        trials: All candidates in order; the first is neutral.
        best: Index of the candidate with the lowest score.
        check: The best and the neutral candidate on fresh episodes; ``None`` if the best is neutral.
    """

    trials: tuple[Trial, ...]
    best: int
    check: tuple[Trial, Trial] | None

    @property
    def chosen(self) -> Scalars:
        """Scalars to write down: the best candidate's, unless fresh episodes favour the neutral ones."""
        kept = self.check is not None and self.check[0].score < self.check[1].score
        return self.trials[self.best if kept else 0].scalars


@dataclass(frozen=True)
class Candidate:
    """One candidate to be played, as a task.

    Attributes:
        place: ``"candidate 3"``, ``"check of the best"``.
        scheduler: Name of the scheduler.
        scenario: The scenario with the candidate's scalars.
        scalars: The candidate's scalars.
        seed: Seed of the first episode.
        episodes: Number of episodes, played at once.
        rounds: Rounds of each episode.
    """

    place: str
    scheduler: str
    scenario: Scenario
    scalars: Scalars
    seed: int
    episodes: int
    rounds: int

    def __str__(self) -> str:
        return f"{self.place} of scheduler {self.scheduler!r}"


def _try(task: Candidate, on_round: Callable[[], None]) -> Trial:
    return play_candidate(
        task.scheduler, task.scenario, task.scalars, task.seed, task.episodes, task.rounds, on_round
    )


def tune(
    plan: TuningPlan,
    on_round: Callable[[], None] = lambda: None,
    on_trial: Callable[[str, Trial, bool], None] = lambda *_: None,
    executor: Executor | None = None,
    on_again: Callable[[str, str], None] = lambda *_: None,
) -> Tuned:
    """Search for scalars, and check the best ones; finished candidates are read from the plan's folder.

    Args:
        plan: The search.
        on_round: Called after each round of all episodes at once; not by engines on other machines.
        on_trial: Called with each candidate's place (``"candidate 3"``, ``"check of the best"``), the
            candidate, and whether it was finished before.
        executor: Plays the candidates of a generation; by default this process, one after another.
        on_again: Called with the place of a restarted candidate, and the reason.

    Raises:
        CollaPipeError: If the scheduler cannot play, or a file cannot be read or written.
    """
    where = knowing_all(executor or LocalExecutor(1), [plan.scenario])

    def tried(asked: Mapping[str, Scalars], seed: int, episodes: int) -> list[Trial]:
        """The candidates by place; missing ones are played, in parallel where possible."""
        found: dict[str, Trial] = {}
        missing = []
        keys = {place: _key(plan, scalars, seed, episodes) for place, scalars in asked.items()}
        for place, scalars in asked.items():
            known = _read(_file(plan, place), keys[place], episodes)
            if known is None:
                scenario = plan.with_scalars(scalars)
                missing.append(
                    Candidate(place, plan.scheduler, scenario, scalars, seed, episodes, plan.rounds)
                )
            else:
                found[place] = known
                on_trial(place, known, True)

        def done(task: Candidate, trial: Trial) -> None:
            write_json(_file(plan, task.place), {"key": keys[task.place], **dataclasses.asdict(trial)})
            found[task.place] = trial
            on_trial(task.place, trial, False)

        where.run(
            _try,
            missing,
            Hooks(done, lambda _: on_round(), again=lambda task, reason: on_again(task.place, reason)),
        )
        return [found[place] for place in asked]

    first = TUNING_SEED + SEEDS_EACH * plan.seed
    trials: list[Trial] = []
    for candidates, scores in Search(plan.names, plan.candidates, plan.seed).generations():
        asked = {f"candidate {len(trials) + i}": scalars for i, scalars in enumerate(candidates)}
        trials += tried(asked, first, plan.episodes)
        scores += [trial.score for trial in trials[len(trials) - len(candidates) :]]
    best = int(np.argmin([trial.score for trial in trials]))
    check = None
    if trials[best].scalars != neutral_scalars(plan.names):
        fresh = CHECK_SEED + SEEDS_EACH * plan.seed
        pair = {"check of the best": trials[best].scalars, "check of neutral": trials[0].scalars}
        of_best, of_neutral = tried(pair, fresh, plan.check_episodes)
        check = (of_best, of_neutral)
    return Tuned(tuple(trials), best, check)


def play_candidate(
    scheduler: str,
    scenario: Scenario,
    scalars: Mapping[str, float],
    seed: int,
    episodes: int,
    rounds: int,
    on_round: Callable[[], None] = lambda: None,
) -> Trial:
    """Play one candidate; the same seed means the same channels and loads for all candidates.

    A target loss of the scenario does not end episodes.

    Args:
        scenario: The scenario with the candidate's scalars.
        scalars: The candidate's scalars, for the record.
        seed: Seed of the first episode; the next episodes have the next numbers.
        episodes: Number of episodes, played at once.
        rounds: Rounds of each episode.
        on_round: Called after each round.

    Raises:
        SchedulerError: If the delays or energies are not finite.
    """
    decides = load_scheduler(scheduler, scenario, None)
    env = CollaPipeVectorEnv(
        num_envs=episodes,
        scenario=scenario.with_overrides({"dynamics.target_loss": None}),
        learner="surrogate" if has_fit(scenario) else IdleLearner(episodes),
        reward="lyapunov",
        autoreset_mode="Disabled",
        max_episode_steps=rounds,
        observation=observation_kind(decides),
    )
    decides.reset(scheduler_seed(0))
    observation, _ = env.reset(seed=seed)
    largest = np.empty((rounds, episodes))
    for index in range(rounds):
        observation = _played(env, decides, observation)
        record = env.last_round
        assert record is not None
        largest[index] = record.backlog.max(axis=(-2, -1))
        if record.server_backlog is not None:
            largest[index] = np.maximum(largest[index], record.server_backlog)
        on_round()
    summaries = [env.summary(row) for row in range(episodes)]
    found = Trial(
        scalars=dict(scalars),
        delay=tuple(summary["mean_delay"] for summary in summaries),
        priced=tuple(-summary["return"] * env.reference_delay / rounds for summary in summaries),
        energy_excess=tuple(summary["energy_ratio_max"] - 1.0 for summary in summaries),
        backlog_slope=tuple(late_slope(queue.tolist()) for queue in largest.T),
        whole=is_whole(rounds, scenario.dynamics.rounds),
    )
    if not np.isfinite([*found.priced, *found.energy_excess]).all():
        raise SchedulerError(
            f"scheduler {scheduler!r} with {_named(scalars)} has delays or energies that are not finite: "
            "it cannot be tuned on this scenario"
        )
    return found


def _played(env: CollaPipeVectorEnv, scheduler: Scheduler, observation: Any) -> Any:
    """The observation after a round of all episodes."""
    decision = scheduler.act(observation, env.state.map(np.copy))
    if isinstance(decision, Allocation):
        return env.step_allocation(decision)[0]
    return env.step(decision)[0]


def _named(scalars: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {value:g}" for name, value in scalars.items())


def _file(plan: TuningPlan, place: str) -> Path:
    """File of a finished candidate."""
    return plan.folder / f"{place.replace(' ', '-')}.json"


def _key(plan: TuningPlan, scalars: Scalars, seed: int, episodes: int) -> str:
    """Digest of everything on which a candidate's result depends."""
    parts = (
        __version__,
        scenario_digest(plan.with_scalars(scalars)),
        plan.scheduler,
        seed,
        episodes,
        plan.rounds,
    )
    return json_digest(parts)


def _read(file: Path, key: str, episodes: int) -> Trial | None:
    """A finished candidate; ``None`` if there is none, or it belongs to another search."""
    if not file.is_file():
        return None
    remedy = "delete it, and the candidate is measured again"
    content = read_json(file, remedy)
    if content.pop("key", None) != key:
        return None
    try:
        scalars = {str(name): float(value) for name, value in content.pop("scalars").items()}
        whole = bool(content.pop("whole"))
        lists = {
            name: tuple(math.nan if value is None else float(value) for value in content.pop(name))
            for name in ("delay", "priced", "energy_excess", "backlog_slope")
        }
        if content or any(len(values) != episodes for values in lists.values()):
            raise ValueError("other fields or lengths")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{file} is damaged ({error}): {remedy}") from None
    return Trial(scalars, whole=whole, **lists)


def ranked(trials: Sequence[Trial]) -> list[int]:
    """Return the indices of candidates, lowest score first.

    Args:
        trials: The candidates.
    """
    return sorted(range(len(trials)), key=lambda index: trials[index].score)

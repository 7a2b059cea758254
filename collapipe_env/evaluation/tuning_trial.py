"""One candidate of a tuning: its scalars, the episodes that it plays, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from collapipe_env.envs.observation_kinds import observation_kind
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.gate import Gate, is_whole, judge, late_slope
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.errors import SchedulerError
from collapipe_env.ground.files import json_digest
from collapipe_env.ground.version import __version__
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.learners.surrogate_fits import has_fit
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.loading import scenario_digest
from collapipe_env.schedulers import scheduler_seed

Scalars = dict[str, float]
"""Values of the tuned scalars by name."""


@dataclass(frozen=True)
class Trial:
    """Costs of a candidate.

    Attributes:
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
        """Mean priced delay [s]."""
        return float(np.mean(self.priced))

    @property
    def rank(self) -> tuple[bool, float]:
        """Smaller is better: candidates over their energy budgets rank after all others."""
        return self.gate.failed, self.score


@dataclass(frozen=True)
class Candidate:
    """One candidate to be played, as a task.

    Attributes:
        scenario: The scenario with the candidate's scalars.
        seed: Seed of the first episode; the next episodes have the next numbers.
        episodes: Number of episodes, played at once.
        place: ``"candidate 3"``, ``"check of the best"``.
    """

    scheduler: str
    scenario: Scenario
    scalars: Scalars
    seed: int
    episodes: int
    rounds: int
    place: str = "candidate"

    def __str__(self) -> str:
        return f"{self.place} of scheduler {self.scheduler!r}"

    @property
    def whole(self) -> bool:
        """Whether its episodes are long enough for the mark of energy over budget."""
        return is_whole(self.rounds, self.scenario.dynamics.rounds)

    @property
    def key(self) -> str:
        """Digest of everything on which its costs depend."""
        played = (self.scheduler, self.seed, self.episodes, self.rounds)
        return json_digest((__version__, scenario_digest(self.scenario), *played))


def play_candidate(task: Candidate, on_round: Callable[[], None] = lambda: None) -> Trial:
    """Play one candidate; the same seed means the same channels and loads for all candidates.

    A target loss of the scenario does not end episodes.

    Raises:
        SchedulerError: If the delays or energies are not finite.
    """
    scenario, rounds, episodes = task.scenario, task.rounds, task.episodes
    decides = make_scheduler(task.scheduler, scenario)
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
    observation, _ = env.reset(seed=task.seed)
    largest = np.zeros((rounds, episodes))
    for index in range(rounds):
        decision = decides.act(observation, env.state.map(np.copy))
        step = env.step_allocation(decision) if isinstance(decision, Allocation) else env.step(decision)
        observation = step[0]
        record = env.last_round
        assert record is not None
        server = 0.0 if record.server_backlog is None else record.server_backlog
        largest[index] = np.maximum(record.backlog.max(axis=(-2, -1)), server)
        on_round()
    summaries = [env.summary(row) for row in range(episodes)]
    found = Trial(
        scalars=task.scalars,
        delay=tuple(summary["mean_delay"] for summary in summaries),
        priced=tuple(-summary["return"] * env.reference_delay / rounds for summary in summaries),
        energy_excess=tuple(summary["energy_ratio_max"] - 1.0 for summary in summaries),
        backlog_slope=tuple(late_slope(queue.tolist()) for queue in largest.T),
        whole=task.whole,
    )
    if not np.isfinite([*found.priced, *found.energy_excess]).all():
        raise SchedulerError(
            f"scheduler {task.scheduler!r} with {scalars_text(task.scalars)} has delays or energies that are "
            "not finite: it cannot be tuned on this scenario"
        )
    return found


def scalars_text(scalars: Scalars) -> str:
    """Scalars in a line."""
    return ", ".join(f"{name} = {value:g}" for name, value in scalars.items())

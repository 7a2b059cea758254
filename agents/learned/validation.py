"""Validation of a policy while it learns, and the choice of the best version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.learners.expected_progress import LEAST_PROGRESS, progress_law
from collapipe_env.scenario import Scenario

VALIDATION_SEED = 1_200_000_000
"""First seed of the validation episodes; training and the final evaluation use others."""


@dataclass(frozen=True)
class Score:
    """One validation.

    Attributes:
        steps: Transitions of training before it.
        seconds: Wall-clock time of training before it.
        priced_delay: Mean round delay with the price of the energy queues' growth, ``(V sum T + L(end)) / (V
            rounds)`` with ``L = 1/2 sum z^2``, mean over episodes [s]. Where the scenario leaves
            participation or local steps open, it is priced time per unit of expected progress.
        mean_delay: Round delay, mean over rounds and episodes [s].
        energy_ratio: Worst node's time-average energy over its budget, mean over episodes.
        backlog: Final sum of the energy queues, mean over episodes.
        objective: Number by which versions are compared [s]: the priced delay, of several scenarios where
            the agent is to play several.
    """

    steps: int
    seconds: float
    priced_delay: float
    mean_delay: float
    energy_ratio: float
    backlog: float
    objective: float

    def better_than(self, other: Score | None) -> bool:
        """Whether to keep this version rather than another: the smaller objective wins.

        The objective is what the exact reward sums up over an episode (`environment.md`), whatever reward
        the agent trains with. The mean delay of versions within the budgets would not do: over a finite
        episode every good policy, DSSRA too, ends with some backlog, and thus a little above the budgets.
        """
        return other is None or self.objective < other.objective

    @property
    def curves(self) -> dict[str, float]:
        """Its figures by the names of their curves."""
        return {
            "validation/priced_delay_s": self.priced_delay,
            "validation/mean_delay_s": self.mean_delay,
            "validation/worst_energy_ratio": self.energy_ratio,
            "validation/final_backlog": self.backlog,
            "validation/objective": self.objective,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Score:
        """The inverse of :meth:`to_dict`.

        Raises:
            TypeError: If fields are missing or unknown.
            ValueError: If one is not a number.
        """
        values = {name: float(value) for name, value in data.items()}
        return cls(**{**values, "steps": int(values.get("steps", 0))})  # type: ignore[arg-type]


class Validator:
    """Plays the same held-out episodes with the surrogate learner, all at once.

    The learner does not change delays and energies, so the surrogate gives the true figures.

    Args:
        scenario: The scenario; its target loss is ignored, every episode has all its rounds.
        episodes: Number of episodes.

    Attributes:
        env: The environment in which they are played.
    """

    def __init__(self, scenario: Scenario, episodes: int) -> None:
        self.env = CollaPipeVectorEnv(
            num_envs=episodes,
            scenario=scenario.with_overrides({"dynamics.target_loss": None}),
            learner="surrogate",
            reward="lyapunov",
            autoreset_mode="Disabled",
        )
        self._law = progress_law(scenario)

    def __call__(self, policy: Any, steps: int, seconds: float) -> Score:
        """Validate a policy, playing its most likely actions.

        Args:
            policy: A model or policy of Stable-Baselines3, or anything with its ``predict``.
            steps: Recorded in the score.
            seconds: Recorded in the score.
        """
        observation, _ = self.env.reset(seed=VALIDATION_SEED)
        rounds = self.env.scenario.dynamics.rounds
        made = 0.0
        for _ in range(rounds):
            action, _ = policy.predict(observation, deterministic=True)
            observation, *_ = self.env.step(action)
            record = self.env.last_round
            if self._law is not None and record is not None:
                made += float(self._law.of_costs(record.costs).mean())
        units = rounds if self._law is None else max(made, LEAST_PROGRESS)
        return score_of(self.env, units, steps, seconds)


def score_of(env: CollaPipeVectorEnv, units: float, steps: int, seconds: float) -> Score:
    """Score of the episodes that were played in an environment.

    Args:
        units: What the priced time is counted in: rounds, or expected progress.
        steps: Recorded in the score, like ``seconds``.
    """
    summaries = [env.summary(row) for row in range(env.num_envs)]

    def mean(name: str) -> float:
        return float(np.mean([summary[name] for summary in summaries]))

    priced = -mean("return") * env.reference_delay / units
    return Score(
        steps,
        seconds,
        priced,
        mean("mean_delay"),
        mean("energy_ratio_max"),
        mean("final_backlog"),
        objective=priced,
    )

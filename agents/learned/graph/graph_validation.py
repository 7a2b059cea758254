"""Validation of the graph net while it learns, on systems that it does not train on."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from collapipe_env.agents.learned.validation import VALIDATION_SEED, Score
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.feasibility import EnergyBudgetWarning
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import Scenario, load_scenario

from .graph_parameters import GraphParameters
from .graph_scheduler import GraphScheduler
from .net import GraphNet
from .random_systems import scaled, wild_system

_BETWEEN = scaled(8) | {
    "cluster.devices": 6,
    "cluster.layout": "per_episode",
    "cluster.cluster_separation_min_m": 60.0,
}
"""A size between medium and large, with new layouts in every episode."""


def validation_scenarios() -> tuple[Scenario, ...]:
    """Scenarios on which versions of the net are compared: two sizes of the ladder, and one between them.

    Where a change of plan has a price (`boards`), objectives swing by a tenth from one version to the next,
    which would drown the differences on all other scenarios.
    """
    medium = load_scenario("medium")
    return (load_scenario("small"), medium, medium.with_overrides(_BETWEEN))


def wild_scenarios() -> tuple[Scenario, ...]:
    """Scenarios of the tier Wild on which versions are compared: `large-wild`, and one of 48 clusters.

    `large-wild` alone hardly tells nets apart that differ by a tenth on systems three times as large.
    """
    return (load_scenario("large-wild"), wild_system(np.random.default_rng(0), 48, least_clusters=48))


def graph_validator(shown: Scenario, parameters: GraphParameters) -> GraphValidator:
    """The validator of a training.

    Args:
        shown: Scenario whose delay, energy and backlog the scores give.
        parameters: Hyper-parameters of the training.
    """
    if not parameters.random_groups:
        # Without random systems, a net is for its own.
        return GraphValidator(shown, (shown,))
    if parameters.random_systems == "wild":
        return GraphValidator(shown, wild_scenarios(), episodes=4, rounds=60)
    return GraphValidator(shown, validation_scenarios())


class GraphValidator:
    """Plays the same held-out episodes of several scenarios, all of one scenario at once.

    Args:
        shown: Scenario whose delay, energy and backlog the scores give.
        scenarios: Scenarios on whose objectives versions are compared.
        rounds: Rounds of an episode.
    """

    def __init__(
        self, shown: Scenario, scenarios: tuple[Scenario, ...], episodes: int = 8, rounds: int = 100
    ) -> None:
        length = {"dynamics.rounds": rounds, "dynamics.target_loss": None}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EnergyBudgetWarning)  # of layouts that are redrawn
            self._envs = [
                CollaPipeVectorEnv(
                    episodes,
                    scenario=scenario.with_overrides(length),
                    learner=IdleLearner(episodes),
                    reward="lyapunov",
                    autoreset_mode="Disabled",
                )
                for scenario in (*(scenario for scenario in scenarios if scenario != shown), shown)
            ]
        self._compares_shown = shown in scenarios

    def __call__(self, net: GraphNet, steps: int, seconds: float) -> Score:
        """Validate a version of the net.

        Args:
            steps: Recorded in the score.
            seconds: Recorded in the score.

        Returns:
            Score of the scenario shown, with the geometric mean of the priced delays of the others, so that
            longer rounds give none of them more weight.
        """
        priced: list[float] = []
        for env in self._envs:
            env.reset(seed=VALIDATION_SEED)
            scheduler = GraphScheduler(env.scenario, net)
            rounds = env.scenario.dynamics.rounds
            for _ in range(rounds):
                env.step_allocation(scheduler.act(None, env.state))
            summaries = [env.summary(row) for row in range(env.num_envs)]
            priced.append(-_mean(summaries, "return") * env.reference_delay / rounds)
        return Score(
            steps,
            seconds,
            priced_delay=priced[-1],
            mean_delay=_mean(summaries, "mean_delay"),
            energy_ratio=_mean(summaries, "energy_ratio_max"),
            backlog=_mean(summaries, "final_backlog"),
            objective=math.exp(float(np.mean(np.log(priced if self._compares_shown else priced[:-1])))),
        )


def _mean(summaries: list[dict[str, Any]], name: str) -> float:
    return float(np.mean([summary[name] for summary in summaries]))

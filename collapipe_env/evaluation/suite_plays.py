"""What is played on an id of the suite: held-out episodes, until the target loss where it has one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from collapipe_env.envs.suite import SuiteEntry
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.loading import scenario_digest
from collapipe_env.zoo.shipped_agents import is_shipped, shipped_agent


def made_from(entry: SuiteEntry) -> str:
    """Digest of what an id's returns are measured from: its scenario, with the scalars of DSSRA+."""
    return scenario_digest(load_scenario(entry.scenario))[:16]


def agents_of(entry: SuiteEntry) -> dict[str, str]:
    """Digests of the shipped agents that are measured on an id, by their names."""
    return {name: shipped_agent(name).sha256[:16] for name in filter(is_shipped, entry.schedulers)}


def plan_of(
    entry: SuiteEntry,
    folder: Path,
    schedulers: tuple[str, ...],
    *,
    agents: tuple[Path, ...] = (),
    seeds: tuple[int, ...] = (),
    episodes: int | None = None,
    rounds: int | None = None,
    blind: bool = False,
) -> EvaluationPlan:
    """Return the plan of an id's episodes.

    Args:
        folder: Folder of finished episodes.
        agents: Files of the scheduler ``"agent"``, one for each training run.
        seeds: Seeds of the episodes; by default those of the held-out ones.
        episodes: Number of episodes, without seeds; by default the id's.
        rounds: Most rounds of an episode; by default the scenario's.
        blind: Whether schedulers receive no state.
    """
    scenario = load_scenario(entry.scenario)
    own = scenario.dynamics.rounds
    return EvaluationPlan(
        scenario=scenario,
        schedulers=schedulers,
        agents=agents,
        episodes=len(seeds) or episodes or entry.episodes,
        rounds=min(rounds or own, own),
        learner=entry.learner,
        folder=folder,
        seeds=seeds,
        blind=blind,
        until_target=entry.until_target,
    )


def episode_return(result: EpisodeResult) -> float:
    """Return of an episode under its id's reward, the drift plus penalty."""
    return float(np.sum(result.reward))

"""Rounds of a scheduler in the environment."""

from __future__ import annotations

import numpy as np

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler


def mean_delays(
    scenario: Scenario,
    scheduler: Scheduler,
    variants: int,
    episodes: int,
    rounds: int,
    skipped: int,
    first_seed: int = 0,
) -> FloatArray:
    """Mean delay of a round (variants, episodes) [s].

    Args:
        scheduler: Scheduler that decides rows of all variants, all episodes of the first variant first.
        variants: Variants of the scheduler that are played side by side.
        episodes: Episodes of each; the episodes of all schedulers and variants have the same random numbers.
        rounds: Rounds that count.
        skipped: Rounds before them.
        first_seed: Seed of the first episode; the others have the next ones.
    """
    rows = variants * episodes
    env = CollaPipeVectorEnv(rows, scenario, IdleLearner(rows), autoreset_mode="Disabled")
    seeds = list(range(first_seed, first_seed + episodes)) * variants
    observation, _ = env.reset(seed=seeds)
    scheduler.reset()
    total = np.zeros(rows)
    for played in range(skipped + rounds):
        decision = scheduler.act(observation, env.state)
        step = env.step_allocation if isinstance(decision, Allocation) else env.step
        observation = step(decision)[0]  # type: ignore[arg-type]
        if played >= skipped:
            assert env.last_round is not None
            total += env.last_round.costs.delay
    return (total / rounds).reshape(variants, episodes)

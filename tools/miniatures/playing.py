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
    observation, _ = env.reset(seed=list(range(first_seed, first_seed + episodes)) * variants)
    scheduler.reset()
    total = np.zeros(rows)
    for index in range(skipped + rounds):
        decision = scheduler.act(observation, env.state)
        if isinstance(decision, Allocation):
            observation = env.step_allocation(decision)[0]
        else:
            observation = env.step(decision)[0]
        record = env.last_round
        assert record is not None
        if index >= skipped:
            total += record.costs.delay
    return (total / rounds).reshape(variants, episodes)

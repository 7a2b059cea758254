"""Rounds of a scheduler in an environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.allocation import Allocation
from collapipe_env.schedulers import Scheduler
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.state import SystemState


def rounds(
    env: CollaPipeVectorEnv,
    scheduler: Scheduler,
    count: int,
    seed: int | list[int] = 0,
    sees: Callable[[CollaPipeVectorEnv], SystemState] = lambda env: env.state,
) -> Iterator[RoundRecord]:
    """Play from the beginning of episodes, and hand out every round when it is over.

    Args:
        env: Environments; reset here.
        scheduler: Decides; reset here.
        count: Rounds.
        seed: Seed of the episodes.
        sees: What the scheduler decides from.
    """
    observation, _ = env.reset(seed=seed)
    scheduler.reset()
    for _ in range(count):
        decision = scheduler.act(observation, sees(env))
        step = env.step_allocation if isinstance(decision, Allocation) else env.step
        observation = step(decision)[0]  # type: ignore[arg-type]
        record = env.last_round
        assert record is not None
        yield record

"""One scheduler on one held-out episode, and the results that are kept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.envs.observation_kinds import Observation, observation_kind
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.declared_sight import seen_by, sees_truth, title_of
from collapipe_env.evaluation.episode_result import COLUMNS, EpisodeResult
from collapipe_env.evaluation.own_scheduler import OwnScheduler
from collapipe_env.ground.errors import shown
from collapipe_env.ground.records import tree_of
from collapipe_env.learners.expected_progress import progress_law
from collapipe_env.physics.allocation import Allocation, stack_allocations
from collapipe_env.physics.queues import budgets_used
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Decision, Scheduler, scheduler_seed
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.decision import opened_rows
from collapipe_env.simulator.record import RoundRecord

OTHERS = "others."
"""Prefix of the names under which values of decisions without a field of the plan are kept."""
HEADER_BYTES = 16 * 1024
"""Largest size of the header of an array in a file [byte]; NumPy reads no longer headers."""
NUMBER_BYTES = 16
"""Bytes of NumPy's largest real numbers."""
HELD_OUT_SEED = 1_300_000_000
"""Seed of the first held-out episode; neither training nor validation uses these seeds."""


@dataclass(frozen=True)
class PlayedEpisode:
    """An episode's figures and the decisions that led to them.

    Attributes:
        result: The figures.
        allocations: One for each round, without batch axis.
    """

    result: EpisodeResult
    allocations: list[Allocation]


def play_episode(
    name: str,
    scheduler: Scheduler,
    scenario: Scenario,
    episode: int,
    rounds: int,
    learner: str,
    on_round: Callable[[], None] = lambda: None,
    run: int = 0,
    samples: int = 0,
    model: Path | None = None,
    *,
    seed: int | None = None,
    blind: bool = False,
    until_target: bool = False,
) -> PlayedEpisode:
    """Play one held-out episode; the same number means the same channels, loads and data for all.

    Args:
        name: Requested name of the scheduler.
        episode: Number of the episode, from 0.
        rounds: Rounds to play, at most the scenario's.
        run: Training run of a learned scheduler, from 0.
        samples: Continuations that the trained model writes at the end; above 0 with ``"real"`` only.
        model: New folder for the trained model in Hugging Face format, with ``"real"`` only; None keeps none.
        seed: Seed of the episode; by default that of its number.
        blind: The scheduler receives ``None`` instead of the state, and decides from the observation alone.
        until_target: Whether a target loss of the scenario ends it; otherwise all rounds are played.
    """
    target = scenario.dynamics.target_loss if until_target else None
    env = _environment(scenario, rounds, learner, observation_kind(scheduler))
    scheduler.reset(scheduler_seed(episode, run))
    observation, info = env.reset(seed=HELD_OUT_SEED + episode if seed is None else seed)
    rows: list[dict[str, float]] = []
    allocations: list[Allocation] = []
    offered = np.array(env.state.memory_bytes[0], dtype=np.float64)
    memory, energy = np.zeros_like(offered), np.zeros(env.state.backlog.shape[1:])
    granted = np.zeros_like(energy)
    on_server = granted_server = 0.0
    law, oracle = progress_law(scenario), sees_truth(scheduler)
    for _ in range(rounds):
        # A copy, so that a scheduler cannot change the system on which it is measured.
        state = None if blind else seen_by(env, oracle=oracle).map(np.copy)
        started = time.perf_counter()
        decision = scheduler.act(observation, state)  # type: ignore[arg-type] # those without a state need none
        decided = time.perf_counter() - started
        observation, reward = _played(env, scheduler, decision)
        record = _last_round(env)
        costs, queues, allowance = record.costs, record.backlog[0], float(record.costs.allowance[0])
        used = waiting = 0.0
        if record.server_backlog is not None:
            used, waiting = float(costs.server_ratio[0]), float(record.server_backlog[0])
        rows.append(
            {
                "delay": float(costs.delay[0]),
                "reward": reward,
                "worst_energy": max(float(costs.energy_ratio[0].max()), used) / allowance,
                "backlog": float(queues.sum()) + waiting,
                "largest_backlog": max(float(queues.max()), waiting),
                "loss": float(record.learning.loss[0]),
                "smoothed_loss": float(env.state.loss[0]),
                "metric": float(record.learning.metric[0]),
                "memory_bytes": float(costs.memory[0].max()),
                "decision_s": decided,
                "energy_j": float(costs.energy[0].sum()),
                "progress": math.nan if law is None else float(law.of_costs(costs)[0]),
            }
        )
        allocations.append(record.allocation[0])
        energy += costs.energy_ratio[0]
        granted += record.granted[0]
        on_server, granted_server = on_server + used, granted_server + allowance
        memory = np.maximum(memory, costs.memory[0])
        on_round()
        if target is not None and rows[-1]["smoothed_loss"] <= target:
            break
    real: Any = env.learner  # as both of these options require
    if model is not None:
        real.save_checkpoint(model)
    metrics = _last_round(env).learning.metrics
    result = EpisodeResult(
        scheduler=name,
        title=title_of(scheduler, scenario),
        episode=episode,
        run=run,
        initial_loss=float(info["loss"][0]),
        reference_delay_s=env.reference_delay,
        metrics={name: float(values[0]) for name, values in metrics.items()},
        energy_ratio=budgets_used(energy, granted).tolist(),
        device_memory_bytes=memory.tolist(),
        offered_memory_bytes=offered.tolist(),
        server_blocks=max(int(np.max(a.server.server_blocks)) for a in allocations),
        server_energy_ratio=on_server / granted_server,
        samples=real.written_samples(samples) if samples else [],
        **{column: [row[column] for row in rows] for column in COLUMNS},
    )
    return PlayedEpisode(result, allocations)


def _last_round(env: CollaPipeVectorEnv) -> RoundRecord:
    record = env.last_round
    assert record is not None
    return record


def _played(env: CollaPipeVectorEnv, scheduler: Scheduler, decision: Decision) -> tuple[Observation, float]:
    """The observation after a decision, and its reward."""
    try:
        step = env.step_allocation(decision) if isinstance(decision, Allocation) else env.step(decision)
    except Exception as error:
        if isinstance(scheduler, OwnScheduler):
            raise scheduler.refused(decision, error, env.action_space.shape) from error
        raise
    return step[0], float(step[1][0])


def replayed_rounds(
    scenario: Scenario, episode: int, allocations: Sequence[Allocation]
) -> Iterator[RoundRecord]:
    """Play an episode's decisions again, at least one, and yield the full record of each round.

    The learner does not affect the system's trajectory, so the surrogate replays it quickly.
    """
    env = _environment(scenario, len(allocations), "surrogate")
    env.reset(seed=HELD_OUT_SEED + episode)
    for allocation in allocations:
        env.step_allocation(allocation.map(lambda a: a[None]))
        yield _last_round(env)


def typical_round(delay: list[float]) -> int:
    """Index of the round with the median delay (the lower one of two)."""
    return int(np.argsort(delay, kind="stable")[(len(delay) - 1) // 2])


def pack_allocations(allocations: list[Allocation]) -> dict[str, npt.NDArray[Any]]:
    """Decisions as arrays with the rounds in front, for ``numpy.savez``."""
    tree = tree_of(stack_allocations(allocations))
    return {**{f"{OTHERS}{name}": array for name, array in tree.pop("others").items()}, **tree}


def packed_bytes(scenario: Scenario, rounds: int) -> int:
    """Return the largest size of packed decisions [byte]."""
    devices = scenario.clusters * scenario.cluster.max_devices
    more = sum(len(row.fields) for row in opened_rows(system_parameters(scenario).opened))
    return (len(fields(Allocation)) + more) * (HEADER_BYTES + NUMBER_BYTES * rounds * devices)


def unpack_allocations(arrays: Mapping[str, npt.NDArray[Any]], rounds: int) -> list[Allocation]:
    """The inverse of :func:`pack_allocations`.

    Raises:
        ValueError: If an array has another number of rounds.
        TypeError: If the names are not those of an allocation.
    """
    for name, array in arrays.items():
        if array.shape[:1] != (rounds,):
            raise ValueError(f"{shown(name)} has the shape {array.shape}, not {rounds} rounds in front")
    own = {name: array for name, array in arrays.items() if not name.startswith(OTHERS)}
    others = {name.removeprefix(OTHERS): arrays[name] for name in arrays.keys() - own.keys()}
    stacked = Allocation(**own, others=others)
    return [stacked[index] for index in range(rounds)]


def _environment(
    scenario: Scenario, rounds: int, learner: str, observation: str = "flat"
) -> CollaPipeVectorEnv:
    return CollaPipeVectorEnv(
        num_envs=1,
        scenario=scenario.with_overrides({"dynamics.target_loss": None}),
        learner=learner,
        reward="lyapunov",
        autoreset_mode="Disabled",
        max_episode_steps=rounds,
        observation=observation,
    )

"""One scheduler on one held-out episode, and everything that is kept of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import Allocation, saved_allocation
from collapipe_env.envs.observation_kinds import Observation, observation_kind
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.errors import DataError, ScenarioError, shown
from collapipe_env.evaluation.gate import late_slope
from collapipe_env.evaluation.own_scheduler import OwnScheduler
from collapipe_env.learners.base import Learner, SavesModels, WritesSamples
from collapipe_env.learners.expected_progress import LEAST_PROGRESS, progress_law
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Decision, Scheduler
from collapipe_env.simulator.record import RoundRecord

COLUMNS = (
    "delay", "worst_energy", "backlog", "largest_backlog", "loss", "smoothed_loss", "metric",
    "memory_bytes", "decision_s", "energy_j", "progress",
)  # fmt: skip
"""Lists of an :class:`EpisodeResult` with one entry a round."""
TABLES = ("energy_ratio", "device_memory_bytes", "offered_memory_bytes")
"""Its nested lists, a row a cluster."""
REMEDY = "run again to measure this episode anew"
"""About a damaged file, for errors."""
LARGEST = 1e300
"""Beyond every figure; what is larger comes from a damaged file."""
HEADER_BYTES = 16 * 1024
"""Bytes before the numbers of an array in a file, at most; NumPy reads no longer ones."""
NUMBER_BYTES = 16
"""Bytes of NumPy's largest real numbers."""
HELD_OUT_SEED = 1_300_000_000
"""Seed of the first held-out episode; neither training nor validation draws from these."""

Plain = TypeVar("Plain")


@dataclass(frozen=True)
class EpisodeResult:
    """The rounds of one episode; lists have one entry a round.

    Attributes:
        scheduler: Name it was asked for by.
        title: The scheduler's own name, for tables.
        episode: Number of the held-out episode, from 0.
        delay: Round delays [s].
        worst_energy: Largest energy over budget of any node or the server in each round; its power over that
            of the budget where budgets are per second.
        backlog: Sum of the energy queues after each round [budgets].
        largest_backlog: Largest energy queue of any node or the server after each round [budgets]; NaN in
            files of earlier versions, which do not say.
        loss: Latest evaluation loss after each round [nat].
        smoothed_loss: The environment's running mean of it.
        initial_loss: Evaluation loss of the untrained model [nat].
        metric: The task's headline metric after each round, mostly in [0, 1]; NaN with the surrogate
            learner.
        metrics: All of the task's metrics at the end by name; empty with the surrogate learner.
        memory_bytes: Most memory that any device needed in each round [byte].
        decision_s: Wall-clock time that each decision took [s].
        energy_j: Energy of all nodes in each round [J]; NaN in files of earlier versions.
        progress: Progress that each round was expected to make under the surrogate's fitted law
            (:mod:`collapipe_env.learners.expected_progress`), in its units; NaN unless the scenario leaves
            open who takes part or how many local steps they take, and in files of earlier versions.
        energy_ratio: Time-average energy over budget of every node, (N, K+1) as nested lists; mean power
            over that of the budget where budgets are per second.
        device_memory_bytes: Most memory that each device needed in any round [byte], (N, K).
        offered_memory_bytes: Memory that each device offers at the start [byte], (N, K); 0 where there is no
            device.
        server_blocks: Most encoder blocks that the edge server ran for a cluster in any round; 0 under
            CollaPipe's own plans.
        server_energy_ratio: The server's time-average energy over its budget, as ``energy_ratio``; 0 where it
            has no budget.
        run: Training run of a learned scheduler, from 0.
        samples: Continuations that the trained model wrote at the end, texts by kind; empty unless asked for.
    """

    scheduler: str
    title: str
    episode: int
    delay: list[float]
    worst_energy: list[float]
    backlog: list[float]
    largest_backlog: list[float]
    loss: list[float]
    smoothed_loss: list[float]
    initial_loss: float
    metric: list[float]
    metrics: dict[str, float]
    memory_bytes: list[float]
    decision_s: list[float]
    energy_j: list[float]
    progress: list[float]
    energy_ratio: list[list[float]]
    device_memory_bytes: list[list[float]]
    offered_memory_bytes: list[list[float]]
    server_blocks: int = 0
    server_energy_ratio: float = 0.0
    run: int = 0
    samples: list[dict[str, str]] = field(default_factory=list)

    @property
    def peak_memory_bytes(self) -> float:
        """Most memory that any device needed in any round [byte]."""
        return max(self.memory_bytes)

    @property
    def worst_energy_ratio(self) -> float:
        """Largest time-average energy over budget of any node or the server; above 1 a budget is broken."""
        return max(float(np.max(self.energy_ratio)), self.server_energy_ratio)

    @property
    def seconds_per_progress(self) -> float:
        """Simulated time per unit of expected progress [s]; NaN where progress is not known."""
        made = float(np.sum(self.progress))
        return math.nan if math.isnan(made) else float(np.sum(self.delay)) / max(made, LEAST_PROGRESS)

    @property
    def backlog_slope(self) -> float:
        """Growth of the largest energy queue over the last half of the episode [budgets a round]."""
        return late_slope(self.largest_backlog)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], place: str) -> EpisodeResult:
        """The inverse of :meth:`to_dict`, for data that JSON has been through (``null`` for NaN).

        Raises:
            DataError: If something is missing or has another shape.
        """
        names = {field.name for field in fields(cls)}
        data = {**_earlier(data), **data}
        if set(data) != names:
            odd = ", ".join(sorted(names ^ set(data)))
            raise DataError(f"{place}: {odd} missing or unknown: {REMEDY}")
        try:
            lists: dict[str, Any] = {name: [_number(v) for v in _of(list, data[name])] for name in COLUMNS}
            tables: dict[str, Any] = {name: _table(data[name]) for name in TABLES}
            if len({len(v) for v in lists.values()}) != 1 or not lists["delay"]:
                raise ValueError("lists of different lengths, or empty")
            (clusters, nodes), *others = (_shape(table) for table in tables.values())
            if any(shape != (clusters, nodes - 1) for shape in others):
                raise ValueError("tables that do not fit each other")
            return cls(
                scheduler=_of(str, data["scheduler"]),
                title=_of(str, data["title"]),
                episode=_count(data["episode"]),
                server_blocks=_count(data["server_blocks"]),
                server_energy_ratio=_number(data["server_energy_ratio"]),
                run=_count(data["run"]),
                samples=[
                    {key: _of(str, text) for key, text in _of(dict, one).items()}
                    for one in _of(list, data["samples"])
                ],
                initial_loss=_number(data["initial_loss"]),
                metrics={name: _number(value) for name, value in _of(dict, data["metrics"]).items()},
                **tables,
                **lists,
            )
        except ValueError as error:
            raise DataError(f"{place} is damaged ({error}): {REMEDY}") from None


def _earlier(data: Mapping[str, Any]) -> dict[str, Any]:
    """Substitutes for the figures that files of earlier versions lack."""
    delay = data.get("delay")
    unknown = [None] * len(delay) if isinstance(delay, list) else None
    columns = dict.fromkeys(("largest_backlog", "energy_j", "progress"), unknown)
    return {"run": 0, "samples": [], "server_energy_ratio": 0.0, **columns}


def _number(value: Any) -> float:
    """A number that JSON has been through."""
    if value is None:
        return math.nan
    # Whole numbers beyond those of any figure would not even fit into a float.
    if isinstance(value, bool) or not isinstance(value, float | int) or not abs(value) < LARGEST:
        raise ValueError(f"{shown(value, 60)} where a number is expected")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError(f"{shown(value, 60)} where a whole number from 0 on is expected")
    return value


def _of(kind: type[Plain], value: Any) -> Plain:
    if not isinstance(value, kind):
        raise ValueError(f"{shown(value, 60)} where a {kind.__name__} is expected")
    return value


def _table(value: Any) -> list[list[float]]:
    """Rows of equal lengths, none of them empty."""
    rows = [[_number(entry) for entry in _of(list, row)] for row in _of(list, value)]
    if len({len(row) for row in rows}) != 1 or not rows[0]:
        raise ValueError(f"{shown(value, 60)} where a table is expected")
    return rows


def _shape(table: list[list[float]]) -> tuple[int, int]:
    return len(table), len(table[0])


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
) -> PlayedEpisode:
    """Play one held-out episode; the same number means the same channels, loads and data for all.

    A target loss of the scenario does not end it: all schedulers play all rounds.

    Args:
        name: Name that the scheduler was asked for by.
        scheduler: Who decides.
        scenario: The scenario.
        episode: Number of the episode, from 0.
        rounds: Rounds to play, at most the scenario's.
        learner: ``"real"`` or ``"surrogate"``.
        on_round: Called after each round.
        run: Training run of a learned scheduler, from 0.
        samples: Continuations that the trained model writes at the end; above 0 with ``"real"`` only.
        model: New folder for the trained model in Hugging Face format, with ``"real"`` only; None keeps none.
    """
    env = _environment(scenario, rounds, learner, observation_kind(scheduler))
    scheduler.reset(HELD_OUT_SEED + episode)
    observation, info = env.reset(seed=HELD_OUT_SEED + episode)
    columns: dict[str, list[float]] = {column: [] for column in COLUMNS}
    allocations: list[Allocation] = []
    energy = np.zeros(env.state.backlog.shape[1:])
    granted = np.zeros((len(energy), 1))
    on_server = granted_server = 0.0
    offered = np.array(env.state.memory_bytes[0], dtype=np.float64)
    memory = np.zeros_like(offered)
    initial_loss = float(info["loss"][0])
    law = progress_law(scenario)
    for _ in range(rounds):
        # A copy: whoever decides cannot change the system that it is measured on.
        state = env.state.map(np.copy)
        started = time.perf_counter()
        decision = scheduler.act(observation, state)
        columns["decision_s"].append(time.perf_counter() - started)
        observation = _played(env, scheduler, decision)
        record = env.last_round
        assert record is not None
        columns["delay"].append(float(record.costs.delay[0]))
        allowance = float(record.costs.allowance[0])
        worst, largest = float(record.costs.energy_ratio[0].max()), float(record.backlog[0].max())
        held = float(record.backlog[0].sum())
        ratio, queue = record.costs.server_ratio, record.server_backlog
        if ratio is not None and queue is not None:
            used, waiting = float(ratio[0]), float(queue[0])
            on_server, held = on_server + used, held + waiting
            worst, largest = max(worst, used), max(largest, waiting)
        columns["worst_energy"].append(worst / allowance)
        columns["backlog"].append(held)
        columns["largest_backlog"].append(largest)
        columns["loss"].append(float(record.learning.loss[0]))
        columns["metric"].append(float(record.learning.metric[0]))
        columns["smoothed_loss"].append(float(env.state.loss[0]))
        allocations.append(record.allocation[0])
        columns["energy_j"].append(float(record.costs.energy[0].sum()))
        columns["progress"].append(math.nan if law is None else float(law.of_costs(record.costs)[0]))
        energy += record.costs.energy_ratio[0]
        granted += record.costs.granted[0][:, None]
        granted_server += allowance
        columns["memory_bytes"].append(float(record.costs.memory[0].max()))
        memory = np.maximum(memory, record.costs.memory[0])
        on_round()
    record = env.last_round
    assert record is not None
    if model is not None:
        _save(env.learner, model)
    result = EpisodeResult(
        scheduler=name,
        title=scheduler.name,
        episode=episode,
        run=run,
        initial_loss=initial_loss,
        metrics={name: float(values[0]) for name, values in record.learning.metrics.items()},
        energy_ratio=(energy / np.where(granted > 0.0, granted, 1.0)).tolist(),
        device_memory_bytes=memory.tolist(),
        offered_memory_bytes=offered.tolist(),
        server_blocks=max(
            0 if a.server_blocks is None else int(np.max(a.server_blocks)) for a in allocations
        ),
        server_energy_ratio=on_server / granted_server,
        samples=_written(env.learner, samples) if samples else [],
        **columns,
    )
    return PlayedEpisode(result, allocations)


def _written(learner: Learner, count: int) -> list[dict[str, str]]:
    """Samples of what a learner has trained."""
    if not isinstance(learner, WritesSamples):
        raise ScenarioError(f"the learner {type(learner).__name__} writes no samples: use 'real'")
    return learner.written_samples(count)


def _save(learner: Learner, folder: Path) -> None:
    """Write the model that a learner has trained."""
    if not isinstance(learner, SavesModels):
        raise ScenarioError(f"the learner {type(learner).__name__} saves no models: use 'real'")
    learner.save_checkpoint(folder)


def _played(env: CollaPipeVectorEnv, scheduler: Scheduler, decision: Decision) -> Observation:
    """The observation after a decision."""
    try:
        step = env.step_allocation(decision) if isinstance(decision, Allocation) else env.step(decision)
    except Exception as error:
        if isinstance(scheduler, OwnScheduler):
            raise scheduler.refused(decision, env.action_space.shape or (), error) from error
        raise
    return step[0]


def replay(scenario: Scenario, episode: int, allocations: list[Allocation], until: int) -> RoundRecord:
    """The full record of one round of an episode that was played before.

    The learner changes nothing of the system's trajectory, so the surrogate replays it in no time.

    Args:
        scenario: The scenario.
        episode: Number of the episode.
        allocations: Its decisions.
        until: Index of the round wanted, from 0.
    """
    env = _environment(scenario, until + 1, "surrogate")
    env.reset(seed=HELD_OUT_SEED + episode)
    for allocation in allocations[: until + 1]:
        env.step_allocation(allocation.map(lambda a: a[None]))
    record = env.last_round
    assert record is not None
    return record


def typical_round(delay: list[float]) -> int:
    """Index of the round with the median delay (the lower one of two)."""
    return int(np.argsort(delay, kind="stable")[(len(delay) - 1) // 2])


def pack_allocations(allocations: list[Allocation]) -> dict[str, npt.NDArray[Any]]:
    """Decisions as arrays with the rounds in front, for ``numpy.savez``."""
    from collapipe_env.allocation import stack_allocations

    stacked = stack_allocations(allocations)
    arrays = {field.name: getattr(stacked, field.name) for field in fields(stacked)}
    return {name: np.asarray(array) for name, array in arrays.items() if array is not None}


def packed_bytes(scenario: Scenario, rounds: int) -> int:
    """Return the bytes that packed decisions may have, at most.

    Args:
        scenario: What was scheduled.
        rounds: Rounds that were played.
    """
    devices = scenario.clusters * scenario.cluster.max_devices
    return len(fields(Allocation)) * (HEADER_BYTES + NUMBER_BYTES * rounds * devices)


def unpack_allocations(arrays: Mapping[str, npt.NDArray[Any]], rounds: int) -> list[Allocation]:
    """The inverse of :func:`pack_allocations`.

    Args:
        arrays: Arrays by the names of an allocation's fields, with the rounds in front.
        rounds: How many.

    Raises:
        ValueError: If an array has another number of rounds.
        TypeError: If they are not those of an allocation.
    """
    for name, array in arrays.items():
        if array.shape[:1] != (rounds,):
            raise ValueError(f"{shown(name)} has the shape {array.shape}, not {rounds} rounds in front")
    stacked = saved_allocation(arrays)
    return [stacked[index] for index in range(rounds)]


def _environment(
    scenario: Scenario, rounds: int, learner: str, observation: str = "flat"
) -> CollaPipeVectorEnv:
    return CollaPipeVectorEnv(
        num_envs=1,
        scenario=scenario.with_overrides({"dynamics.target_loss": None}),
        learner=learner,
        reward="delay",
        autoreset_mode="Disabled",
        max_episode_steps=rounds,
        observation=observation,
    )

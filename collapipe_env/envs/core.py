"""The MDP for a batch of environments: what the single and the vector environment have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from collapipe_env.allocation import Allocation
from collapipe_env.codec import ActionCodec
from collapipe_env.envs.observation import ObservationBuilder, ObservationLayout
from collapipe_env.envs.rewards import Reward, RewardInputs, make_reward
from collapipe_env.learners.base import Learner
from collapipe_env.learners.factory import make_learner
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import action_codec, reference_delay
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.simulator import Simulator
from collapipe_env.simulator.state import SystemState

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class BatchStep:
    """One step of ``E`` environments.

    Attributes:
        observation: (E, D).
        reward: (E,).
        terminated: The target loss is reached (E,).
        truncated: The episode's rounds are over (E,).
        info: Arrays (E,) by name.
    """

    observation: npt.NDArray[np.float32]
    reward: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    info: dict[str, FloatArray]


class BatchMDP:
    """Scenario, simulator, reward and observation of ``E`` environments that step together.

    Args:
        scenario: The scenario.
        learner: ``"torch"``, ``"surrogate"`` or a learner built for ``num_envs``.
        reward: A reward's name or object.
        num_envs: ``E``.
        max_rounds: Shortens the episode; ``None`` for the scenario's own length.
    """

    def __init__(
        self,
        scenario: Scenario,
        learner: str | Learner,
        reward: str | Reward,
        num_envs: int,
        max_rounds: int | None = None,
    ) -> None:
        self.scenario = scenario
        self.num_envs = num_envs
        self.reference_delay = reference_delay(scenario)
        self.reward = make_reward(reward, scenario, self.reference_delay)
        self.codec = action_codec(scenario)
        self.observer = ObservationBuilder(scenario)
        self.simulator = Simulator(scenario, make_learner(learner, scenario, num_envs), num_envs)
        rounds = scenario.dynamics.rounds
        self.rounds = rounds if max_rounds is None else min(rounds, max_rounds)
        nodes = (num_envs, scenario.clusters, scenario.max_devices + 1)
        self._total_delay = np.zeros(num_envs)
        self._total_energy_ratio = np.zeros(nodes)
        self._total_reward = np.zeros(num_envs)
        self._time_to_target = np.full(num_envs, np.nan)

    def action_space(self) -> spaces.Box:
        """Box(-1, 1, (N (2K + 3),), float32)."""
        return spaces.Box(-1.0, 1.0, (self.codec.action_size,), np.float32)

    def reset(
        self, rngs: Sequence[np.random.Generator], mask: BoolArray | None = None
    ) -> npt.NDArray[np.float32]:
        """Start new episodes in the masked rows; returns all rows' observations (E, D)."""
        rows = slice(None) if mask is None else mask
        state = self.simulator.reset(rngs, mask)
        for total in (self._total_delay, self._total_energy_ratio, self._total_reward):
            total[rows] = 0.0
        self._time_to_target[rows] = np.nan
        return self.observer.build(state)

    def step(self, actions: npt.NDArray[Any]) -> BatchStep:
        """Decode actions (E, N (2K + 3)) and play them."""
        allocation = self.codec.decode(actions, self.simulator.state.memory_cap)
        return self.play(allocation, check=False)

    def play(self, allocation: Allocation, *, check: bool = True) -> BatchStep:
        """Play allocations (E, ...); refuses infeasible ones if asked to check."""
        record = self.simulator.step(allocation, check=check)
        state = self.simulator.state
        costs = record.costs
        present = self.node_present(record)
        target = self.scenario.dynamics.target_loss
        never = np.zeros(self.num_envs, dtype=np.bool_)
        terminated = never if target is None else state.loss <= target
        self._total_delay += costs.delay
        self._total_energy_ratio += costs.energy_ratio
        if target is not None:
            first = terminated & np.isnan(self._time_to_target)
            self._time_to_target = np.where(first, self._total_delay, self._time_to_target)
        reward = self.reward(
            RewardInputs(
                delay=costs.delay,
                energy_ratio=costs.energy_ratio,
                present=present,
                backlog_before=record.state.backlog,
                backlog_after=record.backlog,
                loss=state.loss,
                target_reached=terminated,
            )
        )
        self._total_reward += reward
        return BatchStep(
            observation=self.observer.build(state),
            reward=reward,
            terminated=terminated,
            truncated=state.round_index >= self.rounds,
            info={
                "delay": costs.delay,
                "cost": np.maximum(costs.energy_ratio - 1.0, 0.0).sum(axis=(-2, -1)),
                "backlog": record.backlog.sum(axis=(-2, -1)),
                **self.learning_info(),
                **_left_out(record),
            },
        )

    def learning_info(self) -> dict[str, FloatArray]:
        """Loss and metric of the last evaluation (E,), fresh arrays; no metric where the learner has none."""
        learning = self.simulator.learning
        info = {"loss": learning.loss.copy()}
        # NaN never equals itself: it would make two equal trajectories differ.
        if not np.isnan(learning.metric).all():
            info["metric"] = learning.metric.copy()
        return info

    def node_present(self, record: RoundRecord) -> BoolArray:
        """Nodes that exist (E, N, K+1): every CU and the present devices."""
        present = record.state.present
        return np.concatenate((np.ones_like(present[..., :1]), present), axis=-1)

    def summary(self, row: int) -> dict[str, float]:
        """The episode of one row so far, as plain numbers.

        ``rounds``, ``total_delay`` [s], ``mean_delay`` [s], ``energy_ratio_max`` (the worst node's
        time-average energy over its budget: above 1 a budget is broken), ``final_backlog`` (sum of
        ``z``), ``return``, ``loss`` and, where they exist, ``metric`` (torch learner) and
        ``time_to_target`` [s] (the scenario has a target loss and it was reached).
        """
        rounds = int(self.simulator.state.round_index[row])
        summary = {
            "rounds": rounds,
            "total_delay": float(self._total_delay[row]),
            "mean_delay": float(self._total_delay[row]) / max(rounds, 1),
            "energy_ratio_max": float(self._total_energy_ratio[row].max()) / max(rounds, 1),
            "final_backlog": float(self.simulator.state.backlog[row].sum()),
            "return": float(self._total_reward[row]),
            **{name: float(values[row]) for name, values in self.learning_info().items()},
        }
        if not np.isnan(self._time_to_target[row]):
            summary["time_to_target"] = float(self._time_to_target[row])
        return summary


def _left_out(record: RoundRecord) -> dict[str, FloatArray]:
    """For plans with groups: how many present devices take no part (E,), for instance for want of memory."""
    if record.allocation.stage is None:
        return {}
    idle = record.state.present & ~record.costs.graph.active
    return {"left_out": idle.sum(axis=(-2, -1)).astype(np.float64)}


class MDPViews:
    """What the single and the vector environment show of their MDP, beyond Gymnasium's interface."""

    _mdp: BatchMDP

    @property
    def scenario(self) -> Scenario:
        """The scenario."""
        return self._mdp.scenario

    @property
    def codec(self) -> ActionCodec:
        """Maps actions to allocations and back."""
        return self._mdp.codec

    @property
    def observation_layout(self) -> ObservationLayout:
        """Names, places, shapes and scales of the observation's features."""
        return self._mdp.observer.layout

    @property
    def reference_delay(self) -> float:
        """``T_ref`` [s]: round delay of the even split at mean gains."""
        return self._mdp.reference_delay

    @property
    def state(self) -> SystemState:
        """The system before the next round, as model-based schedulers see it (E, ...); E = 1 if single."""
        return self._mdp.simulator.state

    @property
    def last_round(self) -> RoundRecord | None:
        """Everything about the round just played (E, ...); ``None`` before the first."""
        return self._mdp.simulator.last_round

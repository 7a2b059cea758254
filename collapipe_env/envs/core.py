"""The MDP for a batch of environments: what the single and the vector environment have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from collapipe_env.allocation import Allocation, own_arrays
from collapipe_env.arrays import total
from collapipe_env.codec import ActionCodec
from collapipe_env.envs.observation import ObservationBuilder, ObservationLayout
from collapipe_env.envs.rewards import OwnReward, Reward, make_reward
from collapipe_env.envs.summaries import merge_rows, require_columns, row_of
from collapipe_env.errors import AllocationError
from collapipe_env.learners.base import Learner
from collapipe_env.learners.factory import make_learner
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import action_codec, reference_delay
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.simulator import Simulator
from collapipe_env.simulator.state import SystemState
from collapipe_env.state_trees import Tree, require_alike, require_within

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
        learner: ``"real"``, ``"surrogate"`` or a learner built for ``num_envs``.
        reward: A reward's name or object.
        num_envs: ``E``.
        max_rounds: Shortens the episode; ``None`` for the scenario's own length.

    Attributes:
        ended_summaries: Of each row's last episode that ended, as :meth:`summaries` gives them; empty before
            the first.
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
        # A metric that holds nothing and cannot be written to: it need not be looked at in every step.
        self._no_metric: FloatArray | None = None
        self.ended_summaries: dict[str, npt.NDArray[Any]] = {}

    def action_space(self) -> spaces.Box:
        """Box(-1, 1, (N (2K + 3),), float32)."""
        return spaces.Box(-1.0, 1.0, (self.codec.action_size,), np.float32)

    def reset(
        self, rngs: Sequence[np.random.Generator], mask: BoolArray | None = None
    ) -> npt.NDArray[np.float32]:
        """Start new episodes in the masked rows; returns all rows' observations (E, D)."""
        rows = slice(None) if mask is None else mask
        state = self.simulator.reset(rngs, mask)
        for sums in (self._total_delay, self._total_energy_ratio, self._total_reward):
            sums[rows] = 0.0
        self._time_to_target[rows] = np.nan
        return self.observer.build(state)

    def step(self, actions: npt.NDArray[Any]) -> BatchStep:
        """Decode actions (E, N (2K + 3)) and play them.

        Raises:
            AllocationError: For another shape or type, or a number that is not finite; nothing is played
                then.
        """
        self.check_shape(actions)
        allocation = self.codec.decode(actions, self.simulator.state.memory_cap)
        return self.play(allocation, check=False)

    def check_shape(self, actions: npt.NDArray[Any]) -> None:
        """Refuse actions that are not one for each environment.

        Raises:
            AllocationError: If the shape is not (E, N (2K + 3)).
        """
        self.codec.check_action_shape(actions.shape)
        if actions.shape[:-1] != (self.num_envs,):
            raise AllocationError(
                f"actions have shape {actions.shape}, expected {(self.num_envs, self.codec.action_size)}: "
                "one action for each environment"
            )

    def play(self, allocation: Allocation, *, check: bool = True) -> BatchStep:
        """Play allocations (E, ...); checks and copies those that come from outside.

        Raises:
            AllocationError: If one is infeasible; nothing has changed then.
            RewardError: If a reward of the user's own is at fault; nothing but the learner has changed then.
        """
        if check:
            # The record of the round must not change when its caller goes on with the same arrays.
            allocation = own_arrays(allocation)
        record = self.simulator.try_round(allocation, check=check)
        costs, loss = record.costs, record.smoothed_loss
        target = self.scenario.dynamics.target_loss
        terminated = np.zeros(self.num_envs, dtype=np.bool_) if target is None else loss <= target
        before = self.simulator.state
        # A reward of the user's own may fail, and then the round is not taken.
        undo = self.simulator.remember(learner=False) if isinstance(self.reward, OwnReward) else None
        self.simulator.take(record)
        state = self.simulator.state
        try:
            reward = self.reward(before, costs, state)
        except BaseException:
            if undo is not None:
                undo()
            raise
        self._total_delay += costs.delay
        self._total_energy_ratio += costs.energy_ratio
        if target is not None:
            first = terminated & np.isnan(self._time_to_target)
            self._time_to_target = np.where(first, self._total_delay, self._time_to_target)
        self._total_reward += reward
        return BatchStep(
            observation=self.observer.build(state),
            reward=reward,
            terminated=terminated,
            truncated=state.round_index >= self.rounds,
            info={
                "delay": costs.delay,
                "cost": record.energy_excess,
                "backlog": record.backlog_sum,
                **self.learning_info(),
                **_left_out(record),
            },
        )

    def reset_info(self) -> dict[str, FloatArray]:
        """Information of rows that begin an episode (E,): the names of a step's, 0 for what a round costs."""
        return {
            "delay": np.zeros(self.num_envs),
            "cost": np.zeros(self.num_envs),
            "backlog": np.zeros(self.num_envs),
            **self.learning_info(),
        }

    def get_state(self) -> Tree:
        """The simulator's state and the sums of the episodes so far; see :mod:`collapipe_env.state_trees`.

        Raises:
            StateError: If the learner cannot say its state.
        """
        ended = {name: values.copy() for name, values in self.ended_summaries.items()}
        return {"simulator": self.simulator.get_state(), "sums": self._sums(), "ended": ended}

    def set_state(self, tree: Any, seeded: BoolArray) -> None:
        """Go on from a state of :meth:`get_state`; on an error everything is left as it was.

        Args:
            tree: The state.
            seeded: Rows that have a generator for their next episodes (E,).

        Raises:
            StateError: If it is damaged.
        """
        template = {"simulator": None, "sums": self._sums(), "ended": None}
        require_alike(tree, template, "mdp", frozenset(("mdp/simulator", "mdp/ended")))
        for name, unknown in (
            ("total_delay", False),
            ("total_energy_ratio", False),
            ("time_to_target", True),
        ):
            require_within(tree["sums"][name], 0.0, np.inf, f"mdp/sums/{name}", unknown=unknown)
        require_columns(tree["ended"], self.num_envs, "mdp/ended")
        self.simulator.set_state(tree["simulator"], seeded)
        self._set_sums({name: values.copy() for name, values in tree["sums"].items()})
        self.ended_summaries = {name: values.copy() for name, values in tree["ended"].items()}

    def remember(self) -> Callable[[], None]:
        """Remember everything that a step changes; returns a function that puts it back.

        Raises:
            StateError: If the learner cannot say its state.
        """
        put_back, sums, ended = self.simulator.remember(), self._sums(), self.ended_summaries

        def forget() -> None:
            put_back()
            self._set_sums(sums)
            self.ended_summaries = ended

        return forget

    def _set_sums(self, sums: Tree) -> None:
        for name, values in sums.items():
            setattr(self, f"_{name}", values)

    def _sums(self) -> Tree:
        names = ("total_delay", "total_energy_ratio", "total_reward", "time_to_target")
        return {name: getattr(self, f"_{name}").copy() for name in names}

    def learning_info(self) -> dict[str, FloatArray]:
        """Loss and metric of the last evaluation (E,), fresh arrays; no metric where the learner has none."""
        learning = self.simulator.learning
        info = {"loss": learning.loss.copy()}
        # NaN never equals itself: it would make two equal trajectories differ.
        metric = learning.metric
        if metric is not self._no_metric:
            if not np.isnan(metric).all():
                info["metric"] = metric.copy()
            elif not metric.flags.writeable:
                self._no_metric = metric
        return info

    def summaries(self, rows: BoolArray) -> dict[str, npt.NDArray[Any]]:
        """The episodes of some rows so far, as arrays (E,) by name, each with a mask ``_name``.

        ``rounds``, ``total_delay`` [s], ``mean_delay`` [s], ``energy_ratio_max`` (the worst node's
        time-average energy over its budget: above 1 a budget is broken), ``final_backlog`` (sum of
        ``z``), ``return``, ``loss`` and, where they exist, ``metric`` (real training) and
        ``time_to_target`` [s] (the scenario has a target loss and it was reached).

        Args:
            rows: The rows asked for (E,); the others' numbers are 0.
        """
        state = self.simulator.state
        played = np.maximum(state.round_index, 1)
        columns = {
            "rounds": state.round_index,
            "total_delay": self._total_delay,
            "mean_delay": self._total_delay / played,
            "energy_ratio_max": self._total_energy_ratio.max(axis=(-2, -1)) / played,
            "final_backlog": total(state.backlog),
            "return": self._total_reward,
            **self.learning_info(),
            "time_to_target": self._time_to_target,
        }
        summaries: dict[str, npt.NDArray[Any]] = {}
        for name, values in columns.items():
            known = rows & ~np.isnan(values) if name == "time_to_target" else rows
            if known.any():
                summaries[name], summaries[f"_{name}"] = np.where(known, values, 0), known.copy()
        return summaries

    def summary(self, row: int) -> dict[str, float]:
        """The episode of one row so far, as plain numbers; see :meth:`summaries`."""
        return row_of(self.summaries(np.arange(self.num_envs) == row), row)

    def keep_summaries(self, ended: BoolArray) -> None:
        """Take the rows whose episodes just ended (E,) into :attr:`ended_summaries`."""
        self.ended_summaries = merge_rows(self.ended_summaries, self.summaries(ended), ended, np.where)


def _left_out(record: RoundRecord) -> dict[str, FloatArray]:
    """For plans with groups: how many present devices take no part (E,), for instance for want of memory."""
    if record.allocation.stage is None:
        return {}
    idle = record.state.present & ~record.costs.graph.active
    return {"left_out": idle.sum(axis=(-2, -1)).astype(np.float64)}


class MDPViews:
    """Views of the MDP that single and vector environment offer beyond Gymnasium's interface."""

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
    def rounds(self) -> int:
        """The horizon: after so many rounds an episode is truncated.

        ``max_episode_steps`` of ``gymnasium.make_vec`` counts here. That of ``gymnasium.make`` does not:
        Gymnasium wraps the environment then, and ends episodes without its knowledge; ``ended_summary`` stays
        empty. Set ``dynamics.rounds`` for shorter episodes there.
        """
        return self._mdp.rounds

    @property
    def state(self) -> SystemState:
        """The system before the next round, as model-based schedulers see it (E, ...); E = 1 if single."""
        return self._mdp.simulator.state

    @property
    def last_round(self) -> RoundRecord | None:
        """Everything about the round just played (E, ...); ``None`` before the first."""
        return self._mdp.simulator.last_round

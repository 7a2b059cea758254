"""The MDP of a batch of environments, shared by the single and the vector environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from collapipe_env.envs.default_reward import default_reward, with_target
from collapipe_env.envs.graph_observation import GraphObservations
from collapipe_env.envs.observation import FlatObserver
from collapipe_env.envs.observation_kinds import OBSERVATIONS, Observation
from collapipe_env.envs.own_reward import OwnReward
from collapipe_env.envs.rewards import ClusterReward, Reward, make_reward
from collapipe_env.feasibility import warn_if_infeasible
from collapipe_env.ground.arrays import Array, BoolArray, at_least, namespace
from collapipe_env.ground.backends import NUMPY, Backend
from collapipe_env.ground.errors import ScenarioError, nearest_name, shown
from collapipe_env.ground.state_trees import Tree, require_alike, require_within
from collapipe_env.learners.factory import make_learner
from collapipe_env.physics.allocation import Allocation, own_arrays
from collapipe_env.physics.queues import budgets_used
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import action_codec, reference_delay
from collapipe_env.simulator.learner import Learner
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.refusal import require_room
from collapipe_env.simulator.world import World

NOT_BY_CLUSTER = (
    "the reward cannot be split by cluster: use one of the package's own, and no common head with several "
    "local steps"
)


@dataclass(frozen=True)
class BatchStep:
    """One step of ``E`` environments, in arrays of the backend.

    Attributes:
        observation: (E, D), float32; or a dictionary of arrays (E, ...), float32.
        reward: (E,).
        terminated: The target loss is reached (E,), bool.
        truncated: The episode has played all its rounds (E,), bool.
        info: Arrays (E,) by name.
    """

    observation: Observation
    reward: Array
    terminated: Array
    truncated: Array
    info: dict[str, Array]


class BatchMDP:
    """Scenario, world, reward and observation of ``E`` environments that step together, on any backend.

    Args:
        learner: ``"real"``, ``"surrogate"`` or a learner built for ``num_envs``.
        max_rounds: Shortens the episode; ``None`` for the scenario's own length.
        observation: ``"flat"`` or ``"graph"``.

    Attributes:
        ended_summaries: Summaries of each row's last episode that ended, as from :meth:`summaries`; empty
            before the first ends.

    Raises:
        ScenarioError: If there is no such kind of observation, learner or reward.

    Warns:
        EnergyBudgetWarning: Once for each scenario whose energy budgets cannot be met, however plans are.
    """

    def __init__(
        self,
        scenario: Scenario,
        learner: str | Learner,
        reward: str | Reward | None,
        num_envs: int,
        max_rounds: int | None = None,
        backend: Backend = NUMPY,
        observation: str = "flat",
    ) -> None:
        if observation not in OBSERVATIONS:
            hint = nearest_name(observation, OBSERVATIONS)
            raise ScenarioError(f"observation = {shown(observation)} is not known: {hint}")
        if reward is None:
            reward = default_reward(scenario)
        self.scenario = scenario = with_target(scenario, reward)
        warn_if_infeasible(scenario)
        self.num_envs = num_envs
        self.backend = backend
        self.reference_delay = reference_delay(scenario)
        self.reward = make_reward(reward, scenario, self.reference_delay)
        self.codec = action_codec(scenario)
        self.world = World(scenario, make_learner(learner, scenario, num_envs, backend), num_envs, backend)
        self.observer = (GraphObservations if observation == "graph" else FlatObserver)(scenario)
        on_numpy = backend is NUMPY
        self._observe = backend.fuse(self.observer.build if on_numpy else self.observer.build_generic)
        self._decode = backend.fuse(self.codec.decode_finite)
        self._judge: Reward
        if isinstance(self.reward, OwnReward):  # its checks cannot be compiled
            self._judge = OwnReward(backend.fuse(self.reward.function))
        else:
            self._judge = backend.fuse(self.reward)
        rounds, target = scenario.dynamics.rounds, scenario.dynamics.target_loss
        self.rounds = rounds if max_rounds is None else min(rounds, max_rounds)
        self.has_target = target is not None
        self._target = -np.inf if target is None else target
        system, opened = self.world.system, self.codec.opened
        # Where actions may let clusters sit out, those that cannot hold the encoder do so.
        all_play = "participation" not in opened and not self.codec.sits_out
        self._may_lack_room = all_play and system.may_lack_room
        # Sums of the running episodes, by name; replaced in every step. Only some scenarios have an energy
        # budget of the server, or grant nodes different budgets as clusters sit out and devices are away.
        column, nodes = backend.array(np.zeros(num_envs)), self.world.state.backlog
        self._sums = {"total_delay": column, "total_reward": column, "total_energy_ratio": nodes}
        if self.world.state.server_backlog is not None:
            self._sums["total_server_ratio"] = column
        if "participation" in opened or system.comes_and_goes:
            self._sums["total_granted"] = nodes
        self._time_to_target = column + np.nan
        # A read-only metric that holds only NaN: it need not be checked in every step.
        self._no_metric: Array | None = None
        self.ended_summaries: dict[str, Array] = {}

    def action_space(self) -> spaces.Box:
        """Box(-1, 1, (A,), float32), with ``A = N (2K + 3)`` plus the entries of opened decisions."""
        return spaces.Box(-1.0, 1.0, (self.codec.action_size,), np.float32)

    def reset(self, rngs: Sequence[np.random.Generator], mask: BoolArray | None = None) -> Observation:
        """Start new episodes in the masked rows; returns the observations of all rows (E, ...)."""
        rows = self.backend.rows(np.ones(self.num_envs, dtype=np.bool_) if mask is None else mask)
        seen = self.world.reset(rngs, mask)
        self._sums = {name: rows.fill(values, 0.0) for name, values in self._sums.items()}
        self._time_to_target = rows.fill(self._time_to_target, np.nan)
        return self._observe(seen)

    def step(self, actions: Array, *, check: bool = True) -> BatchStep:
        """Decode actions (E, N (2K + 3)) and play them.

        Args:
            actions: NumPy arrays of real numbers, or tensors of the backend's real type.
            check: Refuse tensors that are not finite, which waits for the device. NumPy arrays are always
                checked.

        Raises:
            AllocationError: For another shape or type, or a number that is not finite; nothing is played
                then.
        """
        seen = self.world.seen
        if check and self._may_lack_room:
            require_room(self.backend.host(seen.memory_cap), self.scenario.blocks)
        if self.backend is NUMPY:
            allocation = self.codec.decode(actions, seen.memory_cap, seen.memory_bytes)
        else:
            if check:
                self.codec.check_action(actions)
            allocation = self._decode(actions, seen.memory_cap, seen.memory_bytes)
        return self.play(allocation, check=False)

    def play(self, allocation: Allocation, *, check: bool = True) -> BatchStep:
        """Play allocations (E, ...); checks and copies those that come from outside.

        Raises:
            AllocationError: If one is infeasible; nothing has changed then.
            RewardError: If a user's own reward is at fault; nothing has changed then, unless the learner
                trains a model: then the environment goes on only after a reset.
            NotResetError: If a row was never reset, or its last round or reset broke off.
        """
        if check:
            # The record of the round must not change when the caller writes to its arrays later.
            allocation = own_arrays(allocation).map(self.backend.array)
        # A user's own reward or process may fail: the round is taken only if none does.
        record, reward = self.world.play(allocation, self._judge, check=check)
        costs, after, sums = record.costs, self.world.state, self._sums
        added = {
            "total_delay": costs.delay,
            "total_reward": reward,
            "total_energy_ratio": costs.energy_ratio,
        }
        if "total_server_ratio" in sums:
            added["total_server_ratio"] = costs.server_ratio
        if "total_granted" in sums:
            added["total_granted"] = record.granted
        self._sums = {name: sums[name] + values for name, values in added.items()}
        reached = after.loss <= self._target
        if self.has_target:
            xp = namespace(after.loss)
            first = reached & xp.isnan(self._time_to_target)
            self._time_to_target = xp.where(first, self._sums["total_delay"], self._time_to_target)
        info = {
            "delay": costs.delay,
            "cost": record.energy_excess,
            "backlog": record.backlog_sum,
            **self.learning_info(),
            # Not for decoded actions: their stages have one device, and infos always the same names.
            **(_left_out(record) if check and allocation.stage is not None else {}),
        }
        truncated = after.round_index >= self.rounds
        return BatchStep(self._observe(self.world.seen), reward, reached, truncated, info)

    def reset_info(self) -> dict[str, Array]:
        """Information of rows that begin an episode (E,): a step's names, with 0 for the round's costs."""
        zeros = np.zeros(self.num_envs)
        costs = {name: self.backend.array(zeros) for name in ("delay", "cost", "backlog")}
        return {**costs, **self.learning_info()}

    def get_state(self) -> Tree:
        """The world's state and the sums of the episodes so far; see :mod:`collapipe_env.ground.state_trees`.

        Raises:
            StateError: If the learner cannot save its state.
        """
        ended = {name: self.backend.host(values) for name, values in self.ended_summaries.items()}
        return {"simulator": self.world.get_state(), "sums": self._saved_sums(), "ended": ended}

    def set_state(self, tree: Any, seeded: BoolArray) -> None:
        """Continue from a state of :meth:`get_state`; on an error nothing changes.

        Args:
            seeded: Rows that have a generator for their next episodes (E,).

        Raises:
            StateError: If it is damaged.
        """
        sums, array = self._saved_sums(), self.backend.array
        require_alike(tree, {"simulator": ..., "sums": sums, "ended": ...}, "mdp")
        for name in sums:
            if name != "total_reward":
                unknown = name == "time_to_target"
                require_within(tree["sums"][name], 0.0, np.inf, f"mdp/sums/{name}", unknown=unknown)
        nobody = self.backend.array(np.zeros(self.num_envs, dtype=np.bool_))
        ended = {name: self.backend.host(values) for name, values in self.summaries(nobody).items()}
        none = isinstance(tree["ended"], Mapping) and not tree["ended"]
        require_alike(tree["ended"], {} if none else ended, "mdp/ended")
        self.world.set_state(tree["simulator"], seeded)
        self._sums = {name: array(tree["sums"][name]) for name in self._sums}
        self._time_to_target = array(tree["sums"]["time_to_target"])
        self.ended_summaries = {name: array(values) for name, values in tree["ended"].items()}

    def _saved_sums(self) -> Tree:
        sums = {**self._sums, "time_to_target": self._time_to_target}
        return {name: self.backend.host(values) for name, values in sums.items()}

    def cluster_reward(self) -> ClusterReward | None:
        """Return the reward, if it can be split by cluster.

        ``None`` with a user's own reward, and where clusters wait for each other in every local step
        (``workload.head`` is ``common``).
        """
        reward, waits = self.reward, self.world.parameters.barrier
        return reward if isinstance(reward, ClusterReward) and not waits else None

    def cluster_rewards(self) -> npt.NDArray[np.float32]:
        """Difference rewards of the round just played (E, N), see :class:`ClusterReward`.

        Raises:
            ScenarioError: Before the first round, or if the reward cannot be split by cluster.
        """
        reward, record = self.cluster_reward(), self.world.last_round
        if reward is None:
            raise ScenarioError(NOT_BY_CLUSTER)
        if record is None:
            raise ScenarioError("no round was played yet: call step() first")
        return np.asarray(reward.by_cluster(record), dtype=np.float32)

    @property
    def may_fail_to_begin(self) -> bool:
        """Whether a user's own process may fail when an episode begins, and the round can then be undone."""
        return bool(self.world.system.checked) and self.world.quick is not None

    def remember(self) -> Callable[[], None]:
        """Remember everything that a step changes; returns a function that puts it back.

        Raises:
            StateError: If the learner cannot save its state.
        """
        put_back = self.world.remember()
        kept = self._sums, self._time_to_target, self.ended_summaries

        def forget() -> None:
            put_back()
            self._sums, self._time_to_target, self.ended_summaries = kept

        return forget

    def learning_info(self) -> dict[str, Array]:
        """Loss and metric of the last evaluation (E,), fresh arrays; no metric where the learner has none."""
        learning = self.world.learning
        if self.backend is not NUMPY:
            return {"loss": namespace(learning.loss).asarray(learning.loss, copy=True)}
        info = {"loss": learning.loss.copy()}
        # NaN never equals itself, so it would make two equal trajectories differ.
        metric = learning.metric
        if metric is not self._no_metric:
            if not np.isnan(metric).all():
                info["metric"] = metric.copy()
            elif not metric.flags.writeable:
                self._no_metric = metric
        return info

    def summaries(self, rows: Array) -> dict[str, Array]:
        """Summaries of some rows' episodes so far: arrays (E,) by name, each with a mask ``_name``.

        The names are ``rounds``, ``total_delay`` [s], ``mean_delay`` [s], ``energy_ratio_max``,
        ``final_backlog`` (sum of ``z``), ``return``, ``loss``, ``metric`` (masked out without real training)
        and ``time_to_target`` [s] (masked out unless the scenario has a target loss and it was reached).
        ``energy_ratio_max`` is the worst ratio of any node or the server: time-average energy over the
        budget, or mean power over the budget's power where budgets are per second. Above 1 a budget is
        broken. Rounds that a cluster sits out, or in which a device is away, grant nothing.

        Args:
            rows: Mask of the rows wanted (E,), at least one; the numbers of the others are 0.
        """
        state, sums = self.world.state, self._sums
        xp = namespace(state.backlog)
        played = xp.astype(at_least(state.round_index, 1), state.backlog.dtype)
        period = self.world.parameters.budget_period_s
        granted = played  # budgets so far, 1 before the first round
        if period is not None:
            granted = xp.where(state.round_index > 0, sums["total_delay"] / period, played)
        each = sums.get("total_granted", granted[:, None, None])
        used = xp.max(budgets_used(sums["total_energy_ratio"], each), axis=(-2, -1))
        held = state.backlog.sum(axis=(-2, -1))
        if "total_server_ratio" in sums:
            used = xp.maximum(used, sums["total_server_ratio"] / granted)
            held = held + state.server_backlog
        columns = {
            "rounds": state.round_index,
            "total_delay": sums["total_delay"],
            "mean_delay": sums["total_delay"] / played,
            "energy_ratio_max": used,
            "final_backlog": held,
            "return": sums["total_reward"],
            "loss": self.world.learning.loss,
            "metric": self.world.learning.metric,
            "time_to_target": self._time_to_target,
        }
        summaries: dict[str, Array] = {}
        for name, values in columns.items():
            maybe = name in ("metric", "time_to_target")
            known = rows & ~xp.isnan(values) if maybe else xp.asarray(rows, copy=True)
            summaries[name] = xp.where(known, values, xp.zeros_like(values))
            summaries[f"_{name}"] = known
        return summaries

    def summary(self, row: int) -> dict[str, float]:
        """The episode of one row so far, as plain numbers; see :meth:`summaries`."""
        return row_of(self.summaries(self.backend.array(np.arange(self.num_envs) == row)), row)

    def keep_summaries(self, ended: Array) -> None:
        """Copy the rows whose episodes just ended (E,) into :attr:`ended_summaries`."""
        kept, where = self.ended_summaries, namespace(ended).where
        fresh = self.summaries(ended)
        self.ended_summaries = {
            name: where(ended, fresh[name], kept.get(name, fresh[name])) for name in fresh
        }


def row_of(columns: Mapping[str, Array], row: int) -> dict[str, float]:
    """One row's plain numbers from columns with masks ``_name``, without those that the masks exclude."""
    return {
        name: values[row].item()
        for name, values in columns.items()
        if f"_{name}" in columns and columns[f"_{name}"][row]
    }


def _left_out(record: RoundRecord) -> dict[str, Array]:
    """Present devices that take no part (E,), for instance for lack of memory, in plans with groups."""
    idle = record.state.present & ~record.costs.graph.active
    xp = namespace(idle)
    return {"left_out": xp.sum(xp.astype(idle, record.state.backlog.dtype), axis=(-2, -1))}

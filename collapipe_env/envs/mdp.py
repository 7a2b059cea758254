"""The MDP of a batch of environments, shared by the single and the vector environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from collapipe_env.envs.default_reward import default_reward, with_target
from collapipe_env.envs.observation_kinds import Observation
from collapipe_env.envs.observers import Layout, make_observer
from collapipe_env.envs.own_reward import OwnReward, guarded
from collapipe_env.envs.rewards import Reward, make_reward
from collapipe_env.envs.summaries import merge_rows, require_columns, row_of
from collapipe_env.feasibility import warn_if_infeasible
from collapipe_env.ground.arrays import Array, BoolArray, at_least, namespace, total
from collapipe_env.ground.backends import NUMPY, Backend
from collapipe_env.ground.errors import AllocationError
from collapipe_env.ground.state_trees import Tree, require_alike, require_within
from collapipe_env.learners.factory import make_learner
from collapipe_env.physics.allocation import Allocation, own_arrays
from collapipe_env.physics.queues import budgets_used
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import action_codec, reference_delay
from collapipe_env.simulator.codec import ActionCodec
from collapipe_env.simulator.learner import Learner
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.refusal import require_room
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.system import reach_of, walking_side
from collapipe_env.simulator.world import World


@dataclass(frozen=True)
class BatchStep:
    """One step of ``E`` environments, in arrays of the backend.

    Attributes:
        observation: (E, D), float32; or a dictionary of arrays (E, ...), float32.
        reward: (E,).
        terminated: The target loss is reached (E,), bool; ``None`` where there is no target.
        info: Arrays (E,) by name.
    """

    observation: Observation
    reward: Array
    terminated: Array | None
    info: dict[str, Array]


class BatchMDP:
    """Scenario, world, reward and observation of ``E`` environments that step together, on any backend.

    Args:
        learner: ``"real"``, ``"surrogate"`` or a learner built for ``num_envs``.
        reward: A reward's name or object.
        num_envs: ``E``.
        max_rounds: Shortens the episode; ``None`` for the scenario's own length.
        backend: Library of the arrays.
        observation: ``"flat"`` or ``"graph"``.

    Attributes:
        ended_summaries: Summaries of each row's last episode that ended, as from :meth:`summaries`; empty
            before the first ends.

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
        self.observer = make_observer(observation, scenario)
        on_numpy = backend is NUMPY
        self._observe = backend.fuse(self.observer.build if on_numpy else self.observer.build_generic)
        choices = backend.array(np.array(self.codec.micro_batch_choices))
        self._decode = backend.fuse(partial(self.codec.decode_finite, choices=choices))
        self._compiled_reward = self._fused_reward()
        rounds = scenario.dynamics.rounds
        self.rounds = rounds if max_rounds is None else min(rounds, max_rounds)
        self._total_delay = self._total_reward = self._column(0.0)
        self._total_energy_ratio = self.world.state.backlog
        # None where the server has no energy budget.
        self._total_server_ratio: Array | None = self.world.state.server_backlog
        # Budgets granted to each node in its own rounds (E, N, K+1), where clusters may sit out or devices be
        # away. None where all nodes are granted the same.
        own_rounds = self.world.state.absence is not None or self.world.system.comes_and_goes
        self._total_granted = self.world.state.backlog if own_rounds else None
        self._time_to_target = self._column(np.nan)
        # A read-only metric that holds only NaN: it need not be checked in every step.
        self._no_metric: Array | None = None
        self.ended_summaries: dict[str, Array] = {}

    def _column(self, value: float) -> Array:
        return self.backend.array(np.full(self.num_envs, value))

    def _fused_reward(self) -> Reward | None:
        """The reward compiled by the backend; ``None`` where it compiles nothing."""
        own = self.reward if isinstance(self.reward, OwnReward) else None
        plain = self.reward if own is None else own.unchecked
        fused = self.backend.fuse(plain)
        if fused is plain or own is None:
            return None if fused is plain else fused

        def checked(before: SystemState, costs: RoundCosts, after: SystemState) -> Array:
            # Compiled code holds no checks, so its result is checked afterwards.
            rewards = fused(guarded(before), guarded(costs), guarded(after))
            own.check_shape(rewards, costs.delay)
            return rewards

        return checked

    def action_space(self) -> spaces.Box:
        """Box(-1, 1, (A,), float32), with ``A = N (2K + 3)`` plus the entries of opened decisions."""
        return spaces.Box(-1.0, 1.0, (self.codec.action_size,), np.float32)

    def reset(self, rngs: Sequence[np.random.Generator], mask: BoolArray | None = None) -> Observation:
        """Start new episodes in the masked rows; returns the observations of all rows (E, ...)."""
        rows = self.backend.rows(np.ones(self.num_envs, dtype=np.bool_) if mask is None else mask)
        seen = self.world.reset(rngs, mask)
        self._total_delay = rows.fill(self._total_delay, 0.0)
        self._total_reward = rows.fill(self._total_reward, 0.0)
        self._total_energy_ratio = rows.fill(self._total_energy_ratio, 0.0)
        if self._total_server_ratio is not None:
            self._total_server_ratio = rows.fill(self._total_server_ratio, 0.0)
        if self._total_granted is not None:
            self._total_granted = rows.fill(self._total_granted, 0.0)
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
        cap = self.world.seen.memory_cap
        # Where actions may let clusters sit out, those that cannot hold the encoder do so.
        all_play = "participation" not in self.codec.opened and not self.codec.sits_out
        if check and all_play and self.world.system.may_lack_room:
            require_room(self.backend.host(cap), self.scenario.blocks)
        if self.backend is NUMPY:
            allocation = self.codec.decode(actions, cap, self.world.seen.memory_bytes)
        else:
            if check:
                self.codec.check_action(actions)
            allocation = self._decode(actions, cap, self.world.seen.memory_bytes)
        return self.play(allocation, check=False)

    def check_shape(self, actions: Array) -> None:
        """Refuse actions that are not one for each environment.

        Raises:
            AllocationError: If the shape is not (E, N (2K + 3)).
        """
        shape = tuple(actions.shape)
        self.codec.check_action_shape(shape)
        if shape[:-1] != (self.num_envs,):
            raise AllocationError(
                f"actions have shape {shape}, expected {(self.num_envs, self.codec.action_size)}: "
                "one action for each environment"
            )

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
        quick = self.world.quick
        untrained = None if quick is None else quick.remember()
        target = self.scenario.dynamics.target_loss
        # A user's own reward or process may fail: the round is taken only if none does.
        try:
            played = self.world.try_round(allocation, check=check)
            record, after = played.record, played.following
            costs = record.costs
            reward = (self._compiled_reward or self.reward)(record.state, costs, after)
        except BaseException:  # it may raise anything while it is compiled
            if untrained is not None:
                untrained()
            raise
        reached = None if target is None else after.loss <= target
        self.world.take(played)
        self._total_delay = self._total_delay + costs.delay
        self._total_energy_ratio = self._total_energy_ratio + costs.energy_ratio
        if self._total_server_ratio is not None:
            self._total_server_ratio = self._total_server_ratio + costs.server_ratio
        if self._total_granted is not None:
            self._total_granted = self._total_granted + record.granted
        if reached is not None:
            xp = namespace(after.loss)
            first = reached & xp.isnan(self._time_to_target)
            self._time_to_target = xp.where(first, self._total_delay, self._time_to_target)
        self._total_reward = self._total_reward + reward
        return BatchStep(
            observation=self._observe(self.world.seen),
            reward=reward,
            terminated=reached,
            info={
                "delay": costs.delay,
                "cost": record.energy_excess,
                "backlog": record.backlog_sum,
                **self.learning_info(),
                # Not for decoded actions: their stages have one device, and infos always the same names.
                **(_left_out(record) if check and allocation.stage is not None else {}),
            },
        )

    def truncated(self) -> Array:
        """Rows whose episode has played all its rounds (E,), bool."""
        return self.world.state.round_index >= self.rounds

    def reset_info(self) -> dict[str, Array]:
        """Information of rows that begin an episode (E,): a step's names, with 0 for the round's costs."""
        zeros = {name: self._column(0.0) for name in ("delay", "cost", "backlog")}
        return {**zeros, **self.learning_info()}

    def get_state(self) -> Tree:
        """The world's state and the sums of the episodes so far; see :mod:`collapipe_env.ground.state_trees`.

        Raises:
            StateError: If the learner cannot save its state.
        """
        ended = {name: self.backend.host(values) for name, values in self.ended_summaries.items()}
        return {"simulator": self.world.get_state(), "sums": self._sums(), "ended": ended}

    def set_state(self, tree: Any, seeded: BoolArray) -> None:
        """Continue from a state of :meth:`get_state`; on an error nothing changes.

        Args:
            seeded: Rows that have a generator for their next episodes (E,).

        Raises:
            StateError: If it is damaged.
        """
        sums = self._sums()
        template = {"simulator": ..., "sums": sums, "ended": ...}
        require_alike(tree, template, "mdp")
        for name in sums:
            if name != "total_reward":
                unknown = name == "time_to_target"
                require_within(tree["sums"][name], 0.0, np.inf, f"mdp/sums/{name}", unknown=unknown)
        require_columns(tree["ended"], self.num_envs, sums["total_delay"].dtype, "mdp/ended")
        self.world.set_state(tree["simulator"], seeded)
        array = self.backend.array
        for name, values in tree["sums"].items():
            setattr(self, f"_{name}", array(values))
        self.ended_summaries = {name: array(values) for name, values in tree["ended"].items()}

    @property
    def may_fail_to_begin(self) -> bool:
        """Whether a user's own process may fail when an episode begins, and the round can then be undone."""
        return bool(self.world.system.checked) and self.world.quick is not None

    def remember(self) -> Callable[[], None]:
        """Remember everything that a step changes; returns a function that puts it back.

        Raises:
            StateError: If the learner cannot save its state.
        """
        put_back, ended = self.world.remember(), self.ended_summaries
        # Replaced and never written to.
        sums = {name: getattr(self, f"_{name}") for name in self._sum_names()}

        def forget() -> None:
            put_back()
            for name, values in sums.items():
                setattr(self, f"_{name}", values)
            self.ended_summaries = ended

        return forget

    def _sums(self) -> Tree:
        return {name: self.backend.host(getattr(self, f"_{name}")) for name in self._sum_names()}

    def _sum_names(self) -> tuple[str, ...]:
        further = {"total_server_ratio": self._total_server_ratio, "total_granted": self._total_granted}
        return (*_SUMS, *(name for name, sums in further.items() if sums is not None))

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

    def summaries(self, rows: Array, *, reached: bool = True) -> dict[str, Array]:
        """Summaries of some rows' episodes so far: arrays (E,) by name, each with a mask ``_name``.

        The names are ``rounds``, ``total_delay`` [s], ``mean_delay`` [s], ``energy_ratio_max``,
        ``final_backlog`` (sum of ``z``), ``return``, ``loss`` and, where they exist, ``metric`` (real
        training) and ``time_to_target`` [s] (if the scenario has a target loss and it was reached).
        ``energy_ratio_max`` is the worst ratio of any node or the server: time-average energy over the
        budget, or mean power over the budget's power where budgets are per second. Above 1 a budget is
        broken. Rounds that a cluster sits out, or in which a device is away, grant nothing.

        Args:
            rows: Mask of the rows wanted (E,), at least one; the numbers of the others are 0.
            reached: Whether any of these rows can have reached its target.
        """
        state = self.world.state
        xp = namespace(state.backlog)
        played = at_least(state.round_index, 1)
        played = xp.astype(played, state.backlog.dtype)
        period = self.world.parameters.budget_period_s
        granted = played  # budgets so far, 1 before the first round
        if period is not None:
            granted = xp.where(state.round_index > 0, self._total_delay / period, played)
        used = self._worst_node(granted)
        held = total(state.backlog)
        if self._total_server_ratio is not None:
            used = xp.maximum(used, self._total_server_ratio / granted)
            held = held + state.server_backlog
        columns = {
            "rounds": state.round_index,
            "total_delay": self._total_delay,
            "mean_delay": self._total_delay / played,
            "energy_ratio_max": used,
            "final_backlog": held,
            "return": self._total_reward,
            **self.learning_info(),
        }
        masks = dict.fromkeys(columns, rows)
        known = rows & ~xp.isnan(self._time_to_target) if reached else None
        if known is not None and bool(xp.any(known)):
            columns["time_to_target"], masks["time_to_target"] = self._time_to_target, known
        summaries: dict[str, Array] = {}
        for name, values in columns.items():
            summaries[name] = xp.where(masks[name], values, xp.zeros_like(values))
            summaries[f"_{name}"] = xp.asarray(masks[name], copy=True)
        return summaries

    def _worst_node(self, granted: Array) -> Array:
        """Largest energy over the budgets granted so far, of any node (E,).

        Args:
            granted: Budgets that the rounds have granted (E,), > 0.
        """
        xp, used = namespace(granted), self._total_energy_ratio
        if self._total_granted is None:
            return xp.max(used, axis=(-2, -1)) / granted
        return xp.max(budgets_used(used, self._total_granted), axis=(-2, -1))

    def summary(self, row: int) -> dict[str, float]:
        """The episode of one row so far, as plain numbers; see :meth:`summaries`."""
        return row_of(self.summaries(self.backend.array(np.arange(self.num_envs) == row)), row)

    def keep_summaries(self, ended: Array, *, reached: bool = True) -> None:
        """Copy the rows whose episodes just ended (E,) into :attr:`ended_summaries`."""
        fresh = self.summaries(ended, reached=reached)
        self.ended_summaries = merge_rows(self.ended_summaries, fresh, ended, namespace(ended).where)


_SUMS = ("total_delay", "total_energy_ratio", "total_reward", "time_to_target")
"""Sums of the running episodes that a BatchMDP keeps."""


def _left_out(record: RoundRecord) -> dict[str, Array]:
    """Present devices that take no part (E,), for instance for lack of memory, in plans with groups."""
    idle = record.state.present & ~record.costs.graph.active
    xp = namespace(idle)
    return {"left_out": xp.sum(xp.astype(idle, record.state.backlog.dtype), axis=(-2, -1))}


class MDPViews:
    """Views of the MDP that both environments offer beyond Gymnasium's interface."""

    _mdp: BatchMDP
    _spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """Gymnasium's specification, with the environment's own :attr:`rounds`; ``None`` if made without."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = copy(spec)
        if self._spec is not None:
            self._spec.max_episode_steps = self.rounds

    @property
    def scenario(self) -> Scenario:
        """The scenario."""
        return self._mdp.scenario

    @property
    def codec(self) -> ActionCodec:
        """Maps actions to allocations and back."""
        return self._mdp.codec

    @property
    def observation_layout(self) -> Layout:
        """Names, places, shapes and units of the observation's features."""
        layout: Layout = self._mdp.observer.layout
        return layout

    @property
    def reference_delay(self) -> float:
        """``T_ref`` [s]: round delay of the even split at mean gains."""
        return self._mdp.reference_delay

    @property
    def rounds(self) -> int:
        """The horizon: the number of rounds after which an episode is truncated.

        It respects ``max_episode_steps`` of ``gymnasium.make_vec``, but not of ``gymnasium.make``: there
        Gymnasium's wrapper ends episodes without the environment's knowledge, and ``ended_summary`` stays
        empty. Set ``dynamics.rounds`` for shorter episodes there.
        """
        return self._mdp.rounds

    @property
    def state(self) -> SystemState:
        """The system before the next round, as model-based schedulers see it (E, ...); E = 1 if single."""
        return self._mdp.world.seen

    @property
    def truth(self) -> SystemState:
        """The true system before the next round (E, ...), even where schedulers see an estimate.

        For rewards, pictures and oracles that declare ``sees = "truth"``, not for schedulers.
        """
        return self._mdp.world.state

    @property
    def path_gains(self) -> Array:
        """True gains of all links before the next round, without small-scale fading (E, links).

        Uplinks come first, then each cluster's pairs of nodes. Like :attr:`truth`, not for schedulers.
        """
        return self._mdp.world.system.path_gains

    def _pictures(self, fresh: Sequence[bool], titles: Sequence[str], **history: Any) -> tuple[Any, ...]:
        """Pictures (H, W, 3), uint8, of all rows' last rounds; of the even split where a row is fresh."""
        # Imported late: Matplotlib is an extra, and slow to import.
        from collapipe_env.rendering import draw_round
        from collapipe_env.rendering.round_view import preview, round_view

        planned = preview(self._mdp.world) if any(fresh) else None
        pictures = []
        for row, (new, title) in enumerate(zip(fresh, titles, strict=True)):
            record = planned if new else self.last_round
            assert record is not None
            view = round_view(
                record,
                self.scenario.workload.local_steps,
                title + (" (even split, not played)" if new else ""),
                row=row,
                side_m=walking_side(self.scenario),
                reach_m=reach_of(self.scenario),
                **history,
            )
            pictures.append(draw_round(view))
        return tuple(pictures)

    @property
    def last_round(self) -> RoundRecord | None:
        """Record of the round just played (E, ...); ``None`` before the first."""
        return self._mdp.world.last_round

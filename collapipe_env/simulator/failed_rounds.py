"""Rounds in which a device fails: what is lost, who goes on with which blocks, and what it costs ([X]).

Failures are rare, so clusters that have one are worked out one by one on the host. The formulas are those of
:mod:`collapipe_env.physics.recovery`; steps and energies of the plan that is left are :func:`round_costs`'s.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from collapipe_env.allocation import ASYNC, INTERLEAVED, SEQUENTIAL, Allocation
from collapipe_env.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.physics import energy
from collapipe_env.physics.migration import block_holders
from collapipe_env.physics.participation import steps_or
from collapipe_env.physics.recovery import (
    RecoveryTerms,
    credited_steps,
    light_segments,
    moving_time,
    replay_transfer,
    rescheduling_transfer,
    within_memory,
)
from collapipe_env.simulator.costs import RoundCosts, round_costs
from collapipe_env.simulator.migration_costs import seconds_per_bit
from collapipe_env.simulator.running import running_state
from collapipe_env.simulator.state import SystemParameters, SystemState

NOBODY = -1
"""Stands for the device where none failed."""


class FailedRounds(NamedTuple):
    """Failures inside rounds, and what they did; rows are environments.

    Attributes:
        device: Device that failed inside the round (R, N), int; -1 where none did, or too late to matter.
        at_s: ``t_f`` (R, N) [s] from the round's begin; infinite where none did.
        credited: Local steps that were done and count (R, N), int.
        tried_steps: Local steps that the old plan worked on until the failure (R, N), parts of one included.
        detect_s: ``T_det`` (R, N) [s].
        plan_s: ``T_plan`` (R, N) [s].
        move_s: ``T_move`` (R, N) [s], with the rest of a migration that the failure cut.
        replay_s: ``(H - done) T'_step`` (R, N) [s].
        collect_s: ``T_col'`` (R, N) [s].
        blocks: Blocks of each stage slot at the end of the round (R, N, K), int.
        stage: Slot of each device then (R, N, K), int.
        reset: Blocks whose moments start again from zero (R, N, L), bool.
        dropped: Clusters whose round is lost (R, N), bool.
    """

    device: IntArray
    at_s: FloatArray
    credited: IntArray
    tried_steps: FloatArray
    detect_s: FloatArray
    plan_s: FloatArray
    move_s: FloatArray
    replay_s: FloatArray
    collect_s: FloatArray
    blocks: IntArray
    stage: IntArray
    reset: BoolArray
    dropped: BoolArray


class Replayed(NamedTuple):
    """Rounds with what failures made of them.

    Attributes:
        cluster_delay: Added to ``T_n`` (R, N) [s].
        energy: Added to the energy of each node (R, N, K+1) [J].
        failed: What happened.
    """

    cluster_delay: FloatArray
    energy: FloatArray
    failed: FailedRounds


def unscathed(allocation: Allocation, blocks: int) -> FailedRounds:
    """Rounds without a failure.

    Args:
        allocation: The plans (R, ...), on the host.
        blocks: ``L``.
    """
    R, N, K = allocation.blocks.shape
    nothing = np.zeros((R, N))
    own = np.broadcast_to(np.arange(K), (R, N, K)) if allocation.stage is None else allocation.stage
    return FailedRounds(
        device=np.full((R, N), NOBODY),
        at_s=np.full((R, N), np.inf),
        credited=np.zeros((R, N), dtype=np.int64),
        tried_steps=nothing.copy(),
        detect_s=nothing.copy(),
        plan_s=nothing.copy(),
        move_s=nothing.copy(),
        replay_s=nothing.copy(),
        collect_s=nothing.copy(),
        blocks=np.array(allocation.blocks, dtype=np.int64),
        stage=np.array(own, dtype=np.int64),
        reset=np.zeros((R, N, blocks), dtype=np.bool_),
        dropped=np.zeros((R, N), dtype=np.bool_),
    )


class Failures:
    """Works out rounds in which devices fail.

    Args:
        parameters: Scalars of the scenario.
        terms: Terms on which clusters recover.
    """

    def __init__(self, parameters: SystemParameters, terms: RecoveryTerms) -> None:
        self._parameters, self._terms = parameters, terms
        costs = parameters.costs
        memory, w, adapters = costs.training_memory, costs.block_parameters, costs.adapter_parameters
        trained = adapters or w
        # Frozen weights are with everybody who holds the block, and have to reach a new holder as well.
        self._weight_bits = 8.0 * memory.weight_bytes * (w + adapters)
        self._moment_bits = 2.0 * memory.kept_moment_bits * trained
        # A change of plan inside a round moves what this module says, and no moments beforehand.
        still = replace(parameters, migration=None, local_steps_choices=None)
        self._of_steps = tuple(
            replace(
                still,
                costs=replace(costs, local_steps=H),
                other_costs=None
                if parameters.other_costs is None
                else replace(parameters.other_costs, local_steps=H),
            )
            for H in (1, 2)
        )

    def replayed(self, state: SystemState, costs: RoundCosts, failing_s: FloatArray) -> Replayed | None:
        """Rounds with what failures make of them; ``None`` where none matters.

        Args:
            state: The systems before the rounds (R, ...), on the host.
            costs: The rounds without failures, on the host.
            failing_s: Times at which devices fail (R, N, K) [s] from the round's begin; infinite for never.
        """
        allocation = costs.allocation
        first, at = self._first(costs, failing_s)
        rows = np.flatnonzero((first != NOBODY).any(axis=-1))
        if not len(rows):
            return None
        failed = unscathed(allocation, self._parameters.costs.blocks)
        rounds = _Rounds(self, state[rows], costs, rows, first[rows], at[rows])
        plan, transfers = rounds.left_over(failed)
        return rounds.priced(failed, rounds.fitting(failed, plan), transfers)

    def _first(self, costs: RoundCosts, failing_s: FloatArray) -> tuple[IntArray, FloatArray]:
        """The first device of each cluster that fails while it holds blocks that are not collected yet."""
        at_work = np.where(costs.allocation.device_blocks > 0, failing_s, np.inf)
        if costs.plays is not None:
            at_work = np.where(costs.plays[..., None], at_work, np.inf)
        device, at = at_work.argmin(axis=-1), at_work.min(axis=-1)
        collected = costs.cluster_delay - costs.upload
        matters = at < collected
        return np.where(matters, device, NOBODY), np.where(matters, at, np.inf)

    @property
    def parameters(self) -> SystemParameters:
        """Scalars of the scenario."""
        return self._parameters

    @property
    def terms(self) -> RecoveryTerms:
        """Terms on which clusters recover."""
        return self._terms

    @property
    def block_bits(self) -> tuple[float, float]:
        """Weights and moments of a block [bit]."""
        return self._weight_bits, self._moment_bits

    def one_step(self, state: SystemState, plan: Allocation) -> RoundCosts:
        """Costs of rounds in which all clusters take one local step.

        Args:
            state: The systems (R, ...).
            plan: The plans (R, ...).
        """
        return round_costs(self._of_steps[0], state, replace(plan, local_steps=None))

    def step_and_rest(
        self, state: SystemState, plan: Allocation
    ) -> tuple[FloatArray, FloatArray, RoundCosts]:
        """Energy of a local step, energy of the rest of a round (R, N, K+1) [J], and costs with one step."""
        one = self.one_step(state, plan)
        two = round_costs(self._of_steps[1], state, one.allocation)
        step = two.energy - one.energy
        return step, one.energy - step, one


class _Rounds:
    """Rows in which some cluster has a failure."""

    def __init__(
        self,
        owner: Failures,
        state: SystemState,
        costs: RoundCosts,
        rows: IntArray,
        device: IntArray,
        at: FloatArray,
    ) -> None:
        self._owner, self._costs, self._rows = owner, costs, rows
        self._device, self._at = device, at
        self._plan = costs.allocation[rows]
        self._state = running_state(state, self._plan)
        own = owner.parameters.costs
        self._steps = np.broadcast_to(steps_or(self._plan, own.local_steps), device.shape)
        self._holders = np.asarray(block_holders(self._plan, own.blocks))[..., 1:]
        self._step_s = (costs.local_step + costs.barrier)[rows]
        moved = np.zeros_like(self._step_s) if costs.migration is None else costs.migration[rows]
        self._migration_s = moved
        self._begun_s = moved + costs.relay[rows]
        # Devices that were idle may have to send later on, but not in this phase.
        self._seconds_per_bit = np.asarray(
            seconds_per_bit(owner.parameters, self._state, self._plan.node_power, costs.interference[rows])
        )
        self._where = tuple(zip(*(index.tolist() for index in np.nonzero(device != NOBODY)), strict=True))

    def left_over(self, failed: FailedRounds) -> tuple[Allocation, dict[tuple[int, int], FloatArray]]:
        """Fill in plans that are left, and what moves.

        Args:
            failed: Filled in, in the rows at hand.

        Returns:
            The plans (R, ...), and seconds that each pair of nodes sends (K+1, K+1) by row and cluster.
        """
        owner, sent = self._owner, {}
        blocks, stage = self._plan.blocks.copy(), failed.stage[self._rows]
        share = None if self._plan.sample_share is None else self._plan.sample_share.copy()
        power = self._plan.device_power.copy()
        for r, n in self._where:
            row, device = self._rows[r], int(self._device[r, n])
            failed.device[row, n], failed.at_s[row, n] = device, self._at[r, n]
            failed.detect_s[row, n] = owner.terms.detection_s
            failed.plan_s[row, n] = owner.terms.planning_s
            done = credited_steps(self._at[r, n], self._begun_s[r, n], self._step_s[r, n], self._steps[r, n])
            tried = (self._at[r, n] - self._begun_s[r, n]) / self._step_s[r, n]
            failed.tried_steps[row, n] = min(max(tried, 0.0), self._steps[r, n])
            mine = self._with_idle(r, n, stage[r, n], device)
            segments = None
            if owner.terms.kind != "drop-round" and self._can_go_on(r, n):
                segments = self._segments(r, n, mine)
            if segments is None:
                failed.dropped[row, n] = True
                continue
            held = np.where(mine >= 0, segments[np.maximum(mine, 0)], 0)
            mine = np.where((stage[r, n] < 0) & (held == 0), NOBODY, mine)
            joined = (self._plan.device_blocks[r, n] == 0) & (held > 0)
            power[r, n, joined] = owner.parameters.power_max_w
            before = self._holders[r, n]
            blocks[r, n], stage[r, n] = segments, mine
            if share is not None:
                share[r, n] = _dealt(share[r, n], mine)
            after = _holders(segments, mine, before.shape[0])
            moves = replay_transfer if owner.terms.kind == "light" else rescheduling_transfer
            transfer = moves(before, after, device, *owner.block_bits)
            seconds = transfer.bits * np.where(transfer.bits > 0.0, self._seconds_per_bit[r, n], 0.0)
            sent[r, n] = seconds
            failed.credited[row, n] = done if transfer.kept else 0
            failed.reset[row, n] = transfer.reset
            rest = max(0.0, self._begun_s[r, n] - self._at[r, n])
            longest = moving_time(owner.terms.kind, transfer.bits, self._seconds_per_bit[r, n])
            failed.move_s[row, n] = rest + longest
        failed.blocks[self._rows], failed.stage[self._rows] = blocks, stage
        plan = replace(self._plan, blocks=blocks, device_power=power)
        if plan.caps is not None:
            # Stages that join may have as many micro-batches in flight as the fullest of the others.
            most = plan.caps.max(axis=-1, keepdims=True)
            plan = replace(
                plan, caps=np.where((blocks > 0) & (plan.caps == 0), np.maximum(most, 1), plan.caps)
            )
        if self._plan.stage is not None:
            plan = replace(plan, stage=stage, sample_share=share)
        return plan, sent

    def fitting(self, failed: FailedRounds, plan: Allocation) -> Allocation:
        """Plans that fit the devices' memories: with less in flight where that helps, else the old ones.

        Args:
            failed: Clusters whose plan does not fit give their round up.
            plan: Plans that are left.
        """
        if failed.dropped[self._rows][self._device != NOBODY].all():
            return plan
        for attempt in range(2):
            memory = self._owner.one_step(self._state, plan).memory
            over = (memory > self._state.memory_bytes * (1.0 + 1e-9)).any(axis=-1) & (self._device != NOBODY)
            over &= ~failed.dropped[self._rows]
            if not over.any():
                return plan
            if attempt == 0 and plan.caps is not None:
                plan = replace(plan, caps=np.where(over[..., None], np.minimum(plan.caps, 1), plan.caps))
        old, each = self._plan, over[..., None]
        kept = {"blocks": np.where(each, old.blocks, plan.blocks)}
        if plan.stage is not None and plan.sample_share is not None and old.sample_share is not None:
            kept["stage"] = np.where(each, old.stage, plan.stage)
            kept["sample_share"] = np.where(each, old.sample_share, plan.sample_share)
        for r, n in np.argwhere(over).tolist():
            row = self._rows[r]
            failed.dropped[row, n], failed.credited[row, n] = True, 0
            failed.move_s[row, n], failed.reset[row, n] = 0.0, False
            failed.blocks[row, n] = old.blocks[r, n]
            if old.stage is not None:
                failed.stage[row, n] = old.stage[r, n]
        return replace(plan, **kept)

    def _with_idle(self, r: int, n: int, stage: IntArray, device: int) -> IntArray:
        """Slots of the devices that are left (K,); idle ones in those that are free, where stages are alone.

        Args:
            r: Row.
            n: Cluster.
            stage: Slots before (K,), -1 for none.
            device: The one that failed.
        """
        mine: IntArray = stage.copy()
        mine[device] = NOBODY
        taken = mine[mine >= 0]
        if len(np.unique(taken)) == len(taken):
            free = np.setdiff1d(np.arange(len(mine)), taken)
            idle = np.flatnonzero((mine < 0) & self._state.present[r, n])
            idle = idle[idle != device]
            mine[idle] = free[: len(idle)]
        return mine

    def _can_go_on(self, r: int, n: int) -> bool:
        """Whether the cluster's plan is one that a replay can go on with."""
        plan = self._plan
        if plan.schedule is not None and plan.schedule[r, n] in (ASYNC, INTERLEAVED):
            return False
        return plan.server_mode is None or plan.server_mode[r] != SEQUENTIAL

    def _segments(self, r: int, n: int, stage: IntArray) -> IntArray | None:
        """Blocks of each stage slot after the failure (K,); ``None`` where those that are left lack memory.

        Args:
            r: Row.
            n: Cluster.
            stage: Slot of each device (K,), -1 for those in none.
        """
        old = self._plan.blocks[r, n]
        members = stage[:, None] == np.arange(len(old))
        speeds = (members * self._state.speed[r, n][:, None]).sum(axis=0)
        caps = self._caps(r, n, members)
        usable = (speeds > 0.0) & (caps > 0)
        alone = bool((members.sum(axis=0) <= 1).all())
        if self._owner.terms.kind == "heavy" and alone:
            return self._replanned(r, n, stage, speeds, caps, usable)
        # Devices that had no blocks help out, where the others lack memory.
        for working in (usable & (old > 0), usable) if alone else (usable & (old > 0),):
            if (segments := _split(int(old.sum()), speeds, caps, working)) is not None:
                return segments
        return None

    def _replanned(
        self, r: int, n: int, stage: IntArray, speeds: FloatArray, caps: IntArray, usable: BoolArray
    ) -> IntArray | None:
        """Split with the shortest local step among those over the fastest 1 to K devices."""
        total, order = int(self._plan.blocks[r, n].sum()), np.argsort(-np.where(usable, speeds, 0.0))
        found = []
        for count in range(1, int(usable.sum()) + 1):
            working = np.zeros_like(usable)
            working[order[:count]] = True
            if (segments := _split(total, speeds, caps, working)) is not None:
                found.append(segments)
        if not found:
            return None
        plans = self._plan[np.full(len(found), r)]
        blocks = plans.blocks.copy()
        blocks[:, n] = found
        plans = replace(plans, blocks=blocks)
        if plans.stage is not None and plans.sample_share is not None:
            slots, share = plans.stage.copy(), plans.sample_share.copy()
            slots[:, n], share[:, n] = stage, np.where(stage >= 0, 1.0, 0.0)
            plans = replace(plans, stage=slots, sample_share=share)
        if plans.caps is not None:
            caps = np.where((blocks > 0) & (plans.caps == 0), 1, plans.caps)
            plans = replace(plans, caps=caps)
        costs = self._owner.one_step(self._state[np.full(len(found), r)], plans)
        return found[int(costs.local_step[:, n].argmin())]

    def _caps(self, r: int, n: int, members: BoolArray) -> IntArray:
        """Blocks that each stage slot can hold (K,), int: as many as its tightest member."""
        state, plan = self._state, self._plan
        caps = np.where(state.present[r, n], state.memory_cap[r, n], 0)
        if plan.schedule is not None or plan.stage is not None or plan.recompute is not None:
            # Whatever a device's share and its micro-batches in flight: memory in proportion to the blocks.
            needs = self._costs.memory[self._rows[r], n]
            held = plan.device_blocks[r, n]
            each = np.divide(needs, held, out=np.zeros_like(needs), where=held > 0)
            room = np.divide(state.memory_bytes[r, n], each, out=np.zeros_like(each), where=each > 0.0)
            caps = np.where(held > 0, np.floor(room + 1e-9), caps).astype(np.int64)
        tightest = np.where(members, caps[:, None], np.iinfo(np.int64).max).min(axis=0)
        return np.where(members.any(axis=0), tightest, 0)

    def priced(
        self, failed: FailedRounds, plan: Allocation, sent: dict[tuple[int, int], FloatArray]
    ) -> Replayed:
        """Delays and energies of the replays.

        Args:
            failed: Completed in the rows at hand.
            plan: Plans that are left.
            sent: Seconds that each pair of nodes sends (K+1, K+1) by row and cluster.
        """
        owner, costs, rows = self._owner, self._costs, self._rows
        step, rest, _ = owner.step_and_rest(self._state, self._plan)
        step_after, rest_after, after = owner.step_and_rest(self._state, plan)
        migration = costs.energy[rows] - rest - self._steps[..., None] * step
        delay, joules = np.zeros_like(costs.cluster_delay), np.zeros_like(costs.energy)
        p = owner.parameters.radio_power
        power = energy.radio_power(plan.node_power, p.d2d_circuit_w, p.efficiency)
        for r, n in self._where:
            row = rows[r]
            spent = migration[r, n] + failed.tried_steps[row, n] * step[r, n]
            ends = failed.at_s[row, n] + failed.detect_s[row, n] + failed.plan_s[row, n]
            if not failed.dropped[row, n]:
                left = self._steps[r, n] - failed.credited[row, n]
                failed.replay_s[row, n] = left * after.local_step[r, n]
                failed.collect_s[row, n] = after.collect[r, n]
                ends = ends + failed.move_s[row, n] + failed.replay_s[row, n] + failed.collect_s[row, n]
                ends = ends + after.upload[r, n]
                seconds = sent[r, n]
                spent = spent + left * step_after[r, n] + rest_after[r, n]
                spent = spent + power[r, n] * seconds.sum(axis=1) + p.receive_w * seconds.sum(axis=0)
            else:
                spent[0] += power[r, n, 0] * costs.relay[row, n]
                # Losing a device makes no round shorter: nobody knows before the end that nothing will come.
                ends = max(ends, costs.cluster_delay[row, n])
            delay[row, n] = ends - costs.cluster_delay[row, n]
            joules[row, n] = spent - costs.energy[row, n]
        return Replayed(delay, joules, failed)


def _split(total: int, speeds: FloatArray, caps: IntArray, working: BoolArray) -> IntArray | None:
    """Blocks of all slots (K,), shared out among those at work; ``None`` where their memory lacks."""
    if not working.any():
        return None
    found = within_memory(light_segments(total, speeds[working]), caps[working])
    if found is None:
        return None
    segments = np.zeros(len(speeds), dtype=np.int64)
    segments[working] = found
    return segments


def _dealt(share: FloatArray, stage: IntArray) -> FloatArray:
    """Shares of samples with those of devices that are gone dealt to the rest of their stage (K,)."""
    same = stage[:, None] == stage
    # Who joins had none.
    mine = np.where(same.sum(axis=-1) == 1, 1.0, share) * (stage >= 0)
    whole = (same * mine).sum(axis=-1)
    dealt: FloatArray = np.divide(mine, whole, out=np.zeros_like(mine), where=(stage >= 0) & (whole > 0.0))
    return dealt


def _holders(blocks: IntArray, stage: IntArray, total: int) -> BoolArray:
    """Holders of every block (L, K), bool, under the blocks of the slots and the slots of the devices."""
    ends = np.cumsum(blocks)
    index = np.arange(total)[:, None]
    held = (ends - blocks <= index) & (index < ends)
    mine = held[:, np.where(stage < 0, 0, stage)]
    holders: BoolArray = mine & (stage >= 0)
    return holders

"""Plans for the rest of a round after a device fails: new holders of blocks, and transfers ([X]).

Failures are rare, so clusters with a failure are handled one by one on the host. The formulas are those of
:mod:`collapipe_env.physics.recovery`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.physics.allocation import ASYNC, INTERLEAVED, SEQUENTIAL, Allocation, Groups
from collapipe_env.physics.moves import block_holders
from collapipe_env.physics.recovery import (
    RecoveryTerms,
    Transfer,
    bits_of_block,
    credited_steps,
    light_segments,
    moving_time,
    replay_transfer,
    rescheduling_transfer,
    within_memory,
)
from collapipe_env.physics.replication import NO_REPLICATION, kept_bytes
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.failed_records import NOBODY, FailedRounds
from collapipe_env.simulator.general_costs import seconds_per_bit
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.running import running_state
from collapipe_env.simulator.state import Parameters, SystemState


class StepPrices:
    """Scalars of a scenario, terms on which its clusters recover, and what prices single local steps.

    Attributes:
        block_bits: Bits of a block's parts.
        planned: The scenario in which nothing moves before the local steps.
        left: The same without replicas.
    """

    def __init__(self, parameters: Parameters, terms: RecoveryTerms) -> None:
        self.parameters, self.terms = parameters, terms
        self.block_bits = bits_of_block(parameters.costs)
        # The moves of a change of plan inside a round are priced by themselves; nothing moves before it. The
        # server works as planned.
        server = parameters.server._replace(budget_j=math.inf)
        self.planned = replace(parameters, migration=None, server=server)
        # The new plan sends no replicas in this round: a second failure counts only in the next.
        self.left = replace(self.planned, replication=NO_REPLICATION)


def taking(steps: int, plan: Allocation) -> Allocation:
    """A plan in which all clusters take some local steps."""
    return replace(plan, local_steps=np.full(plan.micro_batches.shape, steps))


class PlansLeft:
    """Rows in which some cluster has a failure, and the plans with which they continue.

    Attributes:
        rows: Places of the rows in the batch (R,).
        where: Rows and clusters with a failure.
        plan: Plans of the rows before the failure (R, ...).
        state: Systems of the rows, as these plans run them (R, ...).
        steps: Local steps of each cluster (R, N).
        holders: Devices that hold each block before the failure (R, N, L, K), bool.
        transfers: Transfers by row and cluster, filled in by :meth:`left_over`.
        seconds_per_bit: Airtime of a bit from node to node (R, N, K+1, K+1) [s].

    Args:
        state: Systems of the rows before the rounds (R, ...).
        costs: Costs of the whole batch without failures.
        rows: Places of the rows in the batch (R,).
        device: Device that fails in each cluster (R, N), -1 for none.
        at: Time of the failure (R, N) [s].
        done: Local steps that were complete by then (R, N), int, where they were counted; ``None`` derives
            them from the times.
    """

    def __init__(
        self,
        owner: StepPrices,
        state: SystemState,
        costs: RoundCosts,
        rows: IntArray,
        device: IntArray,
        at: FloatArray,
        done: IntArray | None = None,
    ) -> None:
        self._owner, self.rows = owner, rows
        self._device, self._at, self._done = device, at, done
        self.transfers: dict[tuple[int, int], Transfer] = {}
        self.plan = costs.allocation[rows]
        self.state = running_state(state, self.plan)
        own = owner.parameters.costs
        self.steps = self.plan.whole_steps(own.local_steps)
        self.holders: BoolArray = np.asarray(block_holders(self.plan, own.blocks))[..., 1:]
        before, _, _ = costs.phases
        self._begun_s = np.asarray(sum(before.values()))[rows]
        self._step_s = (costs.local_step + sum(costs.terms.step.values()) + costs.barrier)[rows]
        held = np.asarray(self.plan.device_blocks, dtype=np.float64)
        nobody = np.zeros((*costs.memory.shape, held.shape[-1] + 1), dtype=np.bool_)
        self._hosts: BoolArray = np.asarray(costs.terms.notes.get("replica_hosts", nobody)[rows])
        # The plan after a failure keeps no replicas in this round, so they take no memory.
        replicas = kept_bytes(self._hosts, owner.parameters.replication.block_bytes * held)
        self._needs: FloatArray = costs.memory[rows] - replicas
        # Interference of the old plan: idle devices may have to send later on, but not in this phase.
        self.seconds_per_bit = np.asarray(
            seconds_per_bit(owner.parameters, self.state, self.plan.node_power, costs.interference[rows])
        )
        self.where = tuple(zip(*(index.tolist() for index in np.nonzero(device != NOBODY)), strict=True))

    def left_over(self, failed: FailedRounds) -> tuple[Allocation, dict[tuple[int, int], FloatArray]]:
        """Find the plans after the failures, and the transfers.

        Args:
            failed: Failures; these rows are filled in.

        Returns:
            The plans (R, ...), and seconds that each pair of nodes sends (K+1, K+1) by row and cluster.
        """
        owner, sent = self._owner, {}
        blocks, stage = self.plan.blocks.copy(), failed.stage[self.rows]
        share, power = self.plan.groups.sample_share.copy(), self.plan.device_power.copy()
        for r, n in self.where:
            row, device = self.rows[r], int(self._device[r, n])
            failed.device[row, n], failed.at_s[row, n] = device, self._at[r, n]
            failed.detect_s[row, n] = owner.terms.detection_s
            failed.plan_s[row, n] = owner.terms.planning_s
            done = self._completed(r, n)
            tried = (self._at[r, n] - self._begun_s[r, n]) / self._step_s[r, n]
            failed.tried_steps[row, n] = min(max(tried, 0.0), self.steps[r, n])
            mine = self._with_idle(r, n, stage[r, n], device)
            segments = None
            if owner.terms.kind != "drop-round" and self._can_go_on(r, n):
                segments = self._segments(r, n, mine)
            if segments is None:
                failed.dropped[row, n] = True
                continue
            held = np.where(mine >= 0, segments[np.maximum(mine, 0)], 0)
            mine = np.where((stage[r, n] < 0) & (held == 0), NOBODY, mine)
            joined = (self.plan.device_blocks[r, n] == 0) & (held > 0)
            power[r, n, joined] = owner.parameters.power_max_w
            before = self.holders[r, n]
            blocks[r, n], stage[r, n] = segments, mine
            share[r, n] = _dealt(share[r, n], mine)
            after = _holders(segments, mine, before.shape[0])
            moves = replay_transfer if owner.terms.kind == "light" else rescheduling_transfer
            replicas = self._replicas(r, n, done)
            transfer = moves(before, after, device, owner.block_bits, replicas)
            self.transfers[r, n] = transfer
            seconds = transfer.bits * np.where(transfer.bits > 0.0, self.seconds_per_bit[r, n], 0.0)
            sent[r, n] = seconds
            failed.credited[row, n] = done if transfer.kept else 0
            failed.reset[row, n] = transfer.reset
            longest = moving_time(owner.terms.kind, transfer.bits, self.seconds_per_bit[r, n])
            failed.move_s[row, n] = self.rest_s(r, n) + longest
        failed.blocks[self.rows], failed.stage[self.rows] = blocks, stage
        return _changed(self.plan, blocks, power, Groups(stage, share)), sent

    def rest_s(self, r: int, n: int) -> float:
        """Time that a migration or a relay of new weights still takes at the failure [s]."""
        return max(0.0, float(self._begun_s[r, n] - self._at[r, n]))

    def _completed(self, r: int, n: int) -> int:
        """Local steps that were complete at the failure."""
        if self._done is not None:
            return int(self._done[r, n])
        return credited_steps(self._at[r, n], self._begun_s[r, n], self._step_s[r, n], self.steps[r, n])

    def _replicas(self, r: int, n: int, done: int) -> IntArray:
        """Node that keeps a replica of each block of the device that failed (L,), -1 for none.

        No replica arrives before the first local step is complete.
        """
        before = self.holders[r, n]
        found = np.full(before.shape[0], NOBODY)
        if done == 0:
            return found
        device = int(self._device[r, n])
        hosts = np.flatnonzero(self._hosts[r, n, device])
        if len(hosts):
            found[before[:, device]] = hosts[0]
        return found

    def fitting(self, failed: FailedRounds, plan: Allocation) -> tuple[Allocation, RoundCosts]:
        """Plans that fit the memories: less in flight where that helps, otherwise the old plans.

        Args:
            failed: Failures; clusters whose plan does not fit drop their round.
            plan: Plans after the failures.

        Returns:
            The plans (R, ...), and their costs with one local step, not read for dropped rounds.
        """
        for attempt in range(2):
            one = round_costs(self._owner.left, self.state, taking(1, plan))
            over = (one.memory > self.state.memory_bytes * (1.0 + 1e-9)).any(axis=-1) & (
                self._device != NOBODY
            )
            over &= ~failed.dropped[self.rows]
            if not over.any():
                return plan, one
            if attempt == 0 and plan.is_scheduled:
                caps = plan.schedules.caps
                plan = replace(plan, caps=np.where(over[..., None], np.minimum(caps, 1), caps))
        old, each = self.plan, over[..., None]
        kept = replace(plan, blocks=np.where(each, old.blocks, plan.blocks))
        if old.is_grouped:
            pairs = zip(old.groups, plan.groups, strict=True)
            groups = Groups(*(np.where(each, before, after) for before, after in pairs))
            kept = replace(kept, **groups._asdict())
        r, n = np.nonzero(over)
        at = self.rows[r], n
        failed.dropped[at], failed.credited[at] = True, 0
        failed.move_s[at], failed.reset[at] = 0.0, False
        failed.blocks[at] = old.blocks[r, n]
        if old.is_grouped:
            failed.stage[at] = old.groups.stage[r, n]
        return kept, one

    def _with_idle(self, r: int, n: int, stage: IntArray, device: int) -> IntArray:
        """Slots of the remaining devices (K,); idle ones take free slots if every stage is one device.

        Args:
            stage: Slots before (K,), -1 for none.
        """
        mine: IntArray = stage.copy()
        mine[device] = NOBODY
        # Plain lists: NumPy's sets take many times as long for a handful of numbers.
        slots = mine.tolist()
        taken = {slot for slot in slots if slot >= 0}
        if len(taken) == sum(slot >= 0 for slot in slots):
            free = iter([slot for slot in range(len(slots)) if slot not in taken])
            present = self.state.present[r, n].tolist()
            for k, slot in enumerate(slots):
                if slot < 0 and present[k] and k != device:
                    mine[k] = next(free)
        return mine

    def _can_go_on(self, r: int, n: int) -> bool:
        """Whether a replay can continue with the cluster's plan."""
        goes_on = self.plan.schedules.schedule[r, n] not in (ASYNC, INTERLEAVED)
        return bool(goes_on and self.plan.server.server_mode[r] != SEQUENTIAL)

    def _segments(self, r: int, n: int, stage: IntArray) -> IntArray | None:
        """Blocks of each stage slot after the failure (K,); ``None`` where the remaining devices lack memory.

        Args:
            stage: Slot of each device (K,), -1 for those in none.
        """
        old = self.plan.blocks[r, n]
        members = stage[:, None] == np.arange(len(old))
        speeds = (members * self.state.speed[r, n][:, None]).sum(axis=0)
        caps = self._caps(r, n, members)
        usable = (speeds > 0.0) & (caps > 0)
        alone = bool((members.sum(axis=0) <= 1).all())
        if self._owner.terms.kind == "heavy" and alone:
            return self._replanned(r, n, stage, speeds, caps, usable)
        # Devices without blocks help out where the others lack memory.
        for working in (usable & (old > 0), usable) if alone else (usable & (old > 0),):
            if (segments := _split(int(old.sum()), speeds, caps, working)) is not None:
                return segments
        return None

    def _replanned(
        self, r: int, n: int, stage: IntArray, speeds: FloatArray, caps: IntArray, usable: BoolArray
    ) -> IntArray | None:
        """Split with the shortest local step among those over the fastest 1 to K devices."""
        total, order = int(self.plan.blocks[r, n].sum()), np.argsort(-np.where(usable, speeds, 0.0))
        found = []
        for count in range(1, int(usable.sum()) + 1):
            working = np.zeros_like(usable)
            working[order[:count]] = True
            if (segments := _split(total, speeds, caps, working)) is not None:
                found.append(segments)
        if not found:
            return None
        plans = self.plan[np.full(len(found), r)]
        blocks, power = plans.blocks.copy(), plans.device_power.copy()
        blocks[:, n] = found
        # As when the plan is played, devices that join send at full power.
        held = np.where(stage >= 0, blocks[:, n, np.maximum(stage, 0)], 0)
        joined = (self.plan.device_blocks[r, n] == 0) & (held > 0)
        power[:, n] = np.where(joined, self._owner.parameters.power_max_w, power[:, n])
        slots, share = (each.copy() for each in plans.groups)
        slots[:, n], share[:, n] = stage, np.where(stage >= 0, 1.0, 0.0)
        plans = _changed(plans, blocks, power, Groups(slots, share))
        costs = round_costs(self._owner.left, self.state[np.full(len(found), r)], taking(1, plans))
        return found[int(costs.local_step[:, n].argmin())]

    def _caps(self, r: int, n: int, members: BoolArray) -> IntArray:
        """Blocks that each stage slot can hold (K,), int: as many as its tightest member can."""
        state, plan = self.state, self.plan
        caps = np.where(state.present[r, n], state.memory_cap[r, n], 0)
        if plan.is_scheduled or plan.is_grouped or plan.given("recompute") is not None:
            # Memory grows with the blocks, whatever a device's share and its micro-batches in flight.
            needs = self._needs[r, n]
            held = plan.device_blocks[r, n]
            each = np.divide(needs, held, out=np.zeros_like(needs), where=held > 0)
            room = np.divide(state.memory_bytes[r, n], each, out=np.zeros_like(each), where=each > 0.0)
            caps = np.where(held > 0, np.floor(room + 1e-9), caps).astype(np.int64)
        tightest = np.where(members, caps[:, None], np.iinfo(np.int64).max).min(axis=0)
        return np.where(members.any(axis=0), tightest, 0)


def _split(total: int, speeds: FloatArray, caps: IntArray, working: BoolArray) -> IntArray | None:
    """Blocks of all slots (K,), divided among the working ones; ``None`` where they lack memory."""
    if not working.any():
        return None
    found = within_memory(light_segments(total, speeds[working]), caps[working])
    if found is None:
        return None
    segments = np.zeros(len(speeds), dtype=np.int64)
    segments[working] = found
    return segments


def _changed(plan: Allocation, blocks: IntArray, power: FloatArray, groups: Groups) -> Allocation:
    """A plan with other segments, powers and, if it has any, groups.

    Joining stages get the largest cap on micro-batches in flight of the other stages.
    """
    changed = replace(plan, blocks=blocks, device_power=power)
    if plan.is_grouped:
        changed = replace(changed, **groups._asdict())
    if plan.is_scheduled:
        caps = plan.schedules.caps
        most = np.maximum(caps.max(axis=-1, keepdims=True), 1)
        changed = replace(changed, caps=np.where((blocks > 0) & (caps == 0), most, caps))
    return changed


def _dealt(share: FloatArray, stage: IntArray) -> FloatArray:
    """Shares of samples (K,), with the shares of lost devices dealt to the rest of their stage."""
    same = stage[:, None] == stage
    # A device that joins had no share.
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

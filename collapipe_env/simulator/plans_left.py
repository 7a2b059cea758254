"""Plans for the rest of a round after a device fails: new holders of blocks, and transfers ([X]).

Loops and formulas are those of :mod:`collapipe_env.kernels.recovery`. Arrays have a leading axis of ``F``
clusters with a failure.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray, loop_array
from collapipe_env.kernels.recovery import held_blocks, remaining_splits, transfers
from collapipe_env.physics import energy
from collapipe_env.physics.allocation import ASYNC, INTERLEAVED, SEQUENTIAL, Allocation
from collapipe_env.physics.recovery import MESSAGE_COLUMNS, RecoveryTerms, bits_of_block, credited_steps
from collapipe_env.physics.replication import NO_REPLICATION, kept_bytes
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.failed_records import NOBODY
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.running import running_state
from collapipe_env.simulator.state import Parameters, SystemState

_UNREAD: IntArray = np.empty((0, 0, MESSAGE_COLUMNS), dtype=np.int64)
"""Place of messages that nobody reads."""


class StepPrices:
    """Scalars of a scenario, terms on which its clusters recover, and what prices parts of rounds.

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


class Continuation(NamedTuple):
    """Plans with which clusters continue after failures.

    Attributes:
        goes_on: Clusters that continue (F,), bool. The others give their round up: their numbers count not.
        credited: Local steps that were done and count (F,).
        reset: Blocks whose moments start again from zero (F, L), bool.
        move_s: ``T_move``, with the rest of what was sent before the first local step (F,) [s].
        joules: Energy of the transfer (F, K+1) [J].
        after: Costs of the rounds (R, ...) under the new plans, with the local steps that are left.
        sent: Number of messages of the transfer (F,).
    """

    goes_on: BoolArray
    credited: IntArray
    reset: BoolArray
    move_s: FloatArray
    joules: FloatArray
    after: RoundCosts
    sent: IntArray


class PlansLeft:
    """Clusters with a failure, and the plans with which they continue.

    Attributes:
        rows: Places of the rows in the batch (R,).
        at: Places of the clusters among these rows: two arrays (F,).
        plan: Plans of the rows before the failure (R, ...).
        state: Systems of the rows, as these plans run them (R, ...).
        steps: Local steps of the cluster (F,).
        tried: Local steps that the old plan worked on until the failure, a partial one included (F,).
        done: Those that were complete (F,), int.
        rest_s: Time that a migration or a relay of new weights still takes at the failure (F,) [s].
        holders: Devices that hold each block before the failure (F, L, K), bool.

    Args:
        state: Systems of the rows before the rounds (R, ...).
        costs: Costs of the whole batch without failures.
        rows: Places of the rows in the batch (R,).
        at: Places of the clusters among these rows: two arrays (F,).
        device: Device that fails (F,).
        at_s: Time of the failure (F,) [s].
        done: Local steps that were complete by then (F,), int, where they were counted; ``None`` derives
            them from the times.
    """

    def __init__(
        self,
        owner: StepPrices,
        state: SystemState,
        costs: RoundCosts,
        rows: IntArray,
        at: tuple[IntArray, IntArray],
        device: IntArray,
        at_s: FloatArray,
        done: IntArray | None = None,
    ) -> None:
        self._owner, self._costs, self.rows = owner, costs, rows
        self.at, self._device = at, device
        self._whole = rows[at[0]], at[1]
        self.plan = costs.allocation[rows]
        self.state = running_state(state, self.plan)
        self._steps = self.plan.whole_steps(owner.parameters.costs.local_steps)
        self.steps = self._steps[self.at]
        begun_s = np.asarray(costs.relay + sum(costs.terms.once.values()))[self._whole]
        step_s = (costs.local_step + sum(costs.terms.step.values()) + costs.barrier)[self._whole]
        self.tried = np.clip((at_s - begun_s) / step_s, 0.0, self.steps)
        self.done = credited_steps(at_s, begun_s, step_s, self.steps) if done is None else done
        self.rest_s = np.maximum(begun_s - at_s, 0.0)
        self._blocks = loop_array(self.plan.blocks[self.at], np.int64)
        slots = np.broadcast_to(np.arange(self._blocks.shape[-1]), self._blocks.shape)
        self._stage = loop_array(slots if self.plan.stage is None else self.plan.stage[self.at], np.int64)
        self.holders = held_blocks(self._blocks, self._stage, owner.parameters.costs.blocks)
        self._hosts: BoolArray | None = None
        if "replica_hosts" in costs.terms.notes:
            self._hosts = costs.terms.notes["replica_hosts"][self._whole]

    def continued(self, messages: IntArray = _UNREAD) -> Continuation:
        """Find the plans after the failures, what is sent, and what the rest of the rounds costs.

        A cluster gives its round up where its remaining devices lack memory for the encoder.

        Args:
            messages: Place of the messages (F, most, 4), written; without an entry they are not kept.
        """
        owner = self._owner
        stage, split, goes_on = self._splits()
        at = self.at[0][goes_on], self.at[1][goes_on]
        plan = self._with(self.plan, at, stage[goes_on], split[goes_on])
        sent, reset, move_s, airtime = transfers(
            owner.parameters.numbers,
            np.asarray(owner.block_bits.of_parts),
            owner.terms.kind == "heavy",
            self._device,
            self._host(),
            self.holders,
            held_blocks(split, stage, self.holders.shape[1]),
            loop_array(self.plan.node_power[self.at], np.float64),
            loop_array(self.state.d2d_gain[self.at], np.float64),
            # Interference of the old plan: idle devices may have to send later on, but not in this phase.
            loop_array(self._costs.interference[self._whole], np.float64),
            messages,
        )
        credited = np.where(reset.any(axis=-1), 0, self.done)
        steps = self._steps.copy()
        steps[self.at] -= np.where(goes_on, credited, 0)
        plan = replace(plan, local_steps=steps)
        after, over = self._fitting(plan, goes_on)
        radio, sending = owner.parameters.radio_power, plan.node_power[self.at]
        drawn = energy.radio_power(sending, radio.d2d_circuit_w, radio.efficiency)
        joules = drawn * airtime[:, 0] + radio.receive_w * airtime[:, 1]
        return Continuation(goes_on & ~over, credited, reset, self.rest_s + move_s, joules, after, sent)

    def spared(self) -> FloatArray:
        """Energy of what the old plan did not do: local steps not tried, and all after them (F, K+1) [J]."""
        owner, none = self._owner, np.zeros_like(self._steps)
        # Without a local step no schedule matters.
        idle = replace(self.plan, local_steps=none, schedule=None, caps=None, chunks=None)
        after = round_costs(owner.planned, self.state, idle).energy[self.at]
        around = after
        if owner.parameters.moment_bits > 0.0:
            around = round_costs(owner.parameters, self.state, idle).energy[self.at]
        steps = self._costs.energy[self._whole] - around
        return np.asarray(after + (1.0 - self.tried / self.steps)[:, None] * steps)

    def _host(self) -> IntArray:
        """Node that keeps the replicas of the device that failed (F,), CU first; -1 for none.

        No replica arrives before the first local step is complete.
        """
        if self._hosts is None:
            return np.full(len(self._device), NOBODY)
        of_failed = self._hosts[np.arange(len(self._device)), self._device]
        return np.where(of_failed.any(axis=-1) & (self.done > 0), of_failed.argmax(axis=-1), NOBODY)

    def _fitting(self, plan: Allocation, goes_on: BoolArray) -> tuple[RoundCosts, BoolArray]:
        """Costs of the plans, with less in flight where that helps, and clusters without the memory (F,)."""
        for attempt in range(2):
            after = round_costs(self._owner.left, self.state, plan)
            over = (after.memory > self.state.memory_bytes * (1.0 + 1e-9)).any(axis=-1)[self.at] & goes_on
            if attempt == 1 or not plan.is_scheduled or not over.any():
                break
            caps = plan.schedules.caps.copy()
            caps[self.at] = np.where(over[:, None], np.minimum(caps[self.at], 1), caps[self.at])
            plan = replace(plan, caps=caps)
        return after, over

    def _splits(self) -> tuple[IntArray, IntArray, BoolArray]:
        """Slots of the devices and blocks of the slots after the failures (F, K), and who can go on (F,)."""
        plan, (r, n), (F, K) = self.plan, self.at, self._blocks.shape
        stage, splits = self._stage.copy(), np.zeros((F, K, K), dtype=np.int64)
        found = remaining_splits(
            self._blocks,
            stage,
            self._device,
            self.state.present[self.at],
            loop_array(self.state.speed[self.at], np.float64),
            self._room(),
            self._owner.terms.kind == "heavy",
            splits,
        )
        if self._owner.terms.kind == "drop-round":
            found[:] = 0
        if plan.is_scheduled:
            found[np.isin(plan.schedules.schedule[self.at], (ASYNC, INTERLEAVED))] = 0
        if plan.is_split:
            found[plan.server.server_mode[r] == SEQUENTIAL] = 0
        best = np.zeros(F, dtype=np.int64)
        if (found > 1).any():
            # The shortest local step, as it is played.
            f, option = np.nonzero(np.arange(K) < found[:, None])
            each, at = r[f], (np.arange(len(f)), n[f])
            tried = self._with(plan[each], at, stage[f], splits[f, option])
            steps = np.full((F, K), np.inf)
            steps[f, option] = round_costs(self._owner.left, self.state[each], tried).local_step[at]
            best = steps.argmin(axis=-1)
        return stage, splits[np.arange(F), best], found > 0

    def _room(self) -> IntArray:
        """Blocks that each device can hold (F, K), 0 for a device that is away."""
        state, plan = self.state, self.plan
        room = np.where(state.present[self.at], state.memory_cap[self.at], 0)
        if plan.is_scheduled or plan.is_grouped or plan.given("recompute") is not None:
            # Memory grows with the blocks, whatever a device's share and its micro-batches in flight.
            held = np.asarray(plan.device_blocks[self.at], dtype=np.float64)
            needs = self._costs.memory[self._whole]
            if self._hosts is not None:
                # The plan after a failure keeps no replicas in this round, so they take no memory.
                needs = needs - kept_bytes(self._hosts, self._owner.parameters.replication.block_bytes * held)
            each = np.divide(needs, held, out=np.zeros_like(held), where=held > 0)
            offered = state.memory_bytes[self.at]
            blocks = np.divide(offered, each, out=np.zeros_like(each), where=each > 0.0)
            room = np.where(held > 0, np.floor(blocks + 1e-9), room)
        return loop_array(room, np.int64)

    def _with(
        self, plan: Allocation, at: tuple[IntArray, IntArray], stage: IntArray, split: IntArray
    ) -> Allocation:
        """A plan with other blocks of slots, and slots of devices, in some clusters.

        Devices that join send at full power, and their stages get the largest cap on micro-batches in flight
        of the other stages.

        Args:
            plan: The plan (R, ...).
            at: Places of the clusters: two arrays (F,).
            stage: Slot of each device (F, K), -1 for none.
            split: Blocks of each slot (F, K).
        """
        blocks, power = plan.blocks.copy(), plan.device_power.copy()
        held = np.where(stage >= 0, np.take_along_axis(split, np.maximum(stage, 0), axis=-1), 0)
        joined = (plan.device_blocks[at] == 0) & (held > 0)
        blocks[at] = split
        power[at] = np.where(joined, self._owner.parameters.power_max_w, power[at])
        changed = replace(plan, blocks=blocks, device_power=power)
        if plan.is_grouped:
            slots, share = (each.copy() for each in plan.groups)
            slots[at] = np.where((slots[at] < 0) & (held == 0), NOBODY, stage)
            share[at] = _dealt(share[at], slots[at])
            changed = replace(changed, stage=slots, sample_share=share)
        if plan.is_scheduled:
            caps = plan.schedules.caps
            most = np.maximum(caps.max(axis=-1, keepdims=True), 1)
            changed = replace(changed, caps=np.where((blocks > 0) & (caps == 0), most, caps))
        return changed


def _dealt(share: FloatArray, stage: IntArray) -> FloatArray:
    """Shares of samples (F, K), with the shares of lost devices dealt to the rest of their stage."""
    same = (stage[:, :, None] == stage[:, None, :]) & (stage >= 0)[:, None, :]
    # A device that joins had no share.
    mine = np.where(same.sum(axis=-1) == 1, 1.0, share) * (stage >= 0)
    whole = (same * mine[:, None, :]).sum(axis=-1)
    dealt: FloatArray = np.divide(mine, whole, out=np.zeros_like(mine), where=whole > 0.0)
    return dealt

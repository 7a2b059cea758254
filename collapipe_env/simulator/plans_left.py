"""Plans for the rest of a round after a device fails: new holders of blocks, and transfers ([X]).

The loops are those of :mod:`collapipe_env.kernels.remaining_plans`. Arrays have a leading axis of ``F``
clusters with a failure.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray, loop_array
from collapipe_env.kernels.remaining_plans import held_blocks, remaining_splits, transfers
from collapipe_env.physics import energy
from collapipe_env.physics.allocation import ASYNC, GPIPE, INTERLEAVED, SEQUENTIAL, Allocation
from collapipe_env.physics.recovery import RecoveryTerms, bits_of_block, credited_steps
from collapipe_env.physics.replication import NO_REPLICATION, kept_bytes
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.failed_records import NOBODY
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.running import running_state
from collapipe_env.simulator.state import Parameters, SystemState


class Recovery:
    """Scalars of a scenario, terms on which its clusters recover, and what prices the plans that are left.

    Attributes:
        block_bits: Bits of a block's parts.
        left: The scenario in which nothing moves before the local steps, and no replicas after them.
    """

    def __init__(self, parameters: Parameters, terms: RecoveryTerms) -> None:
        self.parameters, self.terms = parameters, terms
        self.block_bits = bits_of_block(parameters.costs)
        # The moves of a change of plan inside a round are priced by themselves; nothing moves before it. The
        # server works as planned.
        server = parameters.server._replace(budget_j=math.inf)
        # The new plan sends no replicas in this round: a second failure counts only in the next.
        # Idle radios depend on the length of the round, which all clusters share.
        own = parameters.without_idle_radios
        self.left = replace(own, migration=None, server=server, replication=NO_REPLICATION)


class Continuation(NamedTuple):
    """Plans with which clusters continue after failures.

    Attributes:
        goes_on: Clusters that continue (F,), bool. The others give their round up: their numbers count not.
        credited: Local steps that were done and count (F,).
        reset: Blocks whose moments start again from zero (F, L), bool.
        move_s: ``T_move``, with the rest of what was sent before the first local step (F,) [s].
        joules: Energy of the transfer (F, K+1) [J].
        spared: Energy of what the old plan did not do: steps not tried, and all after them (F, K+1) [J].
        place: Places of the clusters in ``after``: two arrays (F,).
        after: Costs of their rounds under the new plans, with the local steps that are left.
        messages: Messages of the transfer (F, most, 4), see :func:`~.recovery.replay_messages`.
        sent: Number of them (F,).
    """

    goes_on: BoolArray
    credited: IntArray
    reset: BoolArray
    move_s: FloatArray
    joules: FloatArray
    spared: FloatArray
    place: tuple[IntArray, IntArray]
    after: RoundCosts
    messages: IntArray
    sent: IntArray


class PlansLeft:
    """Clusters with a failure, and the plans with which they continue.

    Attributes:
        steps: Local steps of the cluster (F,).
        tried: Local steps that the old plan worked on until the failure, a partial one included (F,).
        done: Those that were complete (F,), int.
        rest_s: Time that a migration or a relay of new weights still takes at the failure (F,) [s].
        holders: Devices that hold each block before the failure (F, L, K), bool.

    Args:
        state: Systems before the rounds (E, ...).
        costs: Costs of the rounds without failures (E, ...).
        at: Places of the clusters: two arrays (F,), the first in order.
        device: Device that fails (F,).
        at_s: Time of the failure (F,) [s].
        done: Local steps that were complete by then (F,), int, where they were counted; ``None`` derives
            them from the times.
    """

    def __init__(
        self,
        owner: Recovery,
        state: SystemState,
        costs: RoundCosts,
        at: tuple[IntArray, IntArray],
        device: IntArray,
        at_s: FloatArray,
        done: IntArray | None = None,
    ) -> None:
        self._owner, self._costs, self._plan = owner, costs, costs.allocation
        self._state = running_state(state, self._plan)
        self._at, self._device = at, device
        self.steps = self._plan.whole_steps(owner.parameters.costs.local_steps)[at]
        begun_s = np.asarray(costs.relay + sum(costs.terms.once.values()))[at]
        step_s = (costs.local_step + sum(costs.terms.step.values()) + costs.barrier)[at]
        self.tried = np.clip((at_s - begun_s) / step_s, 0.0, self.steps)
        self.done = credited_steps(at_s, begun_s, step_s, self.steps) if done is None else done
        self.rest_s = np.maximum(begun_s - at_s, 0.0)
        self._blocks = loop_array(self._plan.blocks[at], np.int64)
        slots = np.broadcast_to(np.arange(self._blocks.shape[-1]), self._blocks.shape)
        self._stage = loop_array(slots if self._plan.stage is None else self._plan.stage[at], np.int64)
        self.holders = held_blocks(self._blocks, self._stage, owner.parameters.costs.blocks)
        hosts = costs.terms.notes.get("replica_hosts")
        self._hosts: BoolArray | None = None if hosts is None else hosts[at]

    def continued(self) -> Continuation:
        """Find the plans after the failures, what is sent, and what the rest of the rounds costs.

        A cluster gives its round up where its remaining devices lack memory for the encoder.
        """
        owner, at = self._owner, self._at
        stage, split, goes_on = self._splits()
        messages, sent, reset, move_s, airtime = transfers(
            owner.parameters.record,
            np.asarray(owner.block_bits.of_parts),
            owner.terms.kind == "heavy",
            self._device,
            self._host(),
            self.holders,
            held_blocks(split, stage, self.holders.shape[1]),
            loop_array(self._plan.node_power[at], np.float64),
            loop_array(self._state.d2d_gain[at], np.float64),
            # Interference of the old plan: idle devices may have to send later on, but not in this phase.
            loop_array(self._costs.interference[at], np.float64),
        )
        credited = np.where(reset.any(axis=-1), 0, self.done)
        place, after, fits, spared = self._priced(goes_on, stage, split, credited)
        radio, sending = owner.parameters.radio_power, after.allocation.node_power[place]
        drawn = energy.radio_power(sending, radio.d2d_circuit_w, radio.efficiency)
        joules = drawn * airtime[:, 0] + radio.receive_w * airtime[:, 1]
        times = self.rest_s + move_s
        return Continuation(
            goes_on & fits, credited, reset, times, joules, spared, place, after, messages, sent
        )

    def _priced(
        self, goes_on: BoolArray, stage: IntArray, split: IntArray, credited: IntArray
    ) -> tuple[tuple[IntArray, IntArray], RoundCosts, BoolArray, FloatArray]:
        """Price the new plans, with less in flight where memory asks for it, and what the old plans spare.

        One call prices both: the new plans (R, ...), and after them the old ones without a local step.

        Returns:
            Places of the clusters among the costs, the costs (2R, ...), clusters that the memories fit (F,),
            and the spared energy (F, K+1) [J].
        """
        owner, at = self._owner, self._at
        rows, r = np.unique(at[0], return_inverse=True)
        R, place, twice = len(rows), (r, at[1]), np.concatenate((rows, rows))
        on = r[goes_on], at[1][goes_on]
        state, plan = self._state[twice], self._with(self._plan[twice], on, stage[goes_on], split[goes_on])
        steps = plan.whole_steps(owner.parameters.costs.local_steps).copy()
        steps[on] -= credited[goes_on]
        steps[R:] = 0
        plan = replace(plan, local_steps=steps)
        if plan.is_scheduled:
            schedule = plan.schedules.schedule.copy()
            schedule[R:] = GPIPE  # without a local step no schedule matters
            plan = replace(plan, schedule=schedule)
        for attempt in range(2):
            costs = round_costs(owner.left, state, plan)
            over = (costs.memory[place] > state.memory_bytes[place] * (1.0 + 1e-9)).any(axis=-1) & goes_on
            if attempt == 1 or not plan.is_scheduled or not over.any():
                break
            caps = plan.schedules.caps.copy()
            caps[place] = np.where(over[:, None], np.minimum(caps[place], 1), caps[place])
            plan = replace(plan, caps=caps)
        around = np.asarray(costs.energy[R:][place])
        of_steps = self._costs.busy_energy[at] - around
        if "moving_j" in self._costs.terms.notes:
            of_steps -= self._costs.terms.notes["moving_j"][at]
        untried = 1.0 - self.tried / np.maximum(self.steps, 1)
        return place, costs, ~over, around + untried[:, None] * of_steps

    def _host(self) -> IntArray:
        """Node that keeps the replicas of the device that failed (F,), CU first; -1 for none.

        No replica arrives before the first local step is complete.
        """
        if self._hosts is None:
            return np.full(len(self._device), NOBODY)
        of_failed = self._hosts[np.arange(len(self._device)), self._device]
        return np.where(of_failed.any(axis=-1) & (self.done > 0), of_failed.argmax(axis=-1), NOBODY)

    def _splits(self) -> tuple[IntArray, IntArray, BoolArray]:
        """Slots of the devices and blocks of the slots after the failures (F, K), and who can go on (F,)."""
        plan, (r, n), (F, K) = self._plan, self._at, self._blocks.shape
        stage, splits = self._stage.copy(), np.zeros((F, K, K), dtype=np.int64)
        found = remaining_splits(
            self._blocks,
            stage,
            self._device,
            self._state.present[self._at],
            loop_array(self._state.speed[self._at], np.float64),
            self._room(),
            self._owner.terms.kind == "heavy",
            splits,
        )
        if self._owner.terms.kind == "drop-round":
            found[:] = 0
        if plan.is_scheduled:
            found[np.isin(plan.schedules.schedule[self._at], (ASYNC, INTERLEAVED))] = 0
        if plan.is_split:
            found[plan.server.server_mode[r] == SEQUENTIAL] = 0
        best = np.zeros(F, dtype=np.int64)
        if (found > 1).any():
            # The shortest local step, as it is played.
            f, option = np.nonzero(np.arange(K) < found[:, None])
            each, at = r[f], (np.arange(len(f)), n[f])
            tried = self._with(plan[each], at, stage[f], splits[f, option])
            steps = np.full((F, K), np.inf)
            steps[f, option] = round_costs(self._owner.left, self._state[each], tried).local_step[at]
            best = steps.argmin(axis=-1)
        return stage, splits[np.arange(F), best], found > 0

    def _room(self) -> IntArray:
        """Blocks that each device can hold (F, K), 0 for a device that is away."""
        state, plan = self._state, self._plan
        room = np.where(state.present[self._at], state.memory_cap[self._at], 0)
        if plan.is_scheduled or plan.is_grouped or plan.given("recompute") is not None:
            # Memory grows with the blocks, whatever a device's share and its micro-batches in flight.
            held = np.asarray(plan.device_blocks[self._at], dtype=np.float64)
            needs = self._costs.memory[self._at]
            if self._hosts is not None:
                # The plan after a failure keeps no replicas in this round, so they take no memory.
                needs = needs - kept_bytes(self._hosts, self._owner.parameters.replication.block_bytes * held)
            each = np.divide(needs, held, out=np.zeros_like(held), where=held > 0)
            offered = state.memory_bytes[self._at]
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

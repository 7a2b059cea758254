"""Allocations that the action box can express."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collapipe_env.decisions.encoding import server_blocks, takes_part
from collapipe_env.decisions.entries import SCHEDULE_CHOICES
from collapipe_env.ground.arrays import Array
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import COMMON, COPIES, GPIPE, SCHEDULES, Allocation
from collapipe_env.physics.workload import WorkloadCosts
from collapipe_env.scenario.decision_names import Decision


@dataclass(frozen=True)
class ActionBox:
    """Scalars of an action box, and what it can express.

    Attributes:
        clusters: ``N``.
        devices: ``K``, devices of the largest cluster.
        blocks: ``L``, encoder blocks.
        micro_batch_choices: Allowed numbers of micro-batches, ascending.
        power_min_w: Smallest transmit power [W].
        power_max_w: Largest transmit power [W].
        bandwidth_floor: Least share of the uplink for every cluster, in [0, 1/N).
        opened: Decisions that the scenario opens beyond CollaPipe's own, in the order of their entries.
        costs: Priced workload, needed where decisions are open.
        other_costs: Priced workload with the other setting of recomputation, needed where that is open.
        server_room: Most blocks, over all clusters, that the server's memory holds; ``None`` for no limit.
        step_choices: Allowed numbers of local steps, ascending, needed where these are open.
        sits_out: Whether clusters that cannot hold the encoder sit out automatically, because devices come
            and go and participation is not open; needs ``costs``.
        clock_cap_min: Least cap on a clock, in (0, 1], where these are open.
    """

    clusters: int
    devices: int
    blocks: int
    micro_batch_choices: tuple[int, ...]
    power_min_w: float
    power_max_w: float
    bandwidth_floor: float
    opened: tuple[Decision, ...] = ()
    costs: WorkloadCosts | None = None
    other_costs: WorkloadCosts | None = None
    server_room: int | None = None
    step_choices: tuple[int, ...] = ()
    sits_out: bool = False
    clock_cap_min: float = 1.0

    def check_expressible(self, allocation: Allocation) -> None:
        """Refuse allocations that no action can express.

        Args:
            allocation: Leading axes ``...``.

        Raises:
            AllocationError: Names the first fault.
        """
        _check_opened(self, allocation)
        shape = (self.clusters, self.devices)
        if np.shape(allocation.blocks)[-2:] != shape:
            raise AllocationError(f"blocks has shape {np.shape(allocation.blocks)}, expected (..., {shape})")
        sums = np.sum(allocation.blocks, axis=-1)
        if allocation.server_blocks is not None:
            sums = sums + np.asarray(allocation.server_blocks)
        plays = takes_part(allocation)
        if np.any(np.asarray(allocation.blocks) < 0) or np.any(plays & (sums != self.blocks)):
            raise AllocationError(
                f"blocks of a cluster sum to {np.unique(sums).tolist()}, expected non-negative counts "
                f"summing to L = {self.blocks}"
                + (", with the server's" if "server_blocks" in self.opened else "")
            )
        unknown = ~np.isin(allocation.micro_batches, self.micro_batch_choices)
        if np.any(unknown):
            raise AllocationError(
                f"micro_batches = {np.asarray(allocation.micro_batches)[unknown].tolist()}: allowed are "
                f"{list(self.micro_batch_choices)}"
            )
        for name, power in (("device_power", allocation.device_power), ("cu_power", allocation.cu_power)):
            low, high = np.min(power), np.max(power)
            if not (low >= self.power_min_w * (1 - 1e-9) and high <= self.power_max_w * (1 + 1e-9)):
                raise AllocationError(
                    f"{name} lies in [{low:g}, {high:g}] W, expected within "
                    f"[{self.power_min_w:g}, {self.power_max_w:g}] W"
                )
        # Clusters that sit out have no band; in a round in which all sit out, the band is not given out.
        total = np.where(plays.any(axis=-1), np.sum(np.where(plays, allocation.bandwidth, 0.0), axis=-1), 1.0)
        least = np.min(np.where(plays, allocation.bandwidth, 1.0))
        if np.any(np.abs(total - 1.0) > 1e-6) or least < self.bandwidth_floor - 1e-9:
            raise AllocationError(
                f"bandwidth shares sum to {np.min(total):.6g}..{np.max(total):.6g} with a least share of "
                f"{least:.3g}: the box gives out the whole band and at least "
                f"{self.bandwidth_floor:.3g} to every cluster"
            )


def _check_opened(box: ActionBox, allocation: Allocation) -> None:
    """Refuse values that need a decision that is not open, or that the decision's entries cannot express."""
    if allocation.stage is not None:
        raise AllocationError(
            "the action box cannot express stages of several devices, and orders of devices: play this "
            "allocation through env.unwrapped.step_allocation(allocation)"
        )
    if allocation.schedule is not None and "schedule" not in box.opened:
        raise _not_open("schedules", "schedule")
    if allocation.server_mode is not None and "server_blocks" not in box.opened:
        raise _not_open("split training", "server_blocks")
    if "recompute" not in box.opened and np.any(_or(allocation.recompute, -1) != -1):
        raise AllocationError(
            "recompute: the scenario's decisions do not list it, so the action box has no entry for it"
        )
    plays = _or(allocation.participates, 1)
    if "participation" not in box.opened and not box.sits_out and np.any(plays != 1):
        raise _not_open("clusters that sit out", "participation")
    if np.any((plays != 0) & (plays != 1)):
        raise AllocationError(
            f"participates = {np.unique(plays).tolist()}: an action can only express 0 or 1"
        )
    steps = _or(allocation.local_steps, -1)
    if "local_steps" not in box.opened and np.any(steps != -1):
        raise _not_open("local steps of clusters", "local_steps")
    if np.any(unknown := (steps != -1) & ~np.isin(steps, box.step_choices)):
        raise AllocationError(
            f"local_steps = {np.unique(steps[unknown]).tolist()}: the action box knows "
            f"{list(box.step_choices)}, and -1 for the workload's"
        )
    if allocation.clock_cap is not None:
        _check_clocks(box, np.asarray(allocation.clock_cap))
    if allocation.schedule is not None:
        _check_schedule(allocation)
    if allocation.server_mode is not None:
        _check_server(box, allocation)


def _not_open(what: str, decision: Decision) -> AllocationError:
    return AllocationError(
        f"the action box cannot express {what} where the scenario's decisions do not list {decision}: play "
        "this allocation through env.unwrapped.step_allocation(allocation)"
    )


def _check_clocks(box: ActionBox, cap: Array) -> None:
    if "clock_cap" not in box.opened:
        if np.any(cap != 1.0):
            raise _not_open("caps on clocks", "clock_cap")
        return
    low, high = np.min(cap), np.max(cap)
    if not (low >= box.clock_cap_min * (1 - 1e-9) and high <= 1.0):
        raise AllocationError(
            f"clock_cap lies in [{low:g}, {high:g}], expected within [{box.clock_cap_min:g}, 1], shares of "
            "the full clock"
        )


def _check_schedule(allocation: Allocation) -> None:
    kind, chunks = np.asarray(allocation.schedule), np.asarray(allocation.chunks)
    if np.any(unknown := ~np.isin(kind, SCHEDULE_CHOICES)):
        raise AllocationError(
            f"schedule = {np.unique(kind[unknown]).tolist()}: the action box knows "
            + ", ".join(f"{choice} ({SCHEDULES[choice]})" for choice in SCHEDULE_CHOICES)
        )
    if np.any(chunks != 1):
        raise AllocationError(f"chunks = {np.unique(chunks).tolist()}: an action can only express 1")
    caps, M = np.asarray(allocation.caps), np.asarray(allocation.micro_batches)[..., None]
    read = (np.asarray(allocation.blocks) > 0) & (kind != GPIPE)[..., None]
    if np.any(outside := read & ((caps < 1) | (caps > M))):
        raise AllocationError(
            f"caps = {np.unique(caps[outside]).tolist()}: an action can only express 1 to the number of "
            "micro-batches; more than that change nothing, so give that number instead"
        )


def _check_server(box: ActionBox, allocation: Allocation) -> None:
    kept, mode = server_blocks(allocation), np.asarray(allocation.server_mode)
    if np.any((kept < 0) | (kept >= box.blocks)):
        raise AllocationError(
            f"server_blocks = {np.unique(kept).tolist()}: an action can only express 0 to L - 1 = "
            f"{box.blocks - 1}"
        )
    expected = np.where((kept > 0).any(axis=-1), COPIES, COMMON)
    if np.any(mode != expected):
        raise AllocationError(
            f"server_mode = {np.unique(mode).tolist()}: the action box knows {COPIES} (copies) where the "
            f"server runs blocks of some cluster, and {COMMON} (CollaPipe's own) where it runs none"
        )
    total = kept.sum(axis=-1)
    if box.server_room is not None and np.any(total > box.server_room):
        raise AllocationError(
            f"server_blocks: {total.max()} blocks of all clusters, the server's memory holds "
            f"{box.server_room}"
        )


def _or(given: Array | None, otherwise: int) -> Array:
    return np.asarray(otherwise if given is None else given)

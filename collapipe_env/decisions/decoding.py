"""Opened decisions decoded from the entries of actions, on any array library; always feasible.

Choices that decide the need for memory come first, then those that memory limits: micro-batches,
recomputation, schedule, blocks of the server, the memory caps that follow, segments, and then the
micro-batches that each device may have in flight beside its blocks. Where participation is open, clusters
whose devices cannot hold their blocks sit out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from collapipe_env.decisions.entries import SCHEDULE_CHOICES, OpenedLayout
from collapipe_env.ground.arrays import Array, at_least, at_most, namespace
from collapipe_env.physics.allocation import COMMON, COPIES, GPIPE, ONE_F_ONE_B, ZERO_BUBBLE, Allocation
from collapipe_env.physics.apportionment import apportion
from collapipe_env.physics.participation import somebody
from collapipe_env.physics.schedules.room import (
    StorageTerms,
    blocks_that_fit,
    micro_batches_that_fit,
    storage_terms,
)
from collapipe_env.physics.workload import WorkloadCosts


@dataclass(frozen=True, eq=False)
class ClusterChoices:
    """Settings of clusters that are known before their segments.

    Attributes:
        recompute: Whether devices recompute (..., N), int; ``None`` where that is not open.
        schedule: Index in ``SCHEDULES`` (..., N), int; ``None`` where that is not open.
        server_blocks: Blocks of the server (..., N), int; ``None`` where that is not open.
        caps: Blocks that each device can hold (..., N, K), int.
        total: Blocks that the devices hold together (..., N), int.
        plays: Clusters that take part (..., N), bool; ``None`` where that is not open.
    """

    recompute: Array | None
    schedule: Array | None
    server_blocks: Array | None
    caps: Array
    total: Array
    plays: Array | None = None


@dataclass(frozen=True)
class OpenedDecoder:
    """Decodes the entries of opened decisions.

    Attributes:
        layout: Positions of the entries.
        costs: Priced workload.
        other_costs: Priced workload with the other setting of recomputation; ``None`` where that is not open.
        server_room: Most blocks, over all clusters, that the server's memory holds; ``None`` for no limit.
        bandwidth_floor: Least share of the uplink of a cluster that takes part, in [0, 1/N).
        sits_out: Whether clusters that cannot hold their blocks sit out even if participation is not open.
    """

    layout: OpenedLayout
    costs: WorkloadCosts
    other_costs: WorkloadCosts | None = None
    server_room: int | None = None
    bandwidth_floor: float = 0.0
    sits_out: bool = False

    def choose(self, rows: Array, micro_batches: Array, memory_bytes: Array) -> ClusterChoices:
        """Settle the choices that come before the segments.

        If a cluster's devices cannot hold their blocks under its chosen settings, these are replaced: the
        schedule by 1F1B, which needs no more memory than GPipe; if that is not enough, recomputation by its
        other setting, first with the chosen schedule, then with 1F1B. The encoder fits under the workload's
        own setting of recomputation with 1F1B, or with GPipe where schedules are not open, in every state
        that can be played.

        Where clusters may sit out, or must because devices come and go, those that cannot hold their blocks
        under any of these settings sit out. They keep their chosen settings, and their blocks, which nobody
        reads, are divided as if memory were sufficient. If participation is open and nobody is left, the
        cluster with the highest entry among those that can hold their blocks takes part.

        Args:
            rows: Finite entries of clusters (..., N, A / N).
            micro_batches: ``M`` (..., N), int.
            memory_bytes: Memory that each device offers (..., N, K) [byte].
        """
        xp, layout = namespace(memory_bytes), self.layout
        scores = plays = server = None
        if "participation" in layout:
            scores = xp.clip(layout.entries("participation", rows), -1.0, 1.0)
            plays = scores >= 0.0
        if "server_blocks" in layout:
            server = self._server_blocks(rows, plays)
        total = xp.zeros_like(micro_batches) + self.costs.blocks
        if server is not None:
            total = total - server
        recompute = layout.entries("recompute", rows) >= 0.0 if "recompute" in layout else None
        schedule = self._schedule(rows) if "schedule" in layout else None
        caps = self._caps(recompute, schedule, micro_batches, memory_bytes)
        holds = xp.sum(caps, axis=-1) >= total
        asked = recompute, schedule
        for other_recompute, other_schedule in _fallbacks(recompute, schedule):
            # Outside NumPy, holds.all() would mean waiting for a GPU.
            if xp is np and holds.all():
                break
            recompute = _kept(holds, recompute, other_recompute)
            schedule = _kept(holds, schedule, other_schedule)
            caps = xp.where(
                holds[..., None],
                caps,
                self._caps(other_recompute, other_schedule, micro_batches, memory_bytes),
            )
            holds = xp.sum(caps, axis=-1) >= total
        if plays is not None:
            plays = somebody(plays, scores, holds)
        elif self.sits_out:
            plays = holds
        if plays is not None:
            recompute, schedule = (
                _kept(holds, *pair) for pair in zip((recompute, schedule), asked, strict=True)
            )
            caps = xp.where(holds[..., None], caps, _any_room(memory_bytes, self.costs.blocks))
            total = xp.where(holds, total, xp.zeros_like(total) + self.costs.blocks)
            server = None if server is None else xp.where(holds, server, xp.zeros_like(server))
        return ClusterChoices(
            recompute=None if recompute is None else xp.astype(recompute, xp.int64),
            schedule=schedule,
            server_blocks=server,
            caps=caps,
            total=total,
            plays=plays,
        )

    def complete(
        self, rows: Array, choices: ClusterChoices, plan: Allocation, memory_bytes: Array
    ) -> Allocation:
        """Add the opened decisions to a plan.

        Args:
            rows: Finite entries of clusters (..., N, A / N).
            choices: The choices that :meth:`choose` settled.
            plan: CollaPipe's own decisions, with the blocks of each device.
            memory_bytes: Memory that each device offers (..., N, K) [byte].
        """
        xp = namespace(plan.blocks)
        added: dict[str, Array] = {}
        if choices.recompute is not None:
            added["recompute"] = choices.recompute
        if choices.schedule is not None:
            added |= {
                "schedule": choices.schedule,
                "caps": self._in_flight(rows, choices, plan, memory_bytes),
                "chunks": xp.ones_like(choices.schedule),
            }
        if choices.server_blocks is not None:
            some = xp.any(choices.server_blocks > 0, axis=-1)
            nobody = xp.zeros_like(choices.server_blocks[..., 0])
            added |= {
                "server_blocks": choices.server_blocks,
                "server_mode": xp.where(some, nobody + COPIES, nobody + COMMON),
            }
        if choices.plays is not None:
            scores = 0.5 * (xp.clip(rows[..., self.layout.first - 1], -1.0, 1.0) + 1.0)
            added |= {
                "participates": xp.astype(choices.plays, xp.int64),
                "bandwidth": shared_band(scores, self.bandwidth_floor, choices.plays),
            }
        if "local_steps" in self.layout:
            added["local_steps"] = self._local_steps(rows)
        if "clock_cap" in self.layout:
            added["clock_cap"] = self._clock_cap(rows)
        return replace(plan, **added)

    def _caps(
        self, recompute: Array | None, schedule: Array | None, micro_batches: Array, memory_bytes: Array
    ) -> Array:
        terms = self._terms(recompute, schedule, micro_batches, memory_bytes)
        return blocks_that_fit(self.costs, terms, memory_bytes)

    def _terms(
        self, recompute: Array | None, schedule: Array | None, micro_batches: Array, memory_bytes: Array
    ) -> StorageTerms:
        """Return the terms of the devices' memory under the clusters' settings."""
        costs, other = self.costs, self.other_costs
        activation: Array | float = costs.stored_activation_bytes
        working: Array | float = costs.working_bytes
        if recompute is not None and other is not None:
            xp = namespace(memory_bytes)
            own = (recompute == costs.training_memory.recompute)[..., None]
            nothing = xp.zeros_like(memory_bytes[..., :1])
            activation = xp.where(own, nothing + activation, nothing + other.stored_activation_bytes)
            working = xp.where(own, nothing + working, nothing + other.working_bytes)
        return storage_terms(costs, schedule, micro_batches, activation, working, memory_bytes)

    def _schedule(self, rows: Array) -> Array:
        """Return the schedule that each cluster chooses (..., N), int64."""
        return _nearest_of(SCHEDULE_CHOICES, self.layout.entries("schedule", rows))

    def _local_steps(self, rows: Array) -> Array:
        """Return the local steps of each cluster (..., N), int64."""
        return _nearest_of(self.layout.step_choices, self.layout.entries("local_steps", rows))

    def _clock_cap(self, rows: Array) -> Array:
        """Return caps on clocks relative to full clocks (..., N, K), exactly 1 for entries of 1."""
        least, xp = self.layout.clock_cap_min, namespace(rows)
        unit = 0.5 * (xp.clip(self.layout.entries("clock_cap", rows), -1.0, 1.0) + 1.0)
        # Rounding must not lead below the least cap.
        return at_least(xp.exp(math.log(least) * (1.0 - unit)), least)

    def _server_blocks(self, rows: Array, plays: Array | None) -> Array:
        """Return the server's blocks (..., N), int64: those chosen, scaled down where the server lacks room.

        Clusters that choose to sit out get none.
        """
        asked = nearest_choice(self.layout.entries("server_blocks", rows), self.costs.blocks)
        if plays is not None:
            asked = namespace(asked).where(plays, asked, namespace(asked).zeros_like(asked))
        if self.server_room is None:
            return asked
        xp = namespace(asked)
        given = at_most(xp.sum(asked, axis=-1, keepdims=True), self.server_room)
        return apportion(given, xp.astype(asked, xp.float64), asked)

    def _in_flight(
        self, rows: Array, choices: ClusterChoices, plan: Allocation, memory_bytes: Array
    ) -> Array:
        """Return the caps of stage slots (..., N, K), int64: 0 under GPipe and in slots without blocks.

        A cap above what a device's memory holds stands if a smaller cap of an earlier stage keeps fewer
        micro-batches in flight anyway.
        """
        xp, blocks = namespace(plan.blocks), plan.blocks
        assert choices.schedule is not None
        most = plan.micro_batches[..., None]
        terms = self._terms(
            None if choices.recompute is None else choices.recompute > 0,
            choices.schedule,
            plan.micro_batches,
            memory_bytes,
        )
        room = micro_batches_that_fit(self.costs, terms, memory_bytes, blocks, most)
        unit = 0.5 * (xp.clip(self.layout.entries("caps", rows), -1.0, 1.0) + 1.0)
        asked = xp.astype(xp.floor(unit * xp.astype(most - 1, unit.dtype) + 0.5), xp.int64) + 1
        # Bounded in case the actions were not checked.
        asked = xp.minimum(at_least(asked, 1), most)
        used = blocks > 0
        running = _least_before(xp.where(used, xp.minimum(asked, room), most), most)
        # Under ZB-H1 stages store up to their own caps.
        stored = xp.where((choices.schedule == ZERO_BUBBLE)[..., None], asked, xp.minimum(asked, running))
        caps = xp.where(stored <= room, asked, room)
        return xp.where(used & (choices.schedule != GPIPE)[..., None], caps, xp.zeros_like(caps))


def nearest_choice(scores: Array, choices: int) -> Array:
    """Return the indices of the nearest choices, spread evenly over [-1, 1]; half-way cases go up.

    Args:
        scores: Entries of actions, any shape.
        choices: Number of choices, >= 1.

    Returns:
        Indices 0..choices - 1 of the same shape, int64.
    """
    xp = namespace(scores)
    unit = 0.5 * (xp.clip(scores, -1.0, 1.0) + 1.0)
    index = xp.astype(xp.floor(unit * (choices - 1) + 0.5), xp.int64)
    # Bounded in case the actions were not checked: NaN must not read beyond the choices.
    return xp.clip(index, 0, choices - 1)


def shared_band(scores: Array, floor: float, plays: Array) -> Array:
    """Share the whole uplink (..., N): a floor for each cluster that takes part, and the rest by score.

    Args:
        scores: In [0, 1] (..., N); clusters that take part share evenly if all their scores are 0.
        floor: Least share, in [0, 1/N).
        plays: Clusters that take part (..., N), bool; the others get 0.
    """
    xp = namespace(scores)
    nothing = xp.zeros_like(scores)
    scores = xp.where(plays, scores, nothing)
    total = xp.sum(scores, axis=-1, keepdims=True)
    count = xp.sum(xp.astype(plays, scores.dtype), axis=-1, keepdims=True)
    some = total > 0.0
    evenly = 1.0 / at_least(count, 1.0)
    share = xp.where(some, scores / xp.where(some, total, xp.ones_like(total)), nothing + evenly)
    return xp.where(plays, floor + (1.0 - count * floor) * share, nothing)


def _nearest_of(choices: tuple[int, ...], scores: Array) -> Array:
    """Return the nearest of some numbers that are spread evenly over [-1, 1], int64."""
    index = nearest_choice(scores, len(choices))
    xp = namespace(index)
    found = xp.zeros_like(index)
    for place, value in enumerate(choices):
        found = xp.where(index == place, found + value, found)
    return found


def _any_room(memory_bytes: Array, blocks: int) -> Array:
    """Return caps for clusters that sit out (..., N, K), int64: all blocks on each device that is present."""
    xp = namespace(memory_bytes)
    there = memory_bytes > 0.0
    there = there | ~xp.any(there, axis=-1, keepdims=True)
    return blocks * xp.astype(there, xp.int64)


def _fallbacks(
    recompute: Array | None, schedule: Array | None
) -> Iterator[tuple[Array | None, Array | None]]:
    """Yield the settings to try in turn where devices cannot hold their blocks under the chosen ones."""
    plain = None if schedule is None else namespace(schedule).zeros_like(schedule) + ONE_F_ONE_B
    if schedule is not None:
        yield recompute, plain
    if recompute is not None:
        yield ~recompute, schedule
        if schedule is not None:
            yield ~recompute, plain


def _kept(holds: Array, now: Array | None, other: Array | None) -> Array | None:
    """Return the current settings where blocks fit, the others elsewhere; ``None`` if not a decision."""
    return None if now is None or other is None else namespace(now).where(holds, now, other)


def _least_before(values: Array, first: Array) -> Array:
    """Return the least value in the slots before each slot (..., K); ``first`` (..., 1) in the first slot."""
    xp = namespace(values)
    found = [first[..., 0]]
    for slot in range(values.shape[-1] - 1):
        found.append(xp.minimum(found[-1], values[..., slot]))
    return xp.stack(found, axis=-1)

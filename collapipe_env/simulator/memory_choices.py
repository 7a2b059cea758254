"""Opened decisions decoded from the entries of actions, on any array library; always feasible.

Recomputation, schedule, blocks of the server and participation settle the devices' memory together, here; the
rows of all other decisions decode themselves.

Choices that decide the need for memory come first, then those that memory limits: micro-batches,
recomputation, schedule, blocks of the server, the memory caps that follow, segments, and then the
micro-batches that each device may have in flight beside its blocks. Where participation is open, clusters
whose devices cannot hold their blocks sit out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from collapipe_env.ground.arrays import Array, at_least, at_most, loop_array, namespace, where
from collapipe_env.kernels.sitting_out import band_rows, room_rows
from collapipe_env.physics.allocation import (
    COMMON,
    COPIES,
    GPIPE,
    ONE_F_ONE_B,
    ZERO_BUBBLE,
    Allocation,
    with_values,
)
from collapipe_env.physics.apportionment import apportion
from collapipe_env.physics.participation import somebody
from collapipe_env.physics.schedules.room import (
    StorageTerms,
    blocks_that_fit,
    micro_batches_that_fit,
    storage_terms,
)
from collapipe_env.physics.server import most_server_blocks
from collapipe_env.simulator.decision import nearest_choice, nearest_of, opened_rows
from collapipe_env.simulator.state import Parameters

SCHEDULE_CHOICES = (GPIPE, ONE_F_ONE_B, ZERO_BUBBLE)
"""Schedules that an action can name, in the order in which their entry names them."""


@dataclass(frozen=True, eq=False)
class ClusterChoices:
    """Settings of clusters that are known before their segments.

    Attributes:
        caps: Blocks that each device can hold (..., N, K), int.
        total: Blocks that the devices hold together (..., N), int.
        plays: Clusters that take part (..., N), bool; ``None`` where that is not open.
        recompute: Whether devices recompute (..., N), bool; ``None``, as the others, where nothing is open.
        schedule: Index in ``SCHEDULES`` (..., N), int.
        server_blocks: Blocks of the server (..., N), int.
    """

    caps: Array
    total: Array
    plays: Array | None = None
    recompute: Array = None
    schedule: Array = None
    server_blocks: Array = None


@dataclass(frozen=True)
class OpenedDecoder:
    """Decodes the entries of opened decisions.

    Attributes:
        places: Position of each part among the entries of a cluster.
        parameters: Scalars of the scenario.
        sits_out: Whether clusters that cannot hold their blocks sit out even if participation is not open.
    """

    places: Mapping[str, int | slice]
    parameters: Parameters
    sits_out: bool = False

    def choose(
        self, rows: Array, micro_batches: Array | None, memory_cap: Array, memory_bytes: Array
    ) -> ClusterChoices:
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
            micro_batches: ``M`` (..., N), int; not read, and may be ``None``, where no decision is open.
            memory_cap: Blocks that each device can hold under the workload's own settings (..., N, K), int.
            memory_bytes: Memory that each device offers (..., N, K) [byte].
        """
        xp, opened, blocks = namespace(memory_bytes), self.parameters.opened, self.parameters.costs.blocks
        if not opened:
            total = blocks + xp.zeros_like(rows[..., 0], dtype=xp.int64)
            if xp is np and memory_cap.ndim == rows.ndim == 3:
                caps, holds = room_rows(loop_array(memory_cap, np.int64), memory_bytes, blocks)
                return ClusterChoices(caps, total, holds)
            holds = xp.sum(memory_cap, axis=-1) >= total
            return ClusterChoices(_room(memory_cap, holds, memory_bytes, blocks), total, holds)
        assert micro_batches is not None
        nothing = xp.zeros_like(micro_batches)
        scores = plays = None
        if "participation" in opened:
            scores = xp.clip(self._entries("participation", rows), -1.0, 1.0)
            plays = scores >= 0.0
        server = self._server_blocks(rows, plays) if "server_blocks" in opened else nothing
        total = nothing + blocks - server
        if "recompute" in opened:
            recompute = self._entries("recompute", rows) >= 0.0
        else:
            recompute = (nothing == 0) & self.parameters.costs.training_memory.recompute
        schedule = nothing + GPIPE
        if "schedule" in opened:
            schedule = nearest_of(SCHEDULE_CHOICES, self._entries("schedule", rows))
        caps = memory_cap
        if "recompute" in opened or "schedule" in opened:
            caps = self._caps(recompute, schedule, micro_batches, memory_bytes)
        holds = xp.sum(caps, axis=-1) >= total
        asked = recompute, schedule
        for other_recompute, other_schedule in self._fallbacks(recompute, schedule):
            # Outside NumPy, holds.all() would mean waiting for a GPU.
            if xp is np and holds.all():
                break
            recompute = xp.where(holds, recompute, other_recompute)
            schedule = xp.where(holds, schedule, other_schedule)
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
            recompute, schedule = xp.where(holds, recompute, asked[0]), xp.where(holds, schedule, asked[1])
            caps = _room(caps, holds, memory_bytes, blocks)
            total = xp.where(holds, total, nothing + blocks)
            server = xp.where(holds, server, nothing)
        return ClusterChoices(caps, total, plays, recompute, schedule, server)

    def complete(
        self, rows: Array, choices: ClusterChoices, plan: Allocation, memory_bytes: Array
    ) -> Allocation:
        """Add the opened decisions to a plan.

        Args:
            rows: Finite entries of clusters (..., N, A / N).
            plan: CollaPipe's own decisions, with the blocks of each device.
            memory_bytes: Memory that each device offers (..., N, K) [byte].
        """
        xp, opened = namespace(plan.blocks), self.parameters.opened
        added: dict[str, Array] = {}
        if "recompute" in opened:
            added["recompute"] = xp.astype(choices.recompute, xp.int64)
        if "schedule" in opened:
            added |= {
                "schedule": choices.schedule,
                "caps": self._in_flight(rows, choices, plan, memory_bytes),
                "chunks": xp.ones_like(choices.schedule),
            }
        if "server_blocks" in opened:
            some = xp.any(choices.server_blocks > 0, axis=-1)
            nobody = xp.zeros_like(choices.server_blocks[..., 0])
            added |= {
                "server_blocks": choices.server_blocks,
                "server_mode": xp.where(some, nobody + COPIES, nobody + COMMON),
            }
        if choices.plays is not None:
            added["participates"] = xp.astype(choices.plays, xp.int64)
            # Where all take part the plan shares the band already. Outside NumPy, asking would mean waiting.
            if xp is not np or not choices.plays.all():
                scores = 0.5 * (at_most(at_least(self._entries("bandwidth", rows), -1.0), 1.0) + 1.0)
                added["bandwidth"] = shared_band(scores, self.parameters.bandwidth_floor, choices.plays)
        for row in opened_rows(self.parameters.opened):
            added |= row.decode(
                self.parameters, {part.name: self._entries(part.name, rows) for part in row.parts}
            )
        return with_values(plan, added)

    def _entries(self, name: str, rows: Array) -> Array:
        """Return a part's entries, (..., N) or (..., N, K), from those of clusters (..., N, A / N)."""
        return rows[..., self.places[name]]

    def _fallbacks(self, recompute: Array, schedule: Array) -> Iterator[tuple[Array, Array]]:
        """Yield the settings to try in turn where devices cannot hold their blocks under the chosen ones."""
        scheduled = "schedule" in self.parameters.opened
        plain = namespace(schedule).zeros_like(schedule) + ONE_F_ONE_B
        if scheduled:
            yield recompute, plain
        if "recompute" in self.parameters.opened:
            yield ~recompute, schedule
            if scheduled:
                yield ~recompute, plain

    def _caps(self, recompute: Array, schedule: Array, micro_batches: Array, memory_bytes: Array) -> Array:
        terms = self._terms(recompute, schedule, micro_batches, memory_bytes)
        return blocks_that_fit(self.parameters.costs, terms, memory_bytes)

    def _terms(
        self, recompute: Array, schedule: Array, micro_batches: Array, memory_bytes: Array
    ) -> StorageTerms:
        """Return the terms of the devices' memory under the clusters' settings."""
        costs, other = self.parameters.costs, self.parameters.other_costs
        activation: Array | float = costs.stored_activation_bytes
        working: Array | float = costs.working_bytes
        if other is not None:
            xp = namespace(memory_bytes)
            own = (recompute == costs.training_memory.recompute)[..., None]
            nothing = xp.zeros_like(memory_bytes[..., :1])
            activation = xp.where(own, nothing + activation, nothing + other.stored_activation_bytes)
            working = xp.where(own, nothing + working, nothing + other.working_bytes)
        return storage_terms(costs, schedule, micro_batches, activation, working, memory_bytes)

    def _server_blocks(self, rows: Array, plays: Array | None) -> Array:
        """Return the server's blocks (..., N), int64: those chosen, scaled down where the server lacks room.

        Clusters that choose to sit out get none.
        """
        p = self.parameters
        asked = nearest_choice(self._entries("server_blocks", rows), p.costs.blocks)
        xp = namespace(asked)
        if plays is not None:
            asked = xp.where(plays, asked, xp.zeros_like(asked))
        room = most_server_blocks(p.server, p.costs, p.clusters)
        given = at_most(xp.sum(asked, axis=-1, keepdims=True), room)
        return apportion(given, xp.astype(asked, xp.float64), asked)

    def _in_flight(
        self, rows: Array, choices: ClusterChoices, plan: Allocation, memory_bytes: Array
    ) -> Array:
        """Return the caps of stage slots (..., N, K), int64: 0 under GPipe and in slots without blocks.

        A cap above what a device's memory holds stands if a smaller cap of an earlier stage keeps fewer
        micro-batches in flight anyway.
        """
        xp, blocks = namespace(plan.blocks), plan.blocks
        most = plan.micro_batches[..., None]
        terms = self._terms(choices.recompute, choices.schedule, plan.micro_batches, memory_bytes)
        room = micro_batches_that_fit(self.parameters.costs, terms, memory_bytes, blocks, most)
        unit = 0.5 * (xp.clip(self._entries("caps", rows), -1.0, 1.0) + 1.0)
        asked = xp.astype(xp.floor(unit * xp.astype(most - 1, unit.dtype) + 0.5), xp.int64) + 1
        # Bounded in case the actions were not checked.
        asked = xp.minimum(at_least(asked, 1), most)
        used = blocks > 0
        running = _least_before(xp.where(used, xp.minimum(asked, room), most), most)
        # Under ZB-H1 stages store up to their own caps.
        stored = xp.where((choices.schedule == ZERO_BUBBLE)[..., None], asked, xp.minimum(asked, running))
        caps = xp.where(stored <= room, asked, room)
        return xp.where(used & (choices.schedule != GPIPE)[..., None], caps, xp.zeros_like(caps))


def shared_band(scores: Array, floor: float, plays: Array) -> Array:
    """Share the whole uplink (..., N): a floor for each cluster that takes part, and the rest by score.

    Args:
        scores: In [0, 1] (..., N); clusters that take part share evenly if all their scores are 0.
        floor: Least share, in [0, 1/N).
        plays: Clusters that take part (..., N), bool; the others get 0.
    """
    xp = namespace(scores)
    if xp is np and scores.ndim == 2:
        return band_rows(scores, floor, plays)
    scores = where(plays, scores, 0.0)
    total = xp.sum(scores, axis=-1, keepdims=True)
    count = xp.sum(xp.astype(plays, scores.dtype), axis=-1, keepdims=True)
    share = where(total > 0.0, scores / where(total > 0.0, total, 1.0), 1.0 / at_least(count, 1.0))
    return where(plays, floor + (1.0 - count * floor) * share, 0.0)


def _room(caps: Array, holds: Array, memory_bytes: Array, blocks: int) -> Array:
    """Return caps (..., N, K), int64: in clusters that sit out all blocks on each device that is present.

    Args:
        caps: Blocks that each device can hold (..., N, K), int.
        holds: Clusters whose devices can hold their blocks (..., N), bool.
        memory_bytes: Memory that each device offers (..., N, K) [byte].
        blocks: Encoder depth ``L``.
    """
    xp = namespace(memory_bytes)
    there = memory_bytes > 0.0
    there = there | ~xp.any(there, axis=-1, keepdims=True)
    return xp.where(holds[..., None], caps, blocks * xp.astype(there, xp.int64))


def _least_before(values: Array, first: Array) -> Array:
    """Return the least value in the slots before each slot (..., K); ``first`` (..., 1) in the first slot."""
    xp = namespace(values)
    found = [first[..., 0]]
    for slot in range(values.shape[-1] - 1):
        found.append(xp.minimum(found[-1], values[..., slot]))
    return xp.stack(found, axis=-1)

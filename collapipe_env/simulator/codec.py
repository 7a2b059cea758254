"""Actions in a box, and the allocations they encode (`environment.md`, Action)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import (
    Array,
    Constant,
    FloatArray,
    IntArray,
    at_most,
    concatenate,
    loop_record,
    namespace,
)
from collapipe_env.ground.errors import AllocationError
from collapipe_env.ground.real_numbers import REAL_KINDS, real_numbers
from collapipe_env.ground.records import made
from collapipe_env.kernels.decode import DecodeLimits, decode_rows
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.apportionment import apportion
from collapipe_env.simulator.decision import Part, nearest_choice, opened_rows, spread
from collapipe_env.simulator.expressible import ActionPart, check_expressible, require_parts
from collapipe_env.simulator.memory_choices import OpenedDecoder, shared_band
from collapipe_env.simulator.state import Parameters


class ActionCodec:
    """Maps ``Box(-1, 1, (A,))`` to feasible allocations and back, with ``A = N (2K + 3)``.

    The action holds, cluster by cluster, ``K`` segment scores, ``K`` device powers, the CU power, the
    micro-batch choice and the bandwidth score; :meth:`split` names them. Every further decision that the
    scenario opens adds entries to each cluster, 1 or ``K`` for each of its parts. Decoding is
    total: every vector of finite numbers gives a feasible allocation (values outside [-1, 1] are clipped).

    * micro-batches: the choices are spread evenly over [-1, 1] and the nearest is taken;
    * segments: weights ``(a + 1) / 2``, ``L`` blocks apportioned by largest remainder under each
      device's memory cap; a device at -1 gets none (unless the others cannot hold the encoder);
    * powers: geometric between ``power_min`` and ``power_max``;
    * bandwidth: ``bandwidth_floor`` for every cluster, the rest in proportion to ``(a + 1) / 2`` (evenly
      if all are at -1).

    Where decisions are open (:mod:`collapipe_env.decisions`), :attr:`parts` says what their entries mean, and
    the memory caps follow from the choices.

    If a cluster could not hold its blocks under the chosen recomputation or schedule, a choice that fits
    replaces it. If none fits, the cluster sits out, where participation is open.

    Args:
        devices: ``K``, devices of the largest cluster.

    Attributes:
        action_size: Length ``A`` of an action.
        cluster_entries: Entries of a cluster, ``A / N``.
        own_entries: Those for CollaPipe's own decisions, ``2K + 3``.
        opened: Decisions that the scenario opens beyond CollaPipe's own, in the order of their entries.
        sits_out: Whether clusters that cannot hold the encoder sit out though participation is not open.
    """

    def __init__(self, parameters: Parameters, devices: int) -> None:
        self.parameters, self.clusters, self.devices = parameters, parameters.clusters, devices
        self.blocks, self.bandwidth_floor = parameters.costs.blocks, parameters.bandwidth_floor
        self.micro_batch_choices, self.opened = parameters.micro_batch_choices, parameters.opened
        self.power_min_w, self.power_max_w = parameters.power_min_w, parameters.power_max_w
        self.sits_out = parameters.may_sit_out and "participation" not in self.opened
        # Positions of all parts among the entries of a cluster.
        self._places: dict[str, int | slice] = {}
        at = 0
        for name, part in self.parts.items():
            wide = len(part.shape) == 2
            self._places[name] = slice(at, at + devices) if wide else at
            at += devices if wide else 1
        self.own_entries, self.cluster_entries, self.action_size = 2 * devices + 3, at, self.clusters * at
        self._decoder = OpenedDecoder(self._places, parameters, self.sits_out)
        # Whether other choices come before the segments: opened decisions, or clusters that sit out.
        self._settles = bool(self.opened) or self.sits_out
        self._limits = loop_record(DecodeLimits(self.power_min_w, self.power_max_w, self.bandwidth_floor))
        self._choices = Constant(np.array(self.micro_batch_choices, dtype=np.int64))

    @property
    def opened_parts(self) -> tuple[Part, ...]:
        """Entries that opened decisions add to a cluster's own, in order."""
        return tuple(part for row in opened_rows(self.opened) for part in row.parts)

    @property
    def parts(self) -> dict[str, ActionPart]:
        """Shape and meaning of each part of an action, in their order within a cluster."""
        devices, clusters = (self.clusters, self.devices), (self.clusters,)
        power = (
            f"transmit power, on a geometric scale: -1 for {self.power_min_w:g} W, 1 for "
            f"{self.power_max_w:g} W, 0 for {math.sqrt(self.power_min_w * self.power_max_w):g} W"
        )
        choices = ", ".join(map(str, self.micro_batch_choices))
        return {
            "segments": ActionPart(
                devices,
                f"weight of the device in the division of {self.blocks} blocks, under its memory cap; "
                "-1 for no block",
            ),
            "device_power": ActionPart(devices, power),
            "cu_power": ActionPart(clusters, power),
            "micro_batches": ActionPart(
                clusters, f"number of micro-batches: the nearest of {choices}, spaced evenly over [-1, 1]"
            ),
            "bandwidth": ActionPart(
                clusters,
                f"weight of the cluster in the division of the uplink above a floor of "
                f"{self.bandwidth_floor:g}; -1 for the floor",
            ),
            **{
                p.name: ActionPart(devices if p.axes == "N K" else clusters, p.meaning(self.parameters))
                for p in self.opened_parts
            },
        }

    def split(self, action: Array) -> dict[str, Array]:
        """Split actions into named parts, see :attr:`parts`; :meth:`join` is the inverse.

        Args:
            action: (..., A), on any array library.

        Returns:
            ``segments`` and ``device_power`` (..., N, K), ``cu_power``, ``micro_batches`` and ``bandwidth``
            (..., N), and parts of opened decisions in either shape: the action's entries, unchanged.

        Raises:
            AllocationError: If the action has the wrong length.
        """
        self.check_action_shape(tuple(action.shape))
        rows = namespace(action).reshape(action, (*action.shape[:-1], self.clusters, self.cluster_entries))
        return {name: rows[..., place] for name, place in self._places.items()}

    def join(self, parts: Mapping[str, Array]) -> Array:
        """Join named parts into actions: the inverse of :meth:`split`.

        Args:
            parts: All parts that :meth:`split` returns, with the same leading axes.

        Returns:
            Actions (..., A).

        Raises:
            AllocationError: If a part is missing, unknown or of another shape.
        """
        lead = require_parts(parts, self.parts)
        columns = (
            parts[name] if len(part.shape) == 2 else parts[name][..., None]
            for name, part in self.parts.items()
        )
        rows = concatenate(tuple(columns))
        return namespace(rows).reshape(rows, (*lead, self.action_size))

    def decode(self, action: Array, memory_cap: Array, memory_bytes: Array | None = None) -> Allocation:
        """Turn actions into allocations, feasible by construction.

        Args:
            action: (..., A), finite.
            memory_cap: Blocks each device can hold (..., N, K), zero for absent devices; its sum over
                the devices of each cluster is at least ``L``.
            memory_bytes: Memory that each device offers (..., N, K) [byte], needed where decisions are open:
                the memory caps then follow from the choices.

        Raises:
            AllocationError: If the action has the wrong length or entries that are not finite real numbers,
                or the memory is missing.
        """
        if type(memory_cap) is np.ndarray:
            if type(action) is not np.ndarray or action.dtype.kind not in REAL_KINDS:
                action = real_numbers("action", action)
            return self._decode_rows(np.ascontiguousarray(action, dtype=np.float64), memory_cap, memory_bytes)
        xp = namespace(memory_cap)
        a = xp.astype(action, xp.float64)
        self.check_action(a)
        return self.decode_finite(a, memory_cap, memory_bytes)

    def _decode_rows(self, action: FloatArray, memory_cap: Array, memory_bytes: Array | None) -> Allocation:
        """:meth:`decode` by a compiled loop, with the same allocation up to rounding of powers."""
        self.check_action_shape(action.shape)
        lead, N, K = action.shape[:-1], self.clusters, self.devices
        rows, choices = math.prod(lead), None
        total = _every_block(rows, N, self.blocks)
        entries = action.reshape(*lead, N, self.cluster_entries)
        if self._settles:
            chosen, memory_bytes = None, self._memory(memory_bytes)
            if self.opened:
                self.check_action(action)  # the loop does not see the entries of opened decisions
                chosen = self._micro_batches(entries)
                action = np.ascontiguousarray(entries[..., : self.own_entries])
            choices = self._decoder.choose(entries, chosen, memory_cap, memory_bytes)
            memory_cap, total = choices.caps, np.ascontiguousarray(choices.total).reshape(rows, N)
        if memory_cap.shape != (*lead, N, K):
            memory_cap = np.broadcast_to(memory_cap, (*lead, N, K)).copy()
        finite, blocks, micro_batches, bandwidth, powers = decode_rows(
            self._limits,
            self._choices.values,
            action.reshape(rows, N, self.own_entries),
            np.ascontiguousarray(memory_cap, dtype=np.int64).reshape(rows, N, K),
            total,
        )
        if not finite:
            self.check_action(action)
        np.exp(powers, out=powers)
        # Rounding must not lead out of the limits.
        np.maximum(powers, self.power_min_w, out=powers)
        np.minimum(powers, self.power_max_w, out=powers)
        cus = rows * N * K  # place of the first CU
        allocation = made(
            Allocation,
            blocks=blocks,
            micro_batches=micro_batches,
            bandwidth=bandwidth,
            device_power=powers[:cus].reshape(rows, N, K),
            cu_power=powers[cus:].reshape(rows, N),
            others={},
        )
        if len(lead) != 1:
            allocation = allocation.map(lambda a: a.reshape(*lead, *a.shape[1:]))
        if choices is None:
            return allocation
        return self._decoder.complete(entries, choices, allocation, memory_bytes)

    def _memory(self, memory_bytes: Array | None) -> Array:
        """Return the devices' memory, which opened decisions need; refuse ``None``."""
        if memory_bytes is None:
            why = "devices come and go in this scenario"
            if self.opened:
                why = f"this scenario's decisions list {', '.join(self.opened)}"
            raise AllocationError(
                f"{why}: give memory_bytes, the memory that each device offers (memory_bytes of the state)"
            )
        return memory_bytes

    def _micro_batches(self, rows: Array) -> Array:
        """Return the numbers of micro-batches (..., N) chosen by the clusters' entries (..., N, A / N)."""
        nearest = nearest_choice(rows[..., 2 * self.devices + 1], len(self.micro_batch_choices))
        return self._choices.like(nearest)[nearest]

    def check_action(self, action: Array) -> None:
        """Refuse actions that :meth:`decode_finite` cannot read. On a GPU this waits for the numbers.

        Args:
            action: (..., A) on any array library.

        Raises:
            AllocationError: If the action has the wrong length or a number that is not finite.
        """
        self.check_action_shape(tuple(action.shape))
        xp = namespace(action)
        finite = xp.isfinite(action)
        if not xp.all(finite):
            place = tuple(int(index[0]) for index in xp.nonzero(~finite))
            raise AllocationError(
                f"action{list(place)} is {float(action[place])}: every entry must be a finite number "
                "(values outside [-1, 1] are clipped)"
            )

    def check_action_shape(self, shape: tuple[int, ...]) -> None:
        """Refuse actions of a wrong length.

        Raises:
            AllocationError: If the last axis is not ``A`` long.
        """
        if shape[-1:] != (self.action_size,):
            opened = f" + {self.cluster_entries - self.own_entries}" if self.opened else ""
            raise AllocationError(
                f"action has shape {shape}, expected (..., {self.action_size}) = (..., N (2K + 3{opened})) "
                f"for {self.clusters} clusters of up to {self.devices} devices"
                + (f" that also decide {', '.join(self.opened)}" if self.opened else "")
            )

    def decode_finite(
        self, action: Array, memory_cap: Array, memory_bytes: Array | None = None
    ) -> Allocation:
        """Turn checked actions into allocations, on any array library.

        Args:
            action: (..., A), finite, of a real type, which is also the allocation's type.
            memory_cap: As for :meth:`decode`, of the same library.
            memory_bytes: As for :meth:`decode`, of the same library.
        """
        xp = namespace(action)
        K = self.devices
        entries = xp.reshape(action, (*action.shape[:-1], self.clusters, self.cluster_entries))
        micro_batches, total = self._micro_batches(entries), self.blocks
        opened = None
        if self._settles:
            memory_bytes = self._memory(memory_bytes)
            opened = self._decoder.choose(entries, micro_batches, memory_cap, memory_bytes)
            memory_cap, total = opened.caps, opened.total[..., None]
        unit = 0.5 * (xp.clip(entries[..., : self.own_entries], -1.0, 1.0) + 1.0)
        power = at_most(
            self.power_min_w
            * xp.exp(math.log(self.power_max_w / self.power_min_w) * unit[..., K : 2 * K + 1]),
            self.power_max_w,
        )
        plan = Allocation(
            blocks=apportion(total, unit[..., :K], memory_cap),
            micro_batches=micro_batches,
            bandwidth=shared_band(unit[..., 2 * K + 2], self.bandwidth_floor, micro_batches > 0),
            device_power=power[..., :K],
            cu_power=power[..., K],
        )
        return plan if opened is None else self._decoder.complete(entries, opened, plan, memory_bytes)

    def encode(self, allocation: Allocation) -> npt.NDArray[np.float32]:
        """Turn allocations into actions: the inverse of :meth:`decode`.

        The box can express an allocation with one device a stage, allowed micro-batches, powers within the
        limits, the whole band assigned, no share below the floor, and only decisions that the scenario opens.
        Decoding the result then gives the same integers exactly, and the same powers (relative) and bandwidth
        shares (absolute) to 1e-6. Values that are not read come back as decoding sets them: caps are 0 under
        GPipe and in slots without blocks, and empty slots and the values of clusters that sit out are
        dropped.

        Args:
            allocation: Leading axes ``...``.

        Returns:
            Actions (..., A), float32.

        Raises:
            AllocationError: If the box cannot express the allocation; it names the first fault.
        """
        check_expressible(self.parameters, self.devices, allocation)
        blocks = np.asarray(allocation.blocks, dtype=np.float64)
        # Clusters that sit out may hold no blocks at all.
        segments = 2.0 * blocks / np.maximum(blocks.max(axis=-1, keepdims=True), 1.0) - 1.0
        choices = np.asarray(self.micro_batch_choices)
        middle = spread(np.searchsorted(choices, np.asarray(allocation.micro_batches)), len(choices))
        power = np.concatenate((allocation.device_power, allocation.cu_power[..., None]), axis=-1)
        span = math.log(self.power_max_w / self.power_min_w)
        # A range of one power has no span, and its logarithms are all zero.
        powers = 2.0 * np.log(power / self.power_min_w) / (span or 1.0) - 1.0
        extra = np.maximum(np.asarray(allocation.bandwidth) - self.bandwidth_floor, 0.0)
        extra = np.where(allocation.plays, extra, 0.0)
        largest = extra.max(axis=-1, keepdims=True)
        scores = 2.0 * extra / np.where(largest > 0.0, largest, 1.0) - 1.0
        columns = [segments, powers, middle[..., None], scores[..., None]]
        for part in self.opened_parts:
            entries = part.encode(self.parameters, allocation)
            columns.append(entries if part.axes == "N K" else entries[..., None])
        action = np.concatenate(columns, axis=-1)
        clipped: npt.NDArray[np.float32] = np.clip(action, -1.0, 1.0).astype(np.float32)
        return clipped.reshape(*clipped.shape[:-2], self.action_size)


@lru_cache(maxsize=16)
def _every_block(rows: int, clusters: int, blocks: int) -> IntArray:
    """All blocks for the devices of every cluster (rows, N); only read."""
    return np.full((rows, clusters), blocks)

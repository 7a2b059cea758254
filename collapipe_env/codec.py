"""Actions in a box, and the allocations they stand for (`environment.md`, Action)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import Allocation
from collapipe_env.apportionment import apportion
from collapipe_env.errors import AllocationError
from collapipe_env.physics._array import Array

FloatArray = npt.NDArray[np.floating]


@dataclass(frozen=True)
class ActionCodec:
    """Maps ``Box(-1, 1, (N (2K + 3),))`` to feasible allocations and back.

    The action holds, cluster by cluster, ``K`` segment scores, ``K`` device powers, the CU power, the
    micro-batch choice and the bandwidth score. Decoding is total: every vector of finite numbers gives
    a feasible allocation (values outside [-1, 1] are clipped).

    * micro-batches: the choices are spread evenly over [-1, 1] and the nearest is taken;
    * segments: weights ``(a + 1) / 2``, ``L`` blocks apportioned by largest remainder under each
      device's memory cap; a device at -1 gets none (unless the others cannot hold the encoder);
    * powers: geometric between ``power_min`` and ``power_max``;
    * bandwidth: ``bandwidth_floor`` for every cluster, the rest in proportion to ``(a + 1) / 2`` (evenly
      if all are at -1).

    Attributes:
        clusters: ``N``.
        devices: ``K``, devices of the largest cluster.
        blocks: ``L``, encoder blocks.
        micro_batch_choices: Allowed numbers of micro-batches, ascending.
        power_min_w: Smallest transmit power [W].
        power_max_w: Largest transmit power [W].
        bandwidth_floor: Share of the uplink that every cluster gets at least, in [0, 1/N).
    """

    clusters: int
    devices: int
    blocks: int
    micro_batch_choices: tuple[int, ...]
    power_min_w: float
    power_max_w: float
    bandwidth_floor: float

    @property
    def action_size(self) -> int:
        """Length of an action, ``N (2K + 3)``."""
        return self.clusters * (2 * self.devices + 3)

    def decode(self, action: Array, memory_cap: Array) -> Allocation:
        """Turn actions into allocations, feasible by construction.

        Args:
            action: (..., N (2K + 3)), finite.
            memory_cap: Blocks each device can hold (..., N, K), zero for absent devices; its sum over
                the devices of each cluster is at least ``L``.

        Raises:
            AllocationError: If the action has the wrong length or a number that is not finite.
        """
        a: npt.NDArray[np.float64] = np.asarray(action, dtype=np.float64)
        if a.shape[-1:] != (self.action_size,):
            raise AllocationError(
                f"action has shape {a.shape}, expected (..., {self.action_size}) = (..., N (2K + 3)) for "
                f"{self.clusters} clusters of up to {self.devices} devices"
            )
        if not np.isfinite(a).all():
            place = tuple(int(i) for i in np.argwhere(~np.isfinite(a))[0])
            raise AllocationError(
                f"action{list(place)} is {a[place]}: every entry must be a finite number in [-1, 1]"
            )
        K = self.devices
        a = np.clip(a, -1.0, 1.0).reshape(*a.shape[:-1], self.clusters, 2 * K + 3)
        unit = 0.5 * (a + 1.0)
        choices = np.asarray(self.micro_batch_choices, dtype=np.int64)
        # Half-way cases go up, so that the middle of an even number of choices is the larger one.
        index = np.floor(unit[..., 2 * K + 1] * (len(choices) - 1) + 0.5).astype(np.int64)
        power = self.power_min_w * np.exp(
            math.log(self.power_max_w / self.power_min_w) * unit[..., K : 2 * K + 1]
        )
        np.minimum(power, self.power_max_w, out=power)
        return Allocation(
            blocks=apportion(self.blocks, unit[..., :K], memory_cap),
            micro_batches=choices[index],
            bandwidth=self._decode_bandwidth(unit[..., 2 * K + 2]),
            device_power=power[..., :K],
            cu_power=power[..., K],
        )

    def _decode_bandwidth(self, scores: FloatArray) -> FloatArray:
        total = scores.sum(axis=-1, keepdims=True)
        free = 1.0 - self.clusters * self.bandwidth_floor
        even = np.full_like(scores, 1.0 / self.clusters)
        share = np.divide(scores, total, out=even, where=total > 0.0)
        beta: FloatArray = self.bandwidth_floor + free * share
        return beta

    def encode(self, allocation: Allocation) -> npt.NDArray[np.float32]:
        """Turn allocations into actions: the inverse of :meth:`decode`.

        For every allocation that the box can express (one device a stage, allowed micro-batches, powers
        within limits, the whole band given out and no share below the floor) decoding the result gives
        the same segments and micro-batches exactly, and the same powers (relative) and bandwidth shares
        (absolute) to 1e-6.

        Args:
            allocation: Leading axes ``...``.

        Returns:
            Actions (..., N (2K + 3)), float32.

        Raises:
            AllocationError: If the box cannot express the allocation; names the first fault.
        """
        self._check_expressible(allocation)
        blocks = np.asarray(allocation.blocks, dtype=np.float64)
        segments = 2.0 * blocks / blocks.max(axis=-1, keepdims=True) - 1.0
        choices = np.asarray(self.micro_batch_choices)
        index: npt.NDArray[np.intp] = np.searchsorted(choices, np.asarray(allocation.micro_batches))
        middle = 2.0 * np.asarray(index) / max(len(choices) - 1, 1) - 1.0
        power = np.concatenate((allocation.device_power, allocation.cu_power[..., None]), axis=-1)
        span = math.log(self.power_max_w / self.power_min_w)
        # A range of one power has no span, and its logarithms are all zero.
        powers = 2.0 * np.log(power / self.power_min_w) / (span or 1.0) - 1.0
        extra = np.maximum(np.asarray(allocation.bandwidth) - self.bandwidth_floor, 0.0)
        largest = extra.max(axis=-1, keepdims=True)
        scores = 2.0 * extra / np.where(largest > 0.0, largest, 1.0) - 1.0
        action = np.concatenate((segments, powers, middle[..., None], scores[..., None]), axis=-1)
        clipped: npt.NDArray[np.float32] = np.clip(action, -1.0, 1.0).astype(np.float32)
        return clipped.reshape(*clipped.shape[:-2], self.action_size)

    def _check_expressible(self, allocation: Allocation) -> None:
        if not allocation.is_plain:
            raise AllocationError(
                "the action box cannot express stages of several devices, schedules or split training: play "
                "this allocation through env.unwrapped.step_allocation(allocation)"
            )
        shape = (self.clusters, self.devices)
        if np.shape(allocation.blocks)[-2:] != shape:
            raise AllocationError(f"blocks has shape {np.shape(allocation.blocks)}, expected (..., {shape})")
        sums = np.sum(allocation.blocks, axis=-1)
        if np.any(np.asarray(allocation.blocks) < 0) or np.any(sums != self.blocks):
            raise AllocationError(
                f"blocks of a cluster are {np.unique(sums).tolist()} in sum, expected non-negative counts "
                f"summing to L = {self.blocks}"
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
        total = np.sum(allocation.bandwidth, axis=-1)
        if np.any(np.abs(total - 1.0) > 1e-6) or np.min(allocation.bandwidth) < self.bandwidth_floor - 1e-9:
            raise AllocationError(
                f"bandwidth shares sum to {np.min(total):.6g}..{np.max(total):.6g} with a least share of "
                f"{np.min(allocation.bandwidth):.3g}: the box gives out the whole band and at least "
                f"{self.bandwidth_floor:.3g} to every cluster"
            )

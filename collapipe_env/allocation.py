"""The allocation: what a scheduler decides for one round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from collapipe_env.errors import AllocationError
from collapipe_env.physics._array import Array, namespace


@dataclass(frozen=True, eq=False)
class Allocation:
    """Segments, micro-batches, bandwidth and transmit powers of all clusters for one round.

    Arrays have leading batch axes ``...``, then ``N`` clusters and ``K`` devices (or stage slots).
    CollaPipe's own plans put every segment on one device: slot ``k`` is device ``k`` and slots without
    blocks are skipped, so ``stage`` and ``share`` stay ``None``. Plans with several devices in a stage
    (data parallel inside the stage; an extension) name each device's slot and share of the samples.

    Attributes:
        blocks: Consecutive encoder blocks of each stage slot, in pipeline order (..., N, K), int >= 0,
            summing to ``L``.
        micro_batches: ``M_n`` (..., N), int; divides the mini-batch.
        bandwidth: Share ``beta_n`` of the uplink (..., N), > 0, summing to at most 1.
        device_power: Device transmit powers (..., N, K) [W].
        cu_power: CU transmit powers, device-to-device and uplink alike (..., N) [W].
        stage: Slot of each device (..., N, K), int, -1 for a device in no stage; ``None`` for the identity.
        share: Share ``y_k`` of each micro-batch's samples (..., N, K), summing to 1 in each stage;
            ``None`` where every stage has one device.
    """

    blocks: Array
    micro_batches: Array
    bandwidth: Array
    device_power: Array
    cu_power: Array
    stage: Array | None = None
    share: Array | None = None

    def __post_init__(self) -> None:
        if (self.stage is None) != (self.share is None):
            raise AllocationError("stage and share go together: give both for plans with groups, or neither")

    @property
    def device_blocks(self) -> Array:
        """Blocks of the stage that each device belongs to (..., N, K), 0 for an idle device."""
        if self.stage is None:
            return self.blocks
        xp = namespace(self.blocks)
        slot = xp.where(self.stage < 0, 0, self.stage)
        return xp.where(self.stage < 0, 0, xp.take_along_axis(self.blocks, slot, axis=-1))

    @property
    def node_power(self) -> Array:
        """Transmit powers of the CU and the devices (..., N, K+1) [W]."""
        xp = namespace(self.device_power)
        if xp is np:
            return np.concatenate((self.cu_power[..., None], self.device_power), axis=-1)
        return xp.concat((self.cu_power[..., None], self.device_power), axis=-1)

    def map(self, function: Callable[[Array], Array]) -> Allocation:
        """Apply one function to every array, for instance to select rows of a batch."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return Allocation(**{k: None if v is None else function(v) for k, v in values.items()})

    def __getitem__(self, index: object) -> Allocation:
        """Index the leading batch axes of every array."""
        return self.map(lambda a: a[index])


def stack_allocations(allocations: Sequence[Allocation]) -> Allocation:
    """Stack single allocations into one with a new leading batch axis.

    Allocations with and without groups may be mixed: where a plan has none, its identity is written out.

    Args:
        allocations: At least one allocation; all of the same shape.
    """
    if any(a.stage is not None for a in allocations):
        allocations = [a if a.stage is not None else with_explicit_groups(a) for a in allocations]
    columns = {f.name: [getattr(a, f.name) for a in allocations] for f in fields(Allocation)}
    return Allocation(**{k: None if v[0] is None else np.stack(v) for k, v in columns.items()})


def with_explicit_groups(allocation: Allocation) -> Allocation:
    """Write out the identity ``stage`` and unit ``share`` of a plan that has one device in each stage."""
    if allocation.stage is not None:
        return allocation
    slots = np.broadcast_to(np.arange(allocation.blocks.shape[-1]), allocation.blocks.shape)
    stage = np.where(allocation.blocks > 0, slots, -1)
    return Allocation(
        **{
            f.name: getattr(allocation, f.name)
            for f in fields(Allocation)
            if f.name not in ("stage", "share")
        },
        stage=stage,
        share=np.where(stage >= 0, 1.0, 0.0),
    )

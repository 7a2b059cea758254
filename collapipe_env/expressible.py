"""Allocations that the action box can express."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collapipe_env.allocation import Allocation
from collapipe_env.errors import AllocationError

if TYPE_CHECKING:
    from collapipe_env.codec import ActionCodec


def check_expressible(codec: ActionCodec, allocation: Allocation) -> None:
    """Refuse allocations that no action stands for.

    Args:
        codec: The action box.
        allocation: Leading axes ``...``.

    Raises:
        AllocationError: Names the first fault.
    """
    if not allocation.is_plain:
        raise AllocationError(
            "the action box cannot express stages of several devices, schedules or split training: play "
            "this allocation through env.unwrapped.step_allocation(allocation)"
        )
    shape = (codec.clusters, codec.devices)
    if np.shape(allocation.blocks)[-2:] != shape:
        raise AllocationError(f"blocks has shape {np.shape(allocation.blocks)}, expected (..., {shape})")
    sums = np.sum(allocation.blocks, axis=-1)
    if np.any(np.asarray(allocation.blocks) < 0) or np.any(sums != codec.blocks):
        raise AllocationError(
            f"blocks of a cluster are {np.unique(sums).tolist()} in sum, expected non-negative counts "
            f"summing to L = {codec.blocks}"
        )
    unknown = ~np.isin(allocation.micro_batches, codec.micro_batch_choices)
    if np.any(unknown):
        raise AllocationError(
            f"micro_batches = {np.asarray(allocation.micro_batches)[unknown].tolist()}: allowed are "
            f"{list(codec.micro_batch_choices)}"
        )
    for name, power in (("device_power", allocation.device_power), ("cu_power", allocation.cu_power)):
        low, high = np.min(power), np.max(power)
        if not (low >= codec.power_min_w * (1 - 1e-9) and high <= codec.power_max_w * (1 + 1e-9)):
            raise AllocationError(
                f"{name} lies in [{low:g}, {high:g}] W, expected within "
                f"[{codec.power_min_w:g}, {codec.power_max_w:g}] W"
            )
    chosen = -1 if allocation.recompute is None else np.asarray(allocation.recompute)
    if "recompute" not in codec.opened and np.any(chosen != -1):
        raise AllocationError(
            "recompute: the scenario's decisions do not list it, so the action box has no entry for it"
        )
    total = np.sum(allocation.bandwidth, axis=-1)
    if np.any(np.abs(total - 1.0) > 1e-6) or np.min(allocation.bandwidth) < codec.bandwidth_floor - 1e-9:
        raise AllocationError(
            f"bandwidth shares sum to {np.min(total):.6g}..{np.max(total):.6g} with a least share of "
            f"{np.min(allocation.bandwidth):.3g}: the box gives out the whole band and at least "
            f"{codec.bandwidth_floor:.3g} to every cluster"
        )

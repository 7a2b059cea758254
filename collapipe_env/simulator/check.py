"""Feasibility of an allocation: every constraint of the scheduling problem, with the place of a fault."""

from __future__ import annotations

import numpy as np

from collapipe_env.allocation import Allocation
from collapipe_env.errors import AllocationError
from collapipe_env.physics._array import Array
from collapipe_env.physics.memory import device_memory
from collapipe_env.simulator.state import SystemParameters, SystemState

SLACK = 1e-9
"""Relative slack for powers, shares and memory that were computed in floating point."""


def check_allocation(parameters: SystemParameters, state: SystemState, allocation: Allocation) -> None:
    """Refuse an allocation that breaks a constraint (`system_model.md` section 9).

    Args:
        parameters: Scalars of the scenario.
        state: The system (E, ...).
        allocation: The decision (E, ...).

    Raises:
        AllocationError: Names the field, the environment, cluster (and device) and what is allowed.
    """
    clusters, devices = state.uplink_gain.shape, state.present.shape
    _shape("blocks", allocation.blocks, devices)
    _shape("micro_batches", allocation.micro_batches, clusters)
    _shape("bandwidth", allocation.bandwidth, clusters)
    _shape("device_power", allocation.device_power, devices)
    _shape("cu_power", allocation.cu_power, clusters)
    L = parameters.costs.blocks
    # Comparing with the rounded counts also refuses NaN and infinite ones.
    _refuse(
        ~(np.asarray(allocation.blocks) == np.round(allocation.blocks)),
        allocation.blocks,
        "blocks",
        "a whole number",
    )
    _refuse(
        (allocation.blocks.sum(axis=-1) != L) | (allocation.blocks < 0).any(axis=-1),
        allocation.blocks,
        "blocks",
        f"non-negative counts summing to L = {L}",
    )
    _refuse(
        ~np.isin(allocation.micro_batches, parameters.micro_batch_choices),
        allocation.micro_batches,
        "micro_batches",
        f"one of {list(parameters.micro_batch_choices)}",
    )
    low, high = parameters.power_min_w * (1.0 - SLACK), parameters.power_max_w * (1.0 + SLACK)
    expected = f"a power in [{parameters.power_min_w:g}, {parameters.power_max_w:g}] W"
    for name in ("device_power", "cu_power"):
        power = getattr(allocation, name)
        _refuse(~((power >= low) & (power <= high)), power, name, expected)
    _refuse(~(allocation.bandwidth > 0.0), allocation.bandwidth, "bandwidth", "a share above 0")
    total = allocation.bandwidth.sum(axis=-1)
    _refuse(~(total <= 1.0 + SLACK), total, "bandwidth (sum over clusters)", "at most 1")
    samples: np.ndarray | int = parameters.costs.batch_size
    if allocation.stage is not None:
        _check_groups(state, allocation)
        samples = parameters.costs.batch_size * np.asarray(allocation.share)
    held = allocation.device_blocks
    _refuse((held > 0) & ~state.present, held, "blocks", "none on an absent device")
    needed = device_memory(
        held, samples, parameters.costs.block_state_bytes, parameters.costs.stored_activation_bytes
    )
    over = needed > state.memory_bytes * (1.0 + SLACK)
    if over.any():
        place = tuple(int(i) for i in np.argwhere(over)[0])
        raise AllocationError(
            f"blocks: {_where(place)} would need {needed[place]:.4g} bytes for its {held[place]} blocks, "
            f"it offers {state.memory_bytes[place]:.4g}; give it fewer blocks"
        )


def _check_groups(state: SystemState, allocation: Allocation) -> None:
    """Groups: slots exist, shares are positive where used and sum to one in every stage with blocks."""
    _shape("stage", allocation.stage, state.present.shape)
    _shape("share", allocation.share, state.present.shape)
    stage, share = np.asarray(allocation.stage), np.asarray(allocation.share)
    slots = np.arange(state.present.shape[-1])
    _refuse((stage < -1) | (stage > slots[-1]), stage, "stage", f"a slot 0..{slots[-1]}, or -1")
    member = stage[..., None, :] == slots[:, None]
    total = np.where(member, share[..., None, :], 0.0).sum(axis=-1)
    wrong = (allocation.blocks > 0) & (np.abs(total - 1.0) > 1e-9)
    _refuse(wrong, total, "share (sum over the devices of a stage)", "1 in every stage that holds blocks")
    _refuse((stage >= 0) & ~(share > 0.0), share, "share", "above 0 for a device in a stage")


def _shape(name: str, value: Array, expected: tuple[int, ...]) -> None:
    if np.shape(value) != expected:
        raise AllocationError(f"{name} has shape {np.shape(value)}, expected {expected}")


def _where(place: tuple[int, ...]) -> str:
    names = ("environment", "cluster", "device")
    return ", ".join(f"{name} {index}" for name, index in zip(names, place, strict=False))


def _refuse(fault: np.ndarray, value: np.ndarray, name: str, expected: str) -> None:
    if not fault.any():
        return
    place = tuple(int(i) for i in np.argwhere(fault)[0])
    raise AllocationError(f"{name} of {_where(place)} is {np.asarray(value)[place]}, expected {expected}")

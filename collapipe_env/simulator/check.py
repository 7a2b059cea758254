"""Feasibility of an allocation: checks every constraint of the scheduling problem; errors name the place."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import Array
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.memory import device_memory, fits
from collapipe_env.physics.recomputation import recomputation_terms
from collapipe_env.physics.schedules.storage import memory_terms
from collapipe_env.scenario.sections import LEAST_SHARE
from collapipe_env.simulator.check_extensions import (
    check_groups,
    check_schedule,
    check_server_memory,
    check_split,
)
from collapipe_env.simulator.check_opened import (
    check_clocks,
    check_local_steps,
    check_participation,
    check_recompute,
)
from collapipe_env.simulator.refusal import place_name, refuse, require_shape
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.state import SystemParameters, SystemState

SLACK = 1e-9
"""Relative slack for powers, shares and memory that were computed in floating point."""
SINGLE_SLACK = 4e-6
"""Slack for powers and shares in single precision, where a sum is off by a few units in the last place."""


def check_allocation(parameters: SystemParameters, state: SystemState, allocation: Allocation) -> None:
    """Refuse an allocation that breaks a constraint (`system_model.md` section 9).

    Args:
        state: The system (E, ...).
        allocation: The decision (E, ...), with the types of
            :func:`collapipe_env.physics.allocation.own_arrays`.

    Raises:
        AllocationError: Names the field, the environment, cluster (and device) and what is allowed.
    """
    clusters, devices = state.uplink_gain.shape, state.present.shape
    require_shape("blocks", allocation.blocks, devices)
    require_shape("micro_batches", allocation.micro_batches, clusters)
    require_shape("bandwidth", allocation.bandwidth, clusters)
    require_shape("device_power", allocation.device_power, devices)
    require_shape("cu_power", allocation.cu_power, clusters)
    L = parameters.costs.blocks
    # The blocks and the share of a cluster that sits out are not read.
    plays = check_participation(parameters, state, allocation)
    if allocation.local_steps is not None:
        check_local_steps(parameters, allocation, clusters)
    slack = SINGLE_SLACK if state.budget.dtype == np.float32 else SLACK
    if allocation.clock_cap is not None:
        check_clocks(parameters, allocation, devices, slack)
    # Comparing with the rounded counts also refuses NaN; infinity fails at the sum below.
    refuse(
        ~(np.asarray(allocation.blocks) == np.round(allocation.blocks)),
        allocation.blocks,
        "blocks",
        "a whole number",
    )
    held_by_server: Array | int = 0
    if allocation.server_mode is not None:
        check_split(parameters, allocation, clusters)
        check_server_memory(parameters, allocation, SLACK)
        held_by_server = np.asarray(allocation.server_blocks)
    # Check each count on its own, too: the sum of huge counts may wrap around to L.
    outside = ((allocation.blocks < 0) | (allocation.blocks > L)).any(axis=-1)
    refuse(
        ((allocation.blocks.sum(axis=-1) + held_by_server != L) & plays) | outside,
        allocation.blocks,
        "blocks",
        f"non-negative counts summing to L = {L}"
        + ("" if allocation.server_mode is None else ", with the server's blocks"),
    )
    refuse(
        ~np.isin(allocation.micro_batches, parameters.micro_batch_choices),
        allocation.micro_batches,
        "micro_batches",
        f"one of {list(parameters.micro_batch_choices)}",
    )
    low, high = parameters.power_min_w * (1.0 - slack), parameters.power_max_w * (1.0 + slack)
    expected = f"a power in [{parameters.power_min_w:g}, {parameters.power_max_w:g}] W"
    for name in ("device_power", "cu_power"):
        power = getattr(allocation, name)
        refuse(~((power >= low) & (power <= high)), power, name, expected)
    refuse(
        ~(allocation.bandwidth >= LEAST_SHARE * (1.0 - slack)) & (plays | ~(allocation.bandwidth >= 0.0)),
        allocation.bandwidth,
        "bandwidth",
        f"a share of at least {LEAST_SHARE:g}",
    )
    total = np.where(plays, allocation.bandwidth, 0.0).sum(axis=-1)
    refuse(~(total <= 1.0 + slack), total, "bandwidth (sum over clusters)", "at most 1")
    if allocation.stage is not None:
        check_groups(state, allocation)
    if allocation.schedule is not None:
        check_schedule(allocation, devices)
    held = allocation.device_blocks
    each = plays[..., None]
    refuse((held > 0) & ~state.present & each, held, "blocks", "none on an absent device")
    if allocation.recompute is not None:
        check_recompute(parameters, allocation, clusters)
    terms = recomputation_terms(parameters, allocation)
    samples, block_state, working = memory_terms(parameters.costs, allocation, terms)
    needed = device_memory(held, samples, block_state, terms.activation_bytes, working)
    over = ~fits(needed, state.memory_bytes, SLACK) & each
    if over.any():
        place = tuple(int(i) for i in np.argwhere(over)[0])
        raise AllocationError(
            f"blocks: {place_name(place)} needs {needed[place]:.4g} bytes for its {held[place]} blocks, "
            f"but offers {state.memory_bytes[place]:.4g}; give it fewer blocks"
            + ("" if allocation.schedule is None else " or a lower cap")
        )


def check_costs(costs: RoundCosts) -> None:
    """Refuse a round whose delay or energy is not finite.

    Args:
        costs: Costs of the plans (E, ...), checked before any state changes.

    Raises:
        AllocationError: Names the environment (cluster and node).
    """
    for name, values in (("delay", costs.delay), ("energy over budget", costs.energy_ratio)):
        refuse(~np.isfinite(values), values, f"{name} of the round", "a finite number: use another plan")

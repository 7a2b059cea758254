"""Feasibility of an allocation: checks every constraint of the scheduling problem; errors name the place."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.errors import AllocationError
from collapipe_env.ground.records import declarations
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.memory import device_memory, fits
from collapipe_env.physics.recomputation import recomputation_terms
from collapipe_env.physics.schedules.storage import memory_terms
from collapipe_env.scenario.sections import LEAST_SHARE
from collapipe_env.simulator.decision import Decision, rows_of
from collapipe_env.simulator.refusal import SLACK, place_name, refuse, require_declared
from collapipe_env.simulator.state import Parameters, SystemState

SINGLE_SLACK = 4e-6
"""Slack for powers and shares in single precision, where a sum is off by a few units in the last place."""


def check_allocation(parameters: Parameters, state: SystemState, allocation: Allocation) -> None:
    """Refuse an allocation that breaks a constraint (`system_model.md` section 9).

    Args:
        state: The system (E, ...).
        allocation: The decision (E, ...), with the types of
            :func:`collapipe_env.physics.allocation.own_arrays`.

    Raises:
        AllocationError: Names the field, the environment, cluster (and device) and what is allowed.
    """
    rows = rows_of(allocation)
    declared = [*declarations(Allocation).items(), *(pair for row in rows for pair in row.fields.items())]
    for name, declaration in declared:
        if (value := allocation.given(name)) is not None:
            require_declared(name, value, declaration, state.present.shape)
    slack = SINGLE_SLACK if state.budget.dtype == np.float32 else SLACK
    check_values(rows, parameters, allocation, slack)
    for row in rows:
        row.playable(parameters, state, allocation)
    # The share of a cluster that sits out is not read.
    plays = allocation.plays
    refuse(
        ~(allocation.bandwidth >= LEAST_SHARE * (1.0 - slack)) & (plays | ~(allocation.bandwidth >= 0.0)),
        allocation.bandwidth,
        "bandwidth",
        f"a share of at least {LEAST_SHARE:g}",
    )
    total = np.where(plays, allocation.bandwidth, 0.0).sum(axis=-1)
    refuse(~(total <= 1.0 + slack), total, "bandwidth (sum over clusters)", "at most 1")
    if allocation.is_grouped:
        _check_groups(state, allocation)
    held = allocation.device_blocks
    each = plays[..., None]
    refuse((held > 0) & ~state.present & each, held, "blocks", "none on an absent device")
    terms = recomputation_terms(parameters, allocation)
    samples, block_state, working = memory_terms(parameters.costs, allocation, terms)
    needed = device_memory(held, samples, block_state, terms.activation_bytes, working)
    over = ~fits(needed, state.memory_bytes, SLACK) & each
    if over.any():
        place = tuple(int(i) for i in np.argwhere(over)[0])
        raise AllocationError(
            f"blocks: {place_name(place)} needs {needed[place]:.4g} bytes for its {held[place]} blocks, "
            f"but offers {state.memory_bytes[place]:.4g}; give it fewer blocks"
            + (" or a lower cap" if allocation.is_scheduled else "")
        )


def check_values(
    rows: Iterable[Decision], parameters: Parameters, allocation: Allocation, slack: float
) -> None:
    """Refuse decisions, blocks, micro-batches and powers that the scenario allows in no state.

    Args:
        rows: Decisions of which the plan says something.
        allocation: The plan (E, ...).
        slack: Relative slack for powers and other real numbers.

    Raises:
        AllocationError: Names field, place and what is allowed.
    """
    for row in rows:
        row.check(parameters, allocation, slack)
    L, blocks = parameters.costs.blocks, np.asarray(allocation.blocks)
    expected = f"non-negative counts summing to L = {L}"
    expected += ", with the server's blocks" if allocation.is_split else ""
    together = blocks.sum(axis=-1) + np.asarray(allocation.server.server_blocks)
    # Each count on its own, too: the sum of huge counts may wrap around to L. The sum of a cluster that sits
    # out is not read.
    wrong = ((blocks < 0) | (blocks > L)).any(axis=-1) | ((together != L) & allocation.plays)
    refuse(wrong, blocks, "blocks", expected)
    given, allowed = allocation.micro_batches, parameters.micro_batch_choices
    refuse(~np.isin(given, allowed), given, "micro_batches", f"one of {list(allowed)}")
    low, high = parameters.power_min_w, parameters.power_max_w
    for name in ("device_power", "cu_power"):
        power = getattr(allocation, name)
        inside = (power >= low * (1.0 - slack)) & (power <= high * (1.0 + slack))
        refuse(~inside, power, name, f"a power in [{low:g}, {high:g}] W")


def _check_groups(state: SystemState, allocation: Allocation) -> None:
    """Groups: slots exist, shares are positive where used and sum to one in every stage with blocks.

    Raises:
        AllocationError: Names field, place and what is allowed.
    """
    stage, share = np.asarray(allocation.stage), np.asarray(allocation.sample_share)
    slots = np.arange(state.present.shape[-1])
    refuse((stage < -1) | (stage > slots[-1]), stage, "stage", f"a slot 0..{slots[-1]}, or -1")
    # Checked even where unused: NaN and infinity would spread through sums.
    refuse(~((share >= 0.0) & (share <= 1.0 + 1e-9)), share, "sample_share", "a number from 0 to 1")
    member = stage[..., None, :] == slots[:, None]
    total = np.where(member, share[..., None, :], 0.0).sum(axis=-1)
    wrong = (allocation.blocks > 0) & (np.abs(total - 1.0) > 1e-9)
    refuse(wrong, total, "sample_share (sum over a stage's devices)", "1 in every stage that holds blocks")
    refuse((stage >= 0) & ~(share > 0.0), share, "sample_share", "above 0 for a device in a stage")


def check_costs(delay: FloatArray, energy_ratio: FloatArray) -> None:
    """Refuse a round whose delay (E,) or energy over budget (E, N, K+1) is not finite.

    Raises:
        AllocationError: Names the environment (cluster and node).
    """
    for name, values in (("delay", delay), ("energy over budget", energy_ratio)):
        refuse(~np.isfinite(values), values, f"{name} of the round", "a finite number: use another plan")

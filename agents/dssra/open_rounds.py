"""Search of a round with GPipe, recomputation and blocks on the server included ([X])."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.physics.allocation import COMMON, COPIES, Allocation
from collapipe_env.physics.parameters import Numbers

from .option_table import MICRO_BATCHES, SERVER_BLOCKS, SETTING, options_of, recomputes
from .parallel_rounds import solve_batch
from .round_input import RoundInput
from .round_solver import SearchBudget


@dataclass(frozen=True)
class Openings:
    """Decisions beyond CollaPipe's own that a scenario leaves open.

    Attributes:
        server_blocks: Blocks on the server.
        recompute: Recomputation.
        recomputes: The workload's own setting of recomputation.
        options: All options of a cluster (O, 3).
    """

    server_blocks: bool
    recompute: bool
    recomputes: bool
    options: IntArray


class OpenPlan(NamedTuple):
    """Plans of a batch, by device.

    Attributes:
        segments: Blocks (E, N, K).
        power: Powers of CUs and devices (E, N, K+1) [W].
        share: Shares (E, N).
        option: Options (E, N).
    """

    segments: IntArray
    power: FloatArray
    share: FloatArray
    option: IntArray


def open_plan(allocation: Allocation, openings: Openings) -> OpenPlan:
    """Return plans from allocations with one device in each stage; schedules are left out.

    Args:
        allocation: The plans (E, ...).
        openings: The open decisions.
    """
    return OpenPlan(
        np.asarray(allocation.device_blocks),
        np.asarray(allocation.node_power, dtype=np.float64),
        np.asarray(allocation.bandwidth, dtype=np.float64),
        options_of(allocation, openings.options, recompute=openings.recomputes),
    )


def allocation_of(plan: OpenPlan, openings: Openings) -> Allocation:
    """Return allocations of plans; fields of closed decisions are left out.

    Args:
        openings: The open decisions.
    """
    chosen = openings.options[plan.option]
    kept = chosen[..., SERVER_BLOCKS]
    extra: dict[str, Any] = {}
    if openings.recompute:
        extra["recompute"] = recomputes(chosen, recompute=openings.recomputes)
    if openings.server_blocks:
        extra["server_blocks"] = kept
        extra["server_mode"] = np.where((kept > 0).any(axis=-1), COPIES, COMMON)
    return Allocation(
        blocks=plan.segments,
        micro_batches=chosen[..., MICRO_BATCHES],
        bandwidth=plan.share,
        device_power=plan.power[..., 1:],
        cu_power=plan.power[..., 0],
        **extra,
    )


def search_open_rounds(
    inputs: RoundInput,
    parameters: Numbers,
    budget: SearchBudget,
    threads: int,
    openings: Openings,
    price: Callable[[Sequence[OpenPlan]], Sequence[FloatArray]],
    even: OpenPlan,
    start: OpenPlan | None = None,
) -> OpenPlan:
    """Search the whole open space.

    Args:
        inputs: The environments (E, ...).
        budget: How long to search each environment.
        threads: Most threads, >= 1.
        openings: The open decisions.
        price: Returns the objectives (E,) of several plans at once; small batches cost much more per row.
        even: Plans that the answer at least equals.
        start: Plans to begin with; by default the search makes its own.
    """
    if start is not None:
        # Compiled functions expect contiguous arrays.
        start = start._replace(
            segments=np.ascontiguousarray(start.segments), power=np.ascontiguousarray(start.power)
        )
    plans = [_searched(inputs, parameters, budget, threads, start)]
    if openings.server_blocks:
        # Once blocks are on the server, the search does not always find its way back.
        own = np.ascontiguousarray(inputs.choices[:, openings.options[inputs.choices[0], SETTING] == 0])
        closed = inputs._replace(common=inputs.common.copy(), choices=own)
        closed.common["most_server"] = 0
        plans.append(_searched(closed, parameters, budget, threads, None))
    if start is not None:
        plans.append(start)
    values = price([*plans, even])
    best, value = plans[0], values[0]
    for plan, other in zip((*plans[1:], even), values[1:], strict=True):
        best, value = _better(best, value, plan, other)
    return best


def _searched(
    inputs: RoundInput,
    parameters: Numbers,
    budget: SearchBudget,
    threads: int,
    start: OpenPlan | None,
) -> OpenPlan:
    """Search from ``start``, on copies of the arrays that a search changes."""
    changed = ("price", "common", "moving_noise")
    own = inputs._replace(**{name: getattr(inputs, name).copy() for name in changed})
    return OpenPlan(*solve_batch(own, parameters, budget, threads, start))


def _better(
    first: OpenPlan, value: FloatArray, second: OpenPlan, other: FloatArray
) -> tuple[OpenPlan, FloatArray]:
    """In each row the plan with the smaller objective (the first if equal), and that objective."""
    keep = value <= other
    pairs = zip(first, second, strict=True)
    rows = (np.where(keep.reshape(-1, *(1,) * (a.ndim - 1)), a, b) for a, b in pairs)
    return OpenPlan(*rows), np.minimum(value, other)

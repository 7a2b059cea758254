"""Search of a round with GPipe, recomputation and blocks on the server included ([X])."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from collapipe_env.ground.arrays import IntArray
from collapipe_env.physics.allocation import COMMON, COPIES, Allocation
from collapipe_env.physics.parameters import Numbers

from .option_table import MICRO_BATCHES, SERVER_BLOCKS, SETTING, options_of, recomputes
from .parallel_rounds import OpenPlan, solve_batch
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


def open_plan(allocation: Allocation, openings: Openings) -> OpenPlan:
    """Return plans from allocations (E, ...) with one device in each stage; schedules are left out."""
    return OpenPlan(
        np.asarray(allocation.device_blocks),
        np.asarray(allocation.node_power, dtype=np.float64),
        np.asarray(allocation.bandwidth, dtype=np.float64),
        options_of(allocation, openings.options, recompute=openings.recomputes),
    )


def allocation_of(plan: OpenPlan, openings: Openings) -> Allocation:
    """Return allocations of plans; fields of closed decisions are left out."""
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
    start: OpenPlan | None = None,
) -> Iterator[OpenPlan]:
    """Search the whole open space, and where blocks may be on the server, also without any there.

    Args:
        inputs: The environments (E, ...).
        budget: How long to search each environment.
        threads: Most threads, >= 1.
        openings: The open decisions.
        start: Plans to begin with; by default the search makes its own.
    """
    changed = ("price", "common", "moving_noise")  # by a search
    searches = [(inputs, start)]
    if openings.server_blocks:
        # Once blocks are on the server, the search does not always find its way back.
        own = np.ascontiguousarray(inputs.choices[:, openings.options[inputs.choices[0], SETTING] == 0])
        closed = inputs._replace(common=inputs.common.copy(), choices=own)
        closed.common["most_server"] = 0
        searches.append((closed, None))
    for given, first in searches:
        copied = given._replace(**{name: getattr(given, name).copy() for name in changed})
        yield solve_batch(copied, parameters, budget, threads, first)

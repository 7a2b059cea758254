"""Search of the whole open space: orders of the devices and schedules around the search of a round ([X]).

The search (:mod:`.round_solver`) takes the devices in the order of their numbers and runs GPipe. This module
finds better orders for its plan and renumbers the devices. It also simulates schedules for the plan and
passes their savings to the search, which continues from there. After a few such passes it keeps the best
plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collapipe_env.allocation import COMMON, COPIES, Allocation
from collapipe_env.arrays import FloatArray, IntArray
from collapipe_env.physics.parameters import Parameters

from .device_orders import order_rows
from .options import numbers_of, options_of, recomputes
from .parallel_rounds import as_record, solve_batch
from .round_input import RoundInput
from .round_solver import SearchBudget
from .scheduled_chains import schedule_rows

PASSES = 2
"""Passes after the first search."""
FURTHER = {"turns": 1, "exploring_sweeps": 0, "refining_sweeps": 4}
"""Limits of the search budget in the later passes, which start from a plan."""


@dataclass(frozen=True)
class Openings:
    """Decisions beyond CollaPipe's own that a scenario leaves open.

    Attributes:
        order: Order of the devices.
        schedule: Pipeline schedule.
        server_blocks: Blocks on the server.
        recompute: Recomputation.
        recomputes: The workload's own setting of recomputation.
    """

    order: bool
    schedule: bool
    server_blocks: bool
    recompute: bool
    recomputes: bool

    @property
    def further(self) -> bool:
        """Whether passes after the first search have something to find."""
        return self.order or self.schedule


class OpenPlan(NamedTuple):
    """Plans of a batch, by device.

    Attributes:
        segments: Blocks (E, N, K).
        power: Powers of CUs and devices (E, N, K+1) [W].
        share: Shares (E, N).
        option: Options (E, N).
        order: Devices in pipeline order (E, N, K).
        schedule: Places in ``SCHEDULES`` (E, N).
        caps: Most micro-batches that each device has in flight (E, N, K), 0 under GPipe.
    """

    segments: IntArray
    power: FloatArray
    share: FloatArray
    option: FloatArray
    order: IntArray
    schedule: IntArray
    caps: IntArray


def open_plan(allocation: Allocation, openings: Openings) -> OpenPlan:
    """Return plans from allocations with one device in each stage.

    Args:
        allocation: The plans (E, ...).
        openings: The open decisions.
    """
    blocks = np.asarray(allocation.device_blocks)
    K = blocks.shape[-1]
    order = np.broadcast_to(np.arange(K), blocks.shape).copy()
    if allocation.stage is not None:
        stage = np.asarray(allocation.stage)
        # Idle devices stay behind the devices that precede them, as far as possible.
        place = np.where(stage < 0, np.maximum.accumulate(stage, axis=-1), stage)
        order = np.lexsort((np.broadcast_to(np.arange(K), stage.shape), stage < 0, place), axis=-1)
    nothing = np.zeros(blocks.shape[:-1], dtype=np.int64)
    schedule = nothing if allocation.schedule is None else np.asarray(allocation.schedule)
    caps = np.zeros_like(blocks) if allocation.caps is None else allocation.per_device(allocation.caps)
    return OpenPlan(
        blocks,
        np.asarray(allocation.node_power, dtype=np.float64),
        np.asarray(allocation.bandwidth, dtype=np.float64),
        options_of(allocation, recompute=openings.recomputes),
        order,
        schedule,
        np.asarray(caps),
    )


def allocation_of(plan: OpenPlan, openings: Openings) -> Allocation:
    """Return allocations of plans; fields of closed decisions are left out.

    Args:
        plan: The plans.
        openings: The open decisions.
    """
    numbers, kept = numbers_of(plan.option)
    blocks, caps = plan.segments, plan.caps
    extra: dict[str, npt.NDArray[Any]] = {}
    if openings.recompute:
        extra["recompute"] = recomputes(plan.option, recompute=openings.recomputes)
    if openings.order:
        held = np.take_along_axis(blocks, plan.order, axis=-1)
        slots = np.argsort(held == 0, axis=-1, kind="stable")  # used devices first, in pipeline order
        sequence = np.take_along_axis(plan.order, slots, axis=-1)
        stage = np.argsort(sequence, axis=-1)
        extra["stage"] = np.where(blocks > 0, stage, -1)
        extra["sample_share"] = np.where(blocks > 0, 1.0, 0.0)
        blocks, caps = (np.take_along_axis(a, sequence, axis=-1) for a in (blocks, caps))
    if openings.schedule:
        extra["schedule"], extra["caps"] = plan.schedule, caps
        extra["chunks"] = np.ones_like(plan.schedule)
    if openings.server_blocks:
        extra["server_blocks"] = kept
        extra["server_mode"] = np.where((kept > 0).any(axis=-1), COPIES, COMMON)
    return Allocation(
        blocks=blocks,
        micro_batches=numbers,
        bandwidth=plan.share,
        device_power=plan.power[..., 1:],
        cu_power=plan.power[..., 0],
        **extra,
    )


def search_open_rounds(
    inputs: RoundInput,
    parameters: Parameters,
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
        parameters: The scenario.
        budget: How long to search each environment.
        threads: Most threads, >= 1.
        openings: The open decisions.
        price: Returns the objectives (E,) of several plans at once; small batches cost much more per row.
        even: Plans that the answer at least equals.
        start: Plans to begin with; by default the search makes its own.
    """
    identity = np.broadcast_to(np.arange(inputs.cap.shape[-1]), inputs.cap.shape)
    if start is not None:
        start = _renamed(start, identity)  # with the contiguous arrays that compiled functions expect
    plans = [_searched(inputs, parameters, budget, threads, openings, start, identity, start)]
    if openings.server_blocks:
        # Once blocks are on the server, the search does not always find its way back.
        own = np.ascontiguousarray(inputs.choices[:, inputs.choices[0] > 0.0])
        closed = inputs._replace(most_server=np.zeros_like(inputs.most_server), choices=own)
        plans.append(_searched(closed, parameters, budget, threads, openings, None, identity, None))
    if start is not None:
        plans.append(start)
    values = price([*plans, even])
    best, value = plans[0], values[0]
    for plan, other in zip(plans[1:], values[1:], strict=False):
        best, value = _better(best, value, plan, other)
    if not openings.further:
        return _better(best, value, even, values[-1])[0]
    short = budget._replace(**{name: min(most, getattr(budget, name)) for name, most in FURTHER.items()})
    for _ in range(PASSES):
        order = best.order
        if openings.order:
            order = _ordered(inputs, parameters, best)
        found = _searched(inputs, parameters, short, threads, openings, best, order, best)
        best, value = _better(best, value, found, price([found])[0])
    return _better(best, value, even, values[-1])[0]


def _searched(
    inputs: RoundInput,
    parameters: Parameters,
    budget: SearchBudget,
    threads: int,
    openings: Openings,
    start: OpenPlan | None,
    order: IntArray,
    scheduled: OpenPlan | None,
) -> OpenPlan:
    """Search with the devices in ``order``, from ``start``, with the schedules' savings at ``scheduled``."""
    same = bool((order == np.arange(order.shape[-1])).all())
    renamed = _with_own_prices(inputs if same else reordered(inputs, order))
    record: Any = as_record(parameters)
    given = None if start is None else start if same else _renamed(start, order)
    shape = renamed.cap.shape
    schedule, caps = np.zeros(shape[:-1], dtype=np.int64), np.zeros(shape, dtype=np.int64)
    if openings.schedule and scheduled is not None:
        at = given if given is not None and scheduled is start else _renamed(scheduled, order)
        schedule_rows(renamed, record, *at[:4], True, schedule, caps)
    found = solve_batch(renamed, parameters, budget, threads, None if given is None else given[:4])
    if openings.schedule:
        caps = np.zeros(shape, dtype=np.int64)
        schedule_rows(renamed, record, *found, False, schedule, caps)
    segments, power, share, option = found
    if same:
        return OpenPlan(segments, power, share, option, np.array(order), schedule, caps)
    back = np.argsort(order, axis=-1)
    return OpenPlan(
        np.take_along_axis(segments, back, axis=-1),
        _nodes(power, back),
        share,
        option,
        np.array(order),
        schedule,
        np.take_along_axis(caps, back, axis=-1),
    )


def _ordered(inputs: RoundInput, parameters: Parameters, plan: OpenPlan) -> IntArray:
    """Orders that suit plans best (E, N, K)."""
    record: Any = as_record(parameters)
    at = _renamed(plan, plan.order)
    order = np.empty(plan.order.shape, dtype=np.int64)
    order_rows(_with_own_prices(reordered(inputs, plan.order)), record, *at[:4], order)
    return np.take_along_axis(plan.order, order, axis=-1)


def _with_own_prices(inputs: RoundInput) -> RoundInput:
    """The input with copies of the arrays that a search changes, and no savings yet."""
    changed = ("price", "allowance", "relief", "moving_noise", "server_queue")
    saving = inputs.saving
    if saving.shape[-1] > 0:
        saving = np.zeros((*saving.shape[:-1], inputs.choices.shape[-1]))
    return inputs._replace(saving=saving, **{name: getattr(inputs, name).copy() for name in changed})


def _better(
    first: OpenPlan, value: FloatArray, second: OpenPlan, other: FloatArray
) -> tuple[OpenPlan, FloatArray]:
    """In each row the plan with the smaller objective (the first if equal), and that objective."""
    keep = value <= other
    pairs = zip(first, second, strict=True)
    rows = (np.where(keep.reshape(-1, *(1,) * (a.ndim - 1)), a, b) for a, b in pairs)
    return OpenPlan(*rows), np.minimum(value, other)


def _renamed(plan: OpenPlan, order: IntArray) -> OpenPlan:
    """Plans with the devices numbered along an order."""
    return plan._replace(
        segments=np.ascontiguousarray(np.take_along_axis(plan.segments, order, axis=-1)),
        power=_nodes(plan.power, order),
        caps=np.take_along_axis(plan.caps, order, axis=-1),
    )


def _nodes(values: FloatArray, order: IntArray) -> FloatArray:
    """Values of CUs and devices (..., K+1) with the devices numbered along an order."""
    nodes = np.concatenate((np.zeros_like(order[..., :1]), order + 1), axis=-1)
    return np.ascontiguousarray(np.take_along_axis(values, nodes, axis=-1))


def reordered(inputs: RoundInput, order: IntArray) -> RoundInput:
    """Return the input of the search with the devices numbered along an order.

    Args:
        inputs: The environments (E, ...).
        order: Devices (E, N, K).
    """
    if (order == np.arange(order.shape[-1])).all():
        return inputs
    nodes = np.concatenate((np.zeros_like(order[..., :1]), order + 1), axis=-1)
    by_device = (
        "speed",
        "clock",
        "block_energy",
        "launch_energy",
        "cap",
        "other_cap",
        "other_block_energy",
        "other_launch_energy",
        "memory_bytes",
        "use_price",
    )
    # Plain indexing: np.take_along_axis builds these two anew for each of the arrays, which costs more.
    row, cluster = np.ogrid[: order.shape[0], : order.shape[1]]
    device, node = (row[..., None], cluster[..., None], order), (row[..., None], cluster[..., None], nodes)
    changed: dict[str, npt.NDArray[Any]] = {name: getattr(inputs, name)[device] for name in by_device}
    by_node = ("price", "extra_price", "backlog", "budget")
    changed |= {name: getattr(inputs, name)[node] for name in by_node}
    pair = (row[..., None, None], cluster[..., None, None], nodes[..., None], nodes[..., None, :])
    changed["gain"] = inputs.gain[pair]
    changed["held"] = np.take_along_axis(inputs.held, order[..., None, :], axis=-1)
    place = np.argsort(order, axis=-1)
    lead = np.take_along_axis(place, np.maximum(inputs.lead, 0), axis=-1)
    changed["lead"] = np.where(inputs.lead >= 0, lead, -1)
    return inputs._replace(**{name: np.ascontiguousarray(array) for name, array in changed.items()})

"""Schedules: the order of the micro-batches' operations, and how many each device may have in flight."""

from __future__ import annotations

from functools import partial

import numpy as np

from collapipe_env.ground.arrays import Array, FloatArray, at_most, namespace
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import GPIPE, INTERLEAVED, SCHEDULES, Allocation
from collapipe_env.physics.memory import memory_cap_blocks
from collapipe_env.physics.recomputation import recomputation_terms
from collapipe_env.physics.schedules.room import micro_batches_that_fit, storage_terms
from collapipe_env.simulator.decision import Decision, Part, nothing, plan_fields, spread
from collapipe_env.simulator.feature import Feature
from collapipe_env.simulator.memory_choices import SCHEDULE_CHOICES
from collapipe_env.simulator.refusal import refuse
from collapipe_env.simulator.state import Parameters, SystemState

_NAMES = ", ".join(SCHEDULES[choice] for choice in SCHEDULE_CHOICES)


def _encode(parameters: Parameters, plan: Allocation) -> FloatArray:  # noqa: ARG001
    place = np.argmax(np.asarray(plan.schedules.schedule)[..., None] == np.array(SCHEDULE_CHOICES), axis=-1)
    return spread(place, len(SCHEDULE_CHOICES))


def _encode_caps(parameters: Parameters, plan: Allocation) -> FloatArray:  # noqa: ARG001
    M = np.asarray(plan.micro_batches)[..., None]
    return np.where(
        _read(plan), 2.0 * (np.asarray(plan.schedules.caps) - 1) / np.maximum(M - 1, 1) - 1.0, -1.0
    )


def _read(plan: Allocation) -> Array:
    """Slots whose caps are read (..., N, K), bool: those with blocks, unless under GPipe."""
    return (np.asarray(plan.blocks) > 0) & (np.asarray(plan.schedules.schedule) != GPIPE)[..., None]


def _known(row: Decision, parameters: Parameters, plan: Allocation, slack: float) -> None:  # noqa: ARG001
    names = ", ".join(f"{i} ({name})" for i, name in enumerate(SCHEDULES))
    kind = np.asarray(plan.schedule)
    refuse(~np.isin(kind, range(len(SCHEDULES))), kind, "schedule", f"one of {names}")


def _playable(parameters: Parameters, state: SystemState, plan: Allocation) -> None:  # noqa: ARG001
    """Refuse schedules without room for at least one micro-batch, or whose orders wait for each other."""
    kind, caps = np.asarray(plan.schedule), np.asarray(plan.caps)
    v, M, blocks = np.asarray(plan.chunks), np.asarray(plan.micro_batches), plan.blocks
    occupied = blocks > 0
    refuse(
        _read(plan) & ~(caps >= 1),
        caps,
        "caps",
        "room for at least 1 micro-batch in every stage with blocks",
    )
    interleaved = kind == INTERLEAVED
    refuse((v < 1) | ((v > 1) & ~interleaved), v, "chunks", "1, or more under 'interleaved'")
    if not interleaved.any():
        return
    stages = occupied.sum(axis=-1)
    least = np.where(occupied, blocks, blocks.max(axis=-1, keepdims=True)).min(axis=-1)
    refuse(interleaved & (v > 1) & (v > least), v, "chunks", "at most as many as each stage has blocks")
    refuse(interleaved & (v > 1) & (stages == 1), v, "chunks", "1 for a single stage")
    refuse(
        interleaved & (M % np.maximum(stages, 1) != 0),
        M,
        "micro_batches",
        "a multiple of the number of stages under 'interleaved', which takes them in groups of that size",
    )
    refuse(
        interleaved[..., None] & occupied & ~_orders_end(plan),
        caps,
        "caps",
        "chunks in flight with which the orders of 'interleaved' do not wait for each other; "
        "min(2 (S - s - 1) + (v - 1) S + 1, M v) at stage s of S are enough",
    )


def _orders_end(plan: Allocation) -> np.ndarray:
    """True where a cluster's orders finish, whatever the durations (E, N, 1)."""
    from collapipe_env.physics.schedules.makespans import Chains, Orders, local_step_times

    shape, K = plan.blocks.shape[:-1], plan.blocks.shape[-1]
    rows = int(np.prod(shape))
    work, links = np.ones((rows, K + 1)), np.ones((rows, K + 3))
    kind = np.asarray(plan.schedule)
    times = np.zeros(rows)
    local_step_times(
        Chains(
            np.ascontiguousarray(plan.blocks.reshape(rows, K), dtype=np.int64),
            *(work, work, work, links, links, np.zeros(K + 3)),
        ),
        Orders(
            np.where(kind == INTERLEAVED, kind, GPIPE).reshape(rows).astype(np.int64),
            np.ascontiguousarray(np.asarray(plan.caps).reshape(rows, K), dtype=np.int64),
            np.asarray(plan.chunks).reshape(rows).astype(np.int64),
            np.asarray(plan.micro_batches).reshape(rows).astype(np.int64),
            np.ones(rows, dtype=np.int64),
        ),
        False,
        times,
    )
    ended: np.ndarray = np.isfinite(times).reshape(*shape, 1)
    return ended


def _expressible(parameters: Parameters, plan: Allocation) -> None:  # noqa: ARG001
    kind, chunks = np.asarray(plan.schedule), np.asarray(plan.chunks)
    if np.any(unknown := ~np.isin(kind, SCHEDULE_CHOICES)):
        raise AllocationError(
            f"schedule = {np.unique(kind[unknown]).tolist()}: the action box knows "
            + ", ".join(f"{choice} ({SCHEDULES[choice]})" for choice in SCHEDULE_CHOICES)
        )
    if np.any(chunks != 1):
        raise AllocationError(f"chunks = {np.unique(chunks).tolist()}: an action can only express 1")
    caps, M = np.asarray(plan.caps), np.asarray(plan.micro_batches)[..., None]
    if np.any(outside := _read(plan) & ((caps < 1) | (caps > M))):
        raise AllocationError(
            f"caps = {np.unique(caps[outside]).tolist()}: an action can only express 1 to the number of "
            "micro-batches; more than that change nothing, so give that number instead"
        )


def flight_capacity(parameters: Parameters, state: SystemState) -> Array:
    """Blocks that each device holds with a single micro-batch in flight (..., N, K), at most ``L``.

    This is the most that a schedule can save: 1F1B with the largest allowed number of micro-batches, under
    the workload's own setting of recomputation.
    """
    costs = parameters.costs
    samples = costs.batch_size / parameters.micro_batch_choices[-1]
    caps = memory_cap_blocks(
        state.memory_bytes,
        samples,
        costs.block_state_bytes,
        costs.stored_activation_bytes,
        samples * costs.working_bytes,
    )
    return at_most(namespace(caps).astype(caps, state.clock.dtype), costs.blocks)


def _settled(parameters: Parameters, state: SystemState, plan: Allocation) -> dict[str, Array]:
    """As many micro-batches in flight as each device's memory holds beside its blocks."""
    costs, kept = parameters.costs, recomputation_terms(parameters, plan)
    terms = storage_terms(
        costs,
        plan.schedule,
        plan.micro_batches,
        kept.activation_bytes,
        kept.working_bytes,
        state.memory_bytes,
    )
    most = np.asarray(plan.micro_batches)[..., None]
    room = micro_batches_that_fit(costs, terms, state.memory_bytes, plan.blocks, most)
    return {"caps": np.where(_read(plan), room, 0), "chunks": np.ones_like(plan.schedule)}


SCHEDULE = Decision(
    name="schedule",
    fields=plan_fields("schedule", "caps", "chunks"),
    parts=(
        Part(
            "schedule",
            "N",
            lambda _: (
                f"schedule of the micro-batches: the nearest of {_NAMES}, spaced evenly over [-1, 1], or "
                "1f1b if the encoder does not fit under it"
            ),
            lambda _: len(SCHEDULE_CHOICES),
            _encode,
        ),
        Part(
            "caps",
            "N K",
            lambda _: (
                "micro-batches in flight on the device under 1f1b and zb-h1: -1 for one, 1 for all, at most "
                "as many as fit in the memory that its blocks leave"
            ),
            lambda p: p.micro_batch_choices[-1],
            _encode_caps,
        ),
    ),
    allowed=_known,
    closed=_known,
    jumps=nothing,
    settled=_settled,
    playable=_playable,
    expressible=_expressible,
    features=lambda scenario, parameters: (
        Feature(
            "device_flight_capacity",
            "N K",
            "blocks",
            0.0,
            scenario.blocks,
            "blocks that the memory holds with one micro-batch in flight, of the smallest size",
            partial(flight_capacity, parameters),
            least=-1.0,
            array="opened",
        ),
    ),
)

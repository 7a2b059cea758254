"""Feasibility of groups, schedules and split training, which only some plans use."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import (
    ASYNC,
    GPIPE,
    INTERLEAVED,
    SCHEDULES,
    SEQUENTIAL,
    SERVER_MODES,
    Allocation,
)
from collapipe_env.physics.memory import fits
from collapipe_env.physics.server import most_server_blocks, server_memory
from collapipe_env.simulator.refusal import place_name, refuse, require_shape, require_whole
from collapipe_env.simulator.state import SystemParameters, SystemState


def check_groups(state: SystemState, allocation: Allocation) -> None:
    """Groups: slots exist, shares are positive where used and sum to one in every stage with blocks.

    Raises:
        AllocationError: Names field, place and what is allowed, as do the other checks of this module.
    """
    require_shape("stage", allocation.stage, state.present.shape)
    require_shape("sample_share", allocation.sample_share, state.present.shape)
    require_whole("stage", allocation.stage)
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


def check_schedule(allocation: Allocation, slots: tuple[int, ...]) -> None:
    """Schedules: known, with room for at least one micro-batch, and free of deadlock.

    Args:
        allocation: A plan that names schedules; its blocks and micro-batches are valid.
        slots: Shape (E, N, K).
    """
    require_shape("schedule", allocation.schedule, slots[:-1])
    require_shape("caps", allocation.caps, slots)
    require_shape("chunks", allocation.chunks, slots[:-1])
    for name in ("schedule", "caps", "chunks"):
        require_whole(name, getattr(allocation, name))
    kind, caps = np.asarray(allocation.schedule), np.asarray(allocation.caps)
    v, M, blocks = np.asarray(allocation.chunks), np.asarray(allocation.micro_batches), allocation.blocks
    names = ", ".join(f"{i} ({name})" for i, name in enumerate(SCHEDULES))
    refuse(~np.isin(kind, range(len(SCHEDULES))), kind, "schedule", f"one of {names}")
    occupied = blocks > 0
    refuse(
        occupied & (kind != GPIPE)[..., None] & ~(caps >= 1),
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
        interleaved[..., None] & occupied & ~_orders_end(allocation),
        caps,
        "caps",
        "chunks in flight with which the orders of 'interleaved' do not wait for each other; "
        "min(2 (S - s - 1) + (v - 1) S + 1, M v) at stage s of S are enough",
    )


def _orders_end(allocation: Allocation) -> np.ndarray:
    """True where a cluster's orders finish, whatever the durations (E, N, 1)."""
    from collapipe_env.physics.schedules.makespans import Chains, Orders, local_step_times

    shape, K = allocation.blocks.shape[:-1], allocation.blocks.shape[-1]
    rows = int(np.prod(shape))
    slot, hop, one = np.ones((rows, K)), np.ones((rows, K + 1)), np.ones(rows)
    kind = np.asarray(allocation.schedule)
    times = np.zeros(rows)
    local_step_times(
        Chains(
            np.ascontiguousarray(allocation.blocks.reshape(rows, K), dtype=np.int64),
            *(slot, slot, slot, hop, hop, one, one, one, one, one, one, one, 0.0, 0.0),
        ),
        Orders(
            np.where(kind == INTERLEAVED, kind, GPIPE).reshape(rows).astype(np.int64),
            np.ascontiguousarray(np.asarray(allocation.caps).reshape(rows, K), dtype=np.int64),
            np.asarray(allocation.chunks).reshape(rows).astype(np.int64),
            np.asarray(allocation.micro_batches).reshape(rows).astype(np.int64),
        ),
        1,
        False,
        times,
    )
    ended: np.ndarray = np.isfinite(times).reshape(*shape, 1)
    return ended


def check_split(parameters: SystemParameters, allocation: Allocation, clusters: tuple[int, ...]) -> None:
    """Split training: the server's blocks and mode are possible.

    Args:
        allocation: A plan with split training.
        clusters: Shape (E, N).
    """
    require_shape("server_blocks", allocation.server_blocks, clusters)
    require_shape("server_mode", allocation.server_mode, clusters[:-1])
    for name in ("server_blocks", "server_mode"):
        require_whole(name, getattr(allocation, name))
    kept, mode = np.asarray(allocation.server_blocks), np.asarray(allocation.server_mode)
    L = parameters.costs.blocks
    refuse(
        ~((kept >= 0) & (kept < L)),
        kept,
        "server_blocks",
        f"a number from 0 to L - 1 = {L - 1}: the devices hold at least one block",
    )
    names = ", ".join(f"{i} ({name})" for i, name in enumerate(SERVER_MODES))
    refuse(~np.isin(mode, range(-1, len(SERVER_MODES))), mode, "server_mode", f"-1 (common), {names}")
    refuse(
        (kept > 0) & (mode < 0)[..., None],
        kept,
        "server_blocks",
        "0 with CollaPipe's own server; name a server_mode for more",
    )
    sequential = (mode == SEQUENTIAL)[..., None]
    refuse(
        sequential & (kept != kept[..., :1]),
        kept,
        "server_blocks",
        "the same in all clusters under a sequential server, which has one model for all",
    )
    M = np.asarray(allocation.micro_batches)
    refuse(sequential & (M != 1), M, "micro_batches", "1 under a sequential server")
    if allocation.schedule is not None:
        kind = np.asarray(allocation.schedule)
        refuse(
            (mode >= 0)[..., None] & (kind == ASYNC),
            kind,
            "schedule",
            "a synchronous one under split training",
        )
        refuse(sequential & (kind != GPIPE), kind, "schedule", "0 (gpipe) under a sequential server")


def check_server_memory(parameters: SystemParameters, allocation: Allocation, slack: float) -> None:
    """Memory of the server: its blocks fit.

    Args:
        allocation: A plan with split training whose blocks and mode are possible.
        slack: Share of the memory by which rounding may exceed it.

    Raises:
        AllocationError: Names the environment, what the plan needs and the most blocks that fit.
    """
    offered = parameters.server.memory_bytes
    needed = np.asarray(server_memory(parameters.server, allocation))
    over = ~np.asarray(fits(needed, offered, slack))
    if over.any():
        place = tuple(int(i) for i in np.argwhere(over)[0])
        most = most_server_blocks(parameters.server, parameters.costs, parameters.clusters)
        raise AllocationError(
            f"server_blocks: {place_name(place)} needs {needed[place]:.4g} bytes for the blocks of all "
            f"clusters on the server, which offers {offered:.4g}: at most {most} blocks together, or as many "
            "under a sequential server, which has one model for all"
        )

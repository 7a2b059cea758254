"""Blocks of the server: how many of the encoder's last blocks the server trains, a copy for each cluster."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collapipe_env.ground.arrays import Array, FloatArray
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import (
    ASYNC,
    COMMON,
    COPIES,
    GPIPE,
    SEQUENTIAL,
    SERVER_MODES,
    Allocation,
)
from collapipe_env.physics.memory import fits
from collapipe_env.physics.server import most_server_blocks, server_memory
from collapipe_env.simulator.decision import Decision, Jump, Part, plan_fields, spread
from collapipe_env.simulator.refusal import SLACK, place_name, refuse
from collapipe_env.simulator.state import Parameters, SystemState


def _kept(plan: Allocation) -> Array:
    """Blocks of the server (..., N), 0 for clusters that sit out."""
    return np.where(plan.plays, plan.server.server_blocks, 0)


def _encode(parameters: Parameters, plan: Allocation) -> FloatArray:
    return spread(_kept(plan), parameters.costs.blocks)


def _known(row: Decision, parameters: Parameters, plan: Allocation, slack: float) -> None:  # noqa: ARG001
    kept, mode = np.asarray(plan.server_blocks), np.asarray(plan.server_mode)
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
    refuse(
        (mode == SEQUENTIAL)[..., None] & (kept != kept[..., :1]),
        kept,
        "server_blocks",
        "the same in all clusters under a sequential server, which has one model for all",
    )


def _playable(parameters: Parameters, state: SystemState, plan: Allocation) -> None:  # noqa: ARG001
    mode = np.asarray(plan.server_mode)
    sequential = (mode == SEQUENTIAL)[..., None]
    M = np.asarray(plan.micro_batches)
    refuse(sequential & (M != 1), M, "micro_batches", "1 under a sequential server")
    kind = np.asarray(plan.schedules.schedule)
    refuse(
        (mode >= 0)[..., None] & (kind == ASYNC), kind, "schedule", "a synchronous one under split training"
    )
    refuse(sequential & (kind != GPIPE), kind, "schedule", "0 (gpipe) under a sequential server")
    offered = parameters.server.memory_bytes
    needed = np.asarray(server_memory(parameters.server, plan))
    over = ~np.asarray(fits(needed, offered, SLACK))
    if over.any():
        place = tuple(int(i) for i in np.argwhere(over)[0])
        most = most_server_blocks(parameters.server, parameters.costs, parameters.clusters)
        raise AllocationError(
            f"server_blocks: {place_name(place)} needs {needed[place]:.4g} bytes for the blocks of all "
            f"clusters on the server, which offers {offered:.4g}: at most {most} blocks together, or as many "
            "under a sequential server, which has one model for all"
        )


def _expressible(parameters: Parameters, plan: Allocation) -> None:
    kept, mode = _kept(plan), np.asarray(plan.server_mode)
    expected = np.where((kept > 0).any(axis=-1), COPIES, COMMON)
    if np.any(mode != expected):
        raise AllocationError(
            f"server_mode = {np.unique(mode).tolist()}: the action box knows {COPIES} (copies) where the "
            f"server runs blocks of some cluster, and {COMMON} (CollaPipe's own) where it runs none"
        )
    room = most_server_blocks(parameters.server, parameters.costs, parameters.clusters)
    refuse(
        (total := kept.sum(axis=-1)) > room,
        total,
        "server_blocks (sum over clusters)",
        f"at most {room}, which the server's memory holds",
    )


def _jumps(
    row: Decision,
    parameters: Parameters,
    state: SystemState,  # noqa: ARG001 - part of the interface
    plan: Allocation,
) -> Iterator[Jump]:
    """A block, or all blocks, of a device given to the server, and a block back."""
    kept, blocks, clusters = plan.server.server_blocks, np.asarray(plan.blocks), parameters.clusters
    most = most_server_blocks(parameters.server, parameters.costs, clusters) // clusters
    for k, own in enumerate(np.eye(blocks.shape[-1], dtype=blocks.dtype)):
        held = blocks[..., k]
        room = np.minimum(most - kept, blocks.sum(axis=-1) - 1)
        for way in (
            np.minimum(np.minimum(held, 1), room),
            np.where(held <= room, held, 0),
            -np.minimum(kept, 1),
        ):
            yield Jump(row.name, {"blocks": blocks - way[..., None] * own, "server_blocks": kept + way})


def _settled(parameters: Parameters, state: SystemState, plan: Allocation) -> dict[str, Array]:  # noqa: ARG001
    some = (np.asarray(plan.server_blocks) > 0).any(axis=-1)
    return {"server_mode": np.where(some, COPIES, COMMON)}


SERVER_BLOCKS = Decision(
    name="server_blocks",
    fields=plan_fields("server_blocks", "server_mode"),
    parts=(
        Part(
            "server_blocks",
            "N",
            lambda p: (
                f"number of the encoder's last blocks that the server runs: the nearest of 0.."
                f"{p.costs.blocks - 1}, spaced evenly over [-1, 1], fewer if the server's memory is too "
                "small for all clusters"
            ),
            lambda p: p.costs.blocks,
            _encode,
        ),
    ),
    allowed=_known,
    closed=_known,
    jumps=_jumps,
    settled=_settled,
    playable=_playable,
    expressible=_expressible,
)

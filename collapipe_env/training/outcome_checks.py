"""Checks that real training can use the outcome of a round."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL, SERVER_MODES
from collapipe_env.simulator.learner import RoundOutcome


def check_outcome(
    outcome: RoundOutcome,
    *,
    num_envs: int,
    clusters: int,
    blocks: int,
    local_steps: int,
    batch_size: int,
    moments: bool,
) -> None:
    """Refuse an outcome that does not fit the workload.

    Args:
        num_envs: ``E``.
        clusters: ``N``.
        blocks: ``L`` of the trained model.
        local_steps: ``H``, or the most that a cluster may take.
        batch_size: ``B``.
        moments: Whether moments of blocks may travel or be lost.

    Raises:
        AllocationError: If it does not fit; names the array, the place and the allowed values.
    """
    shape = (num_envs, clusters)
    if outcome.blocks.shape[:2] != shape:
        raise AllocationError(
            f"blocks {outcome.blocks.shape} must begin with (environments, clusters) = {shape}"
        )
    if outcome.survived.ndim != 4 or outcome.survived.shape[:3] != (*shape, local_steps):
        raise AllocationError(
            f"survived has shape {outcome.survived.shape}; it must be (environments, clusters, local "
            f"steps, micro-batches) = {(*shape, local_steps)} + (M_max,)"
        )
    shapes = {
        "micro_batches": shape,
        "server_blocks": shape,
        "server_mode": shape[:1],
        "local_steps": shape,
        "participates": shape,
        "recompute": shape,
        "staleness": outcome.blocks.shape,
        "moments": (*shape, blocks),
    }
    for name, expected in shapes.items():
        given = getattr(outcome, name)
        if given is not None and given.shape != expected:
            ones = {"server_mode": "environment", "staleness": "stage slot", "moments": "block"}
            one = ones.get(name, "cluster")
            raise AllocationError(
                f"{name} has shape {given.shape}; give one entry for each {one}: {expected}"
            )
    most = min(batch_size, outcome.survived.shape[-1])
    for name, low, high in (
        ("micro_batches", 1, most),
        ("local_steps", 1, local_steps),
        ("server_blocks", 0, blocks),
    ):
        given = getattr(outcome, name)
        if given is not None:
            for e, n in np.argwhere((given < low) | (given > high)):
                raise AllocationError(
                    f"environment {e}, cluster {n}: {name} is {given[e, n]}; give {low} to {high}"
                )
    _check_server(outcome)
    on_server = np.zeros(shape, dtype=np.int64) if outcome.server_blocks is None else outcome.server_blocks
    plays = (
        np.ones(shape, dtype=np.bool_)
        if outcome.participates is None
        else outcome.participates.astype(np.bool_)
    )
    left = blocks - on_server
    wrong = ((outcome.blocks.sum(axis=-1) != left) & plays) | (outcome.blocks < 0).any(axis=-1)
    for e, n in np.argwhere(wrong):
        besides = f" ({on_server[e, n]} are on the server)" if on_server[e, n] else ""
        raise AllocationError(
            f"environment {e}, cluster {n}: blocks {outcome.blocks[e, n].tolist()} must be "
            f"non-negative and sum to {left[e, n]}{besides}"
        )
    if outcome.staleness is not None:
        for e, n in np.argwhere((outcome.staleness < 0).any(axis=-1)):
            raise AllocationError(
                f"environment {e}, cluster {n}: staleness {outcome.staleness[e, n].tolist()} must be "
                "non-negative; 0 stands for weights that are up to date"
            )
    if outcome.moments is not None and (not moments or (outcome.moments >> 2).any()):
        raise AllocationError(
            "a learner with moment_bits takes moments of 0, 1 or 2 for every block; others take none"
        )


def _check_server(outcome: RoundOutcome) -> None:
    """Refuse a server's mode that there is not, or that its blocks do not fit."""
    blocks, mode = outcome.server_blocks, outcome.server_mode
    if mode is None:
        mode = np.full(len(outcome.blocks), COMMON)
    modes = ", ".join(f"{i} ({name})" for i, name in enumerate(SERVER_MODES))
    for e in np.flatnonzero((mode < COMMON) | (mode >= len(SERVER_MODES))):
        raise AllocationError(
            f"environment {e}: server_mode is {mode[e]}; the modes are {COMMON} (one head for all), {modes}"
        )
    if blocks is None:
        return
    for e in np.flatnonzero((mode == COMMON) & blocks.any(axis=-1)):
        raise AllocationError(
            f"environment {e}: server_blocks {blocks[e].tolist()} need a server_mode; give one of {modes}"
        )
    for e in np.flatnonzero((mode == SEQUENTIAL) & (blocks != blocks[:, :1]).any(axis=-1)):
        raise AllocationError(
            f"environment {e}: a sequential server has one model for all clusters, but server_blocks "
            f"{blocks[e].tolist()} differ; make them equal, or use mode {COPIES} (copies)"
        )

"""Checks that real training can use the outcome of a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collapipe_env.ground.arrays import BoolArray, IntArray
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL, SERVER_MODES
from collapipe_env.simulator.learner import RoundOutcome


@dataclass(frozen=True)
class AllowedOutcomes:
    """Sizes of outcomes that fit a learner.

    Attributes:
        num_envs: ``E``.
        clusters: ``N``.
        blocks: ``L`` of the trained model.
        local_steps: ``H``, or the most that a cluster may take.
        batch_size: ``B``.
        moments: Whether moments of blocks may travel or be lost.
    """

    num_envs: int
    clusters: int
    blocks: int
    local_steps: int
    batch_size: int
    moments: bool


def check_outcome(outcome: RoundOutcome, allowed: AllowedOutcomes) -> None:
    """Refuse an outcome that does not fit the workload.

    Args:
        allowed: Sizes that fit.

    Raises:
        AllocationError: If it does not fit; names the array, the place and the allowed values.
    """
    envs_clusters = (allowed.num_envs, allowed.clusters)
    if outcome.blocks.shape[:2] != envs_clusters or outcome.micro_batches.shape != envs_clusters:
        raise AllocationError(
            f"blocks {outcome.blocks.shape} and micro_batches {outcome.micro_batches.shape} must both "
            f"begin with (environments, clusters) = {envs_clusters}"
        )
    if outcome.survived.ndim != 4 or outcome.survived.shape[:3] != (*envs_clusters, allowed.local_steps):
        raise AllocationError(
            f"survived has shape {outcome.survived.shape}; it must be (environments, clusters, local "
            f"steps, micro-batches) = {(*envs_clusters, allowed.local_steps)} + (M_max,)"
        )
    on_server = _check_server(outcome, allowed)
    left = allowed.blocks - on_server
    plays = _check_participation(outcome, envs_clusters, allowed.local_steps)
    wrong = ((outcome.blocks.sum(axis=-1) != left) & plays) | (outcome.blocks < 0).any(axis=-1)
    for e, n in np.argwhere(wrong):
        besides = f" ({on_server[e, n]} are on the server)" if on_server[e, n] else ""
        raise AllocationError(
            f"environment {e}, cluster {n}: blocks {outcome.blocks[e, n].tolist()} must be "
            f"non-negative and sum to {left[e, n]}{besides}"
        )
    if outcome.staleness is not None:
        if outcome.staleness.shape != outcome.blocks.shape:
            raise AllocationError(
                f"staleness has shape {outcome.staleness.shape}; give one version gap for each stage "
                f"slot: {outcome.blocks.shape}"
            )
        for e, n in np.argwhere((outcome.staleness < 0).any(axis=-1)):
            raise AllocationError(
                f"environment {e}, cluster {n}: staleness {outcome.staleness[e, n].tolist()} must be "
                "non-negative; 0 stands for weights that are up to date"
            )
    blocks = (*envs_clusters, allowed.blocks)
    if outcome.moments is not None and (
        outcome.moments.shape != blocks or not allowed.moments or (outcome.moments >> 2).any()
    ):
        raise AllocationError(
            f"moments has shape {outcome.moments.shape}; a learner with moment_bits takes 0, 1 or 2 "
            f"for every block: {blocks}"
        )
    if outcome.recompute is not None and outcome.recompute.shape != envs_clusters:
        raise AllocationError(
            f"recompute has shape {outcome.recompute.shape}; give yes or no for each cluster: {envs_clusters}"
        )
    most = min(allowed.batch_size, outcome.survived.shape[-1])
    for e, n in np.argwhere((outcome.micro_batches < 1) | (outcome.micro_batches > most)):
        raise AllocationError(
            f"environment {e}, cluster {n}: {outcome.micro_batches[e, n]} micro-batches; give 1 to "
            f"{most} (no more than the batch size or the entries of survived)"
        )


def _check_participation(outcome: RoundOutcome, shape: tuple[int, int], most: int) -> BoolArray:
    """Refuse participation or local steps that do not fit, and return who takes part (E, N)."""
    steps, plays = outcome.local_steps, outcome.participates
    for name, given in (("local_steps", steps), ("participates", plays)):
        if given is not None and given.shape != shape:
            raise AllocationError(
                f"{name} has shape {given.shape}; give one entry for each cluster: (environments, clusters) "
                f"= {shape}"
            )
    if steps is not None:
        for e, n in np.argwhere((steps < 1) | (steps > most)):
            raise AllocationError(
                f"environment {e}, cluster {n}: {steps[e, n]} local steps; give 1 to {most}"
            )
    return np.ones(shape, dtype=np.bool_) if plays is None else plays.astype(np.bool_)


def _check_server(outcome: RoundOutcome, allowed: AllowedOutcomes) -> IntArray:
    """Refuse a server's side that does not fit, and return its encoder blocks (E, N)."""
    shape = (allowed.num_envs, allowed.clusters)
    on_server = outcome.server_blocks
    if on_server is None:
        on_server = np.zeros(shape, dtype=np.int64)
    mode = outcome.server_mode
    if mode is None:
        mode = np.full(allowed.num_envs, COMMON)
    if on_server.shape != shape or mode.shape != shape[:1]:
        raise AllocationError(
            f"server_blocks {on_server.shape} and server_mode {mode.shape} must have the shapes "
            f"(environments, clusters) = {shape} and (environments,) = {shape[:1]}"
        )
    for e in np.flatnonzero((mode < COMMON) | (mode >= len(SERVER_MODES))):
        raise AllocationError(
            f"environment {e}: server_mode is {mode[e]}; the modes are {COMMON} (one head for all), "
            + ", ".join(f"{i} ({name})" for i, name in enumerate(SERVER_MODES))
        )
    for e, n in np.argwhere((on_server < 0) | (on_server > allowed.blocks)):
        raise AllocationError(
            f"environment {e}, cluster {n}: server_blocks is {on_server[e, n]}; give 0 to {allowed.blocks}"
        )
    for e in np.flatnonzero((mode == COMMON) & on_server.any(axis=-1)):
        raise AllocationError(
            f"environment {e}: server_blocks {on_server[e].tolist()} need a server_mode; give "
            + " or ".join(f"{i} ({name})" for i, name in enumerate(SERVER_MODES))
        )
    unequal = (on_server != on_server[:, :1]).any(axis=-1)
    for e in np.flatnonzero((mode == SEQUENTIAL) & unequal):
        raise AllocationError(
            f"environment {e}: a sequential server has one model for all clusters, but server_blocks "
            f"{on_server[e].tolist()} differ; make them equal, or use mode {COPIES} (copies)"
        )
    return on_server

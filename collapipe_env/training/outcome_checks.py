"""Rounds as they are trained: outcomes that fit the workload, with nothing left open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from collapipe_env.ground.arrays import BoolArray, IntArray
from collapipe_env.ground.errors import AllocationError
from collapipe_env.ground.records import Record
from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL, SERVER_MODES
from collapipe_env.physics.moves import STAY
from collapipe_env.simulator.learner import RoundOutcome
from collapipe_env.training.training_setup import TrainingSetup


@dataclass(frozen=True, eq=False)
class TrainedRound(Record):
    """A round as it is trained, of one environment or with a leading axis of several.

    The arrays are those of :class:`~collapipe_env.simulator.learner.RoundOutcome`, with the neutral values
    where an outcome says nothing.

    Attributes:
        survived: True for micro-batches that arrive (N, H, M_max).
        local_steps: Local steps of the clusters (N,), 0 for those that sit out: they use no samples and make
            no update.
    """

    blocks: IntArray
    micro_batches: IntArray
    survived: BoolArray
    server_blocks: IntArray
    server_mode: IntArray
    staleness: IntArray
    moments: IntArray
    recompute: BoolArray
    local_steps: IntArray


def trained_round(outcome: RoundOutcome, setup: TrainingSetup, num_envs: int) -> TrainedRound:
    """Return the rounds of E environments that an outcome describes, after checking that they fit the setup.

    Raises:
        AllocationError: If it does not fit; names the array, the place and the allowed values.
    """
    shape, blocks, most = (num_envs, setup.clusters), setup.architecture.blocks, setup.most_local_steps
    if outcome.blocks.shape[:2] != shape:
        raise AllocationError(
            f"blocks {outcome.blocks.shape} must begin with (environments, clusters) = {shape}"
        )
    survived = outcome.arrivals.survived
    if survived.ndim != 4 or survived.shape[:3] != (*shape, most):
        raise AllocationError(
            f"survived has shape {survived.shape}; it must be (environments, clusters, local "
            f"steps, micro-batches) = {(*shape, most)} + (M_max,)"
        )
    found: dict[str, Any] = {"blocks": outcome.blocks, "survived": survived}
    # Shapes, what each entry belongs to, and the neutral values.
    for name, expected, one, neutral in (
        ("micro_batches", shape, "cluster", None),
        ("server_blocks", shape, "cluster", 0),
        ("server_mode", shape[:1], "environment", COMMON),
        ("local_steps", shape, "cluster", setup.local_steps),
        ("participates", shape, "cluster", True),
        ("recompute", shape, "cluster", setup.memory.recompute),
        ("staleness", outcome.blocks.shape, "stage slot", 0),
        ("moments", (*shape, blocks), "block", STAY),
    ):
        given = getattr(outcome, name)
        found[name] = np.full(expected, neutral) if given is None else given
        if found[name].shape != expected:
            raise AllocationError(
                f"{name} has shape {given.shape}; give one entry for each {one}: {expected}"
            )
    cut, on_server, mode = outcome.blocks, found["server_blocks"], found["server_mode"]
    plays = found.pop("participates").astype(np.bool_)
    left, modes = blocks - on_server, ", ".join(f"{i} ({name})" for i, name in enumerate(SERVER_MODES))
    uncut = ((cut.sum(axis=-1) != left) & plays) | (cut < 0).any(axis=-1)
    total = "blocks {blocks} must be non-negative and sum to {left}"
    faults = {
        f"{name} is {{{name}}}; give {low} to {high}": (found[name] < low) | (found[name] > high)
        for name, low, high in (
            ("micro_batches", 1, min(setup.batch_size, survived.shape[-1])),
            ("local_steps", 1, most),
            ("server_blocks", 0, blocks),
        )
    } | {
        f"server_mode is {{server_mode}}; the modes are {COMMON} (one head for all), {modes}": (
            (mode < COMMON) | (mode >= len(SERVER_MODES))
        ),
        f"server_blocks {{server_blocks}} need a server_mode; give one of {modes}": (
            (mode == COMMON) & on_server.any(axis=-1)
        ),
        "a sequential server has one model for all clusters, but server_blocks {server_blocks} differ; make "
        f"them equal, or use mode {COPIES} (copies)": (
            (mode == SEQUENTIAL) & (on_server != on_server[:, :1]).any(axis=-1)
        ),
        total + " ({server_blocks} are on the server)": uncut & (on_server > 0),
        total: uncut,
        "staleness {staleness} must be non-negative; 0 stands for weights that are up to date": (
            (found["staleness"] < 0).any(axis=-1)
        ),
    }
    for text, wrong in faults.items():
        for place in np.argwhere(wrong).tolist():
            where = ", ".join(map("{} {}".format, ("environment", "cluster"), place))
            here = {n: array[tuple(place[: array.ndim])].tolist() for n, array in found.items()}
            raise AllocationError(f"{where}: {text.format(**here, left=left[tuple(place)])}")
    if outcome.moments is not None and (setup.moment_bits is None or (outcome.moments >> 2).any()):
        raise AllocationError(
            "a learner with moment_bits takes moments of 0, 1 or 2 for every block; others take none"
        )
    return TrainedRound(**{**found, "local_steps": np.where(plays, found["local_steps"], 0)})

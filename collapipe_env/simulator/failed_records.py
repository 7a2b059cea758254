"""Records of rounds in which a device fails: losses, new holders of blocks, and times ([X])."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.physics.allocation import Allocation

NOBODY = -1
"""Placeholder for the device where none failed."""


class FailedRounds(NamedTuple):
    """Failures inside rounds, and their consequences; rows are environments.

    Attributes:
        device: Device that failed inside the round (R, N), int; -1 where none failed, or too late to matter.
        at_s: ``t_f`` (R, N) [s] from the start of the round; infinite where none failed.
        credited: Local steps that were done and count (R, N), int.
        tried_steps: Local steps that the old plan worked on until the failure (R, N), a partial one included.
        detect_s: ``T_det`` (R, N) [s].
        plan_s: ``T_plan`` (R, N) [s].
        move_s: ``T_move`` (R, N) [s], with the rest of a migration that the failure interrupted.
        replay_s: ``(H - done) T'_step`` (R, N) [s].
        collect_s: ``T_col'`` (R, N) [s].
        blocks: Blocks of each stage slot at the end of the round (R, N, K), int.
        stage: Slot of each device at the end of the round (R, N, K), int.
        reset: Blocks whose moments start again from zero (R, N, L), bool.
        dropped: Clusters whose round is lost (R, N), bool.
    """

    device: IntArray
    at_s: FloatArray
    credited: IntArray
    tried_steps: FloatArray
    detect_s: FloatArray
    plan_s: FloatArray
    move_s: FloatArray
    replay_s: FloatArray
    collect_s: FloatArray
    blocks: IntArray
    stage: IntArray
    reset: BoolArray
    dropped: BoolArray


class Replayed(NamedTuple):
    """Changes that failures make to rounds.

    Attributes:
        cluster_delay: Added to ``T_n`` (R, N) [s].
        energy: Added to the energy of each node (R, N, K+1) [J].
        failed: The failures.
    """

    cluster_delay: FloatArray
    energy: FloatArray
    failed: FailedRounds


def unscathed(allocation: Allocation, blocks: int) -> FailedRounds:
    """Rounds without a failure.

    Args:
        allocation: The plans (R, ...), on the host.
        blocks: ``L``.
    """
    R, N, K = allocation.blocks.shape
    nothing = np.zeros((R, N))
    own = np.broadcast_to(np.arange(K), (R, N, K)) if not allocation.is_grouped else allocation.stage
    return FailedRounds(
        device=np.full((R, N), NOBODY),
        at_s=np.full((R, N), np.inf),
        credited=np.zeros((R, N), dtype=np.int64),
        tried_steps=nothing.copy(),
        detect_s=nothing.copy(),
        plan_s=nothing.copy(),
        move_s=nothing.copy(),
        replay_s=nothing.copy(),
        collect_s=nothing.copy(),
        blocks=np.array(allocation.blocks, dtype=np.int64),
        stage=np.array(own, dtype=np.int64),
        reset=np.zeros((R, N, blocks), dtype=np.bool_),
        dropped=np.zeros((R, N), dtype=np.bool_),
    )

"""Records of rounds in which a device fails: losses, new holders of blocks, and times ([X])."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.records import Declared
from collapipe_env.physics.allocation import Allocation

NOBODY = -1
"""Placeholder for the device where none failed."""


class FailedRounds(NamedTuple):
    """Failures inside rounds, and their consequences; rows are environments."""

    device: Annotated[IntArray, Declared("N", low=NOBODY, kind="whole")]
    """Device that failed inside the round; -1 where none failed, or too late to matter."""
    at_s: Annotated[FloatArray, Declared("N", "s", low=0.0, high=math.inf)]
    """``t_f`` from the start of the round; infinite where none failed."""
    credited: Annotated[IntArray, Declared("N", low=0, kind="whole")]
    """Local steps that were done and count."""
    tried_steps: Annotated[FloatArray, Declared("N")]
    """Local steps that the old plan worked on until the failure, a partial one included."""
    detect_s: Annotated[FloatArray, Declared("N", "s")]
    """``T_det``."""
    plan_s: Annotated[FloatArray, Declared("N", "s")]
    """``T_plan``."""
    move_s: Annotated[FloatArray, Declared("N", "s")]
    """``T_move``, with the rest of a migration that the failure interrupted."""
    replay_s: Annotated[FloatArray, Declared("N", "s")]
    """``(H - done) T'_step``."""
    collect_s: Annotated[FloatArray, Declared("N", "s")]
    """``T_col'``."""
    blocks: Annotated[IntArray, Declared("N K", low=0, kind="whole")]
    """Blocks of each stage slot at the end of the round."""
    stage: Annotated[IntArray, Declared("N K", low=-1, kind="whole")]
    """Slot of each device at the end of the round."""
    reset: Annotated[BoolArray, Declared("N L", kind="truth")]
    """Blocks whose moments start again from zero."""
    dropped: Annotated[BoolArray, Declared("N", kind="truth")]
    """Clusters whose round is lost."""


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

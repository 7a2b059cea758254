"""Recovery of a pipeline from a device that fails inside a round (Asteroid's replay, [R], and ours, [X]).

Asteroid (Ye et al., MobiCom 2024, arXiv 2408.08015) states a lightweight replay: the stages that are left
keep their order, blocks move between them so that their work matches their speeds, and training goes on. Its
formulas here are reconstructed. The CU of CollaPipe has the encoder with which the round began, so that no
failure costs more than the round so far.

``T_n = t_f + T_rec + (H - done) T'_step + T_col' + T_up`` with ``T_rec = T_det + T_plan + T_move``: ``t_f``
is the time of the failure, ``done`` the local steps that are credited, and a prime marks the plan that is
left.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from collapipe_env.arrays import BoolArray, FloatArray, IntArray

RecoveryKind = Literal["light", "heavy", "drop-round"]
"""Ways to go on: Asteroid's replay, a plan from scratch over the CU, or not at all in this round."""
PLANNING_S = {"light": 0.1, "heavy": 2.0, "drop-round": 0.0}
"""``T_plan``, constants [s]: rounding for ``light``, a dynamic programme for ``heavy``."""
TOLERANCE = 1e-9
"""Parts of a block by which a boundary may be off through rounding."""


class RecoveryTerms(NamedTuple):
    """Terms on which clusters recover.

    Attributes:
        kind: Way to go on.
        heartbeat_s: Period of the devices' heartbeats [s].
        misses: Heartbeats that have to be missed before a device counts as failed.
    """

    kind: RecoveryKind
    heartbeat_s: float
    misses: int

    @property
    def detection_s(self) -> float:
        """``T_det``, the misses times the period [s]."""
        return self.misses * self.heartbeat_s

    @property
    def planning_s(self) -> float:
        """``T_plan`` [s]."""
        return PLANNING_S[self.kind]


def credited_steps(failed_s: float, begun_s: float, step_s: float, steps: int) -> int:
    """Local steps that were complete when a device failed, ``clip(floor((t_f - t_0) / T_step), 0, H)``.

    Args:
        failed_s: ``t_f`` since the round began [s].
        begun_s: ``t_0`` at which the first local step began [s].
        step_s: ``T_step`` > 0 [s].
        steps: ``H``.
    """
    return max(0, min(steps, math.floor((failed_s - begun_s) / step_s)))


def light_segments(blocks: int, speeds: FloatArray) -> IntArray:
    """Blocks of the stages that are left, in their order, in proportion to their speeds.

    Boundary ``x_p = min{l : l >= L sum_{q <= p} v_q / sum v}``, whole blocks all costing the same.

    Args:
        blocks: ``L`` of the devices together.
        speeds: ``v`` of the stages (P,), > 0 [FLOP/s].

    Returns:
        Blocks of each stage (P,), summing to ``L``; 0 for a stage that is not needed.
    """
    share = np.cumsum(speeds) / np.sum(speeds)
    ends = np.ceil(blocks * share - TOLERANCE).astype(np.int64)
    ends[-1] = blocks
    return np.diff(np.minimum(ends, blocks), prepend=0)


def within_memory(segments: IntArray, caps: IntArray) -> IntArray | None:
    """Segments that fit: the fullest stage gives a block to the nearest one with room, until all fit.

    Args:
        segments: Blocks of each stage (P,).
        caps: Blocks that each can hold (P,).

    Returns:
        Blocks of each stage (P,) with the same sum; ``None`` where the stages cannot hold them.
    """
    if caps.sum() < segments.sum():
        return None
    held = segments.copy()
    places = np.arange(len(held))
    while (held > caps).any():
        fullest = int(np.argmax(held - caps))
        room = places[held < caps]
        nearest = room[np.argmin(np.abs(room - fullest))]
        held[fullest] -= 1
        held[nearest] += 1
    return held


class Transfer(NamedTuple):
    """Transfer of blocks before the replay.

    Attributes:
        bits: From node to node (K+1, K+1), CU first [bit].
        kept: Whether all blocks are there as they were when the device failed, moments included.
        reset: Blocks whose moments start again from zero (L,), bool.
    """

    bits: FloatArray
    kept: bool
    reset: BoolArray


def replay_transfer(
    before: BoolArray, after: BoolArray, failed: int, weight_bits: float, moment_bits: float
) -> Transfer:
    """Transfer with which the plan that is left can go on: who sends what to whom.

    A block that another device of its stage holds, too, comes from the first of these, with weights and
    moments. A block that nobody holds any more comes from the CU with the weights of the round's start, and
    then all blocks go back to these; its moments start again from zero.

    Args:
        before: Holders of each block (L, K), bool: devices.
        after: Holders under the plan that is left (L, K), bool.
        failed: Device that failed.
        weight_bits: Weights of a block [bit].
        moment_bits: Moments of a block [bit].
    """
    left, held, lost = _what_is_left(before, failed)
    bits = np.zeros((before.shape[1] + 1,) * 2)
    for block, device in np.argwhere(after & ~left):
        if held[block]:
            bits[int(np.argmax(left[block])) + 1, device + 1] += weight_bits + moment_bits
        else:
            bits[0, device + 1] += weight_bits
    return Transfer(bits, not lost.any(), lost)


def rescheduling_transfer(
    before: BoolArray, after: BoolArray, failed: int, weight_bits: float, moment_bits: float
) -> Transfer:
    """Transfer where all goes over the CU: it collects the blocks that are left and hands out all of them.

    Arguments and result as for :func:`replay_transfer`.
    """
    left, held, lost = _what_is_left(before, failed)
    both = weight_bits + moment_bits
    bits = np.zeros((before.shape[1] + 1,) * 2)
    for block in np.flatnonzero(held):
        bits[int(np.argmax(left[block])) + 1, 0] += both
    for block, device in np.argwhere(after):
        bits[0, device + 1] += both if held[block] else weight_bits
    return Transfer(bits, not lost.any(), lost)


def _what_is_left(before: BoolArray, failed: int) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Holders that are left (L, K), blocks that have one (L,), and blocks that have lost theirs (L,)."""
    left = before.copy()
    left[:, failed] = False
    held: BoolArray = np.asarray(left.any(axis=1))
    lost: BoolArray = np.asarray(before.any(axis=1)) & ~held
    return left, held, lost


def moving_time(kind: RecoveryKind, bits: FloatArray, seconds_per_bit: FloatArray) -> float:
    """``T_move`` [s]: the longest pair with all pairs in parallel, or one after the other at the CU.

    Args:
        kind: ``light`` or ``heavy``.
        bits: From node to node (K+1, K+1) [bit].
        seconds_per_bit: Airtime of a bit (K+1, K+1) [s]; read where something is sent.
    """
    times = np.where(bits > 0.0, bits * np.where(bits > 0.0, seconds_per_bit, 0.0), 0.0)
    return float(times.sum() if kind == "heavy" else times.max(initial=0.0))

"""Recovery of a pipeline from a device that fails inside a round (Asteroid's replay, [R], and ours, [X]).

Asteroid (Ye et al., MobiCom 2024, arXiv 2408.08015) states a lightweight replay: the remaining stages keep
their order, blocks move between them so that their work matches their speeds, and training continues. Its
formulas here are reconstructed. The CU of CollaPipe has the encoder with which the round began, so no failure
costs more than the round so far.

``T_n = t_f + T_rec + (H - done) T'_step + T_col' + T_up`` with ``T_rec = T_det + T_plan + T_move``: ``t_f``
is the time of the failure, ``done`` the local steps that are credited, and a prime marks the remaining plan.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import numpy as np

from collapipe_env.ground.arrays import Array, BoolArray, FloatArray, IntArray
from collapipe_env.physics.workload import WorkloadCosts

RecoveryKind = Literal["light", "heavy", "drop-round"]
"""Ways to continue: Asteroid's replay, a plan from scratch over the CU, or not at all in this round."""
PLANNING_S = {"light": 0.1, "heavy": 2.0, "drop-round": 0.0}
"""``T_plan``, constants [s]: rounding for ``light``, a dynamic programme for ``heavy``."""
TOLERANCE = 1e-9
"""Part of a block by which rounding may shift a boundary."""


class RecoveryTerms(NamedTuple):
    """Terms on which clusters recover.

    Attributes:
        kind: Way to continue.
        heartbeat_s: Period of the devices' heartbeats [s].
        misses: Missed heartbeats after which a device counts as failed.
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


def credited_steps(failed_s: Array, begun_s: Array, step_s: Array, steps: Array) -> IntArray:
    """Local steps that were complete when a device failed, ``clip(floor((t_f - t_0) / T_step), 0, H)``.

    Args:
        failed_s: ``t_f`` since the round began (F,) [s].
        begun_s: ``t_0`` at which the first local step began (F,) [s].
        step_s: ``T_step`` > 0 (F,) [s].
        steps: ``H`` (F,).
    """
    done: IntArray = np.clip(np.floor((failed_s - begun_s) / step_s), 0, steps).astype(np.int64)
    return done


def light_segments(blocks: int, speeds: FloatArray) -> IntArray:
    """Blocks of the remaining stages, in their order, in proportion to their speeds.

    Boundary ``x_p = min{l : l >= L sum_{q <= p} v_q / sum v}``, for whole blocks of equal cost.

    Args:
        blocks: ``L`` of the devices together.
        speeds: ``v`` of the stages (P,), > 0 [FLOP/s].

    Returns:
        Blocks of each stage (P,), summing to ``L``; 0 for a stage that is not needed.
    """
    segments = np.zeros(len(speeds), dtype=np.int64)
    total = reached = 0.0
    for speed in speeds:
        total += speed
    begin = 0
    for p, speed in enumerate(speeds):
        reached += speed
        end = min(blocks, math.ceil(blocks * (reached / total) - TOLERANCE))
        segments[p], begin = end - begin, end
    return segments


def fit_memory(segments: IntArray, caps: IntArray) -> bool:
    """Let the fullest stage give a block to the nearest one with room, until all fit.

    Args:
        segments: Blocks of each stage (P,); changed in place.
        caps: Blocks that each can hold (P,).

    Returns:
        False where the stages cannot hold them: then nothing has changed.
    """
    free = 0
    for p in range(len(caps)):
        free += caps[p] - segments[p]
    if free < 0:
        return False
    while True:
        fullest = 0
        for p in range(len(caps)):
            if segments[p] - caps[p] > segments[fullest] - caps[fullest]:
                fullest = p
        if segments[fullest] <= caps[fullest]:
            return True
        nearest = -1
        for p in range(len(caps)):
            closer = nearest < 0 or abs(p - fullest) < abs(nearest - fullest)
            if segments[p] < caps[p] and closer:
                nearest = p
        segments[fullest] -= 1
        segments[nearest] += 1


class BlockBits(NamedTuple):
    """Bits of the parts of a block.

    Attributes:
        frozen: Weights that are not trained, 0 unless only adapters are trained [bit].
        trained: Weights that are trained [bit].
        moments: Their moments [bit].
    """

    frozen: float
    trained: float
    moments: float

    @property
    def weights(self) -> float:
        """All weights [bit]."""
        return self.frozen + self.trained

    @property
    def of_parts(self) -> tuple[float, ...]:
        """Bits of the ``BLOCK_PARTS``, in their order; replicas hold trained weights and moments [bit]."""
        return self.weights + self.moments, self.weights, self.trained + self.moments, self.frozen


def bits_of_block(costs: WorkloadCosts) -> BlockBits:
    """Bits of a workload's block; with adapters only these are trained."""
    memory, w, adapters = costs.training_memory, costs.block_parameters, costs.adapter_parameters
    trained = adapters or w
    return BlockBits(
        frozen=8.0 * memory.weight_bytes * (w if adapters else 0),
        trained=8.0 * memory.weight_bytes * trained,
        moments=2.0 * memory.kept_moment_bits * trained,
    )


BlockPart = Literal["state", "weights", "replica", "frozen"]
"""Parts of a block that travel: weights and moments, the weights at the start of the round, trained weights
and moments from a replica, weights that are not trained."""
BLOCK_PARTS: tuple[BlockPart, ...] = get_args(BlockPart)
STATE, WEIGHTS, REPLICA, FROZEN = range(len(BLOCK_PARTS))


def remaining_holder(before: BoolArray, failed: int, block: int) -> int:
    """First other device that holds a block; -1 for none.

    Args:
        before: Holders of each block (L, K), bool: devices.
    """
    for device in range(before.shape[1]):
        if before[block, device] and device != failed:
            return device
    return -1


def replay_messages(
    before: BoolArray, after: BoolArray, failed: int, host: int, frozen: bool, messages: IntArray
) -> int:
    """Messages with which the remaining plan can continue.

    A block that another device of its stage also holds comes from the first of these, with weights and
    moments. A block that no device holds any more comes from the host of its replica, and its frozen weights
    from the CU. Without a replica it comes from the CU with the weights at the start of the round. Then all
    blocks go back to those weights, and its moments start again from zero.

    Args:
        before: Holders of each block (L, K), bool: devices.
        after: Holders under the remaining plan (L, K), bool.
        host: Node that keeps the replicas of the device that failed, CU first; -1 for none.
        frozen: Whether blocks have weights that are not trained.
        messages: Messages in their order (most, 4), written: the node that sends, 0 for the CU, the node that
            receives, which is the sender where it uses a replica that it keeps, the block, and its part.

    Returns:
        Number of messages.
    """
    count = 0
    for block in range(before.shape[0]):
        holder = remaining_holder(before, failed, block)
        for device in range(before.shape[1]):
            if not after[block, device] or (before[block, device] and device != failed):
                continue
            if holder >= 0:
                count = add_message(messages, count, holder + 1, device + 1, block, STATE)
            elif host < 0:
                count = add_message(messages, count, 0, device + 1, block, WEIGHTS)
            else:
                if frozen:
                    count = add_message(messages, count, 0, device + 1, block, FROZEN)
                count = add_message(messages, count, host, device + 1, block, REPLICA)
    return count


def rescheduling_messages(
    before: BoolArray, after: BoolArray, failed: int, host: int, messages: IntArray
) -> int:
    """Messages over the CU, which collects the remaining blocks and replicas and sends out all blocks.

    Arguments and result as for :func:`replay_messages`.
    """
    count = 0
    for block in range(before.shape[0]):
        holder = remaining_holder(before, failed, block)
        if holder >= 0:
            count = add_message(messages, count, holder + 1, 0, block, STATE)
    for block in range(before.shape[0]):
        if host > 0 and before[block, failed] and remaining_holder(before, failed, block) < 0:
            count = add_message(messages, count, host, 0, block, REPLICA)
    for block in range(before.shape[0]):
        lost = host < 0 and before[block, failed] and remaining_holder(before, failed, block) < 0
        for device in range(before.shape[1]):
            if after[block, device]:
                count = add_message(messages, count, 0, device + 1, block, WEIGHTS if lost else STATE)
    return count


def add_message(messages: IntArray, count: int, source: int, target: int, block: int, part: int) -> int:
    """The number of messages with one more."""
    messages[count, 0], messages[count, 1] = source, target
    messages[count, 2], messages[count, 3] = block, part
    return count + 1


def moving_time(in_turn: bool, seconds: FloatArray) -> float:
    """``T_move`` [s]: the longest pair if all pairs send at once, or the sum if the CU serves them in turn.

    Args:
        in_turn: Whether the CU serves the pairs in turn, as when all is planned again (``heavy``).
        seconds: Airtime from node to node (K+1, K+1) [s].
    """
    together = longest = 0.0
    for one in seconds.flat:
        together += one
        longest = max(longest, one)
    return together if in_turn else longest

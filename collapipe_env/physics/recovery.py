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
from typing import Literal, NamedTuple

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
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
    """Blocks of the remaining stages, in their order, in proportion to their speeds.

    Boundary ``x_p = min{l : l >= L sum_{q <= p} v_q / sum v}``, for whole blocks of equal cost.

    Args:
        blocks: ``L`` of the devices together.
        speeds: ``v`` of the stages (P,), > 0 [FLOP/s].

    Returns:
        Blocks of each stage (P,), summing to ``L``; 0 for a stage that is not needed.
    """
    share = np.cumsum(speeds) / np.sum(speeds)
    ends = np.ceil(blocks * share - TOLERANCE).astype(np.int64)
    ends[-1] = blocks
    segments = np.minimum(ends, blocks)
    segments[1:] -= segments[:-1].copy()
    return segments


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
    def replica(self) -> float:
        """Trained weights and moments, which replicas hold [bit]."""
        return self.trained + self.moments


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


class Message(NamedTuple):
    """Message with a part of one block.

    Attributes:
        source: Node that sends, 0 for the CU.
        target: Node that receives; the source itself where it uses a replica that it keeps.
        block: Block, from 0.
        part: Part of it.
        bits: Size, 0 where source and target are one [bit].
    """

    source: int
    target: int
    block: int
    part: BlockPart
    bits: float


class Transfer(NamedTuple):
    """Transfer of blocks before the replay.

    Attributes:
        bits: From node to node (K+1, K+1), CU first [bit].
        kept: Whether all blocks are preserved as they were when the device failed, moments included.
        reset: Blocks whose moments start again from zero (L,), bool.
        messages: Messages of the transfer, in order.
    """

    bits: FloatArray
    kept: bool
    reset: BoolArray
    messages: tuple[Message, ...]


def replay_transfer(
    before: BoolArray, after: BoolArray, failed: int, bits_of: BlockBits, replicas: IntArray | None = None
) -> Transfer:
    """Transfer with which the remaining plan can continue, message by message.

    A block that another device of its stage also holds comes from the first of these, with weights and
    moments. A block that no device holds any more comes from the host of its replica, and its frozen weights
    from the CU. Without a replica it comes from the CU with the weights at the start of the round. Then all
    blocks go back to those weights, and its moments start again from zero.

    Args:
        before: Holders of each block (L, K), bool: devices.
        after: Holders under the remaining plan (L, K), bool.
        replicas: Node that keeps a replica of each block (L,), CU first, -1 for none; ``None`` for none at
            all.
    """
    left, held, lost, hosts = _what_is_left(before, failed, replicas)
    sent: list[Message] = []
    for block, device in np.argwhere(after & ~left).tolist():
        node = device + 1
        if held[block]:
            holder = int(np.argmax(left[block])) + 1
            sent.append(Message(holder, node, block, "state", bits_of.weights + bits_of.moments))
        elif lost[block]:
            sent.append(Message(0, node, block, "weights", bits_of.weights))
        else:
            if bits_of.frozen > 0.0:
                sent.append(Message(0, node, block, "frozen", bits_of.frozen))
            host = int(hosts[block])
            sent.append(Message(host, node, block, "replica", bits_of.replica if host != node else 0.0))
    return _transfer(sent, before.shape[1] + 1, lost)


def rescheduling_transfer(
    before: BoolArray, after: BoolArray, failed: int, bits_of: BlockBits, replicas: IntArray | None = None
) -> Transfer:
    """Transfer over the CU, which collects the remaining blocks and replicas and sends out all blocks.

    Arguments and result as for :func:`replay_transfer`.
    """
    left, held, lost, hosts = _what_is_left(before, failed, replicas)
    both = bits_of.weights + bits_of.moments
    sent = [
        Message(int(np.argmax(left[block])) + 1, 0, block, "state", both)
        for block in np.flatnonzero(held).tolist()
    ]
    sent += [
        Message(int(hosts[block]), 0, block, "replica", bits_of.replica)
        for block in np.flatnonzero(~held & (hosts > 0)).tolist()
    ]
    for block, device in np.argwhere(after).tolist():
        if lost[block]:
            sent.append(Message(0, device + 1, block, "weights", bits_of.weights))
        else:
            sent.append(Message(0, device + 1, block, "state", both))
    return _transfer(sent, before.shape[1] + 1, lost)


def _transfer(sent: list[Message], nodes: int, lost: BoolArray) -> Transfer:
    """Return the transfer of some messages."""
    bits = np.zeros((nodes, nodes))
    for message in sent:
        bits[message.source, message.target] += message.bits
    return Transfer(bits, not lost.any(), lost, tuple(sent))


def _what_is_left(
    before: BoolArray, failed: int, replicas: IntArray | None
) -> tuple[BoolArray, BoolArray, BoolArray, IntArray]:
    """Remaining holders (L, K), blocks with one (L,), lost blocks (L,), hosts of replicas (L,)."""
    left = before.copy()
    left[:, failed] = False
    held: BoolArray = np.asarray(left.any(axis=1))
    hosts = np.full(len(before), -1) if replicas is None else replicas
    lost: BoolArray = np.asarray(before.any(axis=1)) & ~held & (hosts < 0)
    return left, held, lost, hosts


def moving_time(kind: RecoveryKind, bits: FloatArray, seconds_per_bit: FloatArray) -> float:
    """``T_move`` [s]: the longest pair if all pairs send at once, or the sum if the CU serves them in turn.

    Args:
        kind: ``light`` or ``heavy``.
        bits: From node to node (K+1, K+1) [bit].
        seconds_per_bit: Airtime of a bit (K+1, K+1) [s]; read where something is sent.
    """
    times = np.where(bits > 0.0, bits * np.where(bits > 0.0, seconds_per_bit, 0.0), 0.0)
    return float(times.sum() if kind == "heavy" else times.max(initial=0.0))

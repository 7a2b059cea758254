"""Scripts: the work of server, control units and devices in a round as plain data, with priced times ([X]).

A script says all that a role needs: which blocks it holds, in which order it works on which micro-batch, and
how long each operation and each transfer takes. No role reads the scenario or the plan. Clusters are
numbered from 0; in a cluster node 0 is the control unit (CU) and devices are numbered from 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from collapipe_env.allocation import ScheduleName
from collapipe_env.physics.recovery import BlockPart

FORWARD, BACKWARD, WEIGHT = 0, 1, 2
"""Kinds of operations; where weight gradients are split off, ``BACKWARD`` is the input gradient alone."""

ReplicaPlace = Literal["none", "next_stage", "cu"]
"""Places of the replicas of what devices train, as in the process ``presence``."""


@dataclass(frozen=True, slots=True)
class StageScript:
    """Script of one stage of a cluster's pipeline, or of the server's part for the cluster.

    Attributes:
        devices: Numbers of the stage's devices, from 1, its lead device first; empty for the server.
        shares: Share of each micro-batch's samples of each of these devices, summing to 1; empty for the
            server.
        chunks: First encoder block and end of each chunk, as indices from 0; the server's last blocks
            likewise, empty if it runs none.
        order: Operations in the order in which the stage runs them: kind, micro-batch and chunk. Weight
            gradients are left out where they fill gaps (``weight_limit``).
        forward_s: Seconds of a micro-batch, all chunks together [s].
        backward_s: The same backward [s]; without the weight gradient where that is an operation of its own.
        weight_s: Seconds of a micro-batch's weight gradient [s]; 0 where it is part of the backward pass.
        chunk_share: Share of a stage's work in each of its chunks, summing to 1.
        weight_limit: Micro-batches stored (forward begun, weight gradient not done) from which on a weight
            gradient goes before the next forward. ``None``: all weight gradients are in ``order``, or none
            are operations of their own. Otherwise a weight gradient that is ready runs, oldest first,
            whenever the next operation cannot start.
    """

    devices: tuple[int, ...]
    shares: tuple[float, ...]
    chunks: tuple[tuple[int, int], ...]
    order: tuple[tuple[int, int, int], ...]
    forward_s: float
    backward_s: float
    weight_s: float
    chunk_share: tuple[float, ...]
    weight_limit: int | None = None

    def seconds(self, kind: int, chunk: int) -> float:
        """Length of an operation [s].

        Args:
            kind: ``FORWARD``, ``BACKWARD`` or ``WEIGHT``.
            chunk: Chunk, from 0.
        """
        return (self.forward_s, self.backward_s, self.weight_s)[kind] * self.chunk_share[chunk]


@dataclass(frozen=True, slots=True)
class ClusterScript:
    """Script of one cluster's round.

    Phases follow each other: migration, relay, ``local_steps`` times (step, all-reduce, update, replicas,
    wait), collection, upload. Each lasts its seconds; the length of a step follows from the orders.

    Attributes:
        cluster: Number, from 0.
        plays: Whether it takes part in the round. Where it does not, there are no stages and all times are 0.
        local_steps: ``H``, those that are left after a failure.
        micro_batches: ``M``.
        schedule: Schedule of its micro-batches.
        recompute: Whether devices recompute activations in the backward pass.
        stages: Stages of devices in pipeline order.
        server: The server's part for this cluster.
        server_blocks: The encoder's last blocks, which the server runs.
        hop_forward_s: Seconds of a micro-batch from the CU to the first stage, from stage to stage, and from
            the last one to the CU (S+1,) [s].
        hop_backward_s: Seconds of the same hops the other way (S+1,) [s].
        wrap_forward_s: Seconds from the last stage to the first one, between chunks [s].
        wrap_backward_s: Seconds from the first stage to the last one [s].
        uplink_s: Seconds of a micro-batch from the CU to the server [s].
        downlink_s: Seconds of its gradient back [s].
        latency_s: Latency of every hop between nodes of the cluster, either way; the link is free
            meanwhile [s].
        edge_latency_s: Latency of uplink and downlink [s].
        migration_s: Moments of moved blocks travel, before the round's first local step [s].
        relay_s: The CU relays new weights to the devices [s].
        allreduce_s: All-reduce in each local step [s].
        update_s: Optimisers' update in each local step [s].
        replicas_s: Replicas travel after each local step [s].
        barrier_s: Wait for the slowest cluster in each local step [s].
        collect_s: Collection of the segments at the CU [s].
        collect_each_s: Part of each device in it (K,) [s]; the largest is ``collect_s``.
        upload_s: Upload of the update to the server [s].
        delay_s: ``T_n`` from the round's begin to the end of the upload, without failures [s]; as the round
            counts it where the cluster does not take part.
        replicas: Place of the replicas.
        hosts: Node that keeps the replica of each stage (S,), 0 for the CU; ``None`` for a stage that sends
            none.
        arrived: Whether the gradient of each micro-batch arrives, for each local step (H, M).
        moments: Fate of each block's moments before the round (L,): ``STAY``, ``TRAVEL`` or ``LOST``
            of :mod:`collapipe_env.physics.migration`; ``None`` where a change of plan costs nothing.
    """

    cluster: int
    plays: bool
    local_steps: int
    micro_batches: int
    schedule: ScheduleName
    recompute: bool
    stages: tuple[StageScript, ...]
    server: StageScript
    server_blocks: int
    hop_forward_s: tuple[float, ...]
    hop_backward_s: tuple[float, ...]
    wrap_forward_s: float
    wrap_backward_s: float
    uplink_s: float
    downlink_s: float
    latency_s: float
    edge_latency_s: float
    migration_s: float
    relay_s: float
    allreduce_s: float
    update_s: float
    replicas_s: float
    barrier_s: float
    collect_s: float
    collect_each_s: tuple[float, ...]
    upload_s: float
    delay_s: float
    replicas: ReplicaPlace
    hosts: tuple[int | None, ...]
    arrived: tuple[tuple[bool, ...], ...]
    moments: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class RoundScript:
    """Script of a round of one environment.

    Attributes:
        round_index: Number of the round, from 0.
        clusters: Scripts of all clusters.
        server_mode: ``COMMON`` or ``COPIES`` of :mod:`collapipe_env.allocation`.
        broadcast_s: Broadcast of the new model [s].
        broadcast_start_s: Time at which it begins, the end of the slowest cluster's upload [s].
        delay_s: Delay of the round, without failures [s].
    """

    round_index: int
    clusters: tuple[ClusterScript, ...]
    server_mode: int
    broadcast_s: float
    broadcast_start_s: float
    delay_s: float


@dataclass(frozen=True, slots=True)
class Move:
    """Transfer of consecutive blocks between two nodes after a failure.

    Attributes:
        source: Node that sends, 0 for the CU.
        target: Node that receives; the source itself where it takes the blocks from a replica that it keeps.
        first_block: First block, from 0.
        end_block: Block after the last one.
        part: Part of the blocks: ``state`` for weights and moments as they are, ``weights`` for those of the
            round's begin, ``replica`` for trained weights and moments out of a replica, ``frozen`` for
            weights that nobody trains.
        start_s: Begin, from the end of planning [s].
        seconds: Airtime [s].
    """

    source: int
    target: int
    first_block: int
    end_block: int
    part: BlockPart
    start_s: float
    seconds: float

    @property
    def with_moments(self) -> bool:
        """Whether the optimiser's moments travel along."""
        return self.part in ("state", "replica")

    @property
    def from_replica(self) -> bool:
        """Whether the sender takes the blocks from a replica that it keeps."""
        return self.part == "replica"


@dataclass(frozen=True, slots=True)
class RecoveryScript:
    """Script with which a cluster continues after it has lost a device.

    Attributes:
        device: Number of the device that was lost, from 1.
        at_s: ``t_f``, since the round's begin [s].
        dropped: Whether the cluster gives its round up; then nothing moves and ``script`` does not play.
        credited: Local steps of the script before that count.
        restored: Whether blocks were lost: then all blocks go back to weights and moments of the round's
            begin, and all local steps of the round are left.
        detect_s: ``T_det`` [s].
        plan_s: ``T_plan`` [s].
        move_s: ``T_move``, with the rest of a migration, relay or earlier moves that the failure cut [s].
        resume_s: Time at which the first local step that is left begins, since the round's begin [s].
        moves: Transfers of blocks.
        reset: Blocks whose moments start again from zero.
        script: The local steps that are left, collection and upload. Its phases start at ``resume_s``;
            ``migration_s``, ``relay_s``, ``replicas_s`` and ``barrier_s`` are 0, and ``delay_s`` counts from
            the round's begin.
    """

    device: int
    at_s: float
    dropped: bool
    credited: int
    restored: bool
    detect_s: float
    plan_s: float
    move_s: float
    resume_s: float
    moves: tuple[Move, ...]
    reset: tuple[int, ...]
    script: ClusterScript

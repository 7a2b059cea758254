"""Scripts: the work of server, control units and devices in a round as plain data, with priced times ([X]).

A script says all that a role needs: the blocks that it holds, the order of its operations on micro-batches,
and the length of each operation and each transfer. No role reads the scenario or the plan. Clusters are
numbered from 0; in a cluster, node 0 is the control unit (CU) and devices are numbered from 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from collapipe_env.physics.allocation import ScheduleName
from collapipe_env.physics.recovery import BlockPart

FORWARD, BACKWARD, WEIGHT = 0, 1, 2
"""Kinds of operations; where weight gradients are split off, ``BACKWARD`` is only the input gradient."""

ReplicaPlace = Literal["none", "next_stage", "cu"]
"""Places of the replicas of trained blocks, as in the process ``presence``."""

LARGEST = 2**53
"""Bound of numbers in a script, up to which JSON's whole numbers are exact everywhere."""
Whole = Annotated[int, Field(strict=True, ge=-LARGEST, le=LARGEST)]
Real = Annotated[float, Field(strict=True, ge=0.0, le=LARGEST, allow_inf_nan=False)]
"""All real numbers of scripts are shares or times."""
Flag = Annotated[bool, Field(strict=True)]
CLOSED = ConfigDict(extra="forbid")
"""Other fields than those of a script are refused when it is read."""


@dataclass(frozen=True, slots=True)
class StageScript:
    """Script of one stage of a cluster's pipeline, or of the server's part for the cluster.

    Attributes:
        devices: Numbers of the stage's devices, from 1, its lead device first; empty for the server.
        shares: Each device's share of a micro-batch's samples, summing to 1; empty for the server.
        chunks: First encoder block and end of each chunk, as indices from 0; for the server, those of the
            last blocks, empty if it runs none.
        order: Operations in the order in which the stage runs them: kind, micro-batch and chunk.
        forward_s: Seconds of a micro-batch forward, all chunks together [s].
        backward_s: Seconds backward [s]; without the weight gradient where that is a separate operation.
        weight_s: Seconds of a micro-batch's weight gradient [s]; 0 where it is part of the backward pass.
        chunk_share: Share of a stage's work in each of its chunks, summing to 1.
    """

    __pydantic_config__ = CLOSED
    devices: tuple[Whole, ...]
    shares: tuple[Real, ...]
    chunks: tuple[tuple[Whole, Whole], ...]
    order: tuple[tuple[Whole, Whole, Whole], ...]
    forward_s: Real
    backward_s: Real
    weight_s: Real
    chunk_share: tuple[Real, ...]

    @property
    def split(self) -> bool:
        """Whether weight gradients are operations of their own."""
        return any(kind == WEIGHT for kind, _, _ in self.order)

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
        plays: Whether it takes part in the round. If not, it has no stages, and all its phases last 0 s.
        local_steps: ``H``; after a failure, the number of remaining steps.
        micro_batches: ``M``.
        schedule: Schedule of its micro-batches.
        recompute: Whether devices recompute activations in the backward pass.
        stages: Stages of devices in pipeline order.
        server: The server's part for this cluster.
        server_blocks: Number of the encoder's last blocks that the server runs.
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
        migration_s: Transfer of moved blocks' moments, before the round's first local step [s].
        relay_s: Relay of new weights from the CU to the devices [s].
        allreduce_s: All-reduce in each local step [s].
        update_s: Optimisers' update in each local step [s].
        replicas_s: Transfer of replicas after each local step [s].
        barrier_s: Wait for the slowest cluster in each local step [s].
        collect_s: Collection of the segments at the CU [s].
        collect_each_s: Collection of each device's segment (K,) [s]; the largest is ``collect_s``.
        upload_s: Upload of the update to the server [s].
        delay_s: ``T_n`` from the start of the round to the end of the upload, without failures [s]; if the
            cluster does not take part, its ``T_n`` in the round's costs.
        replicas: Place of the replicas.
        hosts: Node that keeps the replica of each stage (S,), 0 for the CU; ``None`` for a stage that sends
            none.
        arrived: Whether the gradient of each micro-batch arrives, for each local step (H, M).
        moments: Fate of each block's moments before the round (L,): ``STAY``, ``TRAVEL`` or ``LOST``
            of :mod:`collapipe_env.physics.moves`; ``None`` where a change of plan costs nothing.
    """

    __pydantic_config__ = CLOSED
    cluster: Whole
    plays: Flag
    local_steps: Whole
    micro_batches: Whole
    schedule: ScheduleName
    recompute: Flag
    stages: tuple[StageScript, ...]
    server: StageScript
    server_blocks: Whole
    hop_forward_s: tuple[Real, ...]
    hop_backward_s: tuple[Real, ...]
    wrap_forward_s: Real
    wrap_backward_s: Real
    uplink_s: Real
    downlink_s: Real
    latency_s: Real
    edge_latency_s: Real
    migration_s: Real
    relay_s: Real
    allreduce_s: Real
    update_s: Real
    replicas_s: Real
    barrier_s: Real
    collect_s: Real
    collect_each_s: tuple[Real, ...]
    upload_s: Real
    delay_s: Real
    replicas: ReplicaPlace
    hosts: tuple[Whole | None, ...]
    arrived: tuple[tuple[Flag, ...], ...]
    moments: tuple[Whole, ...] | None = None

    @property
    def devices(self) -> list[int]:
        """Numbers of the devices that have blocks, stage by stage."""
        return [k for stage in self.stages for k in stage.devices]


@dataclass(frozen=True, slots=True)
class RoundScript:
    """Script of a round of one environment.

    Attributes:
        round_index: Number of the round, from 0.
        clusters: Scripts of all clusters.
        server_mode: ``COMMON`` or ``COPIES`` of :mod:`collapipe_env.physics.allocation`.
        broadcast_s: Broadcast of the new model [s].
        broadcast_start_s: Time at which it begins, the end of the slowest cluster's upload [s].
        delay_s: Delay of the round, without failures [s].
    """

    __pydantic_config__ = CLOSED
    round_index: Whole
    clusters: tuple[ClusterScript, ...]
    server_mode: Whole
    broadcast_s: Real
    broadcast_start_s: Real
    delay_s: Real


@dataclass(frozen=True, slots=True)
class Move:
    """Transfer of consecutive blocks between two nodes after a failure.

    Attributes:
        source: Node that sends, 0 for the CU.
        target: Node that receives; the source itself if it takes the blocks from a replica that it keeps.
        first_block: First block, from 0.
        end_block: Block after the last one.
        part: Part of the blocks: ``state`` for weights and moments as they are, ``weights`` for weights of
            the start of the round, ``replica`` for trained weights and moments out of a replica, ``frozen``
            for weights that are not trained.
        start_s: Start, counted from the end of planning [s].
        seconds: Airtime [s].
    """

    __pydantic_config__ = CLOSED
    source: Whole
    target: Whole
    first_block: Whole
    end_block: Whole
    part: BlockPart
    start_s: Real
    seconds: Real


@dataclass(frozen=True, slots=True)
class RecoveryScript:
    """Script with which a cluster continues after it has lost a device.

    Attributes:
        device: Number of the device that was lost, from 1.
        at_s: ``t_f``, since the start of the round [s].
        dropped: Whether the cluster gives its round up; then nothing moves and ``script`` does not play.
        credited: Number of local steps of the previous script that count.
        restored: Whether blocks were lost: then all blocks go back to weights and moments of the start of
            the round, and all its local steps remain.
        detect_s: ``T_det`` [s].
        plan_s: ``T_plan`` [s].
        move_s: ``T_move``, with the rest of a migration, relay or earlier moves that the failure cut [s].
        resume_s: Start of the first remaining local step, since the start of the round [s].
        moves: Transfers of blocks.
        reset: Blocks whose moments start again from zero.
        script: The remaining local steps, collection and upload. Its phases start at ``resume_s``;
            ``migration_s``, ``relay_s``, ``replicas_s`` and ``barrier_s`` are 0, and ``delay_s`` counts from
            the start of the round.
    """

    __pydantic_config__ = CLOSED
    device: Whole
    at_s: Real
    dropped: Flag
    credited: Whole
    restored: Flag
    detect_s: Real
    plan_s: Real
    move_s: Real
    resume_s: Real
    moves: tuple[Move, ...]
    reset: tuple[Whole, ...]
    script: ClusterScript

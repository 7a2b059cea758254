"""Scripts: the work of server, control units and devices in a round as plain data, with priced times ([X]).

A script says all that a role needs: the blocks that it holds, the order of its operations on micro-batches,
and the length of each operation and each transfer. No role reads the scenario or the plan. Clusters are
numbered from 0; in a cluster, node 0 is the control unit (CU) and devices are numbered from 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from collapipe_env.physics.allocation import ScheduleName
from collapipe_env.physics.recovery import BlockPart
from collapipe_env.physics.schedules.timeline import Direction

FORWARD, BACKWARD, WEIGHT = 0, 1, 2
"""Kinds of operations; where weight gradients are split off, ``BACKWARD`` is only the input gradient."""
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward", "weight")
"""Names of the kinds in timelines."""


def node_name(cluster: int, node: int) -> str:
    """Return a node's name: ``c0`` is cluster 0's control unit, node 0; ``c0d0`` its first device.

    Inside the execution, nodes are numbered as in the simulator's costs, devices from 1. Names, like arrays
    and pictures, count devices from 0.
    """
    return f"c{cluster}d{node - 1}" if node else f"c{cluster}"


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

    devices: tuple[int, ...]
    shares: tuple[float, ...]
    chunks: tuple[tuple[int, int], ...]
    order: tuple[tuple[int, int, int], ...]
    forward_s: float
    backward_s: float
    weight_s: float
    chunk_share: tuple[float, ...]

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


NO_STAGE = StageScript((), (), (), (), 0.0, 0.0, 0.0, (1.0,))
"""A stage without work."""


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
        hosts: Node that keeps the replica of each stage (S,), 0 for the CU; ``None`` for a stage that sends
            none.
        arrived: Whether the gradient of each micro-batch arrives, for each local step (H, M).
    """

    cluster: int
    plays: bool
    local_steps: int
    micro_batches: int
    schedule: ScheduleName
    recompute: bool
    stages: tuple[StageScript, ...] = ()
    server: StageScript = NO_STAGE
    server_blocks: int = 0
    hop_forward_s: tuple[float, ...] = ()
    hop_backward_s: tuple[float, ...] = ()
    wrap_forward_s: float = 0.0
    wrap_backward_s: float = 0.0
    uplink_s: float = 0.0
    downlink_s: float = 0.0
    latency_s: float = 0.0
    edge_latency_s: float = 0.0
    migration_s: float = 0.0
    relay_s: float = 0.0
    allreduce_s: float = 0.0
    update_s: float = 0.0
    replicas_s: float = 0.0
    barrier_s: float = 0.0
    collect_s: float = 0.0
    collect_each_s: tuple[float, ...] = ()
    upload_s: float = 0.0
    delay_s: float = 0.0
    hosts: tuple[int | None, ...] = ()
    arrived: tuple[tuple[bool, ...], ...] = ()

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
        delay_s: Delay of the round, without failures [s].
    """

    round_index: int
    clusters: tuple[ClusterScript, ...]
    server_mode: int
    broadcast_s: float
    delay_s: float


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

    source: int
    target: int
    first_block: int
    end_block: int
    part: BlockPart
    start_s: float
    seconds: float


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

"""Replicas of the parts that devices train, which preserve them in failures inside a round ([R] and [X]).

After every local step each stage of a single device sends the weights and moments of its blocks to a host: a
device of the next stage, of the previous one for the last stage (Asteroid's topology-driven replication,
reconstructed), or the CU. Stages of several devices hold copies anyway. All owners send at once, each over
its own link, as in a collection: ``T_rep = max_k delta_k S / r[k, host(k)]``, with the bits ``S`` of the
trained weights and the moments of a block.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from collapipe_env.ground.arrays import Array, concatenate, namespace
from collapipe_env.physics.links import PlanGraph
from collapipe_env.physics.moves import PhaseTimes

ReplicationKind = Literal["none", "next_stage", "cu"]
REPLICATION_KINDS: tuple[ReplicationKind, ...] = get_args(ReplicationKind)
"""Ways to keep replicas; allocations name them by their index here."""
NO_REPLICAS, NEXT_STAGE, AT_CU = range(len(REPLICATION_KINDS))


class Replication(NamedTuple):
    """Terms of a scenario on which replicas are kept.

    Attributes:
        kind: Index in ``REPLICATION_KINDS`` of who keeps replicas.
        block_bits: ``S``, a block's trained weights and moments [bit].
    """

    kind: int
    block_bits: float

    @property
    def block_bytes(self) -> float:
        """Memory of the replica of a block [byte]."""
        return self.block_bits / 8.0


NO_REPLICATION = Replication(NO_REPLICAS, 0.0)
"""Terms of a scenario without replicas."""


def replica_hosts(graph: PlanGraph, kind: Array) -> Array:
    """Hosts of the devices' replicas (..., N, K, K+1), bool, CU first: at most one for each owner.

    A cluster's only stage has no neighbour, so the CU is its host.

    Args:
        kind: Index in ``REPLICATION_KINDS`` (..., N), int.
    """
    xp = namespace(kind)
    alone = graph.active
    if graph.same_stage is not None:
        alone = alone & (xp.sum(xp.astype(graph.same_stage, xp.int64), axis=-1) == 1)
    between = graph.successor[..., 1:, 1:]
    leads = graph.leader[..., None, :]
    following = between & leads
    preceding = xp.matrix_transpose(between) & leads
    has_next = xp.any(following, axis=-1, keepdims=True)
    near = xp.where(has_next, following, preceding)
    chosen = kind[..., None, None]
    at_devices = near & (chosen == NEXT_STAGE)
    has_host = xp.any(at_devices, axis=-1, keepdims=True)
    at_cu = ((chosen == AT_CU) | (chosen == NEXT_STAGE)) & ~has_host
    return concatenate((at_cu, at_devices)) & alone[..., None]


def hosts_with_room(hosts: Array, held_bytes: Array, used_bytes: Array, memory_bytes: Array) -> Array:
    """Hosts after devices without room for all their replicas have left them to the CU (..., N, K, K+1).

    Args:
        hosts: Requested hosts (..., N, K, K+1), bool, CU first.
        held_bytes: Replica of each owner (..., N, K) [byte].
        used_bytes: Memory that each device needs itself (..., N, K) [byte].
        memory_bytes: Memory that each device offers (..., N, K) [byte].
    """
    xp = namespace(hosts)
    room = (used_bytes + kept_bytes(hosts, held_bytes) <= memory_bytes)[..., None, :]
    at_devices = hosts[..., 1:] & room
    given_up = xp.any(hosts[..., 1:] & ~room, axis=-1, keepdims=True)
    return concatenate((hosts[..., :1] | given_up, at_devices))


def kept_bytes(hosts: Array, held_bytes: Array) -> Array:
    """Memory that replicas take on each device (..., N, K) [byte].

    Args:
        hosts: Hosts (..., N, K, K+1), bool, CU first.
        held_bytes: Replica of each owner (..., N, K) [byte].
    """
    xp = namespace(held_bytes)
    each = xp.where(hosts[..., 1:], held_bytes[..., None], xp.zeros_like(held_bytes)[..., None])
    return xp.sum(each, axis=-2)


def replica_times(hosts: Array, bits: Array, seconds_per_bit: Array) -> PhaseTimes:
    """Airtimes of the replicas of one local step.

    Args:
        hosts: Hosts (..., N, K, K+1), bool, CU first.
        bits: Replica of each owner (..., N, K) [bit].
        seconds_per_bit: Airtime of a bit from node to node (..., N, K+1, K+1) [s], sender first.
    """
    xp = namespace(bits)
    airtime = bits[..., None] * seconds_per_bit[..., 1:, :]
    each = xp.where(hosts, airtime, xp.zeros_like(airtime))  # links without messages do not count
    by_owner = xp.sum(each, axis=-1)
    nothing = xp.zeros_like(by_owner[..., :1])
    return PhaseTimes(xp.max(by_owner, axis=-1), concatenate((nothing, by_owner)), xp.sum(each, axis=-2))

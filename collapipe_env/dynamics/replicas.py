"""Cost of replicas on top of a round: airtime after every local step, energy, and the hosts' memory ([X])."""

from __future__ import annotations

from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.physics import energy
from collapipe_env.physics.allocation import ASYNC, INTERLEAVED, SEQUENTIAL, Allocation
from collapipe_env.physics.replication import (
    NO_REPLICAS,
    hosts_with_room,
    kept_bytes,
    replica_hosts,
    replica_times,
)
from collapipe_env.simulator.general_costs import seconds_per_bit
from collapipe_env.simulator.round import RoundCosts, Terms
from collapipe_env.simulator.state import Parameters, SystemState


def replica_terms(
    costs: RoundCosts, parameters: Parameters, state: SystemState, allocation: Allocation
) -> Terms | None:
    """Replicas that devices send after every local step, under the interference of the local step.

    Notes hold the hosts of the devices' replicas, ``replica_hosts`` (..., N, K, K+1), bool, CU first.
    """
    terms = parameters.replication
    kind = kinds_of(parameters, allocation)
    xp = namespace(kind, costs.delay)
    if not bool(xp.any(kind != NO_REPLICAS)):
        return None
    blocks = xp.astype(allocation.device_blocks, costs.delay.dtype)
    held = blocks * terms.block_bytes
    hosts = hosts_with_room(replica_hosts(costs.graph, kind), held, costs.memory, state.memory_bytes)
    each = seconds_per_bit(parameters, state, allocation.node_power, costs.interference)
    times = replica_times(hosts, blocks * terms.block_bits, each)
    steps = allocation.real_steps(parameters.costs.local_steps)
    drawn = parameters.radio_power
    power = energy.radio_power(allocation.node_power, drawn.d2d_circuit_w, drawn.efficiency)
    joules = power * times.sent + drawn.receive_w * times.received
    return Terms(
        step={"replicas": times.duration},
        energy=steps[..., None] * joules,
        memory=kept_bytes(hosts, held),
        notes={"replica_hosts": hosts},
    )


def kinds_of(parameters: Parameters, allocation: Allocation) -> Array:
    """Replicas of each cluster, as places in ``REPLICATION_KINDS`` (..., N), int.

    Clusters that would drop their round after a failure (under asynchronous and interleaved schedules, and
    with a sequential server) keep no replicas, nor do clusters that sit out.
    """
    terms = parameters.replication
    xp = namespace(allocation.micro_batches)
    none = xp.zeros_like(allocation.micro_batches)
    kind = none + terms.kind
    schedule, sequential = allocation.schedules.schedule, allocation.server.server_mode == SEQUENTIAL
    stopped = (schedule == ASYNC) | (schedule == INTERLEAVED) | sequential[..., None]
    return xp.where(allocation.plays & ~stopped, kind, none)

"""Building of scripts from a round's record, with the simulator's times ([X])."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from collapipe_env.dynamics.replicas import kinds_of
from collapipe_env.execution.script_replay import replayed_step
from collapipe_env.execution.scripts import (
    DIRECTIONS,
    ClusterScript,
    RoundScript,
    StageScript,
)
from collapipe_env.ground.arrays import FloatArray, IntArray, on_host
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import SCHEDULES, SEQUENTIAL, ScheduleName
from collapipe_env.physics.elements import collection_times
from collapipe_env.physics.links import plan_graph
from collapipe_env.physics.replication import NO_REPLICAS
from collapipe_env.physics.schedules.makespans import ZERO_BUBBLE_VARIANTS
from collapipe_env.physics.schedules.orders import fill_orders
from collapipe_env.physics.schedules.timeline import Event
from collapipe_env.simulator.general_costs import seconds_per_bit
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.running import running_state
from collapipe_env.simulator.state import Parameters, SystemState

Order: TypeAlias = tuple[tuple[int, int, int], ...]
"""Operations of a stage: kind, micro-batch and chunk."""
ORDERED: tuple[ScheduleName, ...] = ("gpipe", "1f1b", "interleaved", "zb-h1")
"""Schedules whose orders are known: all that flush the pipeline at the end of a local step."""


def round_script(record: RoundRecord, row: int, parameters: Parameters) -> RoundScript:
    """Return the script of a round as it was planned, without failures.

    Raises:
        AllocationError: If the plan has an asynchronous schedule or a sequential server, which are not
            executed.
    """
    costs = record.costs
    mode = int(record.allocation.server.server_mode[row])
    clusters = tuple(
        cluster_script(
            costs,
            record.state,
            parameters,
            (row, n),
            arrived=on_host(record.arrivals.survived)[row, n],
        )
        for n in range(costs.cluster_delay.shape[-1])
    )
    # The record's own delays include failures; a script follows the plan.
    latest = max(cluster.delay_s for cluster in clusters)
    broadcast = float(costs.broadcast[row])
    return RoundScript(
        round_index=int(record.state.round_index[row]),
        clusters=clusters,
        server_mode=mode,
        broadcast_s=broadcast,
        delay_s=latest + broadcast,
    )


def cluster_script(
    costs: RoundCosts,
    state: SystemState,
    parameters: Parameters,
    at: tuple[int, int],
    *,
    arrived: Sequence[Sequence[bool]] | np.ndarray,
    local_steps: int | None = None,
) -> ClusterScript:
    """Return the script of one cluster's round.

    Args:
        costs: Costs of the round, with its plan.
        state: The systems before the round.
        at: Environment and cluster.
        arrived: Whether the gradient of each micro-batch arrives (H or more, M or more).
        local_steps: ``H``; that of the plan by default.

    Raises:
        AllocationError: If the plan has something that is not executed; see :func:`round_script`.
    """
    plan, n = costs.allocation, at[1]
    schedule, mode = int(plan.schedules.schedule[at]), int(plan.server.server_mode[at[0]])
    _refuse(n, schedule, mode)
    if local_steps is None:
        own = parameters.costs.local_steps if costs.local_steps is None else costs.local_steps[at]
        local_steps = int(own)
    M = int(plan.micro_batches[at])
    recompute = parameters.costs.training_memory.recompute
    if plan.recompute is not None and plan.recompute[at] >= 0:
        recompute = bool(plan.recompute[at])
    bare = ClusterScript(
        cluster=n,
        plays=bool(costs.plays[at]),
        local_steps=local_steps,
        micro_batches=M,
        schedule=SCHEDULES[schedule],
        recompute=recompute,
        latency_s=costs.elements.hop_latency,
        edge_latency_s=costs.elements.edge_latency,
        collect_each_s=(0.0,) * plan.blocks.shape[-1],
        delay_s=float(costs.cluster_delay[at]),
        arrived=tuple(tuple(bool(x) for x in step[:M]) for step in arrived[:local_steps]),
    )
    if not bare.plays:
        return bare
    chained = _with_chain(bare, costs, at)
    return _with_phases(_with_orders(chained, costs, at), costs, state, parameters, at)


def _refuse(cluster: int, schedule: int, mode: int) -> None:
    """Refuse plans whose times depend on more than a cluster's own lists of operations."""
    name = SCHEDULES[schedule]
    if name not in ORDERED:
        raise AllocationError(
            f"schedule {name!r} of cluster {cluster} has no flush at the end of a local step and is not "
            f"executed; choose one of {', '.join(ORDERED)}"
        )
    if mode == SEQUENTIAL:
        raise AllocationError(
            "server_mode 'sequential' is not executed: its clusters wait for each other; choose 'copies'"
        )


def _with_chain(script: ClusterScript, costs: RoundCosts, at: tuple[int, int]) -> ClusterScript:
    """Return the script with its stages, links and their times; orders are still empty."""
    plan, e = costs.allocation, costs.elements
    split = script.schedule == "zb-h1"
    leaders, groups = _stages(costs, at)
    v = int(plan.schedules.chunks[at]) if script.schedule == "interleaved" else 1
    held = on_host(plan.device_blocks)[at][leaders]
    chunks = _chunks(held, v)
    total = int(held.sum())
    server_blocks = int(plan.server.server_blocks[at])
    shares = on_host(plan.groups.sample_share)[at]
    stages = []
    for s, k in enumerate(leaders):
        weight = float(e.compute_weight[at][k]) if split else 0.0
        stages.append(
            StageScript(
                devices=tuple(int(d) + 1 for d in groups[s]),
                shares=tuple(shares[groups[s]].tolist()),
                chunks=chunks[s],
                order=(),
                forward_s=float(e.compute_forward[at][k]),
                backward_s=float(e.compute_backward[at][k]) - weight,
                weight_s=weight,
                chunk_share=tuple((end - first) / int(held[s]) for first, end in chunks[s]),
            )
        )
    weight = float(e.server_weight[at]) if split else 0.0
    server = StageScript(
        devices=(),
        shares=(),
        chunks=((total, total + server_blocks),) if server_blocks else (),
        order=(),
        forward_s=float(e.server_forward[at]),
        backward_s=float(e.server_backward[at]) - weight,
        weight_s=weight,
        chunk_share=(1.0,),
    )
    wrap = 0.0, 0.0
    if v > 1:
        wrap = float(e.wrap_forward[at]), float(e.wrap_backward[at])
    return replace(
        script,
        stages=tuple(stages),
        server=server,
        server_blocks=server_blocks,
        # A hop's forward sender is the stage before it, its backward sender the stage after it.
        hop_forward_s=tuple(on_host(e.hop_forward)[at][np.r_[0, leaders + 1]].tolist()),
        hop_backward_s=tuple(on_host(e.hop_backward)[at][np.r_[leaders + 1, 0]].tolist()),
        wrap_forward_s=wrap[0],
        wrap_backward_s=wrap[1],
        uplink_s=float(e.uplink[at]),
        downlink_s=float(e.downlink[at]),
    )


def _stages(costs: RoundCosts, at: tuple[int, int]) -> tuple[IntArray, list[IntArray]]:
    """Return the lead device of each stage in pipeline order (S,), and all its devices, the lead first."""
    leaders = np.flatnonzero(on_host(costs.graph.leader)[at])
    slots = on_host(costs.allocation.groups.stage)[at]
    leaders = leaders[np.argsort(slots[leaders])]
    return leaders, [np.flatnonzero(slots == slots[k]) for k in leaders]


def _chunks(held: IntArray, chunks: int) -> list[tuple[tuple[int, int], ...]]:
    """Return first block and end of each chunk of each stage; the larger chunks come first."""
    found: list[list[tuple[int, int]]] = [[] for _ in held]
    first = 0
    for c in range(chunks):
        for s, blocks in enumerate(held.tolist()):
            end = first + blocks // chunks + (c < blocks % chunks)
            found[s].append((first, end))
            first = end
    return [tuple(stage) for stage in found]


def stage_orders(
    schedule: ScheduleName, caps: Sequence[int], micro_batches: int, chunks: int = 1, variant: int = 0
) -> list[Order]:
    """Return the orders of all stages and, last, of the server; arguments as for :func:`fill_orders`."""
    stages = len(caps)
    orders = np.zeros((stages + 1, 3 * micro_batches * chunks, 3), dtype=np.int64)
    counts = np.zeros(stages + 1, dtype=np.int64)
    fill_orders(SCHEDULES.index(schedule), np.array(caps), micro_batches, chunks, variant, orders, counts)
    return [tuple(map(tuple, row[:n].tolist())) for row, n in zip(orders, counts, strict=True)]


def _with_orders(script: ClusterScript, costs: RoundCosts, at: tuple[int, int]) -> ClusterScript:
    """Return the script with its orders; under ``zb-h1`` those with the shortest local step."""
    plan, M = costs.allocation, script.micro_batches
    caps = [M] * len(script.stages)
    if script.schedule != "gpipe":
        slots = on_host(plan.blocks)[at] > 0
        caps = on_host(plan.schedules.caps)[at][slots].tolist()
    v = len(script.stages[0].chunks)
    if script.schedule != "zb-h1":
        return _ordered(script, stage_orders(script.schedule, caps, M, v))
    best: ClusterScript | None = None
    shortest = np.inf
    for variant in range(ZERO_BUBBLE_VARIANTS):
        limits = [*(min(cap, M) for cap in caps), M] if variant & 1 else None
        candidate = _ordered(script, stage_orders("zb-h1", caps, M, 1, variant))
        length, events = replayed_step(candidate, limits)
        if best is None or length < shortest:
            best = candidate if limits is None else _ordered(script, orders_of(events, len(caps)))
            shortest = length
    assert best is not None
    return best


def orders_of(events: Sequence[Event], stages: int) -> list[Order]:
    """Return the orders in which all stages and, last, the server carry out the operations of a local step.

    Args:
        events: Its events in order of completion.
        stages: Number of stages, of one chunk each.
    """
    elements = [*(2 * s + 1 for s in range(stages)), 2 * stages + 2]
    return [
        tuple((DIRECTIONS.index(e.direction), e.micro_batch, 0) for e in events if e.element == element)
        for element in elements
    ]


def _ordered(script: ClusterScript, orders: Sequence[Order]) -> ClusterScript:
    """Return the script with given orders."""
    *stages, server = (
        replace(stage, order=order)
        for stage, order in zip((*script.stages, script.server), orders, strict=True)
    )
    return replace(script, stages=tuple(stages), server=server)


def _with_phases(
    script: ClusterScript,
    costs: RoundCosts,
    state: SystemState,
    parameters: Parameters,
    at: tuple[int, int],
) -> ClusterScript:
    """Return the script with the lengths of its phases, and its replicas."""
    migration = sum(float(seconds[at]) for seconds in costs.terms.once.values())
    replicas = sum(float(seconds[at]) for seconds in costs.terms.step.values())
    collect = float(costs.collect[at])
    found = replace(
        script,
        migration_s=migration,
        relay_s=float(costs.relay[at]),
        allreduce_s=float(costs.allreduce[at]),
        update_s=float(costs.update[at]),
        replicas_s=replicas,
        barrier_s=float(costs.barrier[at]),
        collect_s=collect,
        collect_each_s=tuple(_collections(costs, state, parameters, at).tolist()),
        upload_s=float(costs.upload[at]),
        hosts=tuple(_host(costs, parameters, at, stage) for stage in script.stages),
    )
    step = float(costs.local_step[at]) + replicas + found.barrier_s
    whole = migration + found.relay_s + found.local_steps * step + collect + found.upload_s
    return replace(found, delay_s=whole)


def _host(costs: RoundCosts, parameters: Parameters, at: tuple[int, int], stage: StageScript) -> int | None:
    """Return the node that keeps a stage's replica; ``None`` if there is none."""
    hosts = costs.terms.notes.get("replica_hosts")
    alone = len(stage.devices) == 1
    if hosts is None or not alone or kinds_of(parameters, costs.allocation)[at] == NO_REPLICAS:
        return None
    nodes = np.flatnonzero(on_host(hosts)[at][stage.devices[0] - 1])
    return int(nodes[0]) if len(nodes) else None


def _collections(
    costs: RoundCosts, state: SystemState, parameters: Parameters, at: tuple[int, int]
) -> FloatArray:
    """Return the time in which each device sends its segment to the CU (K,) [s], 0 if it leads no stage."""
    row = slice(at[0], at[0] + 1)
    plan = costs.allocation.map(lambda a: on_host(a)[row])
    running = running_state(state[row].map(on_host), plan)
    # Collections are not repeated: their times are those of single transmissions.
    once = replace(parameters, lossy=False, link=parameters.link._replace(transmissions=1.0))
    seconds = seconds_per_bit(once, running, plan.node_power, on_host(costs.interference)[row])
    with np.errstate(divide="ignore"):
        rates = 1.0 / np.asarray(seconds)[..., 1:, 0]
    payload = np.asarray(plan.device_blocks, dtype=np.float64) * parameters.costs.block_payload_bits
    found: FloatArray = np.asarray(collection_times(plan_graph(plan), rates, payload))[0, at[1]]
    return found

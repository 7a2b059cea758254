"""Views of recorded rounds: exact timelines and plain numbers, from the record of a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import on_host
from collapipe_env.physics.allocation import (
    ASYNC,
    GPIPE,
    SCHEDULES,
    SEQUENTIAL,
    Allocation,
)
from collapipe_env.physics.schedules.chains import flat_chains
from collapipe_env.physics.schedules.timeline import (
    Element,
    Event,
    RoundTimeline,
    chain_elements,
    cluster_timeline,
    gpipe_timeline,
)
from collapipe_env.rendering.failed_timeline import with_failure
from collapipe_env.rendering.round_numbers import ClusterMap, ClusterView, RoundView
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.learner import Arrivals
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.system import MOBILITY
from collapipe_env.simulator.world import World


def cluster_round_timeline(
    record: RoundRecord, row: int, cluster: int, *, drawn_steps: int | None = 1, failed: bool = False
) -> RoundTimeline:
    """Return the exact, event-driven timeline of one cluster's round.

    Args:
        drawn_steps: Local steps whose events are listed; 0 for phases only, ``None`` for all.
        failed: Whether to draw the round as it was planned before a device failed.
    """
    at, costs, plan = (row, cluster), record.costs, record.allocation
    local_steps, stage = _local_steps(record, at), plan.groups.stage[at]
    leaders = np.flatnonzero(costs.graph.leader[at])
    leaders = leaders[np.argsort(stage[leaders])]
    e = costs.elements
    wrap_s = None
    if plan.schedules.chunks[at] > 1:
        wrap_s = float(e.wrap_forward[at]), float(e.wrap_backward[at])
    whole_round = plan.schedules.schedule[at] == ASYNC
    ends = local_steps if whole_round else 1
    before, step_ends, after = costs.phases
    elements = chain_elements(
        (leaders + 1).tolist(),
        plan.device_blocks[at][leaders].tolist(),
        compute_forward_s=e.compute_forward[at][leaders],
        compute_backward_s=e.compute_backward[at][leaders],
        # A hop's forward sender is the group before it, its backward sender the group after it.
        hop_forward_s=e.hop_forward[at][np.r_[0, leaders + 1]],
        hop_backward_s=e.hop_backward[at][np.r_[leaders + 1, 0]],
        uplink_s=float(e.uplink[at]),
        downlink_s=float(e.downlink[at]),
        server_forward_s=float(e.server_forward[at]),
        server_backward_s=float(e.server_backward[at]),
        server_blocks=int(plan.server.server_blocks[at]),
        stage_names=[_group_name(np.flatnonzero(stage == stage[k])) for k in leaders],
        wrap_s=wrap_s,
        latency_s=e.hop_latency,
        edge_latency_s=e.edge_latency,
    )
    return cluster_timeline(
        elements,
        (local_steps if whole_round else 1) * float((costs.local_step - costs.allreduce - costs.update)[at]),
        [] if drawn_steps == 0 else _step_events(record, row, cluster, elements),
        local_steps=1 if whole_round else local_steps,
        before={name: float(seconds[at]) for name, seconds in before.items()},
        step_ends={name: ends * float(seconds[at]) for name, seconds in step_ends.items()},
        after={name: float(seconds[at]) for name, seconds in after.items()},
        broadcast_s=float(costs.broadcast[row]),
        # A cluster in which a device failed may finish earlier than planned.
        broadcast_start_s=None if failed else float(costs.cluster_delay[row].max()),
        drawn_steps=drawn_steps,
    )


def played_timeline(record: RoundRecord, row: int, cluster: int, detailed: bool) -> RoundTimeline:
    """Return the timeline of a cluster's round as played; without a pipeline if the cluster sits out.

    Args:
        detailed: Whether the events of a local step are listed.
    """
    plays = bool(record.costs.plays[row, cluster])
    failed = record.failed is not None and bool(record.failed.device[row, cluster] >= 0)
    drawn_steps = 1 if detailed and plays else 0
    planned = cluster_round_timeline(record, row, cluster, drawn_steps=drawn_steps, failed=failed)
    if not plays:
        return replace(planned, elements=planned.elements[-1:])
    return with_failure(planned, record, row, cluster)


def runs_gpipe(allocation: Allocation, row: int, cluster: int) -> bool:
    """Return whether a cluster's local steps are those of :func:`gpipe_timeline`.

    Args:
        allocation: The plan (E, ...).
    """
    return bool(
        allocation.server.server_mode[row] != SEQUENTIAL
        and allocation.schedules.schedule[row, cluster] == GPIPE
    )


def _local_steps(record: RoundRecord, at: tuple[int, int]) -> int:
    """Return the local steps of a cluster."""
    steps = record.costs.local_steps
    return record.arrivals.counts.shape[-1] if steps is None else int(steps[at])


def _group_name(members: npt.NDArray[np.intp]) -> str:
    """Name of a stage of several devices: the first and how many more."""
    first = f"d{members[0]}"
    if len(members) == 2:
        return f"{first}+d{members[1]}"
    return first if len(members) == 1 else f"{first}+{len(members) - 1}"


def _step_events(
    record: RoundRecord, row: int, cluster: int, elements: tuple[Element, ...]
) -> Sequence[Event]:
    """Return the events of a local step; under an asynchronous schedule, of all of them."""
    plan = record.allocation
    if plan.server.server_mode[row] == SEQUENTIAL:
        return []  # the wait for the server depends on the other clusters
    if runs_gpipe(plan, row, cluster):
        return gpipe_timeline(elements, int(plan.micro_batches[row, cluster]))
    from collapipe_env.physics.schedules.events import schedule_events

    shape = record.costs.local_step.shape
    steps = _local_steps(record, (row, cluster))
    chains, orders = flat_chains(plan, record.costs.graph, record.costs.elements, steps, shape)
    return schedule_events(chains, orders, row * shape[-1] + cluster, record.half_duplex)


def round_view(
    record: RoundRecord,
    title: str,
    *,
    row: int = 0,
    side_m: float | None = None,
    reach_m: float | None = None,
    loss_history: Sequence[float] = (),
    delay_history: Sequence[float] = (),
) -> RoundView:
    """Return the view of a round, from which its picture is drawn.

    Args:
        side_m: Side of the squares that devices walk in [m], for maps; ``None`` for no maps.
        reach_m: Distance from the CU beyond which devices are away [m]; ``None`` where nobody leaves.
        delay_history: Round delays of the episode so far [s].
    """
    costs, plan = record.costs, record.allocation
    caps = plan.said("clock_cap")
    arrivals = record.surviving_fraction()[row]
    # Only the slowest clusters are drawn in detail where there are many: the others need no events.
    detailed = set(np.argsort(-costs.cluster_delay[row])[:4].tolist())
    plays, stage = costs.plays[row], plan.groups.stage[row]
    # In the order of their stages, idle ones last.
    passed = np.argsort(np.where(stage < 0, stage.shape[-1], stage), kind="stable")
    named = record.allocation.is_scheduled
    clusters = tuple(
        ClusterView(
            name=f"c{n}",
            timeline=played_timeline(record, row, n, n in detailed),
            blocks=plan.device_blocks[row, n] * plays[n],
            micro_batches=int(plan.micro_batches[row, n]),
            bandwidth=float(plan.bandwidth[row, n] * plays[n]),
            cu_power_w=float(plan.cu_power[row, n]),
            device_power_w=plan.device_power[row, n],
            delay_s=float(costs.cluster_delay[row, n]),
            arrivals=float(arrivals[n]),
            order=passed[n],
            clock_cap=on_host(caps)[row, n],
            recomputes=bool(plan.said("recompute")[row, n] > 0),
            schedule=SCHEDULES[int(plan.schedules.schedule[row, n])] if named else "",
            server_blocks=int(plan.server.server_blocks[row, n]),
            takes_part=bool(plays[n]),
            local_steps=_local_steps(record, (row, n)),
            site=None if side_m is None else _site(record, (row, n), side_m, reach_m),
        )
        for n in range(costs.cluster_delay.shape[-1])
    )
    return RoundView(
        title=title,
        clusters=clusters,
        backlog=record.backlog[row],
        energy_ratio=costs.energy_ratio[row],
        present=record.state.present[row],
        round_index=int(record.state.round_index[row]) + 1,
        delay_s=float(costs.delay[row]),
        loss_history=loss_history,
        delay_history=delay_history,
        allowance=None if costs.budget_period_s is None else float(costs.allowance[row]),
        known_error_db=_known_error_db(record, row),
    )


def _known_error_db(record: RoundRecord, row: int) -> float | None:
    """Return the RMS error of known gains over uplinks and links of present nodes, each once [dB]."""
    state = record.state
    if state.known_uplink_gain is None or state.known_d2d_gain is None:
        return None
    there = np.pad(on_host(state.present[row]), ((0, 0), (1, 0)), constant_values=True)
    pairs = np.triu(there[:, :, None] & there[:, None, :], 1)
    found = [
        np.concatenate((on_host(uplink[row]), on_host(d2d[row])[pairs > 0]))
        for uplink, d2d in (
            (state.uplink_gain, state.d2d_gain),
            (state.known_uplink_gain, state.known_d2d_gain),
        )
    ]
    decibels = 10.0 * np.log10(found[1] / found[0])
    return float(np.sqrt(np.mean(decibels**2)))


def _site(
    record: RoundRecord, at: tuple[int, int], side_m: float, reach_m: float | None
) -> ClusterMap | None:
    """Places of a cluster's devices and the hops of its pipeline; ``None`` where devices stand still."""
    walk = record.state.processes.get(MOBILITY)
    if walk is None:
        return None
    graph = record.costs.graph
    # For the whole mini-batch, so that clusters with different micro-batches compare by their rates.
    hops = record.costs.elements.hop_forward[at] * record.allocation.micro_batches[at]
    # Empty slots have a rank that is next to no other, so they have no links.
    pairs = np.argwhere(graph.successor[at] & record.costs.plays[at])
    station = -on_host(walk["cu_position"])[at]
    return ClusterMap(
        side_m=side_m,
        east_m=on_host(walk["x"])[at] - 0.5 * side_m,
        north_m=on_host(walk["y"])[at] - 0.5 * side_m,
        station_m=(float(station[0]), float(station[1])),
        links=tuple((int(i), int(j), float(hops[i])) for i, j in pairs),
        reach_m=reach_m,
    )


def preview(world: World) -> RoundRecord:
    """Return the round that the even split would give in the current state; nothing is played."""
    state = world.state
    allocation = even_split(world.parameters, state)
    costs = round_costs(world.parameters, state, allocation)
    work = world.scenario.workload
    shape = (*state.uplink_gain.shape, world.parameters.most_local_steps)
    M = allocation.micro_batches
    counts = np.where(np.arange(shape[-1]) < work.local_steps, M[..., None], 0)
    arrivals = Arrivals(counts, M, np.zeros(shape, np.uint64), work.micro_batch_choices[-1])
    return world.recorded(state, costs, arrivals, replace(world.learning))

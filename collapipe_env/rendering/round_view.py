"""A recorded round as its picture shows it: the exact timelines of one environment, and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import BoolArray, IntArray, on_host
from collapipe_env.ground.records import mapped
from collapipe_env.physics.allocation import ASYNC, GPIPE, SCHEDULES, SEQUENTIAL, Allocation
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
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.learner import Arrivals
from collapipe_env.simulator.record import RoundRecord
from collapipe_env.simulator.world import World


@dataclass(frozen=True)
class Chart:
    """Round of one cluster as its chart shows it.

    Attributes:
        name: Short, for the margin: ``"c0"``.
        timeline: Its round. Only charts in detail need events; see :func:`slowest`.
        delay_s: The cluster's own round time T_n in seconds, before waiting and broadcast.
        micro_batches: M of the round.
        schedule: Name of its schedule; empty where plans do not decide it.
    """

    name: str
    timeline: RoundTimeline
    delay_s: float
    micro_batches: int
    schedule: str = ""


def slowest(charts: Sequence[Chart], most: int = 4) -> list[int]:
    """Return the clusters for detailed charts: all if at most ``most``, else the slowest, in order."""
    if len(charts) <= most:
        return list(range(len(charts)))
    return sorted(range(len(charts)), key=lambda n: -charts[n].delay_s)[:most]


@dataclass(frozen=True, eq=False)
class RoundView:
    """A round of one environment, and what its picture tells beside it.

    Attributes:
        record: The round of all environments (E, ...).
        title: First words of the heading, for instance the scenario's and the policy's names.
        row: The environment.
        side_m: Side of the squares that devices walk in [m], for maps; ``None`` for no maps.
        reach_m: Distance from the CU beyond which devices are away [m]; ``None`` where nobody leaves.
        loss_history: Evaluation losses of the rounds so far, oldest first, this round's last; may be empty
            and may hold NaN.
        delay_history: Delays of the rounds so far in seconds, in the same order; may be empty.
    """

    record: RoundRecord
    title: str
    row: int = 0
    side_m: float | None = None
    reach_m: float | None = None
    loss_history: Sequence[float] = ()
    delay_history: Sequence[float] = ()

    @cached_property
    def round(self) -> RoundRecord:
        """The environment's own record, on the host and without the batch axis."""
        return mapped(self.record, lambda array: on_host(array)[self.row])

    @cached_property
    def charts(self) -> tuple[Chart, ...]:
        """Charts of all clusters; the events of the slowest are listed."""
        costs, plan = self.round.costs, self.round.allocation
        # Where there are many clusters, only the slowest are drawn in detail.
        detailed = set(np.argsort(-costs.cluster_delay, kind="stable")[:4].tolist())
        return tuple(
            Chart(
                name=f"c{n}",
                timeline=played_timeline(self.record, self.row, n, int(n in detailed)),
                delay_s=float(costs.cluster_delay[n]),
                micro_batches=int(plan.micro_batches[n]),
                schedule=SCHEDULES[int(plan.schedules.schedule[n])] if plan.is_scheduled else "",
            )
            for n in range(len(costs.cluster_delay))
        )

    @property
    def devices(self) -> int:
        """Device slots per cluster, K."""
        return int(self.round.state.present.shape[-1])

    @property
    def node_present(self) -> BoolArray:
        """Presence of the nodes (N, K+1); the CU, node 0, is always there."""
        return np.pad(self.round.state.present > 0, ((0, 0), (1, 0)), constant_values=True)

    @property
    def known_error_db(self) -> float | None:
        """RMS error of known gains over uplinks and links of present nodes, each once [dB]; else ``None``."""
        state = self.round.state
        if state.known_uplink_gain is None or state.known_d2d_gain is None:
            return None
        there = self.node_present
        pairs = np.triu(there[:, :, None] & there[:, None, :], 1)
        true, known = (
            np.concatenate((uplink, d2d[pairs > 0]))
            for uplink, d2d in (
                (state.uplink_gain, state.d2d_gain),
                (state.known_uplink_gain, state.known_d2d_gain),
            )
        )
        return float(np.sqrt(np.mean((10.0 * np.log10(known / true)) ** 2)))


def cluster_round_timeline(
    record: RoundRecord, row: int, cluster: int, *, drawn_steps: int | None = 1, failed: bool = False
) -> RoundTimeline:
    """Return the exact, event-driven timeline of one cluster's round.

    Args:
        drawn_steps: Local steps whose events are listed; 0 for phases only, ``None`` for all.
        failed: Whether to draw the round as it was planned before a device failed.
    """
    at, costs, plan = (row, cluster), record.costs, record.allocation
    steps, stage = int(local_steps(record)[at]), plan.groups.stage[at]
    leaders = np.flatnonzero(costs.graph.leader[at])
    leaders = leaders[np.argsort(stage[leaders])]
    e = costs.elements
    wrap_s = None
    if plan.schedules.chunks[at] > 1:
        wrap_s = float(e.wrap_forward[at]), float(e.wrap_backward[at])
    whole_round = plan.schedules.schedule[at] == ASYNC
    ends = steps if whole_round else 1
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
        (steps if whole_round else 1) * float((costs.local_step - costs.allreduce - costs.update)[at]),
        [] if drawn_steps == 0 else _step_events(record, row, cluster, elements),
        local_steps=1 if whole_round else steps,
        before={name: float(seconds[at]) for name, seconds in before.items()},
        step_ends={name: ends * float(seconds[at]) for name, seconds in step_ends.items()},
        after={name: float(seconds[at]) for name, seconds in after.items()},
        broadcast_s=float(costs.broadcast[row]),
        # A cluster in which a device failed may finish earlier than planned.
        broadcast_start_s=None if failed else float(costs.cluster_delay[row].max()),
        drawn_steps=drawn_steps,
    )


def played_timeline(record: RoundRecord, row: int, cluster: int, drawn_steps: int | None) -> RoundTimeline:
    """Return the timeline of a cluster's round as played; without a pipeline if the cluster sits out.

    Args:
        drawn_steps: As for :func:`cluster_round_timeline`.
    """
    plays = bool(record.costs.plays[row, cluster])
    failed = record.failed is not None and bool(record.failed.device[row, cluster] >= 0)
    drawn_steps = drawn_steps if plays else 0
    planned = cluster_round_timeline(record, row, cluster, drawn_steps=drawn_steps, failed=failed)
    if not plays:
        return replace(planned, elements=planned.elements[-1:])
    return with_failure(planned, record, row, cluster)


def runs_gpipe(allocation: Allocation, row: int, cluster: int) -> bool:
    """Return whether a cluster's local steps under a plan (E, ...) are those of :func:`gpipe_timeline`."""
    return bool(
        allocation.server.server_mode[row] != SEQUENTIAL
        and allocation.schedules.schedule[row, cluster] == GPIPE
    )


def local_steps(record: RoundRecord) -> IntArray:
    """Return the local steps of the clusters (..., N)."""
    steps, counts = record.costs.local_steps, record.arrivals.counts
    return np.full(counts.shape[:-1], counts.shape[-1]) if steps is None else steps


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
    steps = int(local_steps(record)[row, cluster])
    chains, orders = flat_chains(plan, record.costs.graph, record.costs.elements, steps, shape)
    return schedule_events(chains, orders, row * shape[-1] + cluster, record.half_duplex)


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

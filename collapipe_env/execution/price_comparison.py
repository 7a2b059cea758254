"""Comparison of executed rounds with their prices: local steps, rounds of clusters, lateness of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.execution.planned_rounds import PlannedRound
from collapipe_env.execution.predicted import predicted_events
from collapipe_env.execution.round_reports import event_table
from collapipe_env.execution.scripts import ClusterScript, node_name

TRAINING, COLLECTION, UPLOAD, BROADCAST = "local steps", "collection", "upload", "broadcast"
"""Phases of a round."""
OVERRUN_S = 1e-3
"""Lateness above which an event counts as an overrun [s]."""


@dataclass(frozen=True)
class ComparedPhase:
    """A phase of a round: its length by the simulator and measured [s]."""

    name: str
    priced_s: float
    measured_s: float


@dataclass(frozen=True)
class ComparedCluster:
    """A cluster's round, priced and measured.

    Attributes:
        cluster: Cluster, from 0.
        schedule: Its schedule.
        micro_batches: ``M``.
        step_priced_s: Mean length of a local step without all-reduce and update, by the simulator [s].
        step_measured_s: That length measured [s]; ``None`` if nothing was recorded or a device was lost.
        delay_priced_s: ``T_n`` by the simulator, with the recoveries from losses [s].
        delay_measured_s: ``T_n`` measured [s].
        lost: Names of the devices that were lost, such as ``c0d1``.
        given_up: Whether it has given the round up, and so trained nothing.
        recovery_s: Time in which it had lost a device and training had not continued [s].
        phases: Its phases; empty if it has lost a device.
        late_mean_s: Mean lateness of the ends of operations and arrivals of messages, in wall time [s];
            ``None``, like the next four, if nothing was due because nothing waited for prices.
        late_most_s: Largest lateness [s].
        begun_late_mean_s: Mean lateness of the starts of operations [s].
        begun_late_most_s: Largest lateness of the starts [s].
        overruns: Events that were late by more than a millisecond.
    """

    cluster: int
    schedule: str
    micro_batches: int
    step_priced_s: float
    step_measured_s: float | None
    delay_priced_s: float
    delay_measured_s: float
    lost: tuple[str, ...]
    given_up: bool
    recovery_s: float
    phases: tuple[ComparedPhase, ...]
    late_mean_s: float | None = None
    late_most_s: float | None = None
    begun_late_mean_s: float | None = None
    begun_late_most_s: float | None = None
    overruns: int | None = None


@dataclass(frozen=True)
class ComparedRound:
    """A round, priced and measured.

    Attributes:
        round: Its number, from 1.
        clusters: Clusters that took part.
        delay_priced_s: Delay of the round by the simulator, with the recoveries from losses: until the
            slowest cluster's priced ``T_n`` and the broadcast have ended [s].
        delay_measured_s: Delay measured, broadcast included [s].
        train_loss: Mean training loss; ``None`` where nothing arrived.
        figures: Loss and metrics of the common model on held-out samples, as last evaluated: every
            ``learning.evaluate_every`` rounds.
        broadcast: Its last phase.
        clock_bound_s: Largest error in converting other machines' clocks to the driver's, in wall time [s];
            ``None`` if all share one clock.
    """

    round: int
    clusters: tuple[ComparedCluster, ...]
    delay_priced_s: float
    delay_measured_s: float
    train_loss: float | None
    figures: Mapping[str, float]
    broadcast: ComparedPhase
    clock_bound_s: float | None = None


def compare_round(
    number: int, planned: PlannedRound, result: Mapping[str, Any], scale: float = 1.0
) -> ComparedRound:
    """Compare an executed round with its prices.

    Args:
        number: Its number, from 1.
        result: Its report.
        scale: Wall time of a priced second [s].
    """
    events, costs = event_table(result["events"]), planned.record.costs
    clusters = tuple(
        _compared(planned, script, result, events[events["cluster"] == script.cluster], scale)
        for script in planned.script.clusters
        if script.plays
    )
    # A cluster with a loss that the simulator does not know of may now be the slowest.
    delays = np.array(costs.cluster_delay[0], dtype=np.float64)
    slowest = delays.max()
    for one in clusters:
        delays[one.cluster] = one.delay_priced_s
    return ComparedRound(
        number,
        clusters,
        float(costs.delay[0] + (delays.max() - slowest)),
        float(result["delay_s"]),
        result["train_loss"],
        result["figures"],
        ComparedPhase(BROADCAST, planned.script.broadcast_s, measured_broadcast(planned, result)),
        result.get("clock_bound_s"),
    )


def _compared(
    planned: PlannedRound,
    script: ClusterScript,
    result: Mapping[str, Any],
    events: npt.NDArray[np.void],
    scale: float,
) -> ComparedCluster:
    n, recoveries = script.cluster, result["recoveries"][script.cluster]
    steps = [phase for phase in predicted_events(planned.record, 0, n).phases if phase.label == "step"]
    measured_s, delay_s = float(result["cluster_s"][n]), script.delay_s
    if recoveries:
        # The simulator has priced only the losses that it knows of.
        known = {(k, at) for m, k, at in planned.failures if m == n}
        told = {(one["device"], one["at_s"]) for one in recoveries} <= known
        of_last = float(recoveries[-1]["script"]["delay_s"])
        delay_s = float(planned.record.costs.cluster_delay[0, n]) if told else of_last
    collected_s, phases = result["collected_s"][n], list[ComparedPhase]()
    if not recoveries and collected_s is not None and len(events):
        priced = steps[-1].end_s, delay_s - script.upload_s, delay_s
        measured = ends_of(events).max(), collected_s, measured_s
        lengths = (np.diff(ends, prepend=0.0).tolist() for ends in (priced, measured))
        phases = list(map(ComparedPhase, (TRAINING, COLLECTION, UPLOAD), *lengths))
    return ComparedCluster(
        cluster=n,
        schedule=script.schedule,
        micro_batches=script.micro_batches,
        step_priced_s=float(np.mean([phase.end_s - phase.start_s for phase in steps])),
        step_measured_s=None if recoveries or not len(events) else measured_step(events),
        delay_priced_s=delay_s,
        delay_measured_s=measured_s,
        lost=tuple(node_name(n, one["device"]) for one in recoveries),
        given_up=any(one["dropped"] for one in recoveries),
        recovery_s=_covered((one["at_s"], one["resume_s"]) for one in recoveries),
        phases=tuple(phases),
        **(_lateness(events, scale) if result["emulated"] else {}),
    )


def _covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals [s], which may overlap."""
    length, until = 0.0, 0.0
    for start, end in sorted(intervals):
        length += max(end - max(start, until), 0.0)
        until = max(end, until)
    return length


def _lateness(events: npt.NDArray[np.void], scale: float) -> dict[str, Any]:
    """Return figures of the lateness in wall time [s], 0 if nothing happened."""
    ends = scale * (events["measured_end_s"] - events["end_s"])
    begins = scale * (events["began_s"] - events["start_s"])[events["there_s"] == 0.0]
    return {
        "late_mean_s": float(ends.mean()) if len(ends) else 0.0,
        "late_most_s": float(ends.max(initial=0.0)),
        "begun_late_mean_s": float(begins.mean()) if len(begins) else 0.0,
        "begun_late_most_s": float(begins.max(initial=0.0)),
        "overruns": int((ends > OVERRUN_S).sum()),
    }


def measured_broadcast(planned: PlannedRound, result: Mapping[str, Any]) -> float:
    """Return the measured length of the broadcast at the end of a round [s]."""
    idle = [script.delay_s for script in planned.script.clusters if not script.plays]
    return float(result["delay_s"] - max(end for end in [*result["cluster_s"], *idle] if end is not None))


def ends_of(events: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """Return ends by the machine's clock; of messages, their hand-over to the receiver, latency included [s].

    Args:
        events: Table of events.
    """
    ends: npt.NDArray[np.float64] = np.maximum(events["measured_end_s"], events["there_s"])
    return ends


def measured_step(events: npt.NDArray[np.void]) -> float:
    """Return the mean measured length of a cluster's local steps [s].

    A step lasts from the time when its first message may leave the control unit, so that a late start counts,
    to the last end of an operation or hand-over of a message. These ends are readings of the clock.

    Args:
        events: Table of the cluster's events, at least one.
    """
    steps = [events[events["step"] == step] for step in np.unique(events["step"])]
    return float(np.mean([ends_of(step).max() - step["start_s"].min() for step in steps]))

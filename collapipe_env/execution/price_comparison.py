"""Comparison of executed rounds with their prices: local steps, rounds of clusters, lateness of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from collapipe_env.execution.planned_rounds import PlannedRound
from collapipe_env.execution.predicted import predicted_events
from collapipe_env.execution.role import node_name
from collapipe_env.execution.round_reports import Recorded
from collapipe_env.execution.scripts import ClusterScript

TRAINING, COLLECTION, UPLOAD, BROADCAST = "local steps", "collection", "upload", "broadcast"
"""Phases of a round."""
OVERRUN_S = 1e-3
"""Lateness above which an event counts as an overrun [s]."""


@dataclass(frozen=True)
class ComparedPhase:
    """A phase of a round, priced and measured.

    Attributes:
        name: Its name.
        priced_s: Its length by the simulator [s].
        measured_s: Its length measured [s].
    """

    name: str
    priced_s: float
    measured_s: float


@dataclass(frozen=True)
class ComparedCluster:
    """A cluster's round, priced and measured.

    Attributes:
        round: Number of the round, from 1.
        cluster: Cluster, from 0.
        schedule: Its schedule.
        micro_batches: ``M``.
        step_priced_s: Mean length of a local step without all-reduce and update, by the simulator [s].
        step_measured_s: That length measured [s]; ``None`` if nothing was recorded or a device was lost.
        delay_priced_s: ``T_n`` by the simulator, with the recoveries from losses [s].
        delay_measured_s: ``T_n`` measured [s].
        late_mean_s: Mean lateness of the ends of operations and arrivals of messages, in wall time [s];
            ``None``, like the next four, if nothing was due because nothing waited for prices.
        late_most_s: Largest lateness [s].
        begun_late_mean_s: Mean lateness of the starts of operations [s].
        begun_late_most_s: Largest lateness of the starts [s].
        overruns: Events that were late by more than a millisecond.
        lost: Names of the devices that were lost, such as ``c0d1``.
        recovery_s: Total time from the losses until training continued [s].
        phases: Its phases; empty if it has lost a device.
    """

    round: int
    cluster: int
    schedule: str
    micro_batches: int
    step_priced_s: float
    step_measured_s: float | None
    delay_priced_s: float
    delay_measured_s: float
    late_mean_s: float | None
    late_most_s: float | None
    begun_late_mean_s: float | None
    begun_late_most_s: float | None
    overruns: int | None
    lost: tuple[str, ...]
    recovery_s: float
    phases: tuple[ComparedPhase, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


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
        clock_bound_s: Largest error in converting other machines' clocks to the launcher's, in wall time [s];
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

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def compare_round(
    number: int, planned: PlannedRound, result: Mapping[str, Any], scale: float = 1.0
) -> ComparedRound:
    """Compare an executed round with its prices.

    Args:
        number: Its number, from 1.
        scale: Wall time of a priced second [s].
    """
    events = [Recorded(*row) for row in result["events"]]
    clusters = tuple(
        _compared(number, planned, script, result, [e for e in events if e.cluster == script.cluster], scale)
        for script in planned.script.clusters
        if script.plays
    )
    costs = planned.record.costs
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
        _broadcast(planned, result),
        result.get("clock_bound_s"),
    )


def _compared(
    number: int,
    planned: PlannedRound,
    script: ClusterScript,
    result: Mapping[str, Any],
    events: Sequence[Recorded],
    scale: float,
) -> ComparedCluster:
    n = script.cluster
    timeline = predicted_events(planned.record, 0, n)
    steps = [phase for phase in timeline.phases if phase.label == "step"]
    recoveries = result["recoveries"][n]
    known = {k for m, k, _ in planned.failures if m == n}
    priced = float(planned.record.costs.cluster_delay[0, n])
    # The simulator has priced only the losses that it knows of.
    if {one["device"] for one in recoveries} - known:
        priced = float(recoveries[-1]["delay_s"])
    return ComparedCluster(
        round=number,
        cluster=n,
        schedule=script.schedule,
        micro_batches=script.micro_batches,
        step_priced_s=float(np.mean([phase.end_s - phase.start_s for phase in steps])),
        step_measured_s=None if recoveries else measured_step(script, events),
        delay_priced_s=priced,
        delay_measured_s=float(result["cluster_s"][n]),
        **_lateness(events, scale, due=bool(result["emulated"])),
        lost=tuple(node_name(n, int(one["device"])) for one in recoveries),
        recovery_s=float(sum(one["resume_s"] - one["at_s"] for one in recoveries)),
        phases=_phases(planned, result, n, events, trained_s=steps[-1].end_s),
    )


def _lateness(events: Sequence[Recorded], scale: float, *, due: bool) -> dict[str, Any]:
    """Return figures of the lateness in wall time [s], all ``None`` if nothing was due."""
    names = "late_mean_s", "late_most_s", "begun_late_mean_s", "begun_late_most_s", "overruns"
    if not due:
        return dict.fromkeys(names)
    ends = scale * np.array([e.measured_end_s - e.end_s for e in events] or [0.0])
    begins = scale * np.array([e.began_s - e.start_s for e in events if e.there_s == 0.0] or [0.0])
    figures = float(ends.mean()), float(ends.max()), float(begins.mean()), float(begins.max())
    return dict(zip(names, (*figures, int((ends > OVERRUN_S).sum())), strict=True))


def _phases(
    planned: PlannedRound,
    result: Mapping[str, Any],
    cluster: int,
    events: Sequence[Recorded],
    trained_s: float,
) -> tuple[ComparedPhase, ...]:
    """Return the phases of a cluster's round up to the end of its upload.

    Args:
        trained_s: End of its last local step by the simulator [s].

    Returns:
        Local steps, collection and upload; nothing if the cluster has lost a device or recorded no events.
    """
    script = planned.script.clusters[cluster]
    collected = result["collected_s"][cluster]
    if result["recoveries"][cluster] or collected is None or not events:
        return ()
    delay = float(planned.record.costs.cluster_delay[0, cluster])
    priced = (trained_s, delay - script.upload_s, delay)
    measured = (
        max(e.over_s for e in events),
        float(collected),
        float(result["cluster_s"][cluster]),
    )
    lengths = (np.diff(ends, prepend=0.0).tolist() for ends in (priced, measured))
    names = TRAINING, COLLECTION, UPLOAD
    return tuple(ComparedPhase(*one) for one in zip(names, *lengths, strict=True))


def _broadcast(planned: PlannedRound, result: Mapping[str, Any]) -> ComparedPhase:
    """Return the broadcast at the end of a round."""
    idle = [script.delay_s for script in planned.script.clusters if not script.plays]
    begins = max(float(end) for end in [*result["cluster_s"], *idle] if end is not None)
    return ComparedPhase(BROADCAST, planned.script.broadcast_s, float(result["delay_s"]) - begins)


def measured_step(script: ClusterScript, events: Sequence[Recorded]) -> float | None:
    """Return the mean measured length of a cluster's local steps [s]; ``None`` without events.

    A step lasts from the time when its first message may leave the control unit, so that a late start counts,
    to the last end of an operation or hand-over of a message. These ends are readings of the clock.
    """
    lengths = []
    for step in sorted({e.step for e in events if e.cluster == script.cluster}):
        mine = [e for e in events if e.step == step and e.cluster == script.cluster]
        begin = min(e.start_s for e in mine)
        lengths.append(max(e.over_s for e in mine) - begin)
    return float(np.mean(lengths)) if lengths else None

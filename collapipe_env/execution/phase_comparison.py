"""Comparison of phases of executed rounds with their prices: local steps, collection, upload, broadcast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collapipe_env.evaluation.table import Cell, Page
from collapipe_env.execution.planned_rounds import PlannedRound
from collapipe_env.execution.role import Recorded

if TYPE_CHECKING:
    from collapipe_env.execution.price_comparison import ComparedRound

TRAINING, COLLECTION, UPLOAD, BROADCAST = "local steps", "collection", "upload", "broadcast"
CAPTION = (
    "Local steps: from the start of the round, including the all-reduces and updates between them. "
    "Collection: including the last update and replicas. "
    "Means over rounds in which the cluster lost no device."
)


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


def compared_phases(
    planned: PlannedRound,
    result: Mapping[str, Any],
    cluster: int,
    events: Sequence[Recorded],
    trained_s: float,
) -> tuple[ComparedPhase, ...]:
    """Return the phases of a cluster's round up to the end of its upload.

    Args:
        result: The server's report.
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


def compared_broadcast(planned: PlannedRound, result: Mapping[str, Any]) -> ComparedPhase:
    """Return the broadcast at the end of a round.

    Args:
        result: The server's report.
    """
    idle = [script.delay_s for script in planned.script.clusters if not script.plays]
    begins = max(float(end) for end in [*result["cluster_s"], *idle] if end is not None)
    return ComparedPhase(BROADCAST, planned.script.broadcast_s, float(result["delay_s"]) - begins)


def seconds_cell(value: float) -> Cell:
    """Cell of a time [s]."""
    return f"{value:.3f}", ""


def error_cell(measured: float, priced: float) -> Cell:
    """Cell of a measured time's error [%]."""
    # No minus before a zero.
    return (f"{round(100.0 * (measured / priced - 1.0), 2) + 0.0:+.2f}" if priced else ""), ""


def phase_page(rounds: Sequence[ComparedRound]) -> Page:
    """Table of the mean phases of each cluster, and of the broadcast."""
    found: dict[tuple[str, str], list[ComparedPhase]] = {}
    for one in rounds:
        for cluster in one.clusters:
            for phase in cluster.phases:
                found.setdefault((f"c{cluster.cluster}", phase.name), []).append(phase)
        found.setdefault(("all", BROADCAST), []).append(one.broadcast)
    headers: list[Cell] = [("cluster", ""), ("phase", ""), ("priced", "s"), ("measured", "s"), ("error", "%")]
    lines: list[list[Cell]] = []
    # Clusters in their order; sorting keeps the order of their phases.
    for (who, name), each in sorted(
        found.items(), key=lambda item: (item[0][0] == "all", len(item[0][0]), item[0][0])
    ):
        priced = float(np.mean([phase.priced_s for phase in each]))
        measured = float(np.mean([phase.measured_s for phase in each]))
        figures = seconds_cell(priced), seconds_cell(measured), error_cell(measured, priced)
        lines.append([(who, ""), (name, ""), *figures])
    return Page("Phases, mean over the rounds", [CAPTION], headers, lines)

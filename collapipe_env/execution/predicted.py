"""Predicted timelines: the simulator's times of an executed round."""

from __future__ import annotations

from dataclasses import replace

from collapipe_env.physics.schedules.timeline import RoundTimeline
from collapipe_env.rendering.round_view import cluster_round_timeline
from collapipe_env.simulator.record import RoundRecord


def predicted_events(record: RoundRecord, row: int, cluster: int) -> RoundTimeline:
    """Return the simulator's timeline of a cluster's round as planned, with the events of all local steps.

    Returns:
        The timeline without failures; if a device failed in the record's round, the wait for the slowest
        cluster is left out. A cluster that sits out has only its server, a wait and the broadcast.
    """
    failed = record.failed is not None and bool((record.failed.device[row] >= 0).any())
    plays = bool(record.costs.plays[row, cluster])
    drawn_steps = None if plays else 0
    timeline = cluster_round_timeline(record, row, cluster, drawn_steps=drawn_steps, failed=failed)
    return timeline if plays else replace(timeline, elements=timeline.elements[-1:], events=())

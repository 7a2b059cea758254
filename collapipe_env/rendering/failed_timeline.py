"""Timelines of rounds in which a device fails: loss, detection, planning, moves and replay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collapipe_env.physics.schedules.timeline import Element, Phase, RoundTimeline
from collapipe_env.simulator.record import RoundRecord

WIDEST = 16
"""Most letters that fit beside a row; a longer label leaves out the stage's name."""


def with_failure(timeline: RoundTimeline, record: RoundRecord, row: int, cluster: int) -> RoundTimeline:
    """Return a cluster's timeline up to a failure inside the round, and its continuation.

    Returns:
        The timeline unchanged if no device failed. Otherwise, work in progress is cut at the failure, and
        detection, planning, moves, the replay as one phase, collection and upload follow.
    """
    failed = record.failed
    if failed is None or failed.device[row, cluster] < 0:
        return timeline
    at = (row, cluster)
    begun = float(failed.at_s[at])
    phases = [replace(p, end_s=min(p.end_s, begun)) for p in timeline.phases if p.start_s < begun]
    events = [replace(e, end_s=min(e.end_s, begun)) for e in timeline.events if e.start_s < begun]
    now = begun

    def add(label: str, until: float) -> None:
        nonlocal now
        # The sums were taken in another order: a remainder from rounding is not a phase.
        if until - now > 1e-9 * max(now, 1.0):
            phases.append(Phase(label, now, until))
            now = until

    costs = record.costs
    add("detection", now + float(failed.detect_s[at]))
    add("planning", now + float(failed.plan_s[at]))
    if not failed.dropped[at]:
        add("moves", now + float(failed.move_s[at]))
        add("replay", now + float(failed.replay_s[at]))
        add("collect", now + float(failed.collect_s[at]))
        add("upload", now + float(costs.upload[at]))
    add("wait", float(costs.cluster_delay[row].max()))
    add("broadcast", now + float(costs.broadcast[row]))
    device = int(failed.device[at])
    stage = record.allocation.groups.stage[at]
    same = np.flatnonzero(stage == stage[device]).tolist()

    def marked(element: Element) -> Element:
        """The element; its label says so if its device, or one of its devices, failed."""
        if element.kind != "compute" or element.node != same[0] + 1:
            return element
        alone, named = f"d{device} failed", f"{element.label.split(',')[0]}, d{device} failed"
        return replace(element, label=named if len(same) > 1 and len(named) <= WIDEST else alone)

    return RoundTimeline(tuple(map(marked, timeline.elements)), tuple(events), tuple(phases))

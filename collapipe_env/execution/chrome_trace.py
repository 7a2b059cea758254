"""Chrome trace of an execution: every operation and transfer, for chrome://tracing or Perfetto."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collapipe_env.execution.measured_timeline import measured_timeline
from collapipe_env.execution.planned_rounds import PlannedRound
from collapipe_env.execution.predicted import predicted_events

LETTERS = {"forward": "F", "backward": "B", "weight": "W"}


def chrome_trace(rounds: Sequence[tuple[PlannedRound, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the trace of all rounds, one round after another: priced and measured events of each cluster.

    Args:
        rounds: The planned round and its report, of each round.

    Returns:
        What the trace's file holds: complete events with start and duration in microseconds, in order of
        their start, after the names of their groups (a cluster, priced or measured) and rows (an element).
    """
    groups: dict[int, str] = {}
    rows: dict[tuple[int, int], str] = {}
    events: list[dict[str, Any]] = []
    begin_s = 0.0
    for planned, result in rounds:
        for n in [script.cluster for script in planned.script.clusters if script.plays]:
            both = predicted_events(planned.record, 0, n), measured_timeline(planned, result, n)
            for group, kind, timeline in zip((2 * n, 2 * n + 1), ("priced", "measured"), both, strict=True):
                groups[group] = f"c{n} {kind}"
                rows |= {(group, row): element.label for row, element in enumerate(timeline.elements)}
                events += [
                    {
                        "name": f"{LETTERS[event.direction]} m{event.micro_batch}",
                        "ph": "X",
                        "pid": group,
                        "tid": event.element,
                        "ts": 1e6 * (begin_s + event.start_s),
                        "dur": 1e6 * max(event.end_s - event.start_s, 0.0),
                    }
                    for event in timeline.events
                ]
        begin_s += max(float(result["delay_s"]), planned.script.delay_s)
    named = [_name("process_name", group, 0, name) for group, name in sorted(groups.items())]
    named += [_name("thread_name", *place, name) for place, name in sorted(rows.items())]
    return {
        "traceEvents": [*named, *sorted(events, key=lambda event: float(event["ts"]))],
        "displayTimeUnit": "ms",
    }


def _name(kind: str, group: int, row: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": group, "tid": row, "args": {"name": name}}

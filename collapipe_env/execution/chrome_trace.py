"""Chrome trace of an execution: every operation and transfer, for chrome://tracing or Perfetto."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collapipe_env.execution.measured_timeline import measured_timeline
from collapipe_env.execution.planned_rounds import PlannedRound
from collapipe_env.execution.predicted import predicted_events
from collapipe_env.ground.files import write_json

LETTERS = {"forward": "F", "backward": "B", "weight": "W"}


def trace_events(rounds: Sequence[tuple[PlannedRound, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the events of all rounds, one round after another: priced and measured ones of each cluster.

    Args:
        rounds: The planned round, and the server's report, of each round.

    Returns:
        Complete events with start and duration in microseconds, in order of their start, after the names of
        their groups (a cluster, priced or measured) and rows (an element).
    """
    names: dict[tuple[int, int], str] = {}
    found: list[dict[str, Any]] = []
    begin_s = 0.0

    def add(group: int, row: int, name: str, start_s: float, end_s: float) -> None:
        found.append(
            {
                "name": name,
                "ph": "X",
                "pid": group,
                "tid": row,
                "ts": 1e6 * (begin_s + start_s),
                "dur": 1e6 * max(end_s - start_s, 0.0),
            }
        )

    for planned, result in rounds:
        for script in planned.script.clusters:
            if not script.plays:
                continue
            n = script.cluster
            timeline = predicted_events(planned.record, 0, n)
            measured = measured_timeline(planned, result, n)
            for group, each in ((2 * n, timeline), (2 * n + 1, measured)):
                for row, element in enumerate(each.elements):
                    names[group, row] = element.label
            for event in timeline.events:
                label = f"{LETTERS[event.direction]} m{event.micro_batch}"
                add(2 * n, event.element, label, event.start_s, event.end_s)
            for event in measured.events:
                label = f"{LETTERS[event.direction]} m{event.micro_batch}"
                add(2 * n + 1, event.element, label, event.start_s, event.end_s)
        begin_s += max(float(result["delay_s"]), planned.script.delay_s)
    found.sort(key=lambda event: float(event["ts"]))
    return [*_named(names), *found]


def _named(names: Mapping[tuple[int, int], str]) -> list[dict[str, Any]]:
    """Return the events that name groups and rows."""
    groups = sorted({group for group, _ in names})
    kinds = ("priced", "measured")
    titles = [_meta("process_name", g, 0, f"c{g // 2} {kinds[g % 2]}") for g in groups]
    return titles + [_meta("thread_name", g, row, name) for (g, row), name in sorted(names.items())]


def _meta(kind: str, group: int, row: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": group, "tid": row, "args": {"name": name}}


def write_trace(path: Path, rounds: Sequence[tuple[PlannedRound, Mapping[str, Any]]]) -> None:
    """Write the trace of an execution.

    Args:
        path: The file, JSON.
        rounds: The planned round, and the server's report, of each round.
    """
    write_json(path, {"traceEvents": trace_events(rounds), "displayTimeUnit": "ms"})

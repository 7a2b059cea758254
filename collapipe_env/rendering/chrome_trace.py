"""Chrome trace of rounds: JSON trace events, which ui.perfetto.dev and chrome://tracing show.

Source: "Trace Event Format" of the Chromium project: complete events (``"X"``) with start and duration in
microseconds, and the names of their processes and threads (``"M"``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collapipe_env.physics.schedules.timeline import Direction, Element, RoundTimeline
from collapipe_env.rendering.colours import PHASES

LETTERS: dict[Direction, str] = {"forward": "F", "backward": "B", "weight": "W"}
NANOSECOND = 1e9
"""Times are rounded to it, so that neighbours that touch do not overlap by an error of rounding."""


def chrome_trace(rounds: Iterable[tuple[str, float, RoundTimeline]]) -> dict[str, Any]:
    """Return a trace with a process for each name; a thread for its phases, and one for each device and link.

    Args:
        rounds: Name, begin of the round [s] and its timeline. Rounds with one name share a process.

    Returns:
        Content of the trace's file, a JSON object.
    """
    processes: dict[str, int] = {}
    threads: dict[tuple[int, str], int] = {}
    spans: list[dict[str, Any]] = []
    for group, begin_s, timeline in rounds:
        process = processes.setdefault(group, len(processes) + 1)
        rows = [
            (PHASES.get(p.label, (p.label,))[0], "phase", "round", p.start_s, p.end_s)
            for p in timeline.phases
        ]
        for event in timeline.events:
            element = timeline.elements[event.element]
            name = f"{LETTERS[event.direction]} m{event.micro_batch}"
            thread = _thread(element, event.direction)
            rows.append((name, element.label, thread, event.start_s, max(event.end_s, event.start_s)))
        of_pipeline = [_thread(e, d) for e in timeline.elements for d in LETTERS]
        for thread in ("round", *of_pipeline):
            threads.setdefault((process, thread), len(threads) + 1)
        for name, category, thread, *ends_s in rows:
            start, end = (round(NANOSECOND * (begin_s + s)) for s in ends_s)
            place = {"pid": process, "tid": threads[process, thread]}
            times = {"ts": start / 1e3, "dur": (end - start) / 1e3}
            spans.append({"name": name, "cat": category, "ph": "X", **place, **times})
    named = [_named("process_name", number, 0, name) for name, number in processes.items()]
    named += [_named("thread_name", process, number, name) for (process, name), number in threads.items()]
    spans.sort(key=lambda span: float(span["ts"]))
    return {"traceEvents": [*named, *spans], "displayTimeUnit": "ms"}


def _thread(element: Element, direction: Direction) -> str:
    """Return the name of a thread; links have one for each direction, as both may be busy at a time."""
    if element.kind == "uplink":
        return "downlink" if direction == "backward" else "uplink"
    name = element.label.partition(",")[0].removesuffix(" failed")
    return name.replace("→", "←") if direction == "backward" else name


def _named(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}

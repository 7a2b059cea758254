"""Checks of Chrome traces: their form, and that no thread has two spans at a time."""

import json
from itertools import pairwise

FIELDS = {"name": str, "ph": str, "pid": int, "tid": int}
OF_KIND = {"M": {"args": dict}, "X": {"ts": float, "dur": float, "cat": str}}
"""Types of the fields that the Trace Event Format wants in every event, and in those of each kind."""


def require_trace(trace: dict) -> tuple[list[dict], dict[int, str], dict[int, str]]:
    """Check the form of a trace; returns its spans and the names of its processes and threads."""
    events = json.loads(json.dumps(trace, allow_nan=False))["traceEvents"]
    for event in events:
        wanted = FIELDS | OF_KIND[event["ph"]]
        assert {key: type(event[key]) for key in wanted} == wanted
    names = {
        kind: {event[number]: event["args"]["name"] for event in events if event["name"] == kind}
        for kind, number in (("process_name", "pid"), ("thread_name", "tid"))
    }
    spans = [event for event in events if event["ph"] == "X"]
    for span in spans:
        assert span["dur"] >= 0.0
        assert names["process_name"][span["pid"]]
        assert names["thread_name"][span["tid"]]
    by_thread: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for span in spans:  # in nanoseconds, to which viewers round
        begin, length = round(1e3 * span["ts"]), round(1e3 * span["dur"])
        by_thread.setdefault((span["pid"], span["tid"]), []).append((begin, begin + length))
    for thread in by_thread.values():
        assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(thread)))
    return spans, names["process_name"], names["thread_name"]


def last_end_s(spans: list[dict]) -> float:
    return max(span["ts"] + span["dur"] for span in spans) / 1e6

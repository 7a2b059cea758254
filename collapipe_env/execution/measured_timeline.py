"""Timelines of executed rounds, as far as they were recorded, for pictures and traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from collapipe_env.execution.planned_rounds import PlannedRound
from collapipe_env.execution.predicted import predicted_events
from collapipe_env.execution.round_reports import Recorded
from collapipe_env.execution.script_reading import from_json
from collapipe_env.execution.scripts import ClusterScript
from collapipe_env.physics.schedules.timeline import (
    Direction,
    Element,
    Event,
    Phase,
    RoundTimeline,
    chain_elements,
)

DIRECTIONS: tuple[Direction, ...] = ("forward", "backward", "weight")


def measured_timeline(planned: PlannedRound, result: Mapping[str, Any], cluster: int) -> RoundTimeline:
    """Return the timeline of a cluster's round as it was executed.

    Phases have their priced lengths, or their measured ones where nothing waited for prices. After a loss
    they show that loss, its recovery and the replay, and events and rows are those of the remaining plan;
    events of the earlier attempts are not kept.
    """
    priced = predicted_events(planned.record, 0, cluster)
    done = [Recorded(*row) for row in result["events"] if row[0] == cluster]
    recoveries = result["recoveries"][cluster]
    if not recoveries and done and not result["emulated"]:
        return replace(priced, events=_events(done), phases=_measured_phases(done, result, cluster))
    if not recoveries:
        # The price does not include losses of other clusters, for which all have waited.
        phases = _with_wait(priced.phases, result) if any(result["recoveries"]) else priced.phases
        return replace(priced, events=_events(done), phases=phases)
    last = recoveries[-1]
    left = from_json(last["script"], ClusterScript)
    after = [one for one in done if one.start_s >= last["resume_s"] - 1e-9] if left.plays else []
    collected = result["collected_s"][cluster]
    ends = last["resume_s"] if collected is None else float(collected) - left.collect_s
    lengths: list[tuple[str, float]] = []
    for one in recoveries:
        begun = sum(seconds for _, seconds in lengths)
        lengths += [
            ("step", max(one["at_s"] - begun, 0.0)),
            ("detection", one["detect_s"]),
            ("planning", one["plan_s"]),
            ("moves", one["move_s"]),
        ]
    lengths += [
        ("replay", ends - last["resume_s"]),
        ("collect", left.collect_s),
        ("upload", left.upload_s),
    ]
    broadcast = [phase for phase in priced.phases if phase.label == "broadcast"]
    elements = elements_of(left) if left.plays else priced.elements[-1:]
    return RoundTimeline(elements, _events(after), _with_wait([*_phases(lengths), *broadcast], result))


def elements_of(script: ClusterScript) -> tuple[Element, ...]:
    """Return the chain of a cluster's script.

    Args:
        script: The script of a cluster that plays.
    """
    names = ["+".join(f"d{k - 1}" for k in stage.devices) for stage in script.stages]
    wraps = any(len(stage.chunks) > 1 for stage in script.stages)
    return chain_elements(
        [stage.devices[0] for stage in script.stages],
        [sum(end - first for first, end in stage.chunks) for stage in script.stages],
        compute_forward_s=[stage.forward_s for stage in script.stages],
        compute_backward_s=[stage.backward_s for stage in script.stages],
        hop_forward_s=script.hop_forward_s,
        hop_backward_s=script.hop_backward_s,
        uplink_s=script.uplink_s,
        downlink_s=script.downlink_s,
        server_forward_s=script.server.forward_s,
        server_backward_s=script.server.backward_s,
        stage_names=names,
        wrap_s=(script.wrap_forward_s, script.wrap_backward_s) if wraps else None,
        latency_s=script.latency_s,
        edge_latency_s=script.edge_latency_s,
    )


def _events(done: Sequence[Recorded]) -> tuple[Event, ...]:
    return tuple(
        Event(e.element, e.micro_batch, DIRECTIONS[e.direction], start, max(e.measured_end_s, start))
        for e in sorted(done, key=lambda e: e.measured_end_s)
        for start in (e.start_s if e.there_s else e.began_s,)
    )


def _measured_phases(done: Sequence[Recorded], result: Mapping[str, Any], cluster: int) -> tuple[Phase, ...]:
    """Return the phases, from their recorded ends; blocks are handed out before the first step."""
    ends = max(e.over_s for e in done)
    marks: list[tuple[str, float]] = [
        ("relay", min(e.began_s for e in done)),
        ("step", ends),
        ("collect", max(float(result["collected_s"][cluster]), ends)),
        ("upload", float(result["cluster_s"][cluster])),
        ("wait", float(result["delay_s"])),
    ]
    begins = [0.0, *(end for _, end in marks)]
    return _phases([(label, end - begin) for begin, (label, end) in zip(begins, marks, strict=False)])


def _with_wait(phases: Sequence[Phase], result: Mapping[str, Any]) -> tuple[Phase, ...]:
    """Return the phases with a wait, so that the last one, the broadcast, ends with the round."""
    lengths = [(phase.label, phase.end_s - phase.start_s) for phase in phases if phase.label != "wait"]
    waits = max(float(result["delay_s"]) - sum(seconds for _, seconds in lengths), 0.0)
    own = [one for one in lengths if one[0] != "broadcast"]
    return _phases([*own, ("wait", waits), *lengths[len(own) :]])


def _phases(lengths: Sequence[tuple[str, float]]) -> tuple[Phase, ...]:
    phases, now = [], 0.0
    for label, seconds in lengths:
        if seconds > 0.0:
            phases.append(Phase(label, now, now + seconds))
            now += seconds
    return tuple(phases)

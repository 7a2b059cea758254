"""Timelines of executed rounds, as far as they were recorded, for pictures and traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collapipe_env.execution.planned_rounds import PlannedRound
from collapipe_env.execution.predicted import predicted_events
from collapipe_env.execution.price_comparison import ends_of, measured_broadcast
from collapipe_env.execution.round_reports import event_table, remaining_script
from collapipe_env.execution.scripts import DIRECTIONS, ClusterScript
from collapipe_env.physics.schedules.timeline import (
    Element,
    Event,
    Phase,
    RoundTimeline,
    chain_elements,
)


def measured_timeline(planned: PlannedRound, result: Mapping[str, Any], cluster: int) -> RoundTimeline:
    """Return the timeline of a cluster's round as it was executed.

    Phases have their priced lengths, or their measured ones where nothing waited for prices. After a loss
    they show that loss, its recovery and the replay, and events and rows are those of the remaining plan;
    events of the earlier attempts are not kept.
    """
    priced = predicted_events(planned.record, 0, cluster)
    done = event_table(row for row in result["events"] if row[0] == cluster)
    recoveries, emulated = result["recoveries"][cluster], bool(result["emulated"])
    if emulated and not any(result["recoveries"]):
        return replace(priced, events=_events(done))
    elements, collected_s = priced.elements, result["collected_s"][cluster]
    if recoveries:
        left, ends = remaining_script(recoveries[-1]), _recovered(recoveries)
        elements, done = (elements_of(left), done) if left.plays else (elements[-1:], done[:0])
        if collected_s is not None:
            ends += [("replay", collected_s - left.collect_s), ("collect", collected_s)]
            ends.append(("upload", result["cluster_s"][cluster]))
    elif emulated or not len(done):
        # Other clusters' losses, for which all have waited, are not in the price.
        uploaded_s = planned.script.clusters[cluster].delay_s + 1e-9
        ends = [(phase.label, phase.end_s) for phase in priced.phases if phase.end_s <= uploaded_s]
    else:  # blocks are handed out before the first step
        marks = done["began_s"].min(), ends_of(done).max(), collected_s, result["cluster_s"][cluster]
        ends = list(zip(("relay", "step", "collect", "upload"), marks, strict=True))
    delay_s = float(result["delay_s"])
    ends += [("wait", delay_s - measured_broadcast(planned, result)), ("broadcast", delay_s)]
    return RoundTimeline(elements, _events(done), _phases(ends))


def both_timelines(
    rounds: Iterable[tuple[PlannedRound, Mapping[str, Any]]],
) -> Iterator[tuple[str, float, RoundTimeline]]:
    """Yield name, begin [s] and timeline of each cluster that plays, priced and measured, round after round.

    Args:
        rounds: The planned round and its report, of each round.
    """
    begin_s = 0.0
    for planned, result in rounds:
        for n in [script.cluster for script in planned.script.clusters if script.plays]:
            yield f"c{n} priced", begin_s, predicted_events(planned.record, 0, n)
            yield f"c{n} measured", begin_s, measured_timeline(planned, result, n)
        begin_s += max(float(result["delay_s"]), planned.script.delay_s)


def _recovered(recoveries: Iterable[Mapping[str, Any]]) -> list[tuple[str, float]]:
    """Return name and end [s] of the phases up to the end of the last recovery.

    A later loss cuts off what is left of an earlier recovery: the rest of its moves is in the later one's.
    """
    ends: list[tuple[str, float]] = []
    for one in recoveries:
        ends = [(label, min(end_s, one["at_s"])) for label, end_s in ends]
        marks = np.cumsum([one[name] for name in ("at_s", "detect_s", "plan_s", "move_s")]).tolist()
        ends += zip(("step", "detection", "planning", "moves"), marks, strict=True)
    return ends


def _phases(ends: Iterable[tuple[str, float]]) -> tuple[Phase, ...]:
    """Return phases one after another by name and end [s]; those that take no time are left out."""
    phases, now = [], 0.0
    for label, end_s in ends:
        if end_s - now > 1e-12:
            phases.append(Phase(label, now, float(end_s)))
            now = float(end_s)
    return tuple(phases)


def elements_of(script: ClusterScript) -> tuple[Element, ...]:
    """Return the chain of a cluster's script.

    Args:
        script: The script of a cluster that plays.
    """
    wraps = any(len(stage.chunks) > 1 for stage in script.stages)
    return chain_elements(
        [stage.devices[0] for stage in script.stages],
        [sum(end - first for first, end in stage.chunks) for stage in script.stages],
        server_blocks=script.server_blocks,
        compute_forward_s=[stage.forward_s for stage in script.stages],
        compute_backward_s=[stage.backward_s for stage in script.stages],
        hop_forward_s=script.hop_forward_s,
        hop_backward_s=script.hop_backward_s,
        uplink_s=script.uplink_s,
        downlink_s=script.downlink_s,
        server_forward_s=script.server.forward_s,
        server_backward_s=script.server.backward_s,
        stage_names=["+".join(f"d{k - 1}" for k in stage.devices) for stage in script.stages],
        wrap_s=(script.wrap_forward_s, script.wrap_backward_s) if wraps else None,
        latency_s=script.latency_s,
        edge_latency_s=script.edge_latency_s,
    )


def _events(done: npt.NDArray[np.void]) -> tuple[Event, ...]:
    """Return events in order of their ends; a message begins when its transfer was due to begin."""
    done = np.sort(done, order="measured_end_s", kind="stable")
    begins = np.where(done["there_s"] > 0.0, done["start_s"], done["began_s"])
    ends = np.maximum(done["measured_end_s"], begins)
    places = zip(*(done[name].tolist() for name in ("element", "micro_batch", "direction")), strict=True)
    return tuple(
        Event(element, m, DIRECTIONS[direction], begin, end)
        for (element, m, direction), begin, end in zip(places, begins.tolist(), ends.tolist(), strict=True)
    )

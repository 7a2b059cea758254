"""Reports of executed rounds: the record of every operation, and the check of a report from a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np
import numpy.typing as npt
from pydantic import Field, TypeAdapter, ValidationError

from collapipe_env.execution.scripts import LARGEST, ClusterScript, Flag, Real, RecoveryScript, RoundScript
from collapipe_env.ground.errors import StateError, fault_line

Count = Annotated[int, Field(strict=True, ge=0, le=LARGEST)]
Number = Annotated[float, Field(strict=True, ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]


class Recorded(NamedTuple):
    """An operation or a transfer that took place, numbered as in the round's timeline.

    Attributes:
        cluster: Cluster.
        step: Local step.
        element: Element of the cluster's chain.
        micro_batch: Micro-batch.
        direction: 0 forward, 1 backward, 2 weight gradient.
        chunk: Chunk of a stage; 0 for messages.
        start_s: Time at which the start was due, since the round began [s].
        end_s: Time at which the end was due, since the round began [s].
        measured_end_s: End by the machine's clock [s]; the priced end under the virtual clock. For a message,
            the time at which its receiver was handed it, less the priced latency.
        worked_s: Wall time of the computation itself [s]; 0 for messages.
        began_s: Start by the machine's clock [s]; for a message, the time at which its sender sent it.
        there_s: Time by the machine's clock at which a message was handed to its receiver [s]; 0 for
            operations.
        samples: Samples in it; 0 if unknown.
    """

    cluster: Count
    step: Count
    element: Count
    micro_batch: Count
    direction: Annotated[Count, Field(le=2)]
    chunk: Count
    start_s: Number
    end_s: Number
    measured_end_s: Number
    worked_s: Number
    began_s: Number
    there_s: Number
    samples: Count

    @property
    def over_s(self) -> float:
        """End by the machine's clock; for a message, its hand-over to the receiver, latency included [s]."""
        return max(self.measured_end_s, self.there_s)


EVENT = np.dtype([(name, np.dtype(kind)) for name, kind in get_type_hints(Recorded).items()])
"""A row of the table of events, with the fields of :class:`Recorded`."""


def event_table(rows: Iterable[Sequence[float]]) -> npt.NDArray[np.void]:
    """Return records of operations and transfers as a table of :data:`EVENT`."""
    return np.array([tuple(row) for row in rows], dtype=EVENT)


@dataclass(frozen=True)
class RoundReport:
    """Fields of the report of a round; :func:`checked_report` says how they belong together.

    Attributes:
        delay_s: Delay of the round, broadcast included [s].
        emulated: Whether operations and transfers took their priced times.
        cluster_s: ``T_n`` of each cluster [s]; ``None`` if it sat out.
        collected_s: Time at which each cluster's segments were collected [s]; ``None`` if none were.
        train_loss: Mean training loss; ``None`` where nothing arrived.
        events: Operations and transfers of the attempts that count.
        recoveries: Recoveries of each cluster, one a loss.
        figures: Loss and metrics on held-out samples, as last evaluated.
        clock_bound_s: Largest error in converting other machines' clocks, in wall time [s]; ``None`` if all
            share one clock.
    """

    delay_s: Real
    emulated: Flag
    cluster_s: list[Real | None]
    collected_s: list[Real | None]
    train_loss: Number | None
    events: list[Recorded]
    recoveries: list[list[RecoveryScript]]
    figures: dict[str, Number | None]
    clock_bound_s: Real | None = None


_REPORT, _SCRIPT = TypeAdapter(RoundReport), TypeAdapter(ClusterScript)


def remaining_script(recovery: Mapping[str, Any]) -> ClusterScript:
    """Return the script of the work that a recovery in a report leaves."""
    return _SCRIPT.validate_python(recovery["script"])


def checked_report(
    report: Mapping[str, Any], planned: RoundScript, place: str, remedy: str
) -> dict[str, Any]:
    """Return the report of a round from a file.

    Args:
        report: The report, read from JSON.
        place: Its file, for errors.
        remedy: Advice, for errors.

    Raises:
        StateError: If a field is missing, of a wrong type, out of range, or does not fit the round; the
            message names file and field.
    """
    try:
        found = _REPORT.validate_python(report)
    except ValidationError as error:
        fault: str | None = fault_line(error.errors()[0])
    else:
        fault = next(_contradictions(found, planned), None)
        if fault is None:
            return {**report, "events": found.events}
    raise StateError(f"{place} is not a report of a round: {fault}; {remedy}")


def _contradictions(report: RoundReport, planned: RoundScript) -> Iterator[str]:
    """Yield what does not fit the round."""
    count = len(planned.clusters)
    for name in ("cluster_s", "collected_s", "recoveries"):
        if (entries := len(getattr(report, name))) != count:
            yield f"{name} has {entries} entries instead of {count}, one a cluster"
            return
    last_element = []
    for n, (script, recoveries) in enumerate(zip(planned.clusters, report.recoveries, strict=True)):
        scripts = [script, *(one.script for one in recoveries)]
        if recoveries and not script.plays:
            yield f"recoveries[{n}] is not empty, but the cluster sits the round out"
        for i, one in enumerate(scripts[1:]):
            if fault := _undrawable(one):
                yield f"recoveries[{n}][{i}].script {fault}"
        for name, there in (("cluster_s", script.plays), ("collected_s", scripts[-1].plays)):
            if (getattr(report, name)[n] is not None) != there:
                yield f"{name}[{n}] is {getattr(report, name)[n]}, expected {'a time' if there else 'null'}"
        last_element.append(2 + 2 * max(len(one.stages) for one in scripts) if script.plays else -1)
    for i, event in enumerate(report.events):
        if event.cluster >= count or event.element > last_element[event.cluster]:
            yield f"events[{i}] has an element {event.element} that cluster {event.cluster} lacks"
        elif event.step >= planned.clusters[event.cluster].local_steps:
            yield f"events[{i}].step is {event.step}, after the last local step"


def _undrawable(script: ClusterScript) -> str:
    """Return why a remaining script is not one, in words; empty if it is."""
    hops = 1 + len(script.stages)
    if script.delay_s <= 0.0:
        return "has a delay_s of 0"
    if script.plays != bool(script.stages):
        return "plays without stages, or has stages and does not play"
    if script.plays and {len(script.hop_forward_s), len(script.hop_backward_s)} != {hops}:
        return f"needs {hops} hops forward and backward"
    if any(not stage.devices or min(stage.devices) < 1 for stage in script.stages):
        return "has a stage without devices, or a device below 1"
    return ""

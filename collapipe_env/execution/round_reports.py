"""The server's reports of rounds, checked when they are read from files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from collapipe_env.execution.script_reading import ScriptError, from_json
from collapipe_env.execution.scripts import LARGEST, ClusterScript, RecoveryScript, RoundScript
from collapipe_env.ground.errors import StateError, shown

FIELDS = (
    *("delay_s", "emulated", "cluster_s", "collected_s"),
    *("train_loss", "events", "recoveries", "figures"),
)
"""Fields that every report has."""
_WHOLE = ("cluster", "step", "element", "micro_batch", "direction", "chunk", "samples")
_LAST_DIRECTION = 2


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

    cluster: int
    step: int
    element: int
    micro_batch: int
    direction: int
    chunk: int
    start_s: float
    end_s: float
    measured_end_s: float
    worked_s: float
    began_s: float
    there_s: float
    samples: int

    @property
    def over_s(self) -> float:
        """End by the machine's clock; for a message, its hand-over to the receiver, latency included [s]."""
        return max(self.measured_end_s, self.there_s)


def require_report(report: Mapping[str, Any], planned: RoundScript, place: str, remedy: str) -> None:
    """Refuse anything but a report of a round.

    Args:
        report: The report, read from JSON.
        place: Its file, for errors.
        remedy: Advice, for errors.

    Raises:
        StateError: If a field is missing, of a wrong type, out of range, or does not fit the round; the
            message names file and field.
    """
    missing = [name for name in FIELDS if name not in report]
    if missing:
        raise StateError(f"{place} is not a report of a round ({', '.join(missing)} missing): {remedy}")

    def wrong(field: str, value: object, wanted: str) -> StateError:
        return StateError(
            f"{place} is not a report of a round: {field} is {shown(value)}, expected {wanted}; {remedy}"
        )

    def require(field: str, value: object, fits: Callable[[Any], bool], wanted: str) -> None:
        if not fits(value):
            raise wrong(field, value, wanted)

    time, count = f"a number from 0 to {LARGEST}", len(planned.clusters)
    require("delay_s", report["delay_s"], _is_time, time)
    require("emulated", report["emulated"], lambda value: isinstance(value, bool), "true or false")
    require("train_loss", report["train_loss"], _is_number_or_null, "a number or null")
    figures = report["figures"]
    require("figures", figures, lambda value: isinstance(value, Mapping), "an object of numbers")
    for name, value in figures.items():
        require(f"figures.{name}", value, _is_number_or_null, "a number or null")
    for field in ("cluster_s", "collected_s", "recoveries"):
        require(field, report[field], _is_list_of(count), f"a list of {count}, one entry a cluster")
    most = []
    for n, script in enumerate(planned.clusters):
        left = _require_recoveries(report["recoveries"][n], script, f"recoveries[{n}]", wrong)
        most.append(2 + 2 * max(len(one.stages) for one in (script, *left)))
        for field, there in (
            ("cluster_s", script.plays),
            ("collected_s", script.plays and (not left or left[-1].plays)),
        ):
            fitting, wanted = (_is_time, time) if there else (_is_null, "null, as nothing came from it")
            require(f"{field}[{n}]", report[field][n], fitting, wanted)
    require("events", report["events"], lambda value: isinstance(value, list), "a list")
    for i, row in enumerate(report["events"]):
        if why := _no_event(row, planned, most):
            raise wrong(f"events[{i}]", row, why)


def _require_recoveries(
    value: Any, planned: ClusterScript, field: str, wrong: Callable[[str, object, str], StateError]
) -> list[ClusterScript]:
    """Refuse anything but the recoveries of a cluster; return their scripts."""
    if not isinstance(value, list):
        raise wrong(field, value, "a list")
    if value and not planned.plays:
        raise wrong(field, value, "none, as the cluster sits the round out")
    found: list[ClusterScript] = []
    for i, one in enumerate(value):
        where = f"{field}[{i}]"
        if not isinstance(one, Mapping):
            raise wrong(where, one, "an object with named fields")
        try:
            rest = {name: one[name] for name in one if name not in ("delay_s", "asked_s")}
            script = from_json(rest, RecoveryScript).script
        except ScriptError as error:
            raise wrong(where, one, f"a recovery ({error})") from None
        if script.delay_s <= 0.0 or one.get("delay_s") != script.delay_s:
            raise wrong(
                f"{where}.delay_s", one.get("delay_s"), f"{script.delay_s!r} as script.delay_s, above 0"
            )
        if not _is_time(one.get("asked_s")):
            raise wrong(f"{where}.asked_s", one.get("asked_s"), "a number of 0 or more")
        found.append(script)
    return found


def _no_event(row: Any, planned: RoundScript, most: list[int]) -> str:
    """Return the expectation that an entry of ``events`` fails to meet, in words; empty for an event."""
    if not isinstance(row, list) or len(row) != len(Recorded._fields):
        return f"a list of {len(Recorded._fields)} numbers"
    for name, value in zip(Recorded._fields, row, strict=True):
        if name in _WHOLE and not (type(value) is int and 0 <= value <= LARGEST):
            return f"a whole number of 0 or more as {name}"
        if not _is_number(value):
            return f"a number as {name}"
    event = Recorded(*row)
    if event.cluster >= len(planned.clusters) or not planned.clusters[event.cluster].plays:
        return "a cluster that takes part"
    script = planned.clusters[event.cluster]
    if event.step >= script.local_steps:
        return f"one of {script.local_steps} local steps"
    if event.element > most[event.cluster]:
        return f"one of the elements 0 to {most[event.cluster]}"
    if event.direction > _LAST_DIRECTION:
        return f"a direction from 0 to {_LAST_DIRECTION}"
    return ""


def _is_number(value: Any) -> bool:
    """Whether a value is a number of a size that can be computed with."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_time(value: Any) -> bool:
    return _is_number(value) and value >= 0.0


def _is_null(value: Any) -> bool:
    return value is None


def _is_list_of(count: int) -> Callable[[Any], bool]:
    """Return a test of whether a value is a list of ``count`` entries."""
    return lambda value: isinstance(value, list) and len(value) == count


def _is_number_or_null(value: Any) -> bool:
    return value is None or _is_number(value)

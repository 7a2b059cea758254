"""Tables of executed rounds and their prices: of every cluster and round, and of mean phases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from collapipe_env.evaluation.table import Cell, Page
from collapipe_env.execution.price_comparison import BROADCAST, ComparedCluster, ComparedPhase, ComparedRound

MEASURED = {
    "wall": "readings of the machine's monotonic clock, over the time scale",
    "virtual": "times that the processes computed from each other's messages; no real clock was read",
    "none": "readings of the machine's monotonic clock. Nothing waits for priced times, which are those of "
    "the scenario's devices and not of this machine: see --full-size and collapipe calibrate",
}
"""Meaning of measured times, by clock."""
CAPTION = (
    "Priced: times of the simulator. Measured: {measured}. "
    "T_step: mean time of a local step, from when its first message may leave until its last gradient was "
    "handed to the control unit or its last operation ended. T_n: time until the end of the upload."
)
LOST_CAPTION = (
    "If devices were lost, the priced T_n includes their recoveries, and T_step is not measured, because the "
    "round was started anew."
)
LATE_CAPTION = (
    "Late: delay of ends of operations and of arrivals of messages behind their due times, mean and largest, "
    "in wall time. Begun late: the same for starts of operations, which shorter waits make up for. Overruns: "
    "number of ends that were more than 1 ms late."
)
CLOCKS_CAPTION = (
    "Clocks within: largest error in converting other machines' clocks to the launcher's, from exchanges of "
    "times before and after each round, in wall time. Times since the start of the round are off by at most "
    "that, differences between readings of two machines by at most twice that."
)
PHASE_CAPTION = (
    "Local steps: from the start of the round, including the all-reduces and updates between them. "
    "Collection: including the last update and replicas. "
    "Means over rounds in which the cluster lost no device."
)
IMPORTANT = (
    *("round", "cluster", "T_n priced", "T_n measured", "error of T_n", "lost"),
    *("error of T_step", "T_step priced", "T_step measured"),
)
"""Columns that a narrow terminal shows first."""
EMPTY: Cell = ("", "")


class Column(NamedTuple):
    """A column of the table.

    Attributes:
        name: Its name.
        unit: Its unit.
        of_cluster: Content in the row of a cluster.
        of_round: Content in the row of a whole round.
    """

    name: str
    unit: str
    of_cluster: Callable[[ComparedCluster], Cell]
    of_round: Callable[[ComparedRound], Cell] = lambda _: EMPTY


def comparison_page(
    title: str, rounds: Sequence[ComparedRound], clock: str, below: Sequence[str] = ()
) -> Page:
    """Return the table of executed rounds.

    Args:
        clock: Clock of the execution: a key of :data:`MEASURED`.
        below: Further lines below the table.
    """
    columns, notes = _columns(), [CAPTION.format(measured=MEASURED[clock])]
    clusters = [cluster for one in rounds for cluster in one.clusters]
    if any(cluster.overruns is not None for cluster in clusters):
        columns += _lateness()
        notes.append(LATE_CAPTION)
    if any(cluster.lost for cluster in clusters):
        columns.append(Column("lost", "", lambda c: (", ".join(c.lost), "")))
        notes.insert(1, LOST_CAPTION)
    if any(one.clock_bound_s is not None for one in rounds):
        columns.append(Column("clocks within", "ms", lambda _: EMPTY, _clocks))
        notes.append(CLOCKS_CAPTION)
    lines: list[list[Cell]] = []
    for one in rounds:
        lines += [[column.of_cluster(cluster) for column in columns] for cluster in one.clusters]
        lines.append([column.of_round(one) for column in columns])
    headers = [(column.name, column.unit) for column in columns]
    important = [name for name in IMPORTANT if name in {column.name for column in columns}]
    return Page(title, [" ".join(notes), *below], headers, lines, important)


def _columns() -> list[Column]:
    """Return the columns that every table has."""
    return [
        Column("round", "", lambda c: (f"{c.round}", ""), lambda r: (f"{r.round}", "")),
        Column("cluster", "", lambda c: (f"c{c.cluster}", ""), lambda _: ("all", "")),
        Column("plan", "", lambda c: (f"{c.schedule}, M = {c.micro_batches}", "")),
        Column("T_step priced", "s", lambda c: _seconds(c.step_priced_s)),
        Column("T_step measured", "s", lambda c: _known(c.step_measured_s)),
        Column("error of T_step", "%", _step_error),
        Column(
            *("T_n priced", "s"),
            of_cluster=lambda c: _seconds(c.delay_priced_s),
            of_round=lambda r: _seconds(r.delay_priced_s),
        ),
        Column(
            *("T_n measured", "s"),
            of_cluster=lambda c: _seconds(c.delay_measured_s),
            of_round=lambda r: _seconds(r.delay_measured_s),
        ),
        Column(
            *("error of T_n", "%"),
            of_cluster=lambda c: _error(c.delay_measured_s, c.delay_priced_s),
            of_round=lambda r: _error(r.delay_measured_s, r.delay_priced_s),
        ),
    ]


def _lateness() -> list[Column]:
    """Return the columns of executions with due times."""
    return [
        Column("late", "ms", lambda c: _milliseconds(c.late_mean_s, c.late_most_s)),
        Column("begun late", "ms", lambda c: _milliseconds(c.begun_late_mean_s, c.begun_late_most_s)),
        Column("overruns", "", lambda c: EMPTY if c.overruns is None else (f"{c.overruns}", "")),
    ]


def _known(seconds: float | None) -> Cell:
    return EMPTY if seconds is None else _seconds(seconds)


def _step_error(one: ComparedCluster) -> Cell:
    step = one.step_measured_s
    return EMPTY if step is None else _error(step, one.step_priced_s)


def _milliseconds(mean: float | None, most: float | None) -> Cell:
    return EMPTY if mean is None or most is None else (f"{1e3 * mean:.2f}, {1e3 * most:.2f}", "")


def _clocks(one: ComparedRound) -> Cell:
    return EMPTY if one.clock_bound_s is None else (f"{1e3 * one.clock_bound_s:.2f}", "")


def _seconds(value: float) -> Cell:
    """Cell of a time [s]."""
    return f"{value:.3f}", ""


def _error(measured: float, priced: float) -> Cell:
    """Cell of a measured time's error [%]."""
    # No minus before a zero.
    return (f"{round(100.0 * (measured / priced - 1.0), 2) + 0.0:+.2f}" if priced else ""), ""


def phase_page(rounds: Sequence[ComparedRound]) -> Page:
    """Table of the mean phases of each cluster, and of the broadcast."""
    found: dict[tuple[str, str], list[ComparedPhase]] = {}
    for one in rounds:
        for cluster in one.clusters:
            for phase in cluster.phases:
                found.setdefault((f"c{cluster.cluster}", phase.name), []).append(phase)
        found.setdefault(("all", BROADCAST), []).append(one.broadcast)
    headers: list[Cell] = [("cluster", ""), ("phase", ""), ("priced", "s"), ("measured", "s"), ("error", "%")]
    lines: list[list[Cell]] = []
    # Clusters in their order; sorting keeps the order of their phases.
    for (who, name), each in sorted(
        found.items(), key=lambda item: (item[0][0] == "all", len(item[0][0]), item[0][0])
    ):
        priced = float(np.mean([phase.priced_s for phase in each]))
        measured = float(np.mean([phase.measured_s for phase in each]))
        figures = _seconds(priced), _seconds(measured), _error(measured, priced)
        lines.append([(who, ""), (name, ""), *figures])
    return Page("Phases, mean over the rounds", [PHASE_CAPTION], headers, lines)

"""Tables of executed rounds and their prices: of every cluster and round, and of mean phases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collapipe_env.evaluation.columns import Column
from collapipe_env.evaluation.table import Page
from collapipe_env.execution.price_comparison import BROADCAST, ComparedCluster, ComparedPhase, ComparedRound

MEASURED = {
    "wall": "readings of the machine's monotonic clock, over the time scale",
    "virtual": "times that the roles computed from each other's messages; no real clock was read",
    "none": "readings of the machine's monotonic clock. Nothing waits for priced times, which are those of "
    "the scenario's devices and not of this machine: see --full-size and collapipe calibrate",
}
"""Meaning of measured times, by clock."""
CAPTION = (
    "Priced: times of the simulator. Measured: {measured}. "
    "T_step: mean time of a local step, from when its first message may leave until its last gradient was "
    "handed to the control unit or its last operation ended. T_n: time until the end of the upload."
)
CAPTIONS = {
    "lost": "If devices were lost, the priced T_n includes their recoveries, and T_step is not measured, "
    "because the round was started anew.",
    "late": "Late: delay of ends of operations and of arrivals of messages behind their due times, mean and "
    "largest, in wall time. Begun late: the same for starts of operations, which shorter waits make up for. "
    "Overruns: number of ends that were more than 1 ms late.",
    "clocks within": "Clocks within: largest error in converting other machines' clocks to the driver's, "
    "from exchanges of times before and after each round, in wall time. Times since the start of the round "
    "are off by at most that, differences between readings of two machines by at most twice that.",
}
"""Captions of columns, where they are shown."""
PHASE_CAPTION = (
    "Local steps: from the start of the round, including the all-reduces and updates between them. "
    "Collection: including the last update and replicas. "
    "Means over rounds in which the cluster lost no device."
)
UNITS = {
    "round": "", "cluster": "", "plan": "",
    "T_step priced": "s", "T_step measured": "s", "error of T_step": "%",
    "T_n priced": "s", "T_n measured": "s", "error of T_n": "%",
    "late": "ms", "begun late": "ms", "overruns": "", "lost": "", "clocks within": "ms",
}  # fmt: skip
"""Columns and their units; those without content are left out."""
IMPORTANT = (
    *("round", "cluster", "T_n priced", "T_n measured", "error of T_n", "lost"),
    *("error of T_step", "T_step priced", "T_step measured"),
)
"""Columns that a narrow terminal shows first."""


def comparison_page(
    title: str, rounds: Sequence[ComparedRound], clock: str, below: Sequence[str] = ()
) -> Page:
    """Return the table of executed rounds.

    Args:
        clock: Clock of the execution: a key of :data:`MEASURED`.
        below: Further lines below the table.
    """
    rows = [
        {"round": f"{one.round}", **row}
        for one in rounds
        for row in (*map(_cluster_row, one.clusters), _round_row(one))
    ]
    names = [name for name in UNITS if any(row.get(name) for row in rows)]
    notes = [
        CAPTION.format(measured=MEASURED[clock]),
        *(CAPTIONS[name] for name in CAPTIONS if name in names),
    ]
    columns = [Column(name, UNITS[name], name=name) for name in names]
    return Page(
        title, columns, rows, [" ".join(notes), *below], [name for name in IMPORTANT if name in names]
    )


def _cluster_row(one: ComparedCluster) -> dict[str, str]:
    """Return the row of a cluster, by column."""
    return {
        "cluster": f"c{one.cluster}",
        "plan": f"{one.schedule}, M = {one.micro_batches}",
        "T_step priced": _seconds(one.step_priced_s),
        "T_step measured": _seconds(one.step_measured_s),
        "error of T_step": _error(one.step_measured_s, one.step_priced_s),
        "T_n priced": _seconds(one.delay_priced_s),
        "T_n measured": _seconds(one.delay_measured_s),
        "error of T_n": _error(one.delay_measured_s, one.delay_priced_s),
        "late": _milliseconds(one.late_mean_s, one.late_most_s),
        "begun late": _milliseconds(one.begun_late_mean_s, one.begun_late_most_s),
        "overruns": "" if one.overruns is None else f"{one.overruns}",
        "lost": ", ".join(one.lost) + ("; given up: trained nothing" if one.given_up else ""),
    }


def _round_row(one: ComparedRound) -> dict[str, str]:
    """Return the row of a whole round, by column."""
    return {
        "cluster": "all",
        "T_n priced": _seconds(one.delay_priced_s),
        "T_n measured": _seconds(one.delay_measured_s),
        "error of T_n": _error(one.delay_measured_s, one.delay_priced_s),
        "clocks within": _milliseconds(one.clock_bound_s),
    }


def phase_page(rounds: Sequence[ComparedRound]) -> Page:
    """Return the table of the mean phases of each cluster, and of the broadcast."""
    found: dict[tuple[float, str], list[ComparedPhase]] = {}
    for one in rounds:
        for cluster in one.clusters:
            for phase in cluster.phases:
                found.setdefault((cluster.cluster, phase.name), []).append(phase)
        found.setdefault((np.inf, BROADCAST), []).append(one.broadcast)
    rows = []
    # Sorting by the cluster keeps the order of its phases.
    for (n, name), each in sorted(found.items(), key=lambda item: item[0][0]):
        priced, measured = np.mean([(phase.priced_s, phase.measured_s) for phase in each], axis=0).tolist()
        times = {"priced": _seconds(priced), "measured": _seconds(measured)}
        whose = f"c{n}" if n < np.inf else "all"
        rows.append({"cluster": whose, "phase": name, **times, "error": _error(measured, priced)})
    units = {"cluster": "", "phase": "", "priced": "s", "measured": "s", "error": "%"}
    columns = [Column(name, unit) for name, unit in units.items()]
    return Page("Phases, mean over the rounds", columns, rows, [PHASE_CAPTION])


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _milliseconds(*seconds: float | None) -> str:
    return ", ".join(f"{1e3 * one:.2f}" for one in seconds if one is not None)


def _error(measured: float | None, priced: float) -> str:
    """Return a measured time's error [%]."""
    if measured is None or not priced:
        return ""
    return f"{round(100.0 * (measured / priced - 1.0), 2) + 0.0:+.2f}"  # no minus before a zero

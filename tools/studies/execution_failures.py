"""Processes of an execution killed and stopped by the wall clock: minutes of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from generated_parts import markdown_table

from collapipe_env.execution.driver import Execution, Failures
from collapipe_env.execution.planned_rounds import PlannedRound
from collapipe_env.execution.price_comparison import compare_round
from collapipe_env.execution.ray_engine import Ray
from collapipe_env.execution.round_reports import event_table
from collapipe_env.execution.scripts import ClusterScript
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS

SCALE = 1.0
"""Seconds of wall time for a priced second."""
CHANGES = {
    "workload.batch_size": 16,
    "radio.link_errors": "none",
    "budgets.device_energy_j": 1e4,
    "budgets.cu_energy_j": 1e4,
}
HEADS = (
    "what happens in cluster 0",
    "lost and taken again",
    "detected after, s",
    "resumes after, s",
    "priced, s",
    "T_n, s",
    "priced, s",
)


class Case(NamedTuple):
    """A failure.

    Attributes:
        name: What happens.
        devices: Number of each device, from 1, and the phase in which it fails.
        hang: Whether processes are stopped rather than killed.
        lost: Work that has to be done again.
    """

    name: str
    devices: tuple[tuple[int, str], ...]
    hang: bool
    lost: str


CASES = (
    Case("`SIGKILL` of a device in its first forward pass", ((2, "forward"),), False, "the round so far"),
    Case("in a backward pass", ((1, "backward"),), False, "the round so far"),
    Case("while segments are collected", ((3, "collection"),), False, "the round so far"),
    Case("two devices, one after the other", ((1, "forward"), (3, "backward")), False, "the round so far"),
    Case("after its segment was collected", ((2, "upload"),), False, "nothing"),
    Case("`SIGSTOP` of a device", ((2, "forward"),), True, "the round so far"),
)


def instant(script: ClusterScript, phase: str) -> float:
    """A time in a phase of a cluster's round [s]."""
    collected = script.delay_s - script.upload_s
    return {
        "forward": script.hop_forward_s[0] + 0.1 * script.stages[0].forward_s,
        "backward": 0.9 * (collected - script.collect_s),
        "collection": collected - 0.5 * script.collect_s,
        "upload": collected + 0.5 * script.upload_s,
    }[phase]


def row(
    case: Case, when: list[tuple[int, int, float]], planned: PlannedRound, result: dict[str, Any]
) -> list[str]:
    """A line of the table."""
    compared = compare_round(1, planned, result).clusters[0]
    whole = [f"{compared.delay_measured_s:.2f}", f"{compared.delay_priced_s:.2f}"]
    recoveries = result["recoveries"][0]
    if not recoveries:
        return [case.name, case.lost, "not missed", "", "", *whole]
    at_s = {k: at for _, k, at in when}
    detected = [one["at_s"] - at_s[one["device"]] for one in recoveries]
    last = recoveries[-1]
    # The control unit's own transfers to the first stage, of the attempt that counts.
    events = event_table(event for event in result["events"] if (event[0], event[2], event[4]) == (0, 0, 0))
    begun, failed = events["began_s"].min(), at_s[last["device"]]
    return [
        case.name,
        case.lost,
        ", ".join(f"{seconds:.3f}" for seconds in detected),
        f"{begun - failed:.3f}",
        f"{last['resume_s'] - failed:.3f}",
        *whole,
    ]


def failures(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of failures."""
    torch.set_num_threads(1)
    scenario = load_scenario("small").with_overrides(CHANGES)
    rows = []
    scheduler = SCHEDULERS.get("pipeline")(scenario)
    with Execution(scenario, scheduler, clock="wall", scale=SCALE, engine=Ray()) as execution:
        execution.play()  # everything is warm then
        for case in CASES[: 1 if quick else None]:
            script = execution.upcoming.script.clusters[0]
            when = [(0, k, instant(script, phase)) for k, phase in case.devices]
            planned, result = execution.play(Failures(hangs=when) if case.hang else Failures(kills=when))
            rows.append(row(case, when, planned, result))
    return markdown_table(HEADS, rows, 2)

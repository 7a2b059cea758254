"""Rounds of a calibration: played by processes without emulation, each kept in a file of its own ([X])."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from collapipe_env.execution.calibration_fit import Measured
from collapipe_env.execution.calibration_plans import CalibrationError, CalibrationPlan, FixedPlans
from collapipe_env.execution.launching import Launcher
from collapipe_env.execution.price_comparison import measured_step
from collapipe_env.execution.round_reports import Recorded, event_table
from collapipe_env.ground.errors import shown
from collapipe_env.ground.files import read_json, write_json
from collapipe_env.scenario import Scenario

REMEDY = "delete it and measure it again, or start over with --fresh"


def measured_rounds(
    setting: Scenario, missing: Sequence[tuple[Path, CalibrationPlan]], seed: int, slow_down: float
) -> Iterator[Measured]:
    """Play the missing rounds and keep each in its file; a first round, which warms up, is not kept.

    Args:
        setting: Scenario in which the machine is measured.
        missing: File and plan of each round.
        seed: Seed of the episode.
        slow_down: Factor by which devices compute more slowly than this machine.

    Yields:
        Each round.

    Raises:
        ExecutionError: If a process is lost.
    """
    if not missing:
        return
    scheduler = FixedPlans(setting, [missing[0][1], *(plan for _, plan in missing)])
    with Launcher(setting, scheduler, seed=seed, clock="none", scale=slow_down) as launcher:
        launcher.start_local()
        launcher.play()
        for path, plan in missing:
            load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
            _, result = launcher.play()
            events = tuple(Recorded(*row) for row in result["events"])
            seconds = measured_step(event_table(events))
            one = Measured(plan, seconds, load, events)
            write_json(
                path,
                {
                    "plan": plan.to_dict(),
                    "step_s": one.step_s,
                    "load": one.load,
                    "events": [list(event) for event in events],
                },
            )
            yield one


def read_round(path: Path) -> Measured:
    """Read a round that was kept.

    Raises:
        CalibrationError: If it is damaged.
    """
    data = read_json(path, REMEDY)
    plan = CalibrationPlan.from_dict(data.get("plan"), str(path))
    step_s, load, rows = data.get("step_s"), data.get("load"), data.get("events")
    if not (isinstance(step_s, float) and step_s > 0.0 and isinstance(rows, list)):
        raise CalibrationError(f"{path} has {shown(step_s)} instead of a measured step: {REMEDY}")
    for row in rows:
        numbers = isinstance(row, list) and all(type(value) in (int, float) for value in row)
        if not numbers or len(row) != len(Recorded._fields):
            raise CalibrationError(f"{path} has an event {shown(row)}: {REMEDY}")
    known = float(load) if isinstance(load, int | float) else float("nan")
    return Measured(plan, step_s, known, tuple(Recorded(*row) for row in rows))

"""Report of a calibration: each plan's local step, measured and predicted by the profile ([X])."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from collapipe_env.evaluation.table import Cell, Page
from collapipe_env.execution.calibration_fit import Constants, Line, Measured
from collapipe_env.execution.calibration_plans import CalibrationPlan
from collapipe_env.execution.calibration_profile import predicted_steps
from collapipe_env.scenario import Scenario


@dataclass(frozen=True)
class CheckedPlan:
    """A plan's local step, measured and predicted by the profile.

    Attributes:
        plan: The plan.
        measured_s: Median ``T_step`` of its rounds [s].
        low_s: Shortest [s].
        high_s: Longest [s].
        predicted_s: ``T_step`` by the simulator [s].
    """

    plan: CalibrationPlan
    measured_s: float
    low_s: float
    high_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        """Prediction over measurement, less 1."""
        return self.predicted_s / self.measured_s - 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "error": self.error}


def checked_plans(rounds: Sequence[Measured], scenario: Scenario) -> list[CheckedPlan]:
    """Return every plan with its prediction by the profile, the fitted plans first.

    Args:
        scenario: The calibrated scenario.
    """
    plans = sorted(
        {one.plan for one in rounds}, key=lambda p: (not p.fitted, p.blocks, p.schedule, p.micro_batches)
    )
    found = []
    for plan, predicted in zip(plans, predicted_steps(scenario, plans), strict=True):
        steps = [one.step_s for one in rounds if one.plan == plan]
        found.append(CheckedPlan(plan, float(np.median(steps)), min(steps), max(steps), predicted))
    return found


def worst(checked: Sequence[CheckedPlan], *, fitted: bool) -> float:
    """Return the largest error, with its sign, of the fitted plans or of the others."""
    return max((one.error for one in checked if one.plan.fitted == fitted), key=abs, default=0.0)


def calibration_page(
    title: str, checked: Sequence[CheckedPlan], constants: Constants, below: Sequence[str] = ()
) -> Page:
    """Return the table of all plans.

    Args:
        below: Further lines below the table.
    """
    headers: list[Cell] = [
        ("plan", ""),
        ("used", ""),
        ("T_step measured", "s"),
        ("range", "s"),
        ("T_step by the profile", "s"),
        ("error", "%"),
    ]
    lines: list[list[Cell]] = [
        [
            (one.plan.name, ""),
            ("fitted" if one.plan.fitted else "check", ""),
            (f"{one.measured_s:.3f}", ""),
            (f"{one.low_s:.3f}..{one.high_s:.3f}", ""),
            (f"{one.predicted_s:.3f}", ""),
            (f"{100 * one.error:+.1f}", ""),
        ]
        for one in checked
    ]
    c = constants
    text = (
        f"A device: {c.flops / 1e9:.2f} GFLOP/s, {1e3 * c.block_s:.3f} ms a block. Messages between devices: "
        f"{1e3 * (c.message_s + c.latency_s):.3f} ms, of which they keep the line busy for "
        f"{1e3 * c.message_s:.3f} ms, and "
        f"{c.rate / 1e9:.3g} Gbit/s. To the server: {1e3 * c.edge_latency_s:.3f} ms and "
        f"{c.edge_rate / 1e9:.3g} Gbit/s. The head: {1e3 * c.server_s:.3f} ms and "
        f"{c.server_flops / 1e9:.3g} GFLOP/s."
    )
    errors = [abs(one.error) for one in checked if not one.plan.fitted]
    mean = f", mean size {100 * float(np.mean(errors)):.1f} %" if errors else ""
    verdict = (
        f"Largest error of T_step: {100 * worst(checked, fitted=True):+.1f} % where it was fitted, "
        f"{100 * worst(checked, fitted=False):+.1f} % on plans that were not{mean}."
    )
    return Page(
        title,
        [text, verdict, *below],
        headers,
        lines,
        ("plan", "error", "used", "T_step measured", "T_step by the profile"),
    )


def residual_table(lines: Sequence[Line]) -> str:
    """Return a table of the sizes of passes and messages, compared with the law, in Markdown.

    Args:
        lines: The sizes.
    """
    rows = [
        "| what | blocks | samples | direction | measured | median (ms) | law (ms) | law over median |",
        "|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    rows += [
        f"| {one.what} | {one.blocks or ''} | {one.samples} | {'backward' if one.backward else 'forward'} | "
        f"{one.number} | {1e3 * one.measured_s:.3f} | {1e3 * one.law_s:.3f} | "
        f"{one.law_s / one.measured_s:.2f} |"
        for one in lines
    ]
    return "\n".join(rows)

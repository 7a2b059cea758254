"""Picture of an executed round: the priced timeline of each cluster above the measured one."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collapipe_env.execution.measured_timeline import measured_timeline
from collapipe_env.execution.planned_rounds import PlannedRound
from collapipe_env.execution.predicted import predicted_events
from collapipe_env.ground.files import write_bytes
from collapipe_env.rendering.round_view import Chart

MOST_CLUSTERS = 2
"""Clusters in a picture; more would not be legible."""
WIDTH_PX, HEIGHT_PX, LEFT_PX = 1500, 1000, 190.0


def executed_charts(planned: PlannedRound, result: Mapping[str, Any]) -> list[Chart]:
    """Charts of the first clusters, two of each: the priced round and the measured one."""
    record, charts = planned.record, []
    for script in [s for s in planned.script.clusters if s.plays][:MOST_CLUSTERS]:
        n, M, schedule = script.cluster, script.micro_batches, script.schedule
        # Only the measured timeline shows losses.
        name = f"c{n} planned" if result["recoveries"][n] else f"c{n} priced"
        delay_s = float(record.costs.cluster_delay[0, n])
        charts.append(Chart(name, predicted_events(record, 0, n), delay_s, M, schedule))
        measured = measured_timeline(planned, result, n)
        charts.append(Chart(f"c{n} measured", measured, float(result["cluster_s"][n]), M, schedule))
    return charts


def write_picture(path: Path, planned: PlannedRound, result: Mapping[str, Any], title: str) -> None:
    """Draw a round and write it as PNG.

    Args:
        title: First words of the heading.
    """
    # Matplotlib is slow to import, and only pictures need it.
    from collapipe_env.rendering.gantt import draw_gantt
    from collapipe_env.rendering.legend import draw_legend, legend_entries
    from collapipe_env.rendering.panel import Panel
    from collapipe_env.rendering.sheet import Sheet

    charts = executed_charts(planned, result)
    sheet = Sheet(WIDTH_PX, HEIGHT_PX)
    number, delay_s = planned.script.round_index + 1, float(result["delay_s"])
    facts = f"{title}   ·   round {number}   ·   delay {delay_s:.4g} s"
    plays = sum(script.plays for script in planned.script.clusters)
    if plays > MOST_CLUSTERS:
        facts += f"   ·   first {MOST_CLUSTERS} of {plays} clusters"
    sheet.write(16.0, 18.0, facts, 12.0, bold=True)
    draw_legend(sheet, legend_entries([chart.timeline for chart in charts]), 16.0, WIDTH_PX - 16.0, 42.0)
    devices = planned.record.state.present.shape[-1]
    draw_gantt(Panel(sheet, LEFT_PX, 62.0, WIDTH_PX - LEFT_PX - 14.0, HEIGHT_PX - 102.0), charts, devices)
    content = io.BytesIO()
    sheet.figure.savefig(content, format="png")
    write_bytes(path, content.getvalue())

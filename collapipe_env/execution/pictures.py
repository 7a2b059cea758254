"""Picture of an executed round: the priced timeline of each cluster above the measured one."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from collapipe_env.execution.measured_timeline import measured_timeline
from collapipe_env.execution.planned_rounds import PlannedRound
from collapipe_env.execution.predicted import predicted_events
from collapipe_env.ground.files import write_bytes
from collapipe_env.rendering.round_numbers import ClusterView, RoundView

MOST_CLUSTERS = 2
"""Clusters in a picture; more would not be legible."""
WIDTH_PX, HEIGHT_PX, LEFT_PX = 1500, 1000, 170.0


def executed_view(planned: PlannedRound, result: Mapping[str, Any], title: str) -> RoundView:
    """Numbers of the picture: two views of each cluster, the priced and the measured one.

    Args:
        title: First words of the heading.
    """
    record = planned.record
    views: list[ClusterView] = []
    for script in [s for s in planned.script.clusters if s.plays][:MOST_CLUSTERS]:
        n = script.cluster
        priced = predicted_events(record, 0, n)
        blank = ClusterView(
            # Only the measured timeline shows losses.
            name=f"c{n} planned" if result["recoveries"][n] else f"c{n} priced",
            timeline=priced,
            blocks=record.allocation.device_blocks[0, n],
            micro_batches=script.micro_batches,
            bandwidth=float(record.allocation.bandwidth[0, n]),
            cu_power_w=float(record.allocation.cu_power[0, n]),
            device_power_w=record.allocation.device_power[0, n],
            delay_s=float(record.costs.cluster_delay[0, n]),
            arrivals=1.0,
            order=np.arange(record.allocation.blocks.shape[-1]),
            clock_cap=np.ones(record.allocation.blocks.shape[-1]),
            schedule=script.schedule,
        )
        measured = replace(
            blank,
            name=f"c{n} measured",
            timeline=measured_timeline(planned, result, n),
            delay_s=float(result["cluster_s"][n]),
        )
        views += [blank, measured]
    shape = record.costs.energy.shape[1:]
    return RoundView(
        title=title,
        clusters=tuple(views),
        backlog=np.zeros((len(views), shape[-1])),
        energy_ratio=np.zeros((len(views), shape[-1])),
        present=np.ones((len(views), shape[-1] - 1), dtype=np.bool_),
        round_index=planned.script.round_index + 1,
        delay_s=float(result["delay_s"]),
    )


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

    view = executed_view(planned, result, title)
    sheet = Sheet(WIDTH_PX, HEIGHT_PX)
    facts = f"{view.title}   ·   round {view.round_index}   ·   delay {view.delay_s:.4g} s"
    plays = sum(script.plays for script in planned.script.clusters)
    if plays > MOST_CLUSTERS:
        facts += f"   ·   first {MOST_CLUSTERS} of {plays} clusters"
    sheet.write(16.0, 18.0, facts, 12.0, bold=True)
    draw_legend(sheet, legend_entries([c.timeline for c in view.clusters]), 16.0, WIDTH_PX - 16.0, 42.0)
    draw_gantt(Panel(sheet, LEFT_PX, 62.0, WIDTH_PX - LEFT_PX - 14.0, HEIGHT_PX - 102.0), view)
    content = io.BytesIO()
    sheet.figure.savefig(content, format="png")
    write_bytes(path, content.getvalue())

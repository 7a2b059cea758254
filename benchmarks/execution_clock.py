"""Executed rounds by the wall clock against their prices, over schedules and numbers of micro-batches.

Real processes play plans of a scheduler, one for each device (``collapipe execute --engine ray``); a local
step and a round last as long as they are priced, if the machine keeps up. Every measured time is a reading of
the machine's monotonic clock. The table gives the mean error of ``T_step`` over clusters and rounds, and the
largest. The goal is 2 %. Cells that cannot be planned (interleaved chunks need ``M`` in multiples of the
stages) are left out. Each cell also shows the load of the machine, on which the errors depend. Run::

    python benchmarks/execution_clock.py
    python benchmarks/execution_clock.py --schedules 1f1b --micro-batches 16 --rounds 3 --time-scale 1
    python benchmarks/execution_clock.py --write
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from measuring import BenchmarkOptions, command, store
from pydantic import Field

from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.evaluation.table import markdown_table
from collapipe_env.execution.driver import Execution
from collapipe_env.execution.price_comparison import ComparedRound, compare_round
from collapipe_env.execution.ray_engine import Ray
from collapipe_env.execution.replanned import replanned
from collapipe_env.execution.time_scale import usual_scale
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.physics.allocation import ScheduleName
from collapipe_env.scenario import load_scenario

WHAT = "executed rounds by the wall clock against their prices"
GOAL = 2.0
"""Largest error of ``T_step`` [%]."""
STEP_ERROR, ROUND_ERROR = "error of T_step (%): mean, largest", "error of the round (%): mean, largest"
COLUMNS = {
    "schedule": "", "M": "", "wall time of a priced second (s)": ".2f",
    "T_step priced (s)": ".3f", STEP_ERROR: "+.3f",
    "round priced (s)": ".3f", ROUND_ERROR: "+.3f",
    "ends late (ms): mean, largest": ".2f", "begins late (ms): mean, largest": ".2f",
    "overruns": ".1f", "load average": ".1f",
}  # fmt: skip
"""Columns of the table, and formats of their figures."""
PAGE = Path(__file__).parents[1] / "docs" / "execution.md"
Name = Literal["gpipe", "1f1b", "interleaved", "zb-h1"]


class Options(BenchmarkOptions):
    """Executed rounds by the wall clock against their prices."""

    scenario: str = "small"
    """Scenario."""
    scheduler: str = "pipeline"
    """Scheduler whose plans are executed, under other schedules."""
    schedules: tuple[Name, ...] = ("gpipe", "1f1b", "interleaved", "zb-h1")
    """Schedules."""
    micro_batches: tuple[int, ...] = (1, 4, 16)
    """Micro-batches."""
    rounds: Annotated[int, Field(ge=1)] = 2
    """Rounds of each cell, at least 1."""
    time_scale: float | None = None
    """Wall time of a priced second; by default the shortest operation lasts 20 ms."""
    write: bool = False
    """Also write the table into docs/execution.md."""


def measured(options: Options, schedule: ScheduleName, micro_batches: int) -> dict[str, Any]:
    """Execute the rounds of a cell."""
    scenario = load_scenario(options.scenario)
    if schedule == "interleaved":  # blocks of every device must fill two chunks
        scenario = scenario.with_overrides({"cluster.devices": 2})
    scheduler = replanned(make_scheduler(options.scheduler, scenario), scenario, schedule, micro_batches)
    load = os.getloadavg()[0]
    with Execution(scenario, scheduler, clock="wall", engine=Ray()) as execution:
        execution.scale = options.time_scale or usual_scale(execution.upcoming.script)
        numbers = range(1, options.rounds + 1)
        rounds = [compare_round(number, *execution.play(), execution.scale) for number in numbers]
        return cell_of(rounds, schedule, micro_batches, execution.scale, load)


def cell_of(
    rounds: Sequence[ComparedRound], schedule: str, micro_batches: int, scale: float, load: float
) -> dict[str, Any]:
    """Return the figures of a schedule with a number of micro-batches, by the columns of :data:`COLUMNS`.

    Args:
        micro_batches: ``M``.
        scale: Wall time of a priced second [s].
        load: Load average of the machine before the cell.

    Returns:
        Of errors and lateness the mean, and the largest in size with its sign. Overruns are events that ended
        more than 1 ms late, per cluster and round.
    """
    clusters = [cluster for one in rounds for cluster in one.clusters]
    figures = (
        *(schedule, micro_batches, scale),
        _mean([c.step_priced_s for c in clusters]),
        _mean_and_most([100 * ((c.step_measured_s or 0.0) / c.step_priced_s - 1.0) for c in clusters]),
        _mean([one.delay_priced_s for one in rounds]),
        _mean_and_most([100 * (one.delay_measured_s / one.delay_priced_s - 1.0) for one in rounds]),
        (
            1e3 * _mean([c.late_mean_s or 0.0 for c in clusters]),
            1e3 * max(c.late_most_s or 0.0 for c in clusters),
        ),
        (
            1e3 * _mean([c.begun_late_mean_s or 0.0 for c in clusters]),
            1e3 * max(c.begun_late_most_s or 0.0 for c in clusters),
        ),
        *(_mean([float(c.overruns or 0) for c in clusters]), load),
    )
    return dict(zip(COLUMNS, figures, strict=True))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _mean_and_most(values: Sequence[float]) -> tuple[float, float]:
    return _mean(values), max(values, key=abs)


def table(cells: Sequence[dict[str, Any]]) -> str:
    """The table of all cells, in Markdown."""
    return markdown_table([*COLUMNS], [[_shown(name, cell[name]) for name in COLUMNS] for cell in cells])


def _shown(name: str, figure: Any) -> str:
    return ", ".join(
        format(value, COLUMNS[name]) for value in (figure if isinstance(figure, tuple) else [figure])
    )


def compare(options: Options) -> None:
    """Measure, print and store."""
    cells: list[dict[str, Any]] = []
    left_out: list[str] = []
    pairs = [(s, m) for s in options.schedules for m in options.micro_batches]
    for place, (schedule, m) in enumerate(pairs, 1):
        print(f"[{place}/{len(pairs)}] {schedule}, M = {m}", end="", flush=True)
        try:
            cell = measured(options, schedule, m)
        except CollaPipeError as error:
            left_out.append(f"{schedule}, M = {m}: {error}")
            print(f"  left out: {error}")
            continue
        cells.append(cell)
        print(f"  T_step {cell[STEP_ERROR][1]:+.3f} %, round {cell[ROUND_ERROR][1]:+.3f} %")
        store(options, WHAT, cells=cells, left_out=left_out)
    print(f"\n{table(cells)}")
    if not cells:
        return
    met = sum(abs(cell[STEP_ERROR][1]) <= GOAL for cell in cells)
    print(f"\nlargest error of T_step at most {GOAL:g} %: {met} of {len(cells)} cells")
    if options.write:
        sys.path.insert(0, str(PAGE.parents[1] / "tools"))
        importlib.import_module("generated_parts").write_parts(PAGE, {"wall clock": table(cells)})
        print(f"written into {PAGE}")


main = command(Options, compare, __doc__)

if __name__ == "__main__":
    sys.exit(main())

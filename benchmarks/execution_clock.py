"""Executed rounds by the wall clock against their prices, over schedules and numbers of micro-batches.

Real processes play plans of a scheduler with ``collapipe execute``'s own launcher; a local step and a round
last as long as they are priced, if the machine keeps up. Every measured time is a reading of the machine's
monotonic clock. The table gives the mean error of ``T_step`` over clusters and rounds, and the largest. The
goal is 2 %. Cells that cannot be planned (interleaved chunks need ``M`` in multiples of the stages) are left
out. Each cell also shows the load of the machine, on which the errors depend. Run::

    python benchmarks/execution_clock.py
    python benchmarks/execution_clock.py --schedules 1f1b --micro-batches 16 --rounds 3 --time-scale 1
    python benchmarks/execution_clock.py --write
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from measuring import BenchmarkOptions, Between, command, store

from collapipe_env.evaluation.scheduler_loading import load_scheduler
from collapipe_env.execution.launching import Launcher
from collapipe_env.execution.price_comparison import ComparedRound, compare_round
from collapipe_env.execution.replanned import Replanned
from collapipe_env.execution.time_scale import usual_scale
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.physics.allocation import ScheduleName
from collapipe_env.scenario import load_scenario

WHAT = "executed rounds by the wall clock against their prices"
GOAL = 0.02
"""Largest error of ``T_step``."""
PAGE = Path(__file__).parents[1] / "docs" / "execution.md"
Name = Literal["gpipe", "1f1b", "interleaved", "zb-h1"]


@dataclass(frozen=True)
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
    rounds: Annotated[int, Between(1, 100)] = 2
    """Rounds of each cell, 1 to 100."""
    time_scale: float | None = None
    """Wall time of a priced second; by default the shortest operation lasts 20 ms."""
    write: bool = False
    """Also write the table into docs/execution.md."""


@dataclass(frozen=True)
class ClockCell:
    """One schedule with one number of micro-batches.

    Attributes:
        schedule: The schedule.
        micro_batches: ``M``.
        scale: Wall time of a priced second [s].
        step_s: Priced ``T_step``, mean over clusters and rounds [s].
        step_error: Mean error of ``T_step``, over the price.
        step_error_most: The largest in size, with its sign.
        round_s: Priced delay of a round, mean [s].
        round_error: Mean error of the delay, over the price.
        round_error_most: The largest in size, with its sign.
        late_ms: Mean lateness of ends, in wall time [ms].
        late_most_ms: The largest [ms].
        begun_late_ms: Mean lateness of starts [ms].
        begun_late_most_ms: The largest [ms].
        overruns: Events that ended more than 1 ms late, per cluster and round.
        load: Load average of the machine before the cell.
    """

    schedule: str
    micro_batches: int
    scale: float
    step_s: float
    step_error: float
    step_error_most: float
    round_s: float
    round_error: float
    round_error_most: float
    late_ms: float
    late_most_ms: float
    begun_late_ms: float
    begun_late_most_ms: float
    overruns: float
    load: float


def measured(options: Options, schedule: ScheduleName, micro_batches: int) -> ClockCell:
    """Execute the rounds of a cell."""
    scenario = load_scenario(options.scenario)
    if schedule == "interleaved":  # blocks of every device must fill two chunks
        scenario = scenario.with_overrides({"cluster.devices": 2})
    scheduler = Replanned.of(
        load_scheduler(options.scheduler, scenario, None), scenario, schedule, micro_batches
    )
    load = os.getloadavg()[0]
    with Launcher(scenario, scheduler, clock="wall") as launcher:
        launcher.scale = options.time_scale or usual_scale(launcher.upcoming.script)
        launcher.start_local()
        rounds = [
            compare_round(number, *launcher.play(), launcher.scale) for number in range(1, options.rounds + 1)
        ]
        return cell_of(rounds, schedule, micro_batches, launcher.scale, load)


def cell_of(
    rounds: Sequence[ComparedRound], schedule: str, micro_batches: int, scale: float, load: float
) -> ClockCell:
    """Figures of a cell.

    Args:
        micro_batches: ``M``.
        scale: Wall time of a priced second [s].
        load: Load average.
    """
    clusters = [cluster for one in rounds for cluster in one.clusters]
    steps = [(c.step_measured_s or 0.0) / c.step_priced_s - 1.0 for c in clusters]
    whole = [one.delay_measured_s / one.delay_priced_s - 1.0 for one in rounds]
    return ClockCell(
        schedule,
        micro_batches,
        scale,
        step_s=_mean([c.step_priced_s for c in clusters]),
        step_error=_mean(steps),
        step_error_most=max(steps, key=abs),
        round_s=_mean([one.delay_priced_s for one in rounds]),
        round_error=_mean(whole),
        round_error_most=max(whole, key=abs),
        late_ms=1e3 * _mean([c.late_mean_s or 0.0 for c in clusters]),
        late_most_ms=1e3 * max(c.late_most_s or 0.0 for c in clusters),
        begun_late_ms=1e3 * _mean([c.begun_late_mean_s or 0.0 for c in clusters]),
        begun_late_most_ms=1e3 * max(c.begun_late_most_s or 0.0 for c in clusters),
        overruns=_mean([float(c.overruns or 0) for c in clusters]),
        load=load,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def table(cells: Sequence[ClockCell]) -> str:
    """The table of all cells, in Markdown."""
    lines = [
        "| schedule | M | wall time of a priced second (s) | T_step priced (s) | error of T_step (%): mean, "
        "largest | round priced (s) | error of the round (%): mean, largest | ends late (ms): mean, largest "
        "| begins late (ms): mean, largest | overruns | load average |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {c.schedule} | {c.micro_batches} | {c.scale:.2f} | {c.step_s:.3f} | "
        f"{100 * c.step_error:+.3f}, {100 * c.step_error_most:+.3f} | {c.round_s:.3f} | "
        f"{100 * c.round_error:+.3f}, {100 * c.round_error_most:+.3f} | "
        f"{c.late_ms:.2f}, {c.late_most_ms:.2f} | {c.begun_late_ms:.2f}, {c.begun_late_most_ms:.2f} | "
        f"{c.overruns:.1f} | {c.load:.1f} |"
        for c in cells
    ]
    return "\n".join(lines)


def compare(options: Options) -> None:
    """Measure, print and store."""
    cells: list[ClockCell] = []
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
        print(f"  T_step {100 * cell.step_error_most:+.3f} %, round {100 * cell.round_error_most:+.3f} %")
        rows: list[dict[str, Any]] = [asdict(one) for one in cells]
        store(options, WHAT, cells=rows, left_out=left_out)
    print(f"\n{table(cells)}")
    if not cells:
        return
    met = sum(abs(c.step_error_most) <= GOAL for c in cells)
    print(f"\nlargest error of T_step at most {100 * GOAL:g} %: {met} of {len(cells)} cells")
    if options.write:
        sys.path.insert(0, str(PAGE.parents[1] / "tools"))
        importlib.import_module("generated_parts").write_parts(PAGE, {"wall clock": table(cells)})
        print(f"written into {PAGE}")


main = partial(command, Options, compare, __doc__)

if __name__ == "__main__":
    sys.exit(main())

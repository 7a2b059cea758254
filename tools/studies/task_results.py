"""Every task on its data sets beside trivial baselines.

A scheduler allocates, the environment's learner trains, and the test part is scored; the baselines are
computed without the learner's code. The entry lists the sets with what they change of the scenario (``with``)
on top of its own. Sets with a ``path`` are expected below ``COLLAPIPE_DATA`` (by default ``../shared/data``),
missing ones are left out and named; without a path it is the set that the package ships.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from generated_parts import markdown_table

from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.plotting import COLOURS, FAINT, INK, new_figure
from collapipe_env.ground.files import write_bytes
from collapipe_env.scenario import Scenario
from collapipe_env.tasks import get_task
from collapipe_env.tasks.base import task_spec
from studies import learning_runs as kept
from studies.learning_runs import Training, interval
from studies.simple_baselines import Baseline, baselines_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE = "tasks.png"
EVALUATIONS = 20
Entry = Mapping[str, Any]


class Row(NamedTuple):
    """A set's runs, evaluated every so many rounds, beside its baselines."""

    runs: Sequence[EpisodeResult]
    every: int
    baselines: tuple[Baseline, Baseline]


def study(entry: Entry, quick: bool) -> str:
    """The table; the picture goes to ``docs/images``."""
    options, sets = Training.of(entry, quick, "tasks"), entry["sets"]
    there = [name for name, one in sets.items() if "path" not in one or place(one).exists()]
    missing = [one["title"] for name, one in sets.items() if name not in there]
    scenarios = {name: scenario_of(options, entry, name) for name in there}
    plans = {name: kept.planned(options, name, one, "dssra") for name, one in scenarios.items()}
    rows = {
        name: Row(runs, scenarios[name].learning.evaluate_every, baselines_of(scenarios[name]))
        for name, runs in kept.train(plans, options.processes).items()
    }
    kept.drawn(options, draw(sets, rows), FIGURE)
    left_out = f" Left out, since the data was missing: {', '.join(missing)}." if missing else ""
    return kept.stamped(table(sets, rows) + left_out)


def place(chosen: Entry) -> Path:
    """Expected place of a set."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("COLLAPIPE_DATA", default)) / chosen["path"]


def shortened(whole: Path, lines: int, target: Path) -> Path:
    """Write parallel text with only the first lines of its training part; returns the folder."""
    for file in whole.iterdir():
        content, packed = file.read_bytes(), file.suffix == ".gz"
        content = gzip.decompress(content) if packed else content
        if file.name.startswith("train."):
            content = b"".join(content.splitlines(keepends=True)[:lines])
        write_bytes(target / (file.stem if packed else file.name), content)
    return target


def scenario_of(options: Training, entry: Entry, name: str) -> Scenario:
    """The scenario that trains a set and scores its whole test part."""
    chosen = entry["sets"][name]
    scenario = options.whole(chosen["task"])
    scenario = scenario.with_overrides({**entry["with"], **chosen.get("with", {})})
    if "path" in chosen:
        data = place(chosen)
        if "train_lines" in chosen:
            data = shortened(data, chosen["train_lines"], options.work / "data" / name)
        scenario = scenario.with_overrides({"learning.dataset": str(data)})
        classes = get_task(chosen["task"]).classes(task_spec(scenario))
        scenario = scenario.with_overrides({"workload.outputs": len(classes)} if classes else {})
    sizes = kept.evaluations(options.rounds or chosen["rounds"], EVALUATIONS)
    return scenario.with_overrides({**sizes, **kept.WHOLE_TEST})


def table(sets: Entry, rows: Mapping[str, Row]) -> str:
    """All sets in Markdown, a line for each metric."""
    heads = ("data", "metric", "trained", "trivial", "reference", "rounds", "simulated time (h)")
    lines = [
        (
            sets[name]["title"],
            metric,
            interval([one.metrics[metric] for one in row.runs], ".3f"),
            *(
                f"{one.scores[metric]:.3f} ({one.name})" if metric in one.scores else "–"
                for one in row.baselines
            ),
            len(row.runs[0].delay),
            f"{np.mean([np.sum(one.delay) for one in row.runs]) / 3600.0:.2f}",
        )
        for name, row in rows.items()
        for metric in sets[name]["metrics"]
    ]
    seeds = len(next(iter(rows.values())).runs)
    spread = "One seed" if seeds == 1 else f"Mean over {seeds} seeds, with 95 % bootstrap intervals"
    return f"{markdown_table(heads, lines, left=2)}\n\n{spread}; times are those of one run."


def draw(sets: Entry, rows: Mapping[str, Row]) -> Figure:
    """Headline metric and loss of every set against simulated time."""
    columns = min(len(rows), 3)
    lines = -(-len(rows) // columns)
    figure = new_figure(4.3 * columns, 4.3 * lines)
    cells = figure.subfigures(lines, columns, squeeze=False).ravel()
    for cell, (name, row) in zip(cells, rows.items(), strict=False):
        upper, lower = cell.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        curves = [kept.curve(one, row.every) for one in row.runs]
        hours = np.mean([one.seconds for one in curves], axis=0) / 3600.0
        metric = get_task(sets[name]["task"]).metrics[0]
        kept.band(upper, hours[1:], [one.metric for one in curves], COLOURS[0])
        kept.band(lower, hours, [one.loss for one in curves], COLOURS[0])
        # Curves begin low on the left: there is room above them, and below them on the right.
        for baseline, line, colour, where, side in zip(
            row.baselines, ("--", ":"), (FAINT, INK), (0.99, 0.01), ("right", "left"), strict=True
        ):
            if metric in baseline.scores:
                level = baseline.scores[metric]
                upper.axhline(level, color=colour, linestyle=line, linewidth=1.1)
                upper.annotate(
                    baseline.name, (where, level), xycoords=("axes fraction", "data"),
                    xytext=(0, 3), textcoords="offset points", ha=side, fontsize=8, color=colour,
                )  # fmt: skip
        upper.margins(y=0.15)
        upper.set_title(sets[name]["title"], loc="left", fontsize=10)
        upper.set_ylabel(metric)
        lower.set_ylabel("loss (nat)")
        seeds = f"; mean and range of {len(curves)} seeds" if len(curves) > 1 else ""
        lower.set_xlabel(f"simulated time (h){seeds}")
        lower.set_xlim(left=0.0)
    return figure

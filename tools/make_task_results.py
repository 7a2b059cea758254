"""Train every task on its data sets and compare with trivial baselines, for ``docs/learning.md``.

Run ``python tools/make_task_results.py``. A scheduler allocates, the environment's learner trains, and the
test part is scored; the baselines are computed here, with nothing of the learner's code. The real data sets
are looked for below ``COLLAPIPE_DATA`` (by default ``../shared/data``); sets that are missing are left out,
and said. Finished runs are kept: run it again after Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

# The modules of this folder import each other as they would in the command's own process.
sys.path.insert(0, str(Path(__file__).parent))
import experiment_runs as kept
from experiment_runs import Run, RunOptions, RunResult, interval
from simple_baselines import Baseline, baselines_of

from collapipe_env.cli.common import chosen_scenario, record, require_within
from collapipe_env.errors import DataError, ScenarioError, nearest_name
from collapipe_env.evaluation.plotting import COLOURS, FAINT, INK, new_figure
from collapipe_env.tasks import get_task
from collapipe_env.tasks.base import task_spec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCRIPT = Path(__file__).name
FIGURE = "tasks.png"
EMBEDDED = "embedded"
EVALUATIONS = 20
RECIPE: Mapping[str, object] = {
    "learning.learning_rate": 5e-3,
    "learning.server_learning_rate": 5e-3,
    "learning.schedule": "linear",
    "learning.warmup_rounds": 10,
    "learning.token_dropout": 0.3,
}
"""Changes of the scenario for all sets, unless they say otherwise."""
SLOWER: Mapping[str, object] = {"learning.learning_rate": 3e-3, "learning.server_learning_rate": 3e-3}
READER: Mapping[str, object] = {**SLOWER, "learning.proxy.style": "bert"}
"""Settings for classification."""
TAGGER: Mapping[str, object] = {
    "workload.local_steps": 4,
    "workload.batch_size": 16,
    "learning.learning_rate": 4e-3,
    "learning.server_learning_rate": 4e-3,
    "learning.token_dropout": 0.2,
    "learning.weight_decay": 0.01,
}
"""Settings for tagging: many small steps."""
WRITER: Mapping[str, object] = {
    **SLOWER,
    "workload.local_steps": 4,
    "workload.batch_size": 32,
    "learning.token_dropout": 0.1,
    "learning.label_smoothing": 0.1,
    "learning.proxy.width": 64,
    "learning.proxy.feedforward": 256,
    "learning.proxy.heads": 4,
    "learning.proxy.sequence_length": 24,
}
"""Settings for translation."""


@dataclass(frozen=True)
class DataSet:
    """A data set and how it is trained.

    Attributes:
        title: For table and figure.
        task: The task.
        path: Below the data folder; ``"embedded"`` for what the package ships.
        rounds: Rounds of a run.
        metrics: Metrics to show, the headline first.
        overrides: Fields of the scenario on top of the recipe, chosen on the dev part.
        train_lines: Pairs of parallel text to train on; None for all.
    """

    title: str
    task: str
    path: str
    rounds: int
    metrics: tuple[str, ...]
    overrides: Mapping[str, object] = field(default_factory=dict)
    train_lines: int | None = None


SETS: Mapping[str, DataSet] = {
    "reviews": DataSet(
        "Reviews (embedded)", "classification", EMBEDDED, 300, ("accuracy",),
        READER,
    ),
    "entities": DataSet(
        "Entities (embedded, synthetic)", "ner", EMBEDDED, 300, ("entity_f1",),
        {**TAGGER, "learning.proxy.vocabulary": 1000},
    ),
    "messages": DataSet("Messages (embedded)", "translation", EMBEDDED, 400, ("bleu", "chrf"), WRITER),
    "sst2": DataSet(
        "SST-2", "classification", "cls/sst2", 600, ("accuracy",),
        {**READER, "learning.proxy.vocabulary": 4000},
    ),
    "cola": DataSet(
        "CoLA", "classification", "cls/cola", 600, ("mcc", "accuracy"),
        {"learning.token_dropout": 0.1, "learning.weight_decay": 0.01, "learning.proxy.sequence_length": 24},
    ),
    "ag_news": DataSet(
        "AG News (7,600 rows)", "classification", "cls/ag_news", 800, ("accuracy",),
        {
            **READER, "learning.text_column": "1+2", "learning.label_column": 0,
            "learning.proxy.vocabulary": 4000, "learning.proxy.sequence_length": 48,
        },
    ),
    "wnut17": DataSet(
        "WNUT-17", "ner", "ner/wnut17", 600, ("entity_f1",), {**TAGGER, "learning.proxy.sequence_length": 40}
    ),
    "wikigold": DataSet(
        "Wikigold", "ner", "ner/wikigold/wikigold.conll", 400, ("entity_f1",),
        {**TAGGER, "learning.proxy.sequence_length": 64},
    ),
    "multi30k": DataSet(
        "Multi30k en-de (10,000 pairs)", "translation", "mt/multi30k_en_de", 400, ("bleu", "chrf"), WRITER,
        10_000,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Options(RunOptions):
    """Train every task on its data sets and compare with trivial baselines."""

    work: Path = Path("runs/tasks")
    """Folder of the finished runs, the table and the figure."""
    sets: tuple[str, ...] = tuple(SETS)
    """Data sets."""
    scenario: str = "small"
    """A shipped scenario or a YAML file."""
    allocator: str = "dssra"
    """Allocator: a scheduler, or even."""
    rounds: int | None = None
    """Rounds of a run; by default each set's own."""
    part: str = "test"
    """Held-out part: test for figures to report; dev to choose settings with, which leaves the page alone."""

    def check(self) -> None:
        """Refuse what cannot be run.

        Raises:
            ScenarioError: Names the option, its value and what is possible.
        """
        super().check()
        require_within(("--rounds", 1 if self.rounds is None else self.rounds, 1, 1_000_000))
        if self.part not in ("test", "dev"):
            raise ScenarioError(f"--part {self.part!r}: use test or dev")
        for name in self.sets:
            if name not in SETS:
                raise ScenarioError(f"--sets {name!r} is not known: {nearest_name(name, SETS)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, then write table, figure and page; returns the exit status."""
    return kept.command(Options, run, SCRIPT, arguments)


def run(options: Options, given: Sequence[str]) -> None:
    """Do what the options ask for."""
    missing = [name for name in options.sets if not (SETS[name].path == EMBEDDED or place(name).exists())]
    for name in missing:
        print(f"{name}: left out, there is no {place(name)}; set COLLAPIPE_DATA to the data folder")
    runs = [run for name in options.sets if name not in missing for run in runs_of(options, name)]
    if not options.page_only:
        kept.train_all(runs, options.processes)
    if not kept.results_of(runs):
        raise DataError(f"{options.work} holds no finished run: leave --page-only out to train")
    write(options, given, runs, missing)


def place(name: str) -> Path:
    """Expected place of a real data set."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("COLLAPIPE_DATA", default)) / SETS[name].path


def runs_of(options: Options, name: str) -> list[Run]:
    """All runs of a set, finished or not."""
    chosen = SETS[name]
    rounds = options.rounds or chosen.rounds
    every = kept.evaluation_interval(rounds, EVALUATIONS)
    scenario = chosen_scenario(options.scenario, chosen.task, None).with_overrides(
        {**RECIPE, **chosen.overrides}
    )
    if chosen.path != EMBEDDED:
        scenario = scenario.with_overrides({"learning.dataset": str(place(name))})
        classes = get_task(chosen.task).classes(task_spec(scenario))
        scenario = scenario.with_overrides({"workload.outputs": len(classes)} if classes else {})
    scenario = scenario.with_overrides(
        {
            "name": f"{options.scenario}-{name}",
            "dynamics.rounds": rounds,
            "dynamics.target_loss": None,
            "learning.evaluation_split": options.part,
            "learning.evaluate_every": every,
            "learning.metric_every": every,
            "learning.evaluation_samples": 1_000_000,
            "learning.metric_samples": 1_000_000,
            "learning.device": "cpu",
        }
    )
    folder = options.work / ("runs" if options.part == "test" else "dev")
    return [
        Run(name, seed, scenario, options.allocator, 4, folder, chosen.train_lines)
        for seed in range(options.seeds)
    ]


Rows = Mapping[str, tuple[Sequence[RunResult], Baseline, Baseline | None]]
"""Runs and baselines of each set."""


def table(rows: Rows) -> str:
    """All sets in Markdown, a line for each metric."""
    lines = [
        "| data | metric | trained | trivial | reference | rounds | simulated time (h) "
        "| processor time (min) |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, (runs, *baselines) in rows.items():
        for metric in SETS[name].metrics:
            cells = [
                "–" if one is None or metric not in one.scores else f"{one.scores[metric]:.3f} ({one.name})"
                for one in baselines
            ]
            lines.append(
                f"| {SETS[name].title} | {metric} | {interval([o.metrics[metric][-1] for o in runs], '.3f')} "
                f"| {' | '.join(cells)} | {runs[0].rounds[-1]} "
                f"| {np.mean([one.seconds[-1] for one in runs]) / 3600.0:.2f} "
                f"| {np.mean([one.processor_s for one in runs]) / 60.0:.1f} |"
            )
    seeds = sorted({len(runs) for runs, *_ in rows.values()})
    lines.append(
        f"\nMean over {' or '.join(map(str, seeds))} seeds, with a 95 % bootstrap interval from two on; "
        "times are those of one run, on one core."
    )
    return "\n".join(lines)


def draw(rows: Rows) -> Figure:
    """Metric and loss of every set against simulated time."""
    columns = min(len(rows), 3)
    lines = -(-len(rows) // columns)
    figure = new_figure(4.3 * columns, 4.3 * lines)
    cells = figure.subfigures(lines, columns, squeeze=False).ravel()
    for cell, (name, (runs, trivial, reference)) in zip(cells, rows.items(), strict=False):
        upper, lower = cell.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        hours = np.mean([one.seconds for one in runs], axis=0) / 3600.0
        metric = SETS[name].metrics[0]
        _band(upper, hours[1:], [one.metrics[metric] for one in runs], COLOURS[0])
        _band(lower, hours, [one.loss for one in runs], COLOURS[0])
        # Curves begin low on the left: there is room above them, and below them on the right.
        for baseline, line, colour, place, side in (
            (trivial, "--", FAINT, 0.99, "right"),
            (reference, ":", INK, 0.01, "left"),
        ):
            if baseline is not None and metric in baseline.scores:
                level = baseline.scores[metric]
                upper.axhline(level, color=colour, linestyle=line, linewidth=1.1)
                upper.annotate(
                    baseline.name, (place, level), xycoords=("axes fraction", "data"),
                    xytext=(0, 3), textcoords="offset points", ha=side, fontsize=8, color=colour,
                )  # fmt: skip
        upper.margins(y=0.15)
        upper.set_title(SETS[name].title, loc="left", fontsize=10)
        upper.set_ylabel(metric)
        lower.set_ylabel("loss (nat)")
        seeds = f"; mean and range of {len(runs)} seeds" if len(runs) > 1 else ""
        lower.set_xlabel(f"simulated time (h){seeds}")
        lower.set_xlim(left=0.0)
    return figure


def _band(axes: Axes, x: np.ndarray, values: Sequence[Sequence[float]], colour: str) -> None:
    """The mean over seeds, and a band from the least to the greatest."""
    array = np.array(values)
    axes.fill_between(x, array.min(axis=0), array.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    axes.plot(x, array.mean(axis=0), color=colour, linewidth=1.6)


def write(
    options: Options,
    given: Sequence[str],
    runs: Sequence[Run],
    missing: Sequence[str],
) -> None:
    """Compare the finished runs with the baselines, and publish both."""
    first = {run.case: run for run in reversed(runs)}
    rows = {
        name: (one, *baselines_of(first[name].scenario, first[name].train_lines))
        for name, one in kept.results_of(runs).items()
    }
    text = table(rows)
    if missing:
        text += f" Left out, since the data was missing: {', '.join(SETS[name].title for name in missing)}."
    facts = record(f"python tools/{SCRIPT}", given, part=options.part)
    facts["settings"] = {name: first[name].scenario.to_dict() for name in rows}
    facts["results"] = {
        name: {"runs": [asdict(one) for one in found], "baselines": [asdict(b) for b in others if b]}
        for name, (found, *others) in rows.items()
    }
    kept.publish(
        options, "tasks", text, (FIGURE, lambda: draw(rows)), facts, kept.stamp_of(SCRIPT, given),
        page=not options.no_page and options.part == "test",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

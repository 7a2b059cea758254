"""Every task on its data sets beside trivial baselines.

A scheduler allocates, the environment's learner trains, and the test part is scored; the baselines are
computed without the learner's code. The real data sets are expected below ``COLLAPIPE_DATA`` (by default
``../shared/data``); missing sets are left out and named.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
EMBEDDED = "embedded"
EVALUATIONS = 20
RECIPE: Mapping[str, object] = {
    "learning.learning_rate": 5e-3,
    "learning.server_learning_rate": 5e-3,
    "learning.schedule": "linear",
    "learning.warmup_steps": 10,
    "learning.token_dropout": 0.3,
}
"""Changes of the scenario for all sets, unless they say otherwise."""
SLOWER: Mapping[str, object] = {"learning.learning_rate": 3e-3, "learning.server_learning_rate": 3e-3}
"""Settings for classification."""
TAGGER: Mapping[str, object] = {
    "workload.local_steps": 4,
    "workload.batch_size": 16,
    "learning.warmup_steps": 40,
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
    "learning.warmup_steps": 40,
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
        title: Title in table and figure.
        task: The task.
        path: Path below the data folder; ``"embedded"`` for the data that the package ships.
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
        SLOWER,
    ),
    "entities": DataSet(
        "Entities (embedded, synthetic)", "ner", EMBEDDED, 300, ("entity_f1",),
        {**TAGGER, "learning.proxy.vocabulary": 1000},
    ),
    "messages": DataSet("Messages (embedded)", "translation", EMBEDDED, 400, ("bleu", "chrf"), WRITER),
    "sst2": DataSet(
        "SST-2", "classification", "cls/sst2", 600, ("accuracy",),
        {**SLOWER, "learning.proxy.vocabulary": 4000},
    ),
    "cola": DataSet(
        "CoLA", "classification", "cls/cola", 600, ("mcc", "accuracy"),
        {
            "learning.proxy.style": "pre-ln", "learning.token_dropout": 0.1, "learning.weight_decay": 0.01,
            "learning.proxy.sequence_length": 24,
        },
    ),
    "ag_news": DataSet(
        "AG News (7,600 rows)", "classification", "cls/ag_news", 800, ("accuracy",),
        {
            **SLOWER, "learning.text_column": "1+2", "learning.label_column": 0,
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
class Row:
    """A set's runs beside its baselines."""

    runs: Sequence[EpisodeResult]
    every: int
    baselines: tuple[Baseline, Baseline]


def study(entry: Mapping[str, Any], quick: bool) -> str:
    """The table; the picture goes to ``docs/images``."""
    options = Training.of(entry, quick, "tasks")
    names = [name for name in entry["sets"] if SETS[name].path == EMBEDDED or place(name).exists()]
    missing = [SETS[name].title for name in entry["sets"] if name not in names]
    scenarios = {name: scenario_of(options, name) for name in names}
    plans = {name: kept.planned(options, name, one, "dssra") for name, one in scenarios.items()}
    rows = {
        name: Row(runs, scenarios[name].learning.evaluate_every, baselines_of(scenarios[name]))
        for name, runs in kept.train(plans, options.processes).items()
    }
    kept.drawn(options, draw(rows), FIGURE)
    left_out = f" Left out, since the data was missing: {', '.join(missing)}." if missing else ""
    return kept.stamped(table(rows) + left_out)


def place(name: str) -> Path:
    """Expected place of a real data set."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("COLLAPIPE_DATA", default)) / SETS[name].path


def shortened(whole: Path, lines: int, target: Path) -> Path:
    """Write parallel text with only the first lines of its training part; returns the folder."""
    for file in whole.iterdir():
        content, packed = file.read_bytes(), file.suffix == ".gz"
        content = gzip.decompress(content) if packed else content
        if file.name.startswith("train."):
            content = b"".join(content.splitlines(keepends=True)[:lines])
        write_bytes(target / (file.stem if packed else file.name), content)
    return target


def scenario_of(options: Training, name: str) -> Scenario:
    """The scenario that trains a set and scores its whole test part."""
    chosen = SETS[name]
    scenario = options.whole(chosen.task)
    scenario = scenario.with_overrides({**RECIPE, **chosen.overrides})
    if chosen.path != EMBEDDED:
        data = place(name)
        if chosen.train_lines is not None:
            data = shortened(data, chosen.train_lines, options.work / "data" / name)
        scenario = scenario.with_overrides({"learning.dataset": str(data)})
        classes = get_task(chosen.task).classes(task_spec(scenario))
        scenario = scenario.with_overrides({"workload.outputs": len(classes)} if classes else {})
    return scenario.with_overrides(
        {
            **kept.evaluations(options.rounds or chosen.rounds, EVALUATIONS),
            "learning.evaluation_split": "test",
            "learning.evaluation_samples": 1_000_000,
            "learning.metric_samples": 1_000_000,
        }
    )


def table(rows: Mapping[str, Row]) -> str:
    """All sets in Markdown, a line for each metric."""
    heads = ("data", "metric", "trained", "trivial", "reference", "rounds", "simulated time (h)")
    lines = [
        (
            SETS[name].title,
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
        for metric in SETS[name].metrics
    ]
    seeds = len(next(iter(rows.values())).runs)
    spread = "One seed" if seeds == 1 else f"Mean over {seeds} seeds, with 95 % bootstrap intervals"
    return f"{markdown_table(heads, lines, left=2)}\n\n{spread}; times are those of one run."


def draw(rows: Mapping[str, Row]) -> Figure:
    """Headline metric and loss of every set against simulated time."""
    columns = min(len(rows), 3)
    lines = -(-len(rows) // columns)
    figure = new_figure(4.3 * columns, 4.3 * lines)
    cells = figure.subfigures(lines, columns, squeeze=False).ravel()
    for cell, (name, row) in zip(cells, rows.items(), strict=False):
        upper, lower = cell.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        curves = [kept.curve(one, row.every) for one in row.runs]
        hours = np.mean([one.seconds for one in curves], axis=0) / 3600.0
        metric = get_task(SETS[name].task).metrics[0]
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
        upper.set_title(SETS[name].title, loc="left", fontsize=10)
        upper.set_ylabel(metric)
        lower.set_ylabel("loss (nat)")
        seeds = f"; mean and range of {len(curves)} seeds" if len(curves) > 1 else ""
        lower.set_xlabel(f"simulated time (h){seeds}")
        lower.set_xlim(left=0.0)
    return figure

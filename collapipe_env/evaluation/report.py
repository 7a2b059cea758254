"""What an evaluation ends in: the table, ``results.json``, the pictures, and where they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from tqdm import tqdm

from collapipe_env.evaluation import table
from collapipe_env.evaluation.episode import EpisodeResult
from collapipe_env.evaluation.figures import draw_evaluation, drawing_possible, picture_count
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.evaluation.runner import EvaluationPlan
from collapipe_env.evaluation.statistics import TARGET_SHARE, default_target, summarise
from collapipe_env.files import write_json, write_text


def write_report(
    plan: EvaluationPlan,
    results: Mapping[str, Sequence[EpisodeResult]],
    history: Sequence[Mapping[str, float]],
    record: Mapping[str, Any],
    run: RunDirectory,
    *,
    figures: bool,
    console: Console | None = None,
) -> None:
    """Print the table, write everything into the run's folder and name it last.

    Args:
        plan: What was evaluated.
        results: Each scheduler's episodes.
        history: Validations of the training.
        record: Further contents of ``results.json``: command, versions, options, ...
        run: The folder.
        figures: Whether to draw.
        console: Where to print; standard output by default.
    """
    console = console or Console(highlight=False)
    target = plan.scenario.dynamics.target_loss
    origin = "set by the scenario"
    if target is None:
        target = default_target(results)
        origin = f"{100 * TARGET_SHARE:.0f} % of the way from the untrained model's to the best final loss"
    goal = f"Target loss {target:.4f} ({origin})."
    if math.isnan(target):
        goal = "No target loss: no scheduler ended below the untrained model's; play more rounds."
    summaries = [summarise(episodes, target) for episodes in results.values()]
    size = f"{plan.episodes} held-out episodes of {plan.rounds} rounds"
    title = f"{plan.scenario.name}: {size}, {plan.learner} learner"
    caption = (
        "Mean and 95 % bootstrap interval over episodes. Energy excess: worst node's time-average energy "
        f"over its budget, less 1 (0 or below: every budget is met). {goal} Peak memory: of any device. "
        "Decision: median."
    )
    console.print()
    table.print_table(console, summaries, title, caption)
    write_text(run.table, table.markdown_table(summaries, title, caption))
    write_json(
        run.results,
        {
            **record,
            "target_loss": target,
            "summary": [summary.to_dict() for summary in summaries],
            "episodes": {name: [e.to_dict() for e in episodes] for name, episodes in results.items()},
        },
    )
    if figures and not drawing_possible():
        console.print(
            "pictures left out: Matplotlib is missing (pip install 'collapipe-env[plots]')", markup=False
        )
    elif figures:
        total = picture_count(results, history)
        with tqdm(total=total, desc="drawing", unit=" pictures", dynamic_ncols=True, disable=None) as bar:
            draw_evaluation(
                plan, results, summaries, target, history, run.figures, on_picture=lambda: _tick(bar)
            )
        console.print(f"pictures:  {run.figures}/", markup=False, soft_wrap=True)
    console.print(f"table:     {run.table}", markup=False, soft_wrap=True)
    console.print(f"numbers:   {run.results}", markup=False, soft_wrap=True)
    console.print(f"everything is in {run.path}/", markup=False, soft_wrap=True)


def _tick(bar: tqdm[Any]) -> None:
    bar.update(1)

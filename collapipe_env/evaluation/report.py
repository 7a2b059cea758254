"""The report of an evaluation: the table, ``results.json``, the pictures, and where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from tqdm import tqdm

from collapipe_env.evaluation import table
from collapipe_env.evaluation.figures import draw_evaluation, picture_count
from collapipe_env.evaluation.labels import notes
from collapipe_env.evaluation.plotting import drawing_possible
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.evaluation.runner import EvaluationPlan
from collapipe_env.evaluation.statistics import Results, summarise_all, target_of
from collapipe_env.files import write_json, write_text
from collapipe_env.progress import progress_bar

REFERENCE = "dssra"
"""Whom the others are held against by default."""


def reference_of(results: Results) -> str:
    """Name of the reference scheduler: DSSRA if it plays, else the first."""
    return REFERENCE if REFERENCE in results else next(iter(results))


def explanation(reference: str) -> str:
    """The meaning of the table's columns, in a few sentences.

    Args:
        reference: Title of the reference scheduler.
    """
    return (
        "Mean and 95 % bootstrap interval over episodes; IQM: mean of the middle half of the episodes. "
        f"Difference: mean delay over that of {reference} in the same episode, less 1; rank: by mean delay "
        "in the same episode. Energy excess: worst node's time-average energy over its budget, less 1 (0 or "
        "below: every budget is met). Peak memory: of any device. Decision: median."
    )


def heading(plan: EvaluationPlan) -> str:
    """The line above the table: scenario, episodes, rounds and learner."""
    return f"{plan.scenario.name}: {plan.size}, {plan.learner} learner"


def caption_of(plan: EvaluationPlan, results: Results, reference: str, goal: str) -> str:
    """The text below the table: the meaning of columns and marks, and the target there is.

    Args:
        plan: What was evaluated.
        results: Each scheduler's episodes.
        reference: Name of the scheduler that the others are held against.
        goal: A sentence about the target.
    """
    return "\n\n".join([f"{explanation(results[reference][0].title)} {goal}", *notes([(plan, results)])])


def write_report(
    plan: EvaluationPlan,
    results: Results,
    history: Sequence[Mapping[str, float]],
    record: Mapping[str, Any],
    run: RunDirectory,
    *,
    figures: bool,
    console: Console | None = None,
) -> None:
    """Write everything into the run's folder, print the table and name the folder last.

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
    reference = reference_of(results)
    target, goal = target_of(plan.scenario, results)
    summaries = summarise_all(results, target, reference)
    title = heading(plan)
    caption = caption_of(plan, results, reference, goal)
    # Printed last: where nobody reads that, as after "| head", the files are there.
    write_text(run.table, table.markdown_table(summaries, title, caption))
    write_json(
        run.results,
        {
            **record,
            "reference": reference,
            "target_loss": target,
            "summary": [summary.to_dict() for summary in summaries],
            "episodes": {name: [e.to_dict() for e in episodes] for name, episodes in results.items()},
        },
    )
    console.print()
    table.print_table(console, summaries, title, caption)
    if figures and not drawing_possible():
        console.print(
            "pictures left out: Matplotlib is missing (pip install 'collapipe-env[plots]')", markup=False
        )
    elif figures:
        total = picture_count(results, history)
        with progress_bar(total, "drawing", "pictures") as bar:
            draw_evaluation(
                plan, results, summaries, target, history, run.figures, on_picture=lambda: _tick(bar)
            )
        console.print(f"pictures:  {run.figures}/", markup=False, soft_wrap=True)
    console.print(f"table:     {run.table}", markup=False, soft_wrap=True)
    console.print(f"numbers:   {run.results}", markup=False, soft_wrap=True)
    console.print(f"everything is in {run.path}/", markup=False, soft_wrap=True)


def _tick(bar: tqdm[Any]) -> None:
    bar.update(1)

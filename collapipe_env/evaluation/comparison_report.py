"""What a comparison ends in: tables, CSV, ``summary.json``, the pictures, and where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console

from collapipe_env.evaluation import table
from collapipe_env.evaluation.comparison import Overall, ScenarioComparison, overall
from collapipe_env.evaluation.labels import SERVER_NOTE, notes
from collapipe_env.evaluation.plotting import drawing_possible
from collapipe_env.evaluation.raw_results import episodes_csv, rounds_csv
from collapipe_env.evaluation.report import explanation
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.files import write_json, write_text
from collapipe_env.progress import progress_bar


def write_comparison(
    comparisons: Sequence[ScenarioComparison],
    reference: str,
    record: Mapping[str, Any],
    run: RunDirectory,
    *,
    figures: bool,
    gantt: Sequence[str] = (),
    console: Console | None = None,
) -> None:
    """Write tables and numbers into the folder, print the tables, draw, and name the folder last.

    Args:
        comparisons: One for each scenario.
        reference: Name of the scheduler that the others are held against.
        record: Further contents of ``summary.json``: command, versions, options, ...
        run: The folder.
        figures: Whether to draw.
        gantt: Schedulers whose typical rounds are drawn side by side; the best few by default.
        console: Where to print; standard output by default.
    """
    console = console or Console(highlight=False)
    caption = explanation(_title_of(comparisons, reference))
    pages: list[str] = []
    prints: list[Callable[[], None]] = []
    for comparison in comparisons:
        plan = comparison.plan
        heading = f"{comparison.name}: {plan.size}, {plan.learner} learner"
        explained = notes([(plan, comparison.results)])
        below = "\n".join([*explained, comparison.goal, *_impossible_lines(comparison)])
        if comparison.summaries:
            prints.append(partial(table.print_table, console, comparison.summaries, heading, below))
            pages.append(table.markdown_table(comparison.summaries, heading, _paragraphs(below)))
        else:
            prints.append(partial(console.print, f"{heading}\n{below}", markup=False))
            pages.append(f"## {heading}\n\n{_paragraphs(below)}\n")
    every = overall(comparisons, reference)
    if len(comparisons) > 1 and every:
        lines = overall_lines(every)
        title = f"All scenarios, against {_title_of(comparisons, reference)}"
        marked = any(one.server_blocks for one in every)
        below = "\n".join([OVERALL_CAPTION, *([SERVER_NOTE] if marked else [])])
        prints.append(partial(table.print_lines, console, OVERALL_HEADERS, lines, title, below))
        pages.append(table.markdown_lines(OVERALL_HEADERS, lines, title, _paragraphs(below)))
    # Written first: what is printed may go nowhere, say into a pipe that somebody has closed.
    write_text(run.rounds, rounds_csv(comparisons))
    write_text(run.episode_table, episodes_csv(comparisons))
    write_text(run.table, "\n".join([*pages, caption, ""]))
    write_json(run.summary, _summary(comparisons, every, reference, record))
    for print_table in prints:
        console.print()
        print_table()
    console.print(caption, style="dim", markup=False)
    if figures and not drawing_possible():
        console.print(
            "pictures left out: Matplotlib is missing (pip install 'collapipe-env[plots]')", markup=False
        )
    elif figures:
        _draw(comparisons, reference, gantt, run)
        console.print(f"pictures:  {run.figures}/", markup=False, soft_wrap=True)
    console.print(f"table:     {run.table}", markup=False, soft_wrap=True)
    console.print(f"rounds:    {run.rounds}", markup=False, soft_wrap=True)
    console.print(f"episodes:  {run.episode_table}", markup=False, soft_wrap=True)
    console.print(f"summary:   {run.summary}", markup=False, soft_wrap=True)
    console.print(f"everything is in {run.path}/", markup=False, soft_wrap=True)


OVERALL_HEADERS: tuple[table.Cell, ...] = (
    ("scheduler", ""),
    ("difference IQM", "%"),
    ("mean rank", ""),
    ("worst energy excess", "%"),
    ("scenarios", ""),
)
OVERALL_CAPTION = (
    "Difference: interquartile mean over the episodes of all scenarios, 95 % bootstrap interval with each "
    "scenario resampled by itself. Compare schedulers only where they played the same scenarios."
)


def overall_lines(every: Sequence[Overall]) -> list[list[table.Cell]]:
    """Figures and intervals as text, a row for each scheduler, columns as in ``OVERALL_HEADERS``."""
    return [
        [
            (one.label, ""),
            table.cell(one.difference, "+.1f", 100.0),
            (f"{one.rank:.1f}", ""),
            (f"{100.0 * one.excess:+.1f}", ""),
            (", ".join(one.scenarios), ""),
        ]
        for one in every
    ]


def _title_of(comparisons: Sequence[ScenarioComparison], scheduler: str) -> str:
    titles = (s.title for c in comparisons for s in c.summaries if s.scheduler == scheduler)
    return next(titles, scheduler)


def _impossible_lines(comparison: ScenarioComparison) -> list[str]:
    return [f"{name}: not possible: {reason}" for name, reason in comparison.impossible.items()]


def _paragraphs(lines: str) -> str:
    return lines.replace("\n", "\n\n")


def _summary(
    comparisons: Sequence[ScenarioComparison],
    every: Sequence[Overall],
    reference: str,
    record: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        **record,
        "reference": reference,
        "scenarios": {
            comparison.name: {
                "scenario": comparison.plan.scenario.to_dict(),
                "episodes": comparison.plan.episodes,
                "rounds": comparison.plan.rounds,
                "learner": comparison.plan.learner,
                "target_loss": comparison.target,
                "summary": [summary.to_dict() for summary in comparison.summaries],
                "impossible": comparison.impossible,
            }
            for comparison in comparisons
        },
        "overall": [one.to_dict() for one in every],
    }


def _draw(
    comparisons: Sequence[ScenarioComparison], reference: str, gantt: Sequence[str], run: RunDirectory
) -> None:
    from collapipe_env.evaluation.comparison_figures import comparison_pictures

    played = [comparison for comparison in comparisons if comparison.results]
    pictures = comparison_pictures(played, reference, gantt)
    for outdated in run.figures.glob("*.png"):
        outdated.unlink()
    with progress_bar(len(pictures), "drawing", "pictures") as bar:
        for name, draw in pictures.items():
            draw(run.figures / f"{name}.png")
            bar.update(1)

"""Report of a comparison on one scenario or several: tables, CSV, JSON, pictures, and their paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from collapipe_env.evaluation.columns import COLUMNS, Column, lower_is_better_note, task_column
from collapipe_env.evaluation.comparison import ScenarioComparison, notes, overall
from collapipe_env.evaluation.episode_files import EpisodeFiles
from collapipe_env.evaluation.gate import gate_note
from collapipe_env.evaluation.labels import SERVER_NOTE
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.raw_results import episodes_csv, rounds_csv
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.evaluation.statistics import Summary, measure_name
from collapipe_env.evaluation.table import Page, markdown_text
from collapipe_env.evaluation.text_samples import samples_report
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.ground.files import write_json, write_text
from collapipe_env.ground.progress import progress_bar
from collapipe_env.tasks.base import get_task, task_spec

PROGRESS_NOTE = (
    "Per progress: priced time per unit of progress under the surrogate's fitted law, whichever learner "
    "trains. It counts here because the shortest rounds train least if clusters may sit out or choose their "
    "local steps. "
)
COMPARED = ("difference", "improvement", "rank")
DELAYS = ("delay_mean", "delay_p95", "energy_excess", "return_per_round")
QUEUES = ("backlog_slope", "final_backlog", "peak_memory_bytes", "final_loss")
OVERALL_COLUMNS = (
    COLUMNS["label"],
    Column("difference", "%", "+.1f", 100.0, "difference IQM"),
    Column("rank", "", ".1f", name="mean rank"),
    Column("excess", "%", "+.1f", 100.0, "most over budget"),
    Column("scenarios"),
)
OVERALL_CAPTION = (
    "Difference: interquartile mean over the episodes of all scenarios, with a 95 % bootstrap interval that "
    "resamples each scenario separately. Compare only schedulers that played the same scenarios. Schedulers "
    "below the line are over their energy budgets in at least one of them."
)


def write_report(
    comparisons: Sequence[ScenarioComparison],
    record: Mapping[str, Any],
    run: RunDirectory,
    *,
    whole: bool,
    figures: bool,
    gantt: Sequence[str] = (),
    history: Sequence[Mapping[str, float]] = (),
    console: Console | None = None,
) -> None:
    """Write everything into the folder, print the tables and name the folder last.

    Args:
        comparisons: One for each scenario, all with one reference.
        record: Further contents of the JSON file: command, versions, options, ...
        whole: Write ``results.json`` of the only scenario, with every round, in place of ``summary.json``.
        figures: Whether to draw.
        gantt: Schedulers whose typical rounds are drawn side by side; the best few by default.
        history: Validations of an agent's training, as ``Score.to_dict`` gives them.
    """
    console = console or Console(highlight=False)
    every = overall(comparisons)
    # Files before printing: they exist even if the output is cut off, as by "| head".
    data = write_files(comparisons, every, record, run, whole=whole)
    console.print()
    print_report(console, comparisons, every)
    places: list[tuple[str, object]] = []
    samples = samples_report(comparisons, str)
    if samples:
        console.print()
        console.print(samples, markup=False, emoji=False, soft_wrap=True)
        places.append(("samples", run / "samples.md"))
    places += [("model", f"{model}/") for model in _kept_models(comparisons)]
    if figures and find_spec("matplotlib") is None:
        missing = "pictures left out: Matplotlib is missing (pip install 'collapipe-env[plots]')"
        console.print(missing, markup=False)
    elif figures:
        _draw(comparisons, gantt, history, run / "figures")
        places.append(("pictures", f"{run / 'figures'}/"))
    files = {"table": "table.md", "rounds": "results.csv", "episodes": "episodes.csv", data.stem: data.name}
    places += [(name, run / file) for name, file in files.items()]
    for name, place in places:
        console.print(f"{name + ':':10} {place}", markup=False, soft_wrap=True)
    console.print(f"everything is in {run.path}/", markup=False, soft_wrap=True)


def _kept_models(comparisons: Sequence[ScenarioComparison]) -> list[Path]:
    """The folders of the models that the plans kept, of each first episode."""
    return [
        EpisodeFiles(comparison.plan.folder, name, episode.episode, episode.run).model
        for comparison in comparisons
        if comparison.plan.save_models
        for name, episodes in comparison.results.items()
        for episode in episodes
        if episode.episode == 0
    ]


def _draw(
    comparisons: Sequence[ScenarioComparison],
    gantt: Sequence[str],
    history: Sequence[Mapping[str, float]],
    folder: Path,
) -> None:
    from collapipe_env.evaluation.figures import comparison_pictures

    played = [comparison for comparison in comparisons if comparison.results]
    pictures = comparison_pictures(played, gantt, history)
    for outdated in folder.glob("*.png"):
        outdated.unlink()
    with progress_bar(len(pictures), "drawing", "pictures") as bar:
        for name, draw in pictures.items():
            draw(folder / f"{name}.png")
            bar.update(1)


def write_files(
    comparisons: Sequence[ScenarioComparison],
    every: Sequence[Summary],
    record: Mapping[str, Any],
    run: RunDirectory,
    *,
    whole: bool,
) -> Path:
    """Write tables, CSV and JSON, and return the JSON file; arguments as for :func:`write_report`."""
    write_text(run / "results.csv", rounds_csv(comparisons))
    write_text(run / "episodes.csv", episodes_csv(comparisons))
    write_text(run / "table.md", markdown_report(comparisons, every))
    samples = samples_report(comparisons)
    if samples:
        write_text(run / "samples.md", samples)
    else:
        (run / "samples.md").unlink(missing_ok=True)  # may be left from an earlier run in the folder
    data = run / ("results.json" if whole else "summary.json")
    write_json(data, {**record, **(comparisons[0].to_dict() if whole else _summary(comparisons, every))})
    return data


def _summary(comparisons: Sequence[ScenarioComparison], every: Sequence[Summary]) -> dict[str, Any]:
    scenarios = {
        comparison.name: {
            "scenario": comparison.plan.scenario.to_dict(),
            "episodes": comparison.plan.episodes,
            "rounds": comparison.plan.rounds,
            "learner": comparison.plan.learner,
            "target_loss": comparison.target,
            "summary": comparison.summaries,
            "impossible": comparison.impossible,
        }
        for comparison in comparisons
    }
    return {"reference": comparisons[0].reference, "scenarios": scenarios, "overall": every}


def markdown_report(comparisons: Sequence[ScenarioComparison], every: Sequence[Summary] = ()) -> str:
    """All tables in Markdown, with all columns and their meaning."""
    pages = [page.markdown() for page in _pages(comparisons, every)]
    return "\n".join([*pages, markdown_text(explanation(comparisons)), ""])


def print_report(
    console: Console, comparisons: Sequence[ScenarioComparison], every: Sequence[Summary] = ()
) -> None:
    """Print all tables, in a form that fits the terminal's width."""
    for place, page in enumerate(_pages(comparisons, every)):
        if place:
            console.print()
        page.print(console)
    console.print(explanation(comparisons), style="dim", markup=False)


def _pages(comparisons: Sequence[ScenarioComparison], every: Sequence[Summary]) -> list[Page]:
    pages = [summary_page(c.summaries, heading(c.plan), notes_below(c)) for c in comparisons]
    return [*pages, overall_page(comparisons, every)] if len(comparisons) > 1 and every else pages


def summary_page(rows: Sequence[Summary], title: str, below: Sequence[str]) -> Page:
    """The table of schedulers in one scenario, those over their energy budgets last; with lines below it."""
    metrics = [task_column(name) for name in dict.fromkeys(name for row in rows for name in row.metrics)]
    important = ["priced_delay", "difference", "energy_excess", "delay_mean"]
    important += [*(column.key for column in metrics[:1]), "time_to_target", "decision_s", "rank"]
    if any(row.by_progress for row in rows):
        important = ["seconds_per_progress", "time_to_target", *important]
        keys = ["seconds_per_progress", *COMPARED, "time_to_target", "priced_delay", *DELAYS, *QUEUES]
    else:
        keys = ["priced_delay", *COMPARED, *DELAYS, "time_to_target", *QUEUES]
    columns = [COLUMNS[key] for key in ("label", *keys)]
    columns += [*(metrics or [COLUMNS["metric"]]), COLUMNS["decision_s"]]
    counting = sum(not row.gate.failed for row in rows)
    return Page(title, columns, [_with_texts(row) for row in rows], below, important, counting)


def _with_texts(row: Summary) -> dict[str, Any]:
    """A row with its label, a text where the target was not reached, and a key for each of the metrics."""
    time = row.time_to_target
    whole = time["reached"] == time["episodes"]
    shown = time["seconds"] if whole else f"{time['reached']}/{time['episodes']} reached"
    metrics = {f"metrics.{name}": value for name, value in row.metrics.items()}
    return {**row, "label": row.label, "time_to_target": shown, **metrics}


def overall_page(comparisons: Sequence[ScenarioComparison], every: Sequence[Summary]) -> Page:
    """The table of schedulers over all scenarios."""
    return Page(
        f"All scenarios, against {_reference_title(comparisons)}",
        OVERALL_COLUMNS,
        [{**row, "label": row.label, "scenarios": ", ".join(row.scenarios)} for row in every],
        [OVERALL_CAPTION, *([SERVER_NOTE] if any(row.server_blocks for row in every) else [])],
        counting=sum(not row.failed for row in every),
    )


def heading(plan: EvaluationPlan) -> str:
    """The line above the table: scenario, episodes, rounds and learner."""
    return f"{plan.scenario.name}: {plan.size}, {plan.learner} learner"


def notes_below(comparison: ScenarioComparison) -> list[str]:
    """Lines below the table: marks, agent, target, energy, constant answer, and who could not play."""
    plan, rows = comparison.plan, comparison.summaries
    marks = [gate_note(plan.rounds, plan.scenario.dynamics.rounds)] if rows else []
    directions = lower_is_better_note(name for row in rows for name in row.metrics)
    impossible = [f"{name}: not possible: {reason}" for name, reason in comparison.impossible.items()]
    answer = constant_answer(plan)
    return [*notes([comparison]), comparison.goal, *marks, *directions, *answer, *impossible]


def constant_answer(plan: EvaluationPlan) -> list[str]:
    """A sentence about the best constant answer to the task; none if it is unknown or no model is trained."""
    if plan.learner != "real":  # nor is the task imported, which loads PyTorch
        return []
    scenario, part = plan.scenario, plan.scenario.learning.evaluation_split
    share_right = getattr(get_task(scenario.workload.task), "constant_answer", None)
    if share_right is None:
        return []
    try:
        right = 100.0 * share_right(task_spec(scenario), part)
    except CollaPipeError:  # finished episodes can be reported where the data is gone
        return []
    return [
        f"Naming the most frequent class of training every time is right in {right:.1f} % of the {part} part."
    ]


def explanation(comparisons: Sequence[ScenarioComparison]) -> str:
    """The meaning of the table's columns, in a few sentences."""
    rows = [row for comparison in comparisons for row in comparison.summaries]
    runs = " and training runs" if any(row.runs > 1 for row in rows) else ""
    progress = PROGRESS_NOTE if any(row.by_progress for row in rows) else ""
    reference, compared = _reference_title(comparisons), measure_name(rows)
    return (
        f"Means over episodes{runs}, with 95 % bootstrap intervals. Priced delay: mean delay of a round with "
        "the price of the energy queues' growth, (V sum T + L(end) - L(start)) / (V rounds); it is the "
        f"negative return per round of the default reward times T_ref. {progress}"
        f"Difference: {compared} divided by that of {reference} in the same episode, minus 1. "
        f"Faster: share of episodes with a shorter {compared} than {reference}'s; ties count half. "
        f"Rank: by {compared} in the same episode. Over budget: the worst node's time-average energy (with "
        "budgets per second, its mean power) over its budget, minus 1; at most 0 if every budget is met. "
        "Backlog slope: growth of the largest energy queue in the last half of the episode, in per cent of a "
        "budget per round. Peak memory: largest of any device. Decision: median time."
    )


def _reference_title(comparisons: Sequence[ScenarioComparison]) -> str:
    reference = comparisons[0].reference
    titles = (row.title for c in comparisons for row in c.summaries if row.scheduler == reference)
    return next(titles, reference)

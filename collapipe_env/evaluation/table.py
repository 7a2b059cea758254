"""The table of schedulers, for a terminal and for Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from collapipe_env.evaluation.statistics import Estimate, Summary, TargetTime

Cell = tuple[str, str]
"""A figure and its interval."""

METRIC: Cell = ("task metric", "%")
"""Stands where the learner has no metric; else there is a column for each of the task's metrics."""
METRIC_TITLES = {"bleu": "BLEU", "chrf": "chrF", "mcc": "Matthews corr.", "entity_f1": "entity F1"}
"""Names that their fields write in a way of their own."""
HEADERS: tuple[Cell, ...] = (
    ("scheduler", ""),
    ("delay mean", "s"),
    ("delay IQM", "s"),
    ("delay p95", "s"),
    ("difference", "%"),
    ("rank", ""),
    ("time to target", "s"),
    ("energy excess", "%"),
    ("final backlog", "z"),
    ("peak memory", "MB"),
    ("final loss", "nat"),
    METRIC,
    ("decision", "ms"),
)

NOTHING = Estimate(math.nan)
IMPORTANT = ("delay mean", "difference", "energy excess", "time to target", "decision", "rank")
"""Columns that a narrow terminal shows first."""
FEW = 5
"""Schedulers up to which a narrow terminal shows a column for each."""


def headers(summaries: Sequence[Summary]) -> list[Cell]:
    """Names and units of the columns: ``HEADERS`` with the task's metrics by name."""
    at = HEADERS.index(METRIC)
    names = _metric_names(summaries)
    metrics = [(METRIC_TITLES.get(name, name.replace("_", " ")), METRIC[1]) for name in names]
    return [*HEADERS[:at], *(metrics or [METRIC]), *HEADERS[at + 1 :]]


def _metric_names(summaries: Sequence[Summary]) -> list[str]:
    return list(dict.fromkeys(name for summary in summaries for name in summary.metrics))


def rows(summaries: Sequence[Summary]) -> list[list[Cell]]:
    """Figures and intervals as text, a row for each scheduler, columns as in :func:`headers`."""
    names = _metric_names(summaries)
    return [
        [
            (summary.label, ""),
            cell(summary.delay_mean, ".2f"),
            cell(summary.delay_iqm, ".2f"),
            cell(summary.delay_p95, ".2f"),
            cell(summary.difference, "+.1f", 100.0),
            cell(summary.rank, ".1f"),
            _target_cell(summary.time_to_target),
            cell(summary.energy_excess, "+.1f", 100.0),
            cell(summary.final_backlog, ".1f"),
            cell(summary.peak_memory_bytes, ".0f", 1e-6),
            cell(summary.final_loss, ".3f"),
            *(
                [cell(summary.metrics.get(name, NOTHING), ".1f", 100.0) for name in names]
                or [cell(summary.metric, ".1f", 100.0)]
            ),
            cell(summary.decision_s, _digits(summary.decision_s.mean * 1e3), 1e3),
        ]
        for summary in summaries
    ]


def print_table(console: Console, summaries: Sequence[Summary], title: str, caption: str) -> None:
    """Print the table: a row for each scheduler, in whatever form the terminal is wide enough for.

    Where it is too narrow for all columns, a few schedulers get a column each, and many keep their rows but
    lose the less important columns.

    Args:
        console: Where to.
        summaries: The schedulers.
        title: Heading.
        caption: Lines below it.
    """
    columns = headers(summaries)
    important: tuple[str, ...] = IMPORTANT
    if _metric_names(summaries):
        at = IMPORTANT.index("time to target")
        important = (*IMPORTANT[:at], columns[HEADERS.index(METRIC)][0], *IMPORTANT[at:])
    print_lines(console, columns, rows(summaries), title, caption, important)


def print_lines(
    console: Console,
    headers: Sequence[Cell],
    lines: Sequence[Sequence[Cell]],
    title: str,
    caption: str,
    important: Sequence[str] = (),
) -> None:
    """Like :func:`print_table`, for any headers and lines.

    Args:
        console: Where to.
        headers: Names and units of the columns.
        lines: The rows.
        title: Heading.
        caption: Lines below it.
        important: Names of the columns that are kept first where not all of many rows' fit.
    """
    columns = [[_title(header) for header in headers], *([*line] for line in lines)]
    across = _table(columns, header_below=True)
    console.print(title, style="bold", markup=False)
    if _fits(console, across):
        console.print(across)
    elif len(lines) <= FEW:
        for table in _upright(console, columns):
            console.print(table)
    else:
        kept = _fitting(console, columns, [name for name, _ in headers], important)
        console.print(_table([[line[i] for i in kept] for line in columns], header_below=True))
        left_out = [headers[i][0] for i in range(len(headers)) if i not in kept]
        caption = f"The terminal is too narrow for: {', '.join(left_out)}; the files have all.\n{caption}"
    console.print(caption, style="dim", markup=False)


def _fitting(
    console: Console, columns: list[list[Cell]], names: Sequence[str], important: Sequence[str]
) -> list[int]:
    """Indices of the columns to keep: the first, then as many as fit, the important ones before others."""
    kept = [0]
    for name in dict.fromkeys((*important, *names)):
        tried = sorted({*kept, names.index(name)})
        if _fits(console, _table([[line[i] for i in tried] for line in columns], header_below=True)):
            kept = tried
    return kept


def _fits(console: Console, table: Table) -> bool:
    wide = console.options.update(max_width=10_000)
    return Measurement.get(console, wide, table).maximum <= console.width


def _upright(console: Console, lines: list[list[Cell]]) -> Iterator[Table]:
    """Tables with a column for each scheduler, as many schedulers at a time as the terminal is wide."""
    headers, waiting = lines[0], lines[1:]
    while waiting:
        for count in range(len(waiting), 0, -1):
            columns = [headers, *waiting[:count]]
            table = _table([list(line) for line in zip(*columns, strict=True)], header_below=False)
            if _fits(console, table) or count == 1:
                yield table
                break
        waiting = waiting[count:]


def _table(lines: list[list[Cell]], *, header_below: bool) -> Table:
    """Cells as a table, the first line being the header; intervals and units stand below."""
    table = Table(padding=(0, 1), box=SIMPLE_HEAD)
    for index, cell in enumerate(lines[0]):
        table.add_column(_stacked(cell), justify="left" if index == 0 else "right", no_wrap=True)
    for line in lines[1:]:
        first = _stacked(line[0]) if header_below else Text(" ".join(line[0]).strip())
        table.add_row(first, *map(_stacked, line[1:]))
    return table


def _title(header: Cell) -> Cell:
    return header[0], f"({header[1]})" if header[1] else ""


def _stacked(cell: Cell) -> Text:
    text = Text(cell[0])
    if cell[1]:
        text.append(f"\n{cell[1]}", style="dim")
    return text


def markdown_table(summaries: Sequence[Summary], title: str, caption: str) -> str:
    """The same table in Markdown.

    Args:
        summaries: A row each.
        title: Heading.
        caption: Paragraph below it.
    """
    return markdown_lines(headers(summaries), rows(summaries), title, caption)


def markdown_lines(headers: Sequence[Cell], lines: Sequence[Sequence[Cell]], title: str, caption: str) -> str:
    """Like :func:`markdown_table`, for any headers and lines."""
    text = [
        f"## {title}",
        "",
        "| " + " | ".join(f"{name} ({unit})" if unit else name for name, unit in headers) + " |",
        "|" + "---|" + "---:|" * (len(headers) - 1),
    ]
    text += [
        "| " + " | ".join(f"{mean} ({interval})" if interval else mean for mean, interval in line) + " |"
        for line in lines
    ]
    return "\n".join([*text, "", caption, ""])


def cell(estimate: Estimate, digits: str, scale: float = 1.0) -> Cell:
    """An estimate as text, with a format for its numbers and a factor for their unit."""
    number: Callable[[float], str] = lambda value: format(value * scale, digits)  # noqa: E731
    if math.isnan(estimate.mean):
        return "–", ""
    interval = "" if math.isnan(estimate.low) else f"{number(estimate.low)}…{number(estimate.high)}"
    return number(estimate.mean), interval


def _target_cell(time: TargetTime) -> Cell:
    if time.reached < time.episodes:
        return f"{time.reached}/{time.episodes} reached", ""
    return cell(time.seconds, ".0f")


def _digits(value: float) -> str:
    return ".2f" if value < 10.0 else ".0f"

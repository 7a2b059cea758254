"""Tables of schedulers, for a terminal and for Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from collapipe_env.evaluation.gate import BELOW_LINE
from collapipe_env.evaluation.metric_forms import metric_form
from collapipe_env.evaluation.resampling import Estimate
from collapipe_env.evaluation.statistics import Summary, TargetTime

Cell = tuple[str, str]
"""A figure and its interval, or the name and the unit of a column."""
Column = tuple[str, str, Callable[[Summary], Cell]]
"""Name, unit and content of a column."""

NOTHING = Estimate(math.nan)
_IN_MARKDOWN = str.maketrans({
    "&": "&amp;", "<": "&lt;", ">": "&gt;", "\n": " ", "\r": " ",
    **{character: f"\\{character}" for character in "\\|`[]!"},
})  # fmt: skip
"""Characters that Markdown would take for markup or a new line, and their replacements."""
IMPORTANT = ("priced delay", "difference", "over budget", "delay", "time to target", "decision", "rank")
"""Columns that a narrow terminal shows first; a task's metric comes before the time to target."""
FEW = 5
"""Most schedulers for which a narrow terminal shows a column each."""


@dataclass(frozen=True)
class Page:
    """A table and the lines around it.

    Attributes:
        title: Heading.
        below: Lines below it.
        headers: Names and units of the columns.
        lines: The rows; with none, only title and lines are shown.
        important: Names of the columns to keep first where a table of many rows is too wide.
        counting: Number of rows that count; the rest stand below a line at the end. All by default.
    """

    title: str
    below: Sequence[str]
    headers: Sequence[Cell] = ()
    lines: Sequence[Sequence[Cell]] = ()
    important: Sequence[str] = ()
    counting: int | None = None

    @property
    def _parts(self) -> tuple[Sequence[Sequence[Cell]], Sequence[Sequence[Cell]]]:
        """Rows above and below the line."""
        return self.lines[: self.counting], () if self.counting is None else self.lines[self.counting :]

    def markdown(self) -> str:
        """The page in Markdown, where names are shown as they are."""
        text = [f"## {markdown_text(self.title)}", ""]
        if self.lines:
            names = [f"{name} ({unit})" if unit else name for name, unit in self.headers]
            text += [_marked(map(markdown_text, names)), "|" + "---|" + "---:|" * (len(names) - 1)]
            above, below = self._parts
            text += [_markdown_row(line) for line in above]
            if below:
                text.append(_marked([f"*{' '.join(BELOW_LINE)}*", *[""] * (len(names) - 1)]))
                text += [_markdown_row(line) for line in below]
            text.append("")
        return "\n".join([*text, "\n\n".join(map(markdown_text, self.below)), ""])

    def print(self, console: Console) -> None:
        """Print the page with a row for each scheduler, in a form that fits the terminal's width.

        Where the terminal is too narrow for all columns, a few schedulers get a column each. Many schedulers
        keep their rows but lose the less important columns.

        Args:
            console: Console to print to.
        """
        if not self.lines:
            console.print("\n".join([self.title, *self.below]), markup=False)
            return
        header = [(name, unit and f"({unit})") for name, unit in self.headers]
        above, failing = self._parts
        columns = [header, *map(list, above), *([[BELOW_LINE]] if failing else []), *map(list, failing)]
        across = _table(columns, header_below=True)
        below = list(self.below)
        console.print(self.title, style="bold", markup=False)
        if _fits(console, across):
            console.print(across)
        elif len(self.lines) <= FEW:
            for heading, part in (("", above), (" ".join(BELOW_LINE), failing)):
                if heading and part:
                    console.print(heading, markup=False)
                for table in _upright(console, [header, *map(list, part)]):
                    console.print(table)
        else:
            names = [name for name, _ in self.headers]
            kept = _fitting(console, columns, names, self.important)
            console.print(
                _table([[line[i] for i in kept[: len(line)]] for line in columns], header_below=True)
            )
            left_out = ", ".join(name for i, name in enumerate(names) if i not in kept)
            below.insert(0, f"The terminal is too narrow for: {left_out}; the files have all columns.")
        console.print("\n".join(below), style="dim", markup=False)


def markdown_text(text: str) -> str:
    """Return a text of one line such that Markdown shows it as it is, without HTML, links and new columns."""
    return text.translate(_IN_MARKDOWN)


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> str:
    """A table in Markdown; its first columns are aligned left, the others right.

    Args:
        heads: Titles of the columns.
        rows: Cells of each row, in Markdown: names from elsewhere need :func:`markdown_text`.
        left: Number of columns that are aligned left.
    """
    marks = "---|" * left + "---:|" * (len(heads) - left)
    first, *others = (_marked([*map(str, line)]) for line in (heads, *rows))
    return "\n".join([first, f"|{marks}", *others])


def summary_page(summaries: Sequence[Summary], title: str, below: Sequence[str]) -> Page:
    """The table of schedulers in one scenario.

    Args:
        summaries: Summaries of the schedulers, those over their energy budgets last.
        below: Lines below it.
    """
    metrics = _metric_columns(summaries)
    target: Column = ("time to target", "s", lambda s: _target_cell(s.time_to_target))
    by_progress = any(summary.by_progress for summary in summaries)
    compared: list[Column] = [
        ("difference", "%", lambda s: cell(s.difference, "+.1f", 100.0)),
        ("faster", "%", lambda s: cell(s.improvement, ".0f", 100.0)),
        ("rank", "", lambda s: cell(s.rank, ".1f")),
    ]
    progress: Column = ("per progress", "s", lambda s: cell(s.seconds_per_progress, ".1f"))
    first = [progress, *compared, target] if by_progress else []
    columns: list[Column] = [
        ("scheduler", "", lambda s: (s.label, "")),
        *first,
        ("priced delay", "s", lambda s: cell(s.priced_delay, ".2f")),
        *([] if by_progress else compared),
        ("delay", "s", lambda s: cell(s.delay_mean, ".2f")),
        ("delay p95", "s", lambda s: cell(s.delay_p95, ".2f")),
        ("over budget", "%", lambda s: cell(s.energy_excess, "+.1f", 100.0)),
        ("return per round", "", lambda s: cell(s.return_per_round, ".3f")),
        *([] if by_progress else [target]),
        ("backlog slope", "%/round", lambda s: cell(s.backlog_slope, "+.2f", 100.0)),
        ("final backlog", "z", lambda s: cell(s.final_backlog, ".1f")),
        ("peak memory", "MB", lambda s: cell(s.peak_memory_bytes, ".0f", 1e-6)),
        ("final loss", "nat", lambda s: cell(s.final_loss, ".3f")),
        *(metrics or [("task metric", "%", lambda s: cell(s.metric, ".1f", 100.0))]),
        ("decision", "ms", lambda s: cell(s.decision_s, _digits(s.decision_s.mean * 1e3), 1e3)),
    ]
    at = IMPORTANT.index("time to target")
    important = (*IMPORTANT[:at], *(name for name, *_ in metrics[:1]), *IMPORTANT[at:])
    if by_progress:
        important = ("per progress", "time to target", *important)
    lines = [[content(summary) for *_, content in columns] for summary in summaries]
    counting = sum(not summary.gate.failed for summary in summaries)
    return Page(title, below, [(name, unit) for name, unit, _ in columns], lines, important, counting)


def _metric_columns(summaries: Sequence[Summary]) -> list[Column]:
    """A column for each of the task's metrics; none where the learner has none."""

    def content(summary: Summary, name: str) -> Cell:
        form = metric_form(name)
        return cell(summary.metrics.get(name, NOTHING), form.digits, form.scale)

    return [
        (metric_form(name).title, metric_form(name).unit, partial(content, name=name))
        for name in dict.fromkeys(name for summary in summaries for name in summary.metrics)
    ]


def _markdown_row(line: Sequence[Cell]) -> str:
    return _marked(markdown_text(f"{mean} ({interval})" if interval else mean) for mean, interval in line)


def _marked(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _fitting(
    console: Console, columns: list[list[Cell]], names: Sequence[str], important: Sequence[str]
) -> list[int]:
    """Indices of the columns to keep: the first, then as many as fit, the important ones before others."""
    kept = [0]
    for name in dict.fromkeys((*important, *names)):
        tried = sorted({*kept, names.index(name)})
        if _fits(console, _table(_only(columns, tried), header_below=True)):
            kept = tried
    return kept


def _only(lines: list[list[Cell]], kept: Sequence[int]) -> list[list[Cell]]:
    """Some cells of each line; the line between rows has a single cell."""
    return [[line[i] for i in kept[: len(line)]] for line in lines]


def _fits(console: Console, table: Table) -> bool:
    wide = console.options.update(max_width=10_000)
    return Measurement.get(console, wide, table).maximum <= console.width


def _upright(console: Console, lines: list[list[Cell]]) -> Iterator[Table]:
    """Tables with a column for each scheduler, as many schedulers at a time as fit the terminal."""
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
        if len(line) == 1 < len(lines[0]):  # a heading between rows
            table.add_section()
        first = _stacked(line[0]) if header_below else Text(" ".join(line[0]).strip())
        table.add_row(first, *map(_stacked, line[1:]))
    return table


def _stacked(cell: Cell) -> Text:
    text = Text(cell[0])
    if cell[1]:
        text.append(f"\n{cell[1]}", style="dim")
    return text


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

"""Tables from rows of plain values, for a terminal and for Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from collapipe_env.evaluation.columns import Column
from collapipe_env.evaluation.gate import BELOW_LINE

_IN_MARKDOWN = str.maketrans({
    "&": "&amp;", "<": "&lt;", ">": "&gt;", "\n": " ", "\r": " ",
    **{character: f"\\{character}" for character in "\\|`[]!"},
})  # fmt: skip
"""Characters that Markdown would take for markup or a new line, and their replacements."""
_IN_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "…": "--", "–": "--",
    "<": r"\textless{}", ">": r"\textgreater{}", "\n": " ", "\r": " ",
    "−": "$-$", **{character: f"\\{character}" for character in "&%$#_{}"},
})  # fmt: skip
"""Characters that LaTeX would take for commands, and their replacements."""
_MINUS = re.compile(r"(?<![\w.])-(?=[\d.])")
FEW = 5
"""Most rows for which a narrow terminal shows a column each."""


@dataclass(frozen=True)
class Page:
    """A table and the lines around it.

    Attributes:
        title: Heading.
        columns: The columns, the first with the names of the rows.
        rows: Values by key of their column; with no rows, only title and lines are shown.
        below: Lines below the table.
        important: Keys of the columns to keep first where a table of many rows is too wide.
        counting: Number of rows that count; the rest stand below a line at the end. All by default.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    below: Sequence[str]
    important: Sequence[str] = ()
    counting: int | None = None

    def markdown(self) -> str:
        """The page in Markdown, where names are shown as they are."""
        lines = [
            [markdown_text(f"{value} ({interval})" if interval else value) for value, interval in cells]
            for cells in self._cells(self.columns)
        ]
        if self.counting is not None and self.counting < len(lines):
            lines.insert(self.counting, [f"*{' '.join(BELOW_LINE)}*", *[""] * (len(self.columns) - 1)])
        heads = [markdown_text(column.heading) for column in self.columns]
        table = [markdown_table(heads, lines), ""] if lines else []
        below = "\n\n".join(map(markdown_text, self.below))
        return "\n".join([f"## {markdown_text(self.title)}", "", *table, below, ""])

    def latex(self, keys: Sequence[str]) -> str:
        """The table in LaTeX, with the package ``booktabs``: a ``tabular``, units and intervals in brackets.

        Args:
            keys: Keys of the columns to show.
        """
        by_key = {column.key: column for column in self.columns}
        columns = [by_key[key] for key in keys]
        lines = [
            [latex_text(f"{value} ({interval})" if interval else value) for value, interval in cells]
            for cells in self._cells(columns)
        ]
        rows = [" & ".join(line) + r" \\" for line in lines]
        if self.counting is not None and self.counting < len(rows):
            below = latex_text(" ".join(BELOW_LINE))
            rows.insert(
                self.counting, rf"\midrule \multicolumn{{{len(columns)}}}{{l}}{{\textit{{{below}}}}} \\"
            )
        heads = " & ".join(latex_text(column.heading) for column in columns) + r" \\"
        align = "l" + "r" * (len(columns) - 1)
        body = [rf"\begin{{tabular}}{{{align}}}", r"\toprule", heads, r"\midrule", *rows, r"\bottomrule"]
        return "\n".join([f"% {self.title}", *body, r"\end{tabular}", ""])

    def print(self, console: Console) -> None:
        """Print the page in a form that fits the terminal's width.

        Where the terminal is too narrow for all columns, a few rows become columns. Many rows stay rows but
        lose the less important columns.

        Args:
            console: Console to print to.
        """
        below = list(self.below)
        if not self.rows:
            console.print("\n".join([self.title, *below]), markup=False)
            return
        console.print(self.title, style="bold", markup=False)
        kept = self._fitting(console)
        left_out = [column.title for column in self.columns if column not in kept]
        if left_out and len(self.rows) <= FEW:
            self._print_upright(console)
        else:
            console.print(self._across(kept))
            if left_out:
                also = ", ".join(left_out)
                below.insert(0, f"The terminal is too narrow for: {also}; the files have all columns.")
        console.print("\n".join(below), style="dim", markup=False)

    def _cells(self, columns: Sequence[Column]) -> list[list[tuple[str, str]]]:
        return [[column.parts(row) for column in columns] for row in self.rows]

    def _fitting(self, console: Console) -> Sequence[Column]:
        """All columns if they fit, else the first and as many as fit, the important ones before others."""
        if _fits(console, self._across(self.columns)):
            return self.columns
        by_key = {column.key: column for column in self.columns}
        kept = list(self.columns[:1])
        for key in dict.fromkeys((*self.important, *by_key)):
            tried = [column for column in self.columns if column in kept or column is by_key[key]]
            if _fits(console, self._across(tried)):
                kept = tried
        return kept

    def _across(self, columns: Sequence[Column]) -> Table:
        """A row for each row; units and intervals stand below."""
        table = _empty_table(_stacked(column.title, column.unit and f"({column.unit})") for column in columns)
        for place, cells in enumerate(self._cells(columns)):
            if place == self.counting:
                table.add_section()
                table.add_row(_stacked(*BELOW_LINE))
            table.add_row(*(_stacked(*each) for each in cells))
        return table

    def _print_upright(self, console: Console) -> None:
        """Print tables with a column for each row, as many rows at a time as fit the terminal."""
        lines = self._cells(self.columns)
        counting = len(lines) if self.counting is None else self.counting
        for heading, part in (("", lines[:counting]), (" ".join(BELOW_LINE), lines[counting:])):
            if heading and part:
                console.print(heading, markup=False)
            while part:
                fitting = (n for n in range(len(part), 0, -1) if _fits(console, self._upright(part[:n])))
                count = next(fitting, 1)
                console.print(self._upright(part[:count]))
                part = part[count:]

    def _upright(self, lines: Sequence[Sequence[tuple[str, str]]]) -> Table:
        names, *others = zip(*lines, strict=True)
        heading = Text(self.columns[0].heading)
        table = _empty_table([heading, *(_stacked(*name) for name in names)])
        for column, cells in zip(self.columns[1:], others, strict=True):
            table.add_row(Text(column.heading), *(_stacked(*each) for each in cells))
        return table


def latex_text(text: str) -> str:
    """Return a text of one line such that LaTeX shows it as it is; minus signs and intervals are typeset."""
    return _MINUS.sub("−", text).translate(_IN_LATEX)


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
    first, *others = (f"| {' | '.join(map(str, line))} |" for line in (heads, *rows))
    return "\n".join([first, f"|{marks}", *others])


def _empty_table(heads: Iterable[Text]) -> Table:
    table = Table(padding=(0, 1), box=SIMPLE_HEAD)
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left", no_wrap=True)
    return table


def _stacked(value: str, below: str) -> Text:
    return Text.assemble(value, (f"\n{below}", "dim")) if below else Text(value)


def _fits(console: Console, table: Table) -> bool:
    wide = console.options.update(max_width=10_000)
    return Measurement.get(console, wide, table).maximum <= console.width

"""Tables of entries of ``experiments.yaml``: rows and columns are patches of one play, cells are formats.

An entry, a row, a column are *patches* with fields of :class:`~player.Play` (``with`` for its changes) and
``cell``, the cell's format. Figures are named as in ``round_figures.FIGURES``; ``{delay:.2f}`` is a mean over
episodes, and :class:`~player.Value` says what else there is, as ``{delay.change:+.1f}``. Further fields:

* ``rows``: dimensions, each with ``head`` and ``of``, a patch for each label or a list of scenarios; rows are
  their product.
* ``columns``: patches with ``head``. In place of a format, ``least: FIGURE`` names the column with the least
  one, and ``front: [FIGURES]`` says whether no other row is as good in all and better in one.
* ``cells`` of a row: formats of the columns in their order; ``null`` leaves the column's.
* ``against``: a patch of the cell's own play; differences are from that play.
* ``cannot``: text of cells whose scenario is refused; otherwise a refusal is an error.
* ``ranked``: ``{by: FIGURE, within: [FIGURES], most: NUMBER}``: rows in the order of a figure, and below a
  line those with a figure above a number.
* ``tables``: patches of several tables, by the text above each.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from generated_parts import markdown_table
from player import Play, Value, played
from tqdm import tqdm

from collapipe_env.ground.errors import CollaPipeError

Patch = Mapping[str, Any]
MERGED = ("with", "options")
"""Fields whose parts are merged, and theirs; ``null`` takes one out. Of other fields the last one counts."""
FIELDS = {"with": "changes"} | {field.name: field.name for field in fields(Play) if field.name != "changes"}
"""Fields of a patch, and of a play."""
BELOW = "*over a budget*"


def merged(*patches: Patch) -> dict[str, Any]:
    """One patch of several; later ones take precedence."""
    found: dict[str, Any] = {}
    for patch in patches:
        for name, value in patch.items():
            found[name] = _joined(found.get(name, {}), value) if name in MERGED else value
    return found


def _joined(first: Any, second: Any) -> Any:
    """Mappings in one, and in them theirs."""
    if not (isinstance(first, Mapping) and isinstance(second, Mapping)):
        return second
    both = first | {name: _joined(first.get(name), value) for name, value in second.items()}
    return {name: value for name, value in both.items() if value is not None}


def play_of(patch: Patch) -> Play:
    """The play of a patch."""
    return Play(**{FIELDS[name]: value for name, value in patch.items() if name in FIELDS})


def figures_in(text: str) -> list[str]:
    """Names of the figures in a cell's format."""
    return sorted({part[1].split(".")[0] for part in string.Formatter().parse(text) if part[1]})


@dataclass(frozen=True)
class Cell:
    """A cell.

    Attributes:
        text: Its format.
        patch: The patch of its play.
        names: Figures that it needs.
        wanted: Figures that any cell of the table needs of a play, by the play: each is played once.
    """

    text: str
    patch: Patch
    names: frozenset[str]
    wanted: dict[str, set[str]]

    def plays(self) -> list[Play]:
        """What is played for it: its own play, and the one that it is compared with."""
        compared = [merged(self.patch, self.patch["against"])] if "against" in self.patch else []
        return [play_of(patch) for patch in (self.patch, *compared)] if self.names else []

    def values(self) -> dict[str, Value]:
        """Its figures."""
        each = [played(play, sorted(self.wanted[repr(play)])) for play in self.plays()]
        return {
            name: each[0][name]._replace(base=each[1][name].each if each[1:] else None) for name in self.names
        }

    def shown(self) -> str:
        """Its text."""
        try:
            return self.text.format(**self.values()) if self.names else self.text
        except CollaPipeError:
            if "cannot" in self.patch:
                return str(self.patch["cannot"])
            raise


Rows = list[tuple[tuple[str, ...], list[Cell]]]
"""Labels and cells of the rows."""


def _labelled(dimension: Patch) -> dict[str, Patch]:
    """Patches of a dimension by their labels."""
    of = dimension["of"]
    return {f"`{name}`": {"base": name} for name in of} if isinstance(of, list) else of


def grids(entry: Patch) -> Iterator[tuple[str, Rows]]:
    """Text above and rows of every table of an entry."""
    dimensions = [_labelled(dimension) for dimension in entry["rows"]]
    ranked = entry.get("ranked", {"by": "", "within": ()})
    for above, of_table in entry.get("tables", {"": {}}).items():
        rows: Rows = []
        wanted: dict[str, set[str]] = {}
        for labels in itertools.product(*dimensions):
            row = merged(*(of[label] for of, label in zip(dimensions, labels, strict=True)))
            cells = []
            for column, own in itertools.zip_longest(entry["columns"], row.get("cells", ())):
                patch = merged(entry, of_table, column, row)
                text = own if own is not None else column.get("cell", patch.get("cell", ""))
                more = (ranked["by"], *ranked["within"]) if not cells else ()
                names = frozenset({*figures_in(text), *column.get("front", ()), *more} - {""})
                cells.append(
                    Cell("" if "front" in column or "least" in column else text, patch, names, wanted)
                )
                for play in cells[-1].plays():
                    wanted.setdefault(repr(play), set()).update(names)
            rows.append((labels, cells))
        yield above, rows


def plays(entry: Patch) -> list[Play]:
    """All plays of an entry, each once."""
    cells = [cell for _, rows in grids(entry) for _, row in rows for cell in row]
    return list({repr(play): play for cell in cells for play in cell.plays()}.values())


def table(entry: Patch, name: str = "") -> str:
    """Play what is not kept, and return the entry's table in Markdown, or its tables.

    Args:
        name: Name of the entry, for the bar.
    """
    parts = []
    for above, grid in grids(entry):
        rows = []
        for labels, cells in tqdm(grid, desc=name, leave=False, disable=None):
            shown = [cell.shown() for cell in cells]
            for place, column in enumerate(entry["columns"]):
                if "least" in column:
                    shown[place] = _least(column["least"], entry["columns"], cells)
                elif "front" in column:
                    shown[place] = _on_front([row[place] for _, row in grid], cells[place])
            rows.append([*labels, *shown])
        if "ranked" in entry:
            rows = _ranked(entry["ranked"], rows, [cells[0] for _, cells in grid])
        heads = [*(row["head"] for row in entry["rows"]), *(column["head"] for column in entry["columns"])]
        text = markdown_table(heads, rows, left=len(entry["rows"]))
        parts.append(f"{above}\n\n{text}" if above else text)
    return "\n\n".join(parts)


def _least(figure: str, columns: Sequence[Patch], cells: Sequence[Cell]) -> str:
    """What stands behind ``=`` in the head of the column with the least figure, of those with changes."""
    found = {}
    for column, cell in zip(columns, cells, strict=True):
        if "with" in column:
            with suppress(CollaPipeError):
                found[column["head"].partition("=")[2].strip()] = float(cell.values()[figure])
    return min(found, key=lambda head: found[head])


def _on_front(every: Sequence[Cell], own: Cell) -> str:
    """Whether no other row is as good in all figures and better in one; less is better."""
    point, *others = ([float(value) for value in cell.values().values()] for cell in (own, *every))
    beaten = any((np.less_equal(x, point)).all() and np.less(x, point).any() for x in others)
    return "no" if beaten else "yes"


def _ranked(how: Patch, rows: list[list[str]], cells: Sequence[Cell]) -> list[list[str]]:
    """Rows in the order of a figure, those with another above a number below a line."""
    values = [{name: float(value) for name, value in cell.values().items()} for cell in cells]
    over = [bool(np.nanmax([value[name] for name in how["within"]]) > how["most"]) for value in values]
    order = sorted(range(len(rows)), key=lambda i: (over[i], values[i][how["by"]]))
    found = [rows[i] for i in order]
    if any(over):
        found.insert(len(rows) - sum(over), [BELOW, *[""] * (len(rows[0]) - 1)])
    return found

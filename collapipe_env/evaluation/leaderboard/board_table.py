"""Tables of the leaderboard: one row by cells, or all rows against each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collapipe_env.evaluation.columns import Column
from collapipe_env.evaluation.gate import Gate, gate_note, is_whole, judge
from collapipe_env.evaluation.labels import label_of
from collapipe_env.evaluation.leaderboard.board_row import CellResult, Row, own_rounds
from collapipe_env.evaluation.leaderboard.scoring import (
    NOTHING,
    CellReturns,
    cell_score,
    overall_score,
    shared_ranks,
)
from collapipe_env.evaluation.leaderboard.season import CELLS
from collapipe_env.evaluation.resampling import Estimate, estimate
from collapipe_env.evaluation.table import Page, markdown_table, markdown_text

COLUMNS = (
    Column("cell"),
    Column("score", "", ".1f"),
    Column("return", "", ".2f", name="mean return"),
    Column("energy", "%", "+.1f", 100.0, name="over budget"),
    Column("slope", "%/round", "+.2f", 100.0, name="backlog slope"),
    Column("decision", "ms", ".2f", 1e3),
    Column("gate"),
)


@dataclass(frozen=True)
class CellScore:
    """Score of one player in one cell.

    Attributes:
        returns: Its returns, and those of the anchors.
        score: The cell's score.
        gate: Whether the player is over its energy budget.
    """

    returns: CellReturns
    score: Estimate
    gate: Gate

    @property
    def ranked(self) -> Estimate | None:
        """The score, where it has a rank."""
        return None if self.gate.failed else self.score


def score_cell(name: str, cell: CellResult) -> CellScore:
    """Score a player in a cell.

    Energy over budget is no gate where a target loss ends episodes: the return charges for it to the end.

    Args:
        name: Name of the cell.
        cell: Results of the player and the anchors.
    """
    returns = CellReturns(cell.matrix("total_reward"), np.array(cell.zero), np.array(cell.hundred))
    entry = CELLS[name]
    whole = is_whole(cell.rounds, own_rounds(entry)) and not entry.until_target
    gate = judge(whole, cell.matrix("worst_energy_ratio") - 1.0, cell.matrix("backlog_slope"))
    return CellScore(returns, cell_score(returns), gate)


def row_page(row: Row) -> Page:
    """The table of one row: a line for each cell, and one for all of them if they were played."""
    scores = {name: score_cell(name, cell) for name, cell in row.cells.items()}
    lines: list[dict[str, object]] = [
        {
            "cell": name,
            "score": one.score,
            "return": estimate(one.returns.own),
            "energy": one.gate.energy_excess,
            "slope": one.gate.backlog_slope,
            "decision": row.cells[name].decision_s,
            "gate": None if CELLS[name].until_target else one.gate.verdict,
        }
        for name, one in scores.items()
    ]
    whole = {name: scores[name] for name in scores if row.is_whole(name)}
    total = _overall(whole)
    lines += [] if math.isnan(total.mean) else [{"cell": "all cells", "score": total}]
    below = [
        "Score: that of the mean return. 0 is the even split, 100 is the id's bar in the same episodes (95 % "
        "bootstrap interval); above 100 is better than the bar.",
        *dict.fromkeys(
            gate_note(row.cells[name].rounds, own_rounds(CELLS[name]))
            for name in scores
            if not CELLS[name].until_target
        ),
    ]
    if len(whole) < len(scores):
        short = (f"{name} (of {CELLS[name].episodes} episodes)" for name in scores if name not in whole)
        below.append(
            f"Provisional, not played in full: {', '.join(short)}. The board needs all episodes and rounds."
        )
    seeds = "hidden" if row.hidden else "public"
    title = f"{row.name}: leaderboard, season {row.season}, {seeds} seeds"
    return Page(title, COLUMNS, lines, below, ("score", "gate", "return"))


def _overall(scores: dict[str, CellScore]) -> Estimate:
    """Mean of the scores of all cells; NaN unless all exist."""
    return overall_score([scores[name].returns for name in CELLS]) if len(scores) == len(CELLS) else NOTHING


def board_markdown(rows: Sequence[Row]) -> str:
    """The board in Markdown: a line for each row and a column for each cell.

    Only whole cells count. Systems that train encoder blocks on the edge server are ranked apart from the
    others, because no budget counts its energy.

    Args:
        rows: Verified rows.
    """
    parts = []
    for title, assisted in (("**Devices alone**", False), ("**With the edge server**", True)):
        lines = _lines([row for row in rows if _is_assisted(row) is assisted])
        if lines:
            parts += [title, markdown_table(["rank", "scheduler", "all cells", *CELLS], lines, 2)]
    note = "`#1` is a rank in the cell. In brackets with ‡: over its energy budget, without a rank."
    return "\n\n".join([*parts, note]) if parts else "No rows yet."


def _is_assisted(row: Row) -> bool:
    """Whether the edge server runs encoder blocks for a system."""
    return any(episode.server_blocks for cell in row.cells.values() for episode in cell.episodes)


def _lines(rows: Sequence[Row]) -> list[list[str]]:
    """Lines of a table, those with a rank first, best first."""
    all_scores = [
        {n: score_cell(n, row.cells[n]) for n in CELLS if n in row.cells and row.is_whole(n)} for row in rows
    ]
    there = [(row, scores) for row, scores in zip(rows, all_scores, strict=True) if scores]
    overall = [_overall(scores) for _, scores in there]
    failed = [any(one.gate.failed for one in scores.values()) for _, scores in there]
    places = shared_ranks([None if bad else total for total, bad in zip(overall, failed, strict=True)])
    by_cell = {
        name: shared_ranks(
            [
                None if name not in scores or scores[name].gate.failed else scores[name].score
                for _, scores in there
            ]
        )
        for name in CELLS
    }
    means = [float(np.mean([one.score.mean for one in scores.values()])) for _, scores in there]
    lines = []
    for index in sorted(range(len(there)), key=lambda i: (failed[i], math.isnan(overall[i].mean), -means[i])):
        row, scores = there[index]
        runs = len({episode.run for cell in row.cells.values() for episode in cell.episodes})
        total, rank = overall[index], places[index]
        shown = "–" if math.isnan(total.mean) else f"{total.mean:.1f} ({total.low:.1f} to {total.high:.1f})"
        line = ["–" if rank is None else str(rank), label_of(markdown_text(row.name), 0, runs), shown]
        for name in CELLS:
            one = scores.get(name)
            if one is None:
                line.append("–")
            elif one.gate.failed:
                line.append(f"({one.score.mean:.1f}) ‡")
            else:
                line.append(f"{one.score.mean:.1f} #{by_cell[name][index]}")
        lines.append(line)
    return lines

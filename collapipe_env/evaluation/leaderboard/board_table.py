"""Tables of the leaderboard: one row by cells, or all rows against each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collapipe_env.evaluation.columns import Column
from collapipe_env.evaluation.gate import Gate, gate_note, is_whole, judge
from collapipe_env.evaluation.labels import label_of
from collapipe_env.evaluation.leaderboard.board_row import CellResult, Row
from collapipe_env.evaluation.leaderboard.scoring import (
    NOTHING,
    cell_score,
    counted,
    episode_scores,
    overall_score,
    shared_ranks,
)
from collapipe_env.evaluation.leaderboard.season import BOARD_SIZES, BOARD_TIERS, CELLS, Cell, Season
from collapipe_env.evaluation.resampling import Estimate, Floats, estimate, interquartile_mean
from collapipe_env.evaluation.table import Page, markdown_table, markdown_text

COLUMNS = (
    Column("cell", name="tier and size"),
    Column("score", "", ".1f"),
    Column("delay", "s", ".2f", name="delay IQM"),
    Column("energy", "%", "+.1f", 100.0, name="over budget"),
    Column("slope", "%/round", "+.2f", 100.0, name="backlog slope"),
    Column("decision", "ms", ".2f", 1e3),
    Column("gate"),
)


@dataclass(frozen=True)
class CellScore:
    """Score of one player in one cell.

    Attributes:
        scores: Scores of its episodes that count, (R, E').
        score: The cell's score.
        gate: Whether the player is over its energy budget.
        left_out: Episodes that do not count.
    """

    scores: Floats
    score: Estimate
    gate: Gate
    left_out: int

    @property
    def ranked(self) -> Estimate | None:
        """The score, where it has a rank."""
        return None if self.gate.failed else self.score


def score_cell(cell: CellResult, rounds: int, season: Season) -> CellScore:
    """Score a player in a cell.

    Args:
        cell: Results of the player and the anchors.
        rounds: Rounds of an episode.
    """
    scores = episode_scores(cell.matrix("delay_s"), cell.zero, cell.hundred)
    excess = cell.matrix("worst_energy_ratio") - 1.0
    gate = judge(is_whole(rounds, season.rounds), excess, cell.matrix("backlog_slope"))
    left_out = int(np.sum(~counted(cell.zero, cell.hundred)))
    return CellScore(scores, cell_score(scores), gate, left_out)


def row_page(row: Row, season: Season) -> Page:
    """The table of one row: a line for each cell, and one for each size of which all tiers were played."""
    scores = {name: score_cell(cell, row.rounds, season) for name, cell in row.cells.items()}
    lines: list[dict[str, object]] = [
        {
            "cell": name,
            "score": one.score,
            "delay": estimate(row.cells[name].matrix("delay_s"), statistic=interquartile_mean),
            "energy": one.gate.energy_excess,
            "slope": one.gate.backlog_slope,
            "decision": row.cells[name].decision_s,
            "gate": one.gate.verdict,
        }
        for name, one in scores.items()
    ]
    whole = {name: scores[name] for name in scores if row.is_whole(name, season)}
    for size in BOARD_SIZES:
        total = _overall(whole, size)
        lines += [] if math.isnan(total.mean) else [{"cell": f"{size}, all tiers", "score": total}]
    below = [
        "Score: 0 is the even split, 100 is DSSRA+ in the same episodes (interquartile mean over episodes, "
        "95 % bootstrap interval); above 100 is better than DSSRA+.",
        gate_note(row.rounds, season.rounds),
        *(
            f"{name}: {one.left_out} of {len(row.cells[name].zero)} episodes left out, where DSSRA+ gains "
            "less than 1 % over the even split"
            for name, one in scores.items()
            if one.left_out
        ),
    ]
    if len(whole) < len(scores):
        below.append(
            f"Provisional: {', '.join(name for name in scores if name not in whole)}. The board needs "
            f"{season.rounds} rounds and all episodes "
            f"({', '.join(f'{size} {count}' for size, count in season.episodes.items())})."
        )
    seeds = "hidden" if row.hidden else "public"
    title = f"{row.name}: leaderboard, season {row.season}, {seeds} seeds"
    return Page(title, COLUMNS, lines, below, ("score", "gate", "delay"))


def _overall(scores: dict[str, CellScore], size: str) -> Estimate:
    """Mean of the scores of all tiers of a size; NaN unless all exist."""
    cells = [scores[name] for tier in BOARD_TIERS if (name := Cell(tier, size).name) in scores]
    return overall_score([one.scores for one in cells]) if len(cells) == len(BOARD_TIERS) else NOTHING


def board_markdown(rows: Sequence[Row], season: Season) -> str:
    """The board in Markdown: for each size a table with a line for each row and a column for each tier.

    Only whole cells count. Systems that train encoder blocks on the edge server are ranked apart from the
    others, because no budget counts its energy.

    Args:
        rows: Verified rows.
        season: Their season.
    """
    parts = []
    for size in BOARD_SIZES:
        for assisted in (False, True):
            lines = _lines([row for row in rows if _is_assisted(row) is assisted], size, season)
            if lines:
                title = f"**{size.capitalize()}{', with the edge server' if assisted else ''}**"
                parts += [title, markdown_table(["rank", "scheduler", "all tiers", *BOARD_TIERS], lines, 2)]
    note = "`#1` is a rank in the tier. In brackets with ‡: over its energy budget, without a rank."
    return "\n\n".join([*parts, note]) if parts else "No rows yet."


def _is_assisted(row: Row) -> bool:
    """Whether the edge server runs encoder blocks for a system."""
    return any(episode.server_blocks for cell in row.cells.values() for episode in cell.episodes)


def _lines(rows: Sequence[Row], size: str, season: Season) -> list[list[str]]:
    """Lines of the table of a size, those with a rank first, best first."""
    names = [cell.name for cell in CELLS.values() if cell.size == size]
    all_scores = [
        {
            n: score_cell(row.cells[n], row.rounds, season)
            for n in names
            if n in row.cells and row.is_whole(n, season)
        }
        for row in rows
    ]
    there = [(row, scores) for row, scores in zip(rows, all_scores, strict=True) if scores]
    overall = [_overall(scores, size) for _, scores in there]
    failed = [any(one.gate.failed for one in scores.values()) for _, scores in there]
    places = shared_ranks([None if bad else total for total, bad in zip(overall, failed, strict=True)])
    by_cell = {
        name: shared_ranks(
            [
                None if name not in scores or scores[name].gate.failed else scores[name].score
                for _, scores in there
            ]
        )
        for name in names
    }
    means = [float(np.mean([one.score.mean for one in scores.values()])) for _, scores in there]
    lines = []
    for index in sorted(range(len(there)), key=lambda i: (failed[i], math.isnan(overall[i].mean), -means[i])):
        row, scores = there[index]
        runs = len({episode.run for cell in row.cells.values() for episode in cell.episodes})
        total, rank = overall[index], places[index]
        shown = "–" if math.isnan(total.mean) else f"{total.mean:.1f} ({total.low:.1f} to {total.high:.1f})"
        line = ["–" if rank is None else str(rank), label_of(markdown_text(row.name), 0, runs), shown]
        for name in names:
            one = scores.get(name)
            if one is None:
                line.append("–")
            elif one.gate.failed:
                line.append(f"({one.score.mean:.1f}) ‡")
            else:
                line.append(f"{one.score.mean:.1f} #{by_cell[name][index]}")
        lines.append(line)
    return lines

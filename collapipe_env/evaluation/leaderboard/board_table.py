"""Tables of the leaderboard: one run, or all rows against each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collapipe_env.evaluation.columns import Column
from collapipe_env.evaluation.gate import Gate, gate_note, is_whole, judge
from collapipe_env.evaluation.labels import counted as in_words
from collapipe_env.evaluation.labels import label_of
from collapipe_env.evaluation.leaderboard.anchor_files import CellAnchors
from collapipe_env.evaluation.leaderboard.board_results import BoardResults, CellResults
from collapipe_env.evaluation.leaderboard.scoring import (
    NOTHING,
    cell_score,
    counted,
    episode_scores,
    overall_score,
    shared_ranks,
)
from collapipe_env.evaluation.leaderboard.season import BOARD_SIZES, BOARD_TIERS, Cell, Season, cell_of
from collapipe_env.evaluation.resampling import Estimate, Floats, estimate, interquartile_mean
from collapipe_env.evaluation.table import Page, markdown_table, markdown_text

Anchors = Mapping[str, CellAnchors]
RUN_COLUMNS = (
    Column("cell", name="tier and size"),
    Column("score", "", ".1f"),
    Column("delay", "s", ".2f", name="delay IQM"),
    Column("energy", "%", "+.1f", 100.0, name="energy excess"),
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
        delay: Interquartile mean of the mean delay of a round over episodes [s].
        gate: Whether the player is over its energy budget.
        left_out: Episodes that do not count.
        decision_s: Median wall-clock time of a decision [s].
        counts: Whether the season's whole cell was played, against frozen anchors.
    """

    scores: Floats
    score: Estimate
    delay: Estimate
    gate: Gate
    left_out: int
    decision_s: float
    counts: bool

    @property
    def ranked(self) -> Estimate | None:
        """The score, where it takes part in ranks."""
        return None if self.gate.failed or not self.counts else self.score


def score_cell(
    results: CellResults, cell_: Cell, season: Season, frozen: CellAnchors | None
) -> CellScore | None:
    """Score a player in a cell; ``None`` if it could not play there.

    Args:
        results: Results of the player.
        frozen: Frozen anchors of the cell; used where the run's own anchors are not given.
    """
    if results.impossible:
        return None
    delays = results.matrix("delay_s")
    count = delays.shape[1]
    whole = count == season.episodes[cell_.size] and results.rounds == season.rounds
    anchors = frozen if frozen is not None and results.rounds == season.rounds else results.anchors
    excess = results.matrix("worst_energy_ratio") - 1.0
    gate = judge(is_whole(results.rounds, season.rounds), excess, results.matrix("backlog_slope"))
    delay = estimate(delays, statistic=interquartile_mean)
    time = math.nan if results.decision_median_s is None else results.decision_median_s
    if anchors is None:
        return CellScore(np.empty((1, 0)), NOTHING, delay, gate, 0, time, False)
    zero, hundred = anchors.zero[:count], anchors.hundred[:count]
    scores = episode_scores(delays, zero, hundred)
    left_out = int(np.sum(~counted(zero, hundred)))
    return CellScore(
        scores,
        cell_score(scores),
        delay,
        gate,
        left_out,
        time,
        whole and anchors is frozen and scores.size > 0,
    )


def score_all(results: BoardResults, season: Season, anchors: Anchors) -> dict[str, CellScore]:
    """Score a player in all cells that it could play, by names of scenarios."""
    found = {}
    for name, one in results.cells.items():
        place = cell_of(name)
        if place is None:
            continue
        score = score_cell(one, place, season, anchors.get(name))
        if score is not None:
            found[name] = score
    return found


def overall_of(scores: Mapping[str, CellScore], size: str) -> Estimate:
    """Mean of the scores of all tiers of a size; NaN unless all exist and count."""
    cells = [scores.get(Cell(tier, size).name) for tier in BOARD_TIERS]
    whole = [one for one in cells if one is not None and one.counts]
    return overall_score([one.scores for one in whole]) if len(whole) == len(BOARD_TIERS) else NOTHING


def run_page(results: BoardResults, season: Season, anchors: Anchors) -> Page:
    """The table of one run: a row for each cell.

    Args:
        results: The run.
        season: Season of the run.
        anchors: Frozen anchors.
    """
    scores = score_all(results, season, anchors)
    played = results.cells.values()
    rows: list[dict[str, Any]] = [
        {
            "cell": name if one.counts else f"{name} (provisional)",
            "score": one.score,
            "delay": one.delay,
            "energy": one.gate.energy_excess,
            "slope": one.gate.backlog_slope,
            "decision": one.decision_s,
            "gate": one.gate.verdict,
        }
        for name, one in scores.items()
    ]
    for size in dict.fromkeys(place.size for name in scores if (place := cell_of(name)) is not None):
        whole = overall_of(scores, size)
        if not math.isnan(whole.mean):
            rows.append({"cell": f"{size}, all tiers", "score": whole})
    below = [
        "Score: 0 is the even split, 100 is DSSRA+ in the same episodes (interquartile mean over episodes, "
        "95 % bootstrap interval); above 100 is better than DSSRA+.",
        *(gate_note(rounds, season.rounds) for rounds in dict.fromkeys(c.rounds for c in played)),
    ]
    below += [
        f"{name}: not possible: {one.impossible}" for name, one in results.cells.items() if one.impossible
    ]
    below += [
        f"{name}: {in_words(one.left_out, 'episode')} left out, where DSSRA+ gains less than 1 % over the "
        "even split"
        for name, one in scores.items()
        if one.left_out
    ]
    provisional = [name for name, one in scores.items() if not one.counts]
    if provisional:
        below.append(
            f"Provisional: {', '.join(provisional)}. A score that is comparable with the board needs "
            f"{season.rounds} rounds and all episodes "
            f"({', '.join(f'{size} {count}' for size, count in season.episodes.items())}), for which "
            "the anchors are frozen; here the anchors played the same episodes."
        )
    title = f"{results.name}: leaderboard, season {results.season}"
    return Page(title, RUN_COLUMNS, rows, below, ("score", "gate", "delay"))


@dataclass(frozen=True)
class BoardRow:
    """A player on the board.

    Attributes:
        label: Its name in Markdown, with the number of its training runs.
        scores: Its scores by names of scenarios.
    """

    label: str
    scores: dict[str, CellScore]


def board_rows(runs: Sequence[BoardResults], season: Season, anchors: Anchors) -> list[BoardRow]:
    """Score all players."""
    rows = []
    for results in runs:
        several = max((len({e.run for e in one.episodes}) for one in results.cells.values()), default=1)
        rows.append(
            BoardRow(label_of(markdown_text(results.name), 0, several), score_all(results, season, anchors))
        )
    return rows


def size_table(rows: Sequence[BoardRow], size: str) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of the table of a size: a row for each player, a column for each tier.

    Rows are in order of the overall score or, where it is missing, of the mean of the existing scores. A
    player that fails the gate in a tier has no overall rank.

    Args:
        rows: The players.
    """
    names = [Cell(tier, size).name for tier in BOARD_TIERS]
    there = [row for row in rows if any(name in row.scores and row.scores[name].counts for name in names)]
    overall = {id(row): overall_of(row.scores, size) for row in there}
    failed = {id(row): any(row.scores[n].gate.failed for n in names if n in row.scores) for row in there}
    places = dict(
        zip(
            map(id, there),
            shared_ranks([None if failed[id(row)] else overall[id(row)] for row in there]),
            strict=True,
        )
    )
    by_cell = {
        name: shared_ranks([row.scores[name].ranked if name in row.scores else None for row in there])
        for name in names
    }
    lines = []
    order = sorted(range(len(there)), key=lambda index: _order(there[index], overall, failed, names))
    for index in order:
        row = there[index]
        total, rank = overall[id(row)], places[id(row)]
        line = ["–" if rank is None else str(rank), row.label, _with_interval(total)]
        for name in names:
            one = row.scores.get(name)
            if one is None or not one.counts:
                line.append("–")
            elif one.gate.failed:
                line.append(f"({one.score.mean:.1f}) ‡")
            else:
                line.append(f"{one.score.mean:.1f} #{by_cell[name][index]}")
        lines.append(line)
    return ["rank", "scheduler", "all tiers", *BOARD_TIERS], lines


def cell_table(rows: Sequence[BoardRow], names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of the table of single cells: a row for each cell and player, best first.

    Args:
        rows: The players.
        names: Names of the cells' scenarios.
    """
    lines = []
    for name in names:
        found = [(row, row.scores[name]) for row in rows if name in row.scores and row.scores[name].counts]
        ranks = shared_ranks([one.ranked for _, one in found])
        order = sorted(range(len(found)), key=lambda i: (found[i][1].gate.failed, -found[i][1].score.mean))
        for index in order:
            row, one = found[index]
            lines.append(
                [
                    f"`{name}`",
                    row.label,
                    "‡" if ranks[index] is None else str(ranks[index]),
                    _with_interval(one.score),
                    f"{one.delay.mean:.2f} s",
                    f"{100.0 * one.gate.energy_excess:+.1f} %",
                    f"{100.0 * one.gate.backlog_slope:+.2f} %",
                ]
            )
    return ["cell", "scheduler", "rank", "score", "delay IQM", "energy excess", "backlog slope"], lines


def _order(
    row: BoardRow, overall: Mapping[int, Estimate], failed: Mapping[int, bool], names: Sequence[str]
) -> tuple[bool, bool, float]:
    total = overall[id(row)].mean
    means = [row.scores[name].score.mean for name in names if name in row.scores]
    return failed[id(row)], math.isnan(total), -(float(np.mean(means)) if math.isnan(total) else total)


def _with_interval(score: Estimate) -> str:
    if math.isnan(score.mean):
        return "–"
    if math.isnan(score.low):
        return f"{score.mean:.1f}"
    return f"{score.mean:.1f} ({score.low:.1f} to {score.high:.1f})"


def board_markdown(runs: Sequence[BoardResults], season: Season, anchors: Anchors) -> str:
    """Return all tables of a board in Markdown: for each size, its table and that of its cells.

    Args:
        runs: Results of the players.
        season: Season of the results.
        anchors: Frozen anchors.
    """
    rows = board_rows(runs, season, anchors)
    parts = []
    for size in BOARD_SIZES:
        heads, lines = size_table(rows, size)
        if lines:
            parts += [f"**{size.capitalize()}**", markdown_table(heads, lines, 2)]
        names = [Cell(tier, size).name for tier in BOARD_TIERS]
        heads, lines = cell_table(rows, names)
        if lines:
            parts.append(markdown_table(heads, lines, 2))
    if not parts:
        return "No scored cells: a score counts over all episodes and rounds, where anchors are frozen."
    note = (
        "`#1` is a rank in the tier. In brackets with ‡: over its energy budget, and has no rank. A dash: "
        "not played."
    )
    return "\n\n".join([*parts, note])

"""The page of a run: one HTML file with its data, script and style, which loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.gate import is_whole, judge
from collapipe_env.evaluation.looks import looks_of
from collapipe_env.evaluation.raw_results import EPISODE_FIGURES
from collapipe_env.evaluation.view.episode_detail import detail_length, episode_detail
from collapipe_env.evaluation.view.packing import Packed, packed
from collapipe_env.evaluation.view.stored_run import StoredRun, StoredScenario
from collapipe_env.ground.files import without_nan
from collapipe_env.ground.version import __version__
from collapipe_env.rendering.colours import PHASES

ROOM = 7_500_000
"""Characters of all packed rounds; with curves, tables and script a page stays below 10 MB."""
CURVES_ROOM = 1_500_000
"""Characters of all curves; longer episodes are averaged over neighbouring rounds."""
MOST_LINES = 20_000
"""Lines of the table of episodes."""
CURVES: dict[str, tuple[str, Callable[[EpisodeResult], Sequence[float]]]] = {
    "delay": ("Delay of the round (s)", lambda e: e.delay),
    "loss": ("Loss, running mean (nat)", lambda e: e.smoothed_loss),
    "energy": ("Energy of all nodes in the round (J)", lambda e: e.energy_j),
    "backlog": ("Sum of all energy queues (budgets)", lambda e: e.backlog),
    "largest": ("Largest energy queue (budgets)", lambda e: e.largest_backlog),
    "worst": ("Worst node's energy over its budget", lambda e: e.worst_energy),
    "metric": ("Metric of the task", lambda e: e.metric),
}
"""Charts over the rounds: heading, and values of an episode."""
_EPISODE_COLUMNS = {
    "rounds": "rounds",
    "priced_delay_s": "priced delay (s)",
    "return_per_round": "return per round",
    "mean_delay_s": "delay (s)",
    "p95_delay_s": "delay p95 (s)",
    "energy_j": "energy (J)",
    "simulated_time_s": "simulated time (s)",
    "worst_mean_energy_ratio": "over budget (%)",
    "final_backlog": "final backlog (budgets)",
    "final_smoothed_loss_nat": "final loss (nat)",
    "final_metric": "final metric",
    "median_decision_s": "decision (s)",
}
"""Columns of the table of episodes by their names in ``episodes.csv``."""
_SCHEDULER_COLUMNS = tuple(name for name in _EPISODE_COLUMNS if name not in ("rounds", "simulated_time_s"))
"""Those of the table of schedulers."""
_IN_TABLE: dict[str, Callable[[EpisodeResult], float]] = {
    **EPISODE_FIGURES,
    "worst_mean_energy_ratio": lambda e: 100.0 * (e.worst_energy_ratio - 1.0),
}
"""Values of these columns; energy is in per cent over budget, as in the table of schedulers."""


@dataclass(frozen=True)
class Choice:
    """Part of a run that the page shows round by round.

    Attributes:
        scenario: The scenario; the first by default.
        schedulers: Schedulers; all by default, as far as there is room.
        episode: Number of the episode.
    """

    scenario: str | None = None
    schedulers: tuple[str, ...] = ()
    episode: int = 0


def chosen_results(run: StoredRun, choice: Choice) -> tuple[StoredScenario, list[EpisodeResult]]:
    """The scenario and the episodes that the page plays again, the reference's first.

    Raises:
        DataError: If one of the episodes was not played.
    """
    stored = run.scenario(choice.scenario)
    names = choice.schedulers or sorted(
        stored.results, key=lambda name: (name != run.reference, name != "agent")
    )
    return stored, [stored.result(name, choice.episode) for name in dict.fromkeys(names)]


def page_of(run: StoredRun, choice: Choice, on_round: Callable[[], None] = lambda: None) -> str:
    """Return the page.

    Args:
        choice: The rounds to show.
        on_round: Called after each round that is played again.

    Raises:
        DataError: If a requested part was not played, or cannot be played again.
    """
    stored, results = chosen_results(run, choice)
    looks = looks_of(name for each in run.scenarios.values() for name in each.results)
    details: list[dict[str, Any]] = []
    for number, result in enumerate(results):
        taken = sum(map(detail_length, details))
        # The remaining episodes share equally the room that the earlier ones left.
        room = (ROOM - taken) // (len(results) - number)
        details.append(episode_detail(stored, result, room, on_round))
    played = {
        name: found[0]
        for name, episodes in stored.results.items()
        if (found := [r for r in episodes if r.episode == choice.episode and r.run == 0])
    }
    width = max(1, math.ceil(len(CURVES) * len(played) * stored.rounds * 16 / 3 / CURVES_ROOM))
    data = {
        "title": f"{stored.scenario.name}: {run.path.resolve().name}",
        "facts": _facts(run, stored, choice),
        "notes": _notes(run, stored, details, width),
        "rounds": stored.rounds,
        "width": width,
        "schedulers": [
            {"name": name, "title": result.title, "colour": looks[name].colour}
            for name, result in played.items()
        ],
        "charts": _charts(played, width),
        "tables": [_schedulers_table(run), _episodes_table(run), *_training_tables(run)],
        "phases": [
            {"name": name, "key": label, "colour": colour} for label, (name, colour) in PHASES.items()
        ],
        "details": details,
    }
    return _html(data)


def _html(data: Mapping[str, Any]) -> str:
    """Put data, script and style into one page."""
    files = resources.files("collapipe_env.evaluation.view")
    script, style = ((files / name).read_text("utf-8") for name in ("page.js", "page.css"))
    # Only these characters could end the script element, or begin a comment or another script in it.
    text = json.dumps(without_nan(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(str(data['title']))}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        "<noscript>This page needs JavaScript, all of which is in this file.</noscript>\n"
        '<main id="page"></main>\n'
        f'<script type="application/json" id="data">{text}</script>\n<script>{script}</script>\n'
        "</body>\n</html>\n"
    )


def _hash(text: str) -> str:
    """Source of a content security policy that allows one inline text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _facts(run: StoredRun, stored: StoredScenario, choice: Choice) -> list[tuple[str, str]]:
    scenario = stored.scenario
    learned = scenario.workload.task
    return [
        ("run", str(run.path)),
        *([("command", run.command)] if run.command else []),
        *([("finished", run.finished)] if run.finished else []),
        (
            "scenario",
            f"{scenario.name}: {scenario.clusters} clusters, up to {scenario.max_devices} devices each; "
            f"{scenario.workload.blocks} encoder blocks, task {learned}",
        ),
        ("shown below", f"held-out episode {choice.episode}, {stored.rounds} rounds"),
        ("page made by", f"collapipe-env {__version__}"),
    ]


def _notes(
    run: StoredRun, stored: StoredScenario, details: Sequence[Mapping[str, Any]], width: int
) -> list[str]:
    """Notes for the reader of the page."""
    notes = [
        "Rounds are played again from the stored decisions, with the same channels and loads; their delays "
        "agree with those that were stored. Delay, loss, energy and queues over the rounds are the stored "
        "numbers."
    ]
    for detail in details:
        if detail["every"] > 1:
            notes.append(
                f"{detail['title']}: pipelines, maps and nodes of every {_ordinal(detail['every'])} round "
                "only, to keep the file small; --scheduler with fewer names shows more."
            )
        if detail["everyEvents"] > 1:
            notes.append(
                f"{detail['title']}: micro-batches of every "
                f"{_ordinal(detail['every'] * detail['everyEvents'])} round only; the others have phases."
            )
    if width > 1:
        notes.append(f"Charts over the rounds: mean of {width} rounds a point.")
    others = [name for name in run.scenarios if name != stored.scenario.name]
    if others:
        notes.append(
            f"Rounds and charts are those of {stored.scenario.name}. The tables also have "
            f"{', '.join(others)}; --scenario shows the rounds of another."
        )
    return notes


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _charts(played: Mapping[str, EpisodeResult], width: int) -> list[dict[str, Any]]:
    charts = []
    for key, (title, values) in CURVES.items():
        lines: dict[str, Packed] = {
            name: packed(_averaged(curve, width), "<f4")
            for name, result in played.items()
            if np.isfinite(curve := np.asarray(values(result), dtype=np.float64)).any()
        }
        if lines:
            charts.append({"key": key, "title": title, "lines": lines})
    return charts


def _averaged(values: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    """Means over ``width`` neighbours; the last group may be smaller."""
    starts = np.arange(0, len(values), width)
    counts = np.diff(np.append(starts, len(values)))
    means: np.ndarray[Any, Any] = np.add.reduceat(values, starts) / counts
    return means


def _schedulers_table(run: StoredRun) -> dict[str, Any]:
    """A row for each scheduler, in the order of the other tables: by priced delay, those over budget last."""
    rows: list[list[str | float]] = []
    for name, stored in run.scenarios.items():
        found: list[tuple[tuple[bool, float], list[str | float]]] = []
        for scheduler, episodes in stored.results.items():
            runs = len({e.run for e in episodes})
            shape = (runs, -1) if len(episodes) % runs == 0 else (1, -1)
            gate = judge(
                is_whole(stored.rounds, stored.scenario.dynamics.rounds),
                np.reshape([e.worst_energy_ratio - 1.0 for e in episodes], shape),
                np.reshape([e.backlog_slope for e in episodes], shape),
            )
            place = gate.failed, float(np.mean([e.measure for e in episodes]))
            means = (float(np.mean([_IN_TABLE[c](e) for e in episodes])) for c in _SCHEDULER_COLUMNS)
            mark = {"failed": "over budget", "passed": "within", "too short": "filling"}[gate.verdict]
            found.append((place, [name, episodes[0].title, scheduler, runs, len(episodes), *means, mark]))
        rows += [row for _, row in sorted(found, key=lambda one: one[0])]
    columns = [
        "scenario", "scheduler", "requested as", "runs", "episodes",
        *(_EPISODE_COLUMNS[c] for c in _SCHEDULER_COLUMNS), "energy budget",
    ]  # fmt: skip
    return _table("schedulers", "Schedulers, means over their episodes", columns, rows)


def _episodes_table(run: StoredRun) -> dict[str, Any]:
    rows: list[list[str | float]] = [
        [name, e.title, e.run, e.episode, *(_IN_TABLE[c](e) for c in _EPISODE_COLUMNS)]
        for name, stored in run.scenarios.items()
        for episodes in stored.results.values()
        for e in episodes
    ]
    title = "Episodes"
    if len(rows) > MOST_LINES:
        title += f" (the first {MOST_LINES:,} of {len(rows):,}; episodes.csv has all)"
    return _table(
        "episodes",
        title,
        ["scenario", "scheduler", "run", "episode", *_EPISODE_COLUMNS.values()],
        rows[:MOST_LINES],
    )


def _training_tables(run: StoredRun) -> list[dict[str, Any]]:
    if not run.history:
        return []
    rows = [
        [s["steps"], s["priced_delay"], s["mean_delay"], 100.0 * (s["energy_ratio"] - 1.0)]
        for s in run.history
    ]
    columns = ["steps", "priced delay (s)", "delay (s)", "over budget (%)"]
    return [_table("training", "Validations during the agent's training", columns, rows)]


def _table(
    key: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[str | float]]
) -> dict[str, Any]:
    """A table without the columns that are NaN throughout, with numbers rounded to six digits."""
    kept = [i for i in range(len(columns)) if any(not _is_nan(row[i]) for row in rows)]
    return {
        "key": key,
        "title": title,
        "columns": [columns[i] for i in kept],
        "rows": [[_rounded(row[i]) for i in kept] for row in rows],
    }


def _is_nan(value: str | float) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _rounded(value: str | float) -> str | float:
    return float(f"{value:.6g}") if isinstance(value, float) else value

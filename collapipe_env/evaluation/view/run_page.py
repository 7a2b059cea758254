"""The page of a run: one HTML file with its data, script and style, which loads nothing else.

``collapipe_env.write_page`` writes it from Python.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from collapipe_env.evaluation.columns import METRICS
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.looks import looks_of
from collapipe_env.evaluation.view.packed_rounds import packed_episode, rounded
from collapipe_env.evaluation.view.stored_run import StoredRun, StoredScenario, read_run
from collapipe_env.ground.errors import ScenarioError, shown
from collapipe_env.ground.files import without_nan, write_text
from collapipe_env.ground.version import __version__
from collapipe_env.rendering.colours import PHASES

ROOM = 7_500_000
"""Most characters of all packed rounds; with curves, tables and script a page stays below 10 MB."""
MOST_POINTS = 2000
"""Most points of a curve; of longer episodes, every second, third ... round is one."""
MOST_LINES = 20_000
"""Most lines of the table of episodes."""
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

ENDINGS = (".html", ".htm")
"""Endings of a page's file name."""


def write_page(
    run: str | Path,
    out: str | Path | None = None,
    *,
    scenario: str | None = None,
    schedulers: str | Iterable[str] = (),
    episode: int = 0,
) -> Path:
    """Write the page of a finished run, as ``collapipe view`` does.

    For a run with a user's own processes or tasks, import their file first. ``collapipe view`` does this for
    ``--scenario file.py:Name``.

    Args:
        run: Folder of a run of ``collapipe train``, ``evaluate`` or ``compare``, or the ``out`` of
            :func:`~collapipe_env.evaluate`.
        out: File name of the page, ending in ``.html``; ``view.html`` in the run's folder by default.
        scenario: Name of the scenario whose rounds are shown, if there are several; the first by default.
        schedulers: Names of the schedulers whose rounds are shown; all by default.
        episode: Held-out episode whose rounds are shown, >= 0.

    Returns:
        Path of the page.

    Raises:
        CollaPipeError: If there is no such run, it is unfinished or damaged, a requested part was not played
            or cannot be played again, or the page cannot be written.
    """
    names = [schedulers] if isinstance(schedulers, str) else list(schedulers)
    if out is not None and Path(out).suffix.lower() not in ENDINGS:
        raise ScenarioError(f"out = {shown(out)}: give a path that ends in {' or '.join(ENDINGS)}")
    stored = read_run(Path(run))
    page = stored.path / "view.html" if out is None else Path(out)
    text = page_of(stored, *stored.chosen(scenario, names, episode), lambda: None)
    write_text(page, text, "out")
    return page


def page_of(
    run: StoredRun, stored: StoredScenario, results: Sequence[EpisodeResult], on_round: Callable[[], object]
) -> str:
    """Return the page.

    Args:
        stored: The scenario to show.
        results: The episodes to show round by round, at least one, all of one number.
        on_round: Called after each round that is played again.

    Raises:
        DataError: If an episode cannot be played again.
    """
    details: list[dict[str, Any]] = []
    room = ROOM
    for left, result in zip(range(len(results), 0, -1), results, strict=True):
        # The remaining episodes share equally the room that the earlier ones left.
        details.append(packed_episode(stored, result, room // left, on_round))
        room -= sum(map(len, details[-1]["rounds"]))
    same = (results[0].episode, 0)
    played = [e for some in stored.results.values() for e in some if (e.episode, e.run) == same]
    looks = looks_of(name for each in run.scenarios.values() for name in each.results)
    points = slice(None, None, math.ceil(stored.rounds / MOST_POINTS))
    schedulers, charts = [], []
    for e in played:
        time, colour = rounded(np.cumsum(e.delay)[points], 6), looks[e.scheduler].colour
        schedulers.append({"name": e.scheduler, "title": e.title, "colour": colour, "time": time})
    for key, (title, of) in CURVES.items():
        lines = {e.scheduler: rounded(of(e)[points]) for e in played if np.isfinite(of(e)).any()}
        if lines:
            charts.append({"key": key, "title": title, "lines": lines})
    return _html({
        "title": f"{stored.scenario.name}: {run.path.resolve().name}",
        "facts": _facts(run, stored, details),
        "rounds": stored.rounds,
        "at": list(range(1, stored.rounds + 1)[points]),
        "schedulers": schedulers,
        "charts": charts,
        "tables": _tables(run),
        "phases": PHASES,
        "details": details,
    })  # fmt: skip


def _html(data: Mapping[str, Any]) -> str:
    """Put data, script and style into one page, whose policy allows just these."""
    # Only these characters could end the script element, or begin a comment or another script in it.
    text = json.dumps(without_nan(data), separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    files = resources.files(__package__)
    parts = {"data": text, "title": html.escape(data["title"])}
    for part, name in (("script", "page.js"), ("style", "page.css")):
        parts[part] = (files / name).read_text("utf-8")
        digest = hashlib.sha256(parts[part].encode()).digest()
        parts[f"{part}_hash"] = f"sha256-{base64.b64encode(digest).decode()}"
    return (files / "page.html").read_text("utf-8").format(**parts)


def _facts(
    run: StoredRun, stored: StoredScenario, details: Sequence[Mapping[str, Any]]
) -> list[tuple[str, str]]:
    """Facts about the run and notes for the reader, with their names."""
    scenario, others = stored.scenario, [name for name in run.scenarios if name != stored.scenario.name]
    size = f"{scenario.clusters} clusters, up to {scenario.max_devices} devices each"
    work = f"{scenario.workload.blocks} encoder blocks, task {scenario.workload.task}"
    facts = [
        ("run", str(run.path)),
        *((name, text) for name in ("command", "finished") if isinstance(text := run.report.get(name), str)),
        ("scenario", f"{scenario.name}: {size}; {work}"),
        ("rounds", "played again from the stored decisions; curves and tables show the stored numbers"),
    ]
    for detail in details:
        if detail["every"] > 1:
            less = f"pipelines, places and nodes of one round in {detail['every']}"
            facts.append((detail["title"], f"{less}, to keep the file small; fewer --scheduler show more"))
    if others:
        facts.append(("tables", f"also of {', '.join(others)}; --scenario shows the rounds of another"))
    return [*facts, ("page made by", f"collapipe-env {__version__}")]


def _tables(run: StoredRun) -> list[dict[str, Any]]:
    """The tables of schedulers, episodes and, where there are some, validations of an agent's training."""
    schedulers: list[dict[str, Any]] = []
    episodes: list[dict[str, Any]] = []
    for name, stored in run.scenarios.items():
        budgets = stored.budgets
        measures = {key: float(np.mean([e.measure for e in some])) for key, some in stored.results.items()}
        for scheduler in sorted(measures, key=lambda s: (budgets[s] == "over budget", measures[s])):
            some = stored.results[scheduler]
            figures = [
                {c.heading or c.csv.replace("_", " "): c.scale * c.of(e) for c in METRICS if c.of}
                for e in some
            ]
            row: dict[str, Any] = {"scenario": name, "scheduler": some[0].title, "requested as": scheduler}
            row |= {"runs": len({e.run for e in some}), "episodes": len(some)}
            row |= {column: float(np.mean([one[column] for one in figures])) for column in figures[0]}
            schedulers.append({**row, "energy budget": budgets[scheduler]})
            for e, one in zip(some, figures, strict=True):
                row = {"scenario": name, "scheduler": e.title, "run": e.run, "episode": e.episode}
                episodes.append(row | one)
    more = f" (the first {MOST_LINES:,}; episodes.csv has all)" if len(episodes) > MOST_LINES else ""
    found = [
        _table("schedulers", "Schedulers, means over their episodes", schedulers),
        _table("episodes", f"Episodes{more}", episodes[:MOST_LINES]),
    ]
    if run.validations:
        found.append(_table("training", "Validations during the agent's training", run.validations))
    return found


def _table(key: str, title: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A table without the columns that are NaN throughout, with numbers rounded to six digits."""
    kept = [column for column in rows[0] if any(row[column] == row[column] for row in rows)]
    cells = [[float(f"{v:.6g}") if isinstance(v := row[c], float) else v for c in kept] for row in rows]
    return {"key": key, "title": title, "columns": kept, "rows": cells}

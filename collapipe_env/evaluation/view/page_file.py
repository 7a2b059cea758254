"""``collapipe_env.write_page``: the page of a run from Python."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.evaluation.view.run_page import Choice, page_of
from collapipe_env.evaluation.view.stored_run import read_run
from collapipe_env.ground.errors import ScenarioError, shown
from collapipe_env.ground.files import write_text

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
    for name, value in (("run", run), ("out", out)):
        if not isinstance(value, str | Path) and not (name == "out" and value is None):
            raise ScenarioError(f"{name} = {shown(value)}: give a path")
    if out is not None and Path(out).suffix.lower() not in ENDINGS:
        raise ScenarioError(f"out = {shown(str(out))}: give a name that ends in {' or '.join(ENDINGS)}")
    if not isinstance(scenario, str | None):
        raise ScenarioError(f"scenario = {shown(scenario)}: give the name of a scenario, or None")
    if not isinstance(schedulers, Iterable):
        raise ScenarioError(f"schedulers = {shown(schedulers)}: give names of schedulers")
    names = (schedulers,) if isinstance(schedulers, str) else tuple(schedulers)
    if not all(isinstance(name, str) for name in names):
        raise ScenarioError(f"schedulers = {shown(schedulers)}: give names of schedulers")
    if not isinstance(episode, int) or isinstance(episode, bool) or episode < 0:
        raise ScenarioError(f"episode = {shown(episode)}: use a whole number from 0")
    stored = read_run(Path(run))
    page = RunDirectory(stored.path) / "view.html" if out is None else Path(out)
    write_text(page, page_of(stored, Choice(scenario, names, episode)), "out")
    return page

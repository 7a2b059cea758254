"""Pictures and tables of a finished run, for papers: vector formats, a style for two columns, LaTeX.

>>> from collapipe_env import plots
>>> plots.draw("runs/compare-small-medium", format="pdf", style="ieee", names=["delay"])   # doctest: +SKIP
[PosixPath('runs/compare-small-medium/paper/delay.pdf')]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collapipe_env.evaluation.comparison import ScenarioComparison, summarise_scenario
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.report import heading, summary_page
from collapipe_env.evaluation.runner import Outcome
from collapipe_env.evaluation.view.stored_run import StoredRun, read_run
from collapipe_env.ground.errors import DataError, MissingPackageError, nearest_name
from collapipe_env.ground.files import write_text
from collapipe_env.ground.progress import progress_bar

FORMATS = ("pdf", "svg", "png")
STYLES = ("default", "ieee")
"""Styles: ``default`` is that of the package's pictures; ``ieee`` has the width of one column of two (3.5
inch for a panel), Times-like letters of 8 points and keys below."""
FEW = ("priced_delay", "difference", "energy_excess", "delay_mean")
"""Columns of a table for a paper."""


def comparisons(run: str | Path, schedulers: Sequence[str] = ()) -> list[ScenarioComparison]:
    """Read the comparisons of a finished run, one for each scenario.

    Args:
        run: Folder of a run of ``collapipe train``, ``evaluate`` or ``compare``.
        schedulers: Schedulers to keep; all by default.

    Raises:
        DataError: If there is no such run, it is not finished, or a scheduler did not play there.
    """
    return _kept(read_run(Path(run)), schedulers)


def _kept(run: StoredRun, schedulers: Sequence[str]) -> list[ScenarioComparison]:
    played = list(dict.fromkeys(name for one in run.scenarios.values() for name in one.results))
    for name in schedulers:
        if name not in played:
            raise DataError(f"scheduler {name!r} did not play in {run.path}: {nearest_name(name, played)}")
    parts: Mapping[str, Any] = run.report.get("scenarios") or {}
    found = []
    for name, stored in run.scenarios.items():
        results = {k: list(v) for k, v in stored.results.items() if not schedulers or k in schedulers}
        if not results:
            continue
        # The folder of a run of one scenario is named LEARNER-ROUNDS.
        learner = parts[name]["learner"] if name in parts else stored.folder.name.rpartition("-")[0]
        plan = EvaluationPlan(
            scenario=stored.scenario,
            schedulers=tuple(results),
            agents=(),
            episodes=max(e.episode for episodes in results.values() for e in episodes) + 1,
            rounds=stored.rounds,
            learner=str(learner),
            folder=stored.folder,
        )
        found.append(summarise_scenario(plan, Outcome(results, {}), run.report.get("reference")))
    return found


def draw(
    run: str | Path,
    folder: str | Path | None = None,
    *,
    names: Sequence[str] = (),
    schedulers: Sequence[str] = (),
    format: str = "pdf",
    style: str = "default",
) -> list[Path]:
    """Draw pictures of a finished run anew.

    Args:
        run: Folder of a run of ``collapipe train``, ``evaluate`` or ``compare``.
        folder: Folder for the pictures, ``paper`` in the run's by default.
        names: Pictures to draw, as the run's folder ``figures`` names them; all by default.
        schedulers: Schedulers to show; all by default.
        format: ``"pdf"``, ``"svg"`` or ``"png"``.
        style: ``"default"`` or ``"ieee"``.

    Returns:
        The files, in the order of the pictures.

    Raises:
        DataError: If there is no such run, it is not finished, or it has no such picture or scheduler.
        MissingPackageError: Without Matplotlib.
    """
    for what, value, choices in (("format", format, FORMATS), ("style", style, STYLES)):
        if value not in choices:
            raise DataError(f"{what} {value!r} is not one of {', '.join(choices)}")
    stored = read_run(Path(run))
    try:
        from collapipe_env.evaluation.figures import comparison_pictures
    except ImportError:
        raise MissingPackageError.of("pictures", "Matplotlib", "plots") from None
    history = stored.report.get("training") or ()
    pictures = comparison_pictures(_kept(stored, schedulers), schedulers, history, style)
    for name in names:
        if name not in pictures:
            raise DataError(f"picture {name!r} is not one of {run}: {nearest_name(name, pictures)}")
    place = Path(folder) if folder is not None else stored.path / "paper"
    wanted = list(dict.fromkeys(names)) or list(pictures)
    files = []
    with progress_bar(len(wanted), "drawing", "pictures") as bar:
        for name in wanted:
            file = place / f"{name}.{format}"
            pictures[name](file)
            files.append(file)
            bar.update(1)
    return files


def latex(run: str | Path, *, schedulers: Sequence[str] = (), columns: Iterable[str] = FEW) -> str:
    """Tables of a finished run in LaTeX, one for each scenario; they need the package ``booktabs``.

    Args:
        run: Folder of a run of ``collapipe train``, ``evaluate`` or ``compare``.
        schedulers: Schedulers to show; all by default.
        columns: Keys of the columns beside the names, as ``results.json`` names them.

    Raises:
        DataError: If there is no such run, it is not finished, or it has no such scheduler or column.
    """
    chosen = ("label", *columns)
    tables = []
    for comparison in comparisons(run, schedulers):
        page = summary_page(comparison.summaries, heading(comparison.plan), ())
        known = {column.key for column in page.columns}
        for key in chosen:
            if key not in known:
                raise DataError(f"column {key!r} is not one of the table: {nearest_name(key, known)}")
        tables.append(page.latex(chosen))
    return "\n".join(tables)


def write_latex(run: str | Path, file: str | Path, *, schedulers: Sequence[str] = ()) -> Path:
    """Write :func:`latex` into a file.

    Args:
        run: Folder of the run.
        file: File to write.
        schedulers: Schedulers to show; all by default.
    """
    write_text(Path(file), latex(run, schedulers=schedulers))
    return Path(file)

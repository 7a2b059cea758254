"""Play agents on systems that they may never have seen, and write the matrix of results.

A row is an agent, or several training runs of one; a column is a scenario: the ladder's sizes, sizes in
between, other layouts, other energy budgets and another weight of the delay. A cell is the mean round delay
over that of DSSRA in the same episodes, less 1, with its interval over runs and episodes, and the worst
node's energy over its budget. All requested rows and columns are in the table, even where an agent loses; an
agent that does not fit a size has a dash there. Run::

    python tools/make_generalisation.py --agents net=a.safetensors net=b.safetensors PPO=ppo.safetensors
    python tools/make_generalisation.py --agents net=a.safetensors --columns small mine.yaml --rounds 50

Several files under one label are its training runs. A scheduler's name or ``file.py:Name`` may take the place
of a file. Finished episodes are kept: run it again after Ctrl-C, or with more rows, columns or episodes. The
tables are written only when everything has been played, and never over tables that hold more.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from generalisation_columns import COLUMNS, MEANINGS
from generated_parts import markdown_table, replaced, typed_command, write_parts

from collapipe_env.cli.common import command
from collapipe_env.cli.early_end import Call, guarded
from collapipe_env.cli.option_types import PROCESSES, ROUNDS, Within
from collapipe_env.evaluation.agent_runs import require_runs
from collapipe_env.evaluation.columns import cell
from collapipe_env.evaluation.comparison import REFERENCE
from collapipe_env.evaluation.gate import gate_note
from collapipe_env.evaluation.labels import counted
from collapipe_env.evaluation.own_code import is_reference
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.provenance import started
from collapipe_env.evaluation.resampling import Estimate
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.run_directory import RunDirectory, folder_name
from collapipe_env.evaluation.runner import Outcome, evaluate_all
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.evaluation.statistics import Summary, summarise_all
from collapipe_env.ground.errors import CheckpointError, CollaPipeError, DataError, ScenarioError, reason
from collapipe_env.ground.files import read_regular, write_text
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.schedulers import LEARNED, SCHEDULERS
from collapipe_env.zoo.shipped_agents import agent_path, is_shipped

DESCRIPTION = (__doc__ or "").partition(" Run::")[0]
PART = "generalisation"
"""Name of the page's part."""
FAILS = "‡"
"""Mark behind the energy of a row that is over its energy budget."""
LARGEST_TABLE = 64 * 1024**2
"""Bytes of the largest table that is read."""


@dataclass(frozen=True)
class Options:
    """Agents, columns, and the folder."""

    agents: tuple[str, ...] = ()
    """Rows as LABEL=FILE; several files under one label are its training runs. A scheduler may stand for a
    file."""
    columns: tuple[str, ...] = tuple(COLUMNS)
    """Columns: names of those above, shipped scenarios or YAML files."""
    episodes: Annotated[int, Within(1, 100_000)] = 10
    """Held-out episodes of each agent in each column."""
    rounds: Annotated[int, ROUNDS] = 500
    """Rounds of an episode."""
    processes: Annotated[int, PROCESSES] = 2
    """Episodes played at once."""
    out: Path = Path("runs/generalisation")
    """Folder of the episodes and of matrix.md and matrix.csv."""
    page: Path | None = None
    """A page whose part "generalisation" is filled with the table."""

    def check(self) -> None:
        """Refuse options that cannot be played."""
        for option, given in (("--agents", self.agents), ("--columns", self.columns)):
            if not given:
                raise ScenarioError(f"{option} is empty: name at least one")


@dataclass(frozen=True)
class Row:
    """A row of the matrix.

    Attributes:
        label: Its name in the table.
        scheduler: Name under which it plays.
        files: Its training runs; none for a scheduler that is not loaded from a file.
    """

    label: str
    scheduler: str
    files: tuple[Path, ...] = ()

    def misfit(self, scenario: Scenario) -> str | None:
        """Reason why it cannot play a scenario; ``None`` if it can."""
        try:
            if self.files:
                require_runs(f"--agents {self.label}", self.files, scenario)
            else:
                make_scheduler(self.scheduler, scenario)
        except CollaPipeError as error:
            return str(error)
        return None


@dataclass(frozen=True)
class Cell:
    """A row in a column.

    Attributes:
        row: Label of the row.
        column: Name of the column.
        summary: Summary of the row's episodes beside the reference's; ``None`` where it cannot play.
        reason: Reason why it cannot.
    """

    row: str
    column: str
    summary: Summary | None
    reason: str = ""


FIGURES: Mapping[str, Callable[[Summary], Any]] = {
    "runs": lambda s: s.runs,
    "priced_delay_s": lambda s: s.priced_delay.mean,
    "mean_delay_s": lambda s: s.delay_mean.mean,
    "difference": lambda s: s.difference.mean,
    "difference_low": lambda s: s.difference.low,
    "difference_high": lambda s: s.difference.high,
    "improvement": lambda s: s.improvement.mean,
    "improvement_low": lambda s: s.improvement.low,
    "improvement_high": lambda s: s.improvement.high,
    "worst_energy_excess": lambda s: s.gate.energy_excess,
    "worst_backlog_slope": lambda s: s.gate.backlog_slope,
    "gate": lambda s: s.gate.verdict,
    "median_decision_s": lambda s: s.decision_s.mean,
}
"""Columns of the CSV file in addition to row, column, episodes and the reason of a dash."""


def _run(options: Options, call: Call) -> None:
    options.check()
    rows, scenarios = rows_of(options), scenarios_of(options)
    if options.page is not None:
        require_page(options.page)  # known before hours of playing
    run = RunDirectory(options.out)
    asked = {"kind": "comparison", "rounds": options.rounds, "learner": "surrogate", "of": "generalisation"}
    with started(run, str(call), asked, fresh=False):
        require_no_more(run.path / "matrix.csv", rows, scenarios, options.episodes)
        for name, scenario in scenarios.items():
            write_text(run / "scenarios" / f"{folder_name(name)}.yaml", scenario.to_yaml())
        found = cells(options, run, rows, scenarios)
        write_text(run.path / "matrix.csv", matrix_csv(found, options.episodes))
        table = matrix_table(
            found, options, f"```bash\n{typed_command([*call.program.split(), *call.arguments])}\n```"
        )
        write_text(run.path / "matrix.md", table)
        if options.page is not None:
            write_parts(options.page, {PART: table})
    print(f"\n{table}\nwrote {run.path}/matrix.md and matrix.csv")


def require_page(page: Path) -> None:
    """Refuse a page that cannot be filled.

    Raises:
        DataError: If it cannot be read or lacks the markers.
    """
    try:
        text = read_regular(page, LARGEST_TABLE).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"--page {page} cannot be read ({reason(error)}): give a page in Markdown") from None
    replaced(text, PART, "", page)


def rows_of(options: Options) -> list[Row]:
    """The rows, with the files of each.

    Raises:
        CheckpointError: If an entry has no label, or two labels share a folder.
    """
    sources: dict[str, list[str]] = {}
    for entry in options.agents:
        label, equals, source = entry.partition("=")
        if not equals or not label.strip() or not source or "|" in label or not label.isprintable():
            raise CheckpointError(f"--agents {entry!r}: write LABEL=FILE, for instance net=agent.safetensors")
        sources.setdefault(label.strip(), []).append(source)
    rows = []
    for label, given in sources.items():
        name = given[0]
        code = is_reference(name) and not is_shipped(name)
        if name in SCHEDULERS or code:
            if len(given) > 1:
                raise CheckpointError(
                    f"--agents {label}: {name} is not a file of an agent: it has no other runs"
                )
            rows.append(Row(label, name))
        else:
            rows.append(Row(label, LEARNED, tuple(map(agent_path, given))))
    _require_different([row.label for row in rows], "--agents")
    return rows


def scenarios_of(options: Options) -> dict[str, Scenario]:
    """The scenario of each column, under its name and with the wanted number of rounds.

    Raises:
        CollaPipeError: If there is no such column, or two have the same name.
    """
    found: dict[str, Scenario] = {}
    for name in options.columns:
        scenario = COLUMNS[name]() if name in COLUMNS else load_scenario(name)
        name = name if name in COLUMNS else scenario.name
        if name in found:
            raise ScenarioError(f"--columns names {name!r} more than once: once is enough")
        found[name] = lasting(scenario.with_overrides({"name": name}), options.rounds)
    _require_different(list(found), "--columns")
    return found


def _require_different(names: Sequence[str], option: str) -> None:
    folders = [folder_name(name) for name in (REFERENCE, *names)]
    for place, folder in enumerate(folders):
        if folder in folders[:place]:
            raise ScenarioError(f"{option}: two names would be kept in the folder {folder!r}: rename one")


def require_no_more(path: Path, rows: Sequence[Row], columns: Mapping[str, object], seeds: int) -> None:
    """Refuse to write over a table that holds more than this run makes.

    Raises:
        DataError: Names what would be lost.
    """
    if not path.exists():
        return
    try:
        lines = list(csv.DictReader(io.StringIO(read_regular(path, LARGEST_TABLE).decode("utf-8"))))
        kept = {name: {line[name] for line in lines} for name in ("row", "column")}
        episodes = max((int(line["episodes"]) for line in lines), default=0)
    except (OSError, UnicodeDecodeError, KeyError, ValueError):
        raise DataError(f"{path} was not written by this tool: choose another --out") from None
    lost = [f"row {name!r}" for name in sorted(kept["row"] - {REFERENCE} - {row.label for row in rows})]
    lost += [f"column {name!r}" for name in sorted(kept["column"] - set(columns))]
    lost += [f"{episodes} episodes"] if episodes > seeds else []
    if lost:
        raise DataError(
            f"{path} holds {', '.join(lost)}, which this run leaves out: include them, or choose "
            "another --out"
        )


def cells(
    options: Options, run: RunDirectory, rows: Sequence[Row], scenarios: Mapping[str, Scenario]
) -> list[Cell]:
    """Play what is missing; the reference's cells come first.

    Raises:
        CollaPipeError: If a row fits no column, the reference cannot play, or a file cannot be used.
    """
    misfits = {(row.label, name): row.misfit(s) for row in rows for name, s in scenarios.items()}
    for row in rows:
        reasons = [misfits[row.label, name] for name in scenarios]
        if all(reasons):
            raise CheckpointError(f"--agents {row.label} fits no column: {reasons[0]}")
    every = [Row(REFERENCE, REFERENCE), *rows]
    plans = {
        (row.label, name): EvaluationPlan(
            scenario=scenario,
            schedulers=(row.scheduler,),
            agents=row.files,
            episodes=options.episodes,
            rounds=options.rounds,
            learner="surrogate",
            folder=run / "evaluation" / folder_name(name) / folder_name(row.label),
        )
        for name, scenario in scenarios.items()
        for row in every
        if not misfits.get((row.label, name))
    }
    outcomes = dict(
        zip(plans, evaluate_all(list(plans.values()), options.processes, tolerant=True), strict=True)
    )
    for name in scenarios:
        for why in outcomes[REFERENCE, name].impossible.values():
            raise ScenarioError(f"column {name}: {REFERENCE} cannot play it: {why}")
    return [
        _cell(
            row.label,
            name,
            outcomes[REFERENCE, name],
            outcomes.get((row.label, name)),
            misfits,
            own.dynamics.rounds,
        )
        for row in every
        for name, own in scenarios.items()
    ]


def _cell(
    label: str,
    column: str,
    reference: Outcome,
    outcome: Outcome | None,
    misfits: Mapping[tuple[str, str], str | None],
    own_rounds: int,
) -> Cell:
    if outcome is None or outcome.impossible:
        reasons = [misfits[label, column]] if outcome is None else outcome.impossible.values()
        return Cell(label, column, None, next(iter(reasons)) or "")
    (base,), (played,) = reference.results.values(), outcome.results.values()
    both = {REFERENCE: base} if label == REFERENCE else {REFERENCE: base, label: played}
    summary = summarise_all(both, float("nan"), REFERENCE, own_rounds)[-1]
    return Cell(label, column, Summary(summary, scheduler=label))


def matrix_csv(found: Sequence[Cell], seeds: int) -> str:
    """A line for each cell; empty where there is no number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "column", "episodes", *FIGURES, "reason"])
    for one in found:
        summary = one.summary
        figures = ["" if summary is None else of(summary) for of in FIGURES.values()]
        plain = ["" if value != value else value for value in figures]  # NaN is not a number
        writer.writerow([one.row, one.column, seeds, *plain, one.reason])
    return text.getvalue()


def matrix_table(found: Sequence[Cell], options: Options, command: str) -> str:
    """The table in Markdown, with the meaning of its cells, the reasons of dashes and the command."""
    columns = list(dict.fromkeys(one.column for one in found))
    labels = list(dict.fromkeys(one.row for one in found))
    at = {(one.row, one.column): one for one in found}
    heads = ["", *(f"`{name}`" if name in COLUMNS else name for name in columns)]
    lines = [[_name(label, found), *(_text(at[label, name]) for name in columns)] for label in labels]
    meanings = " ".join(f"`{name}`: {MEANINGS[name]}." for name in columns if name in MEANINGS)
    failing = any(one.summary is not None and one.summary.gate.failed for one in found)
    marked = [f"{FAILS} marks these."] if failing else []
    own_rounds = max(scenario.dynamics.rounds for scenario in scenarios_of(options).values())
    parts = [
        markdown_table(heads, lines),
        f"{counted(options.episodes, 'held-out episode')} of {options.rounds} rounds, "
        "surrogate learner. First row: priced delay of DSSRA (s). Others: priced delay relative to DSSRA's "
        "in the same episodes (%), with the 95 % bootstrap interval over episodes and, where there are "
        "several, training runs. After the semicolon: the worst node's energy relative to its budget (%), in "
        f"the worst run. {meanings}",
        " ".join([gate_note(options.rounds, own_rounds), *marked]),
        *(text for label in labels if (text := _dashes(label, found))),
        command,
    ]
    return "\n\n".join(parts) + "\n"


def _dashes(label: str, found: Sequence[Cell]) -> str:
    """Sentence on the columns in which a row has dashes, with the reason for the first."""
    missing = [one for one in found if one.row == label and one.summary is None]
    if not missing:
        return ""
    return f"{label} does not play {', '.join(one.column for one in missing)}: {missing[0].reason}"


def _name(label: str, found: Sequence[Cell]) -> str:
    runs = max((one.summary.runs for one in found if one.row == label and one.summary is not None), default=1)
    if label == REFERENCE:
        return "DSSRA (s)"
    return f"{label} ({runs} runs)" if runs > 1 else label


def _text(one: Cell) -> str:
    if one.summary is None:
        return "–"
    gate = one.summary.gate
    energy = f"{100.0 * gate.energy_excess:+.1f}{f' {FAILS}' if gate.failed else ''}"
    if one.row == REFERENCE:
        return f"{_estimate(one.summary.priced_delay, '.2f')}; {energy}"
    return f"{_estimate(one.summary.difference, '+.1f', 100.0)}; {energy}"


def _estimate(estimate: Estimate, digits: str, scale: float = 1.0) -> str:
    mean, interval = cell(estimate, digits, scale)
    return f"{mean} ({interval})" if interval else mean


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = tuple(sys.argv[1:] if arguments is None else arguments)
    call = Call("python tools/make_generalisation.py", given)
    return guarded(lambda: command(Options, _run, DESCRIPTION)(call), call)


if __name__ == "__main__":
    sys.exit(main())

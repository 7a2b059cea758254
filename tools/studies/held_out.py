"""Tables of held-out episodes that the package's comparison plays: results, matrix of generalisation.

Finished episodes are kept below ``runs/docs``. A cell's format names keys of a row of the comparison
(:class:`~collapipe_env.evaluation.statistics.Summary`); ``{difference.percent:+.1f~}`` is an estimate in per
cent with its interval.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from generated_parts import markdown_table, typed_command
from player import KEPT, Play

from collapipe_env.cli.main import main as collapipe
from collapipe_env.evaluation.agent_runs import require_runs
from collapipe_env.evaluation.gate import BELOW_LINE, gate_note
from collapipe_env.evaluation.labels import SERVER_NOTE, counted, label_of
from collapipe_env.evaluation.plan import EvaluationPlan
from collapipe_env.evaluation.runner import evaluate_all
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.evaluation.statistics import Summary, summarise_all
from collapipe_env.ground.errors import CheckpointError, CollaPipeError, DataError, ScenarioError
from collapipe_env.schedulers import LEARNED, SCHEDULERS, scheduler_names
from collapipe_env.zoo.shipped_agents import agent_path, is_shipped

PICTURES = Path(__file__).parents[2] / "docs" / "images" / "results"
PROCESSES = 2
"""Episodes that are played at once."""
REFERENCE = "dssra"
FAILS = "‡"
"""Mark behind the energy of a row that is over its energy budget."""
Entry = Mapping[str, Any]


class Estimated(NamedTuple):
    """An estimate in a format: ``.2f`` is its mean, ``.2f~`` adds the interval if it has one."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, value: Any) -> Any:
        """An estimate of the package, or of its JSON files; other values stay."""
        parts = value if isinstance(value, Mapping) else getattr(value, "_asdict", lambda: vars(value))()
        found = (parts.get(name) for name in cls._fields)
        return cls(*(math.nan if part is None else float(part) for part in found))

    @property
    def percent(self) -> Estimated:
        """A share in per cent."""
        return Estimated(*(100.0 * value for value in self))

    def __format__(self, spec: str) -> str:
        digits = spec.removesuffix("~")
        if math.isnan(self.mean):
            return "–"
        mean = format(self.mean, digits)
        if digits == spec or math.isnan(self.low):
            return mean
        return f"{mean} ({self.low:{digits}}…{self.high:{digits}})"


def shown(text: str, row: Mapping[str, Any]) -> str:
    """A cell of a row, which also has ``decision_ms``, ``memory_mb`` and ``target``, the time to the loss."""
    known = {name: Estimated.of(value) if _is_estimate(value) else value for name, value in row.items()}
    if "target}" in text:
        reached = row["time_to_target"]
        some = f"{reached['reached']} of {reached['episodes']} reached it"
        whole = reached["reached"] >= reached["episodes"]
        known["target"] = format(Estimated.of(reached["seconds"]), ".0f~") if whole else some
    ms = 1e3 * known["decision_s"].mean
    memory_mb = 1e-6 * known["peak_memory_bytes"].mean
    return text.format(**known, decision_ms=f"{ms:.2f}" if ms < 10.0 else f"{ms:.0f}", memory_mb=memory_mb)


def _is_estimate(value: Any) -> bool:
    return set(value) >= {"mean", "low", "high"} if isinstance(value, Mapping) else hasattr(value, "low")


def comparisons(entry: Entry, quick: bool) -> Iterator[tuple[dict[str, Any], str]]:
    """Play what is not finished; hand out the summary of each comparison, and its command.

    Args:
        entry: Holds ``scenarios`` with their episodes, the ``shipped`` agents, ``rounds`` and ``learner``.
        quick: Whether to play least: an episode of two rounds of three schedulers.

    Raises:
        DataError: If one fails.
    """
    names = [*scheduler_names(), *entry["shipped"]]
    names, rounds = (names[:3], 2) if quick else (names, entry["rounds"])
    for episodes in sorted(set(entry["scenarios"].values()), reverse=True):
        chosen = [name for name, of in entry["scenarios"].items() if of == episodes]
        folder = KEPT / ("quick" if quick else "comparisons") / "-".join((entry["learner"], *chosen))
        sizes = f"--episodes {1 if quick else episodes} --rounds {rounds} --learner {entry['learner']}"
        command = ["compare", "--scenarios", *chosen, "--schedulers", *names, *sizes.split()]
        typed = typed_command(["collapipe", *command])
        if collapipe([*command, "--processes", str(PROCESSES), "--out", str(folder)]):
            raise DataError(f"`{typed}` failed")
        for picture in (folder / "figures").glob("*.png"):
            target = PICTURES / picture.name
            if entry["ranked"] and not quick and target.exists():  # only what the page shows
                shutil.copyfile(picture, target)
        yield json.loads((folder / "summary.json").read_text(encoding="utf-8")), typed


def results(entry: Entry, quick: bool) -> str:
    """A table for each scenario of comparisons, with their commands."""
    played = list(comparisons(entry, quick))
    tables = [
        scenario_table(entry, one, name) for found, _ in played for name, one in found["scenarios"].items()
    ]
    summary = played[0][0]
    versions = ", ".join(f"{what} {v}" for what, v in summary["versions"].items() if what != "platform")
    commands = "\n".join(typed for _, typed in played)
    return "\n\n".join([*tables, f"```bash\n{commands}\n```", f"{versions}. Finished {summary['finished']}."])


def scenario_table(entry: Entry, found: Mapping[str, Any], name: str) -> str:
    """The table of a scenario: those over their energy budgets last, below a line if ``ranked``."""
    size = f"{counted(found['episodes'], 'held-out episode')} of {found['rounds']} rounds"
    target = found["target_loss"]
    loss = "none" if target is None else f"{target:.3f} nat"
    of_target = f"; target loss: {loss}" if entry["learner"] == "real" else ""
    rows: list[list[Any]] = []
    ranked, columns = entry["ranked"], entry["columns"]
    failed = [one["gate"]["verdict"] == "failed" for one in found["summary"]]
    order = sorted(range(len(failed)), key=failed.__getitem__) if ranked else range(len(failed))
    for place, index in enumerate(order, 1):
        one = found["summary"][index]
        if ranked and failed[index] and place == len(failed) - sum(failed) + 1:
            rows.append(["", f"*{' '.join(BELOW_LINE)}*", *[""] * len(columns)])
        rank = ["–" if failed[index] else place] if ranked else []
        who = label_of(one["title"], one["server_blocks"], one["runs"])
        rows.append([*rank, who, *(shown(text, one) for text in columns.values())])
    heads = [*(["rank"] if ranked else []), "scheduler", *columns]
    below = [SERVER_NOTE] if any(one["server_blocks"] for one in found["summary"]) else []
    if ranked:
        # Agents of the zoo that were trained for another scenario are not worth a line.
        why = [f"{who}: not possible: {w}" for who, w in found["impossible"].items() if not is_shipped(who)]
        below = [*why, gate_note(found["rounds"], found["scenario"]["dynamics"]["rounds"]), *below]
    table = markdown_table(heads, rows, left=1)
    return "\n\n".join([f"### `{name}`", f"{size}{of_target}.", table, *below])


def stated(entry: Entry, quick: bool) -> str:
    """DSSRA against the systems that the paper names, in each scenario of a comparison."""
    from docs import entries

    rows = []
    played = comparisons(entries()[entry["of"]], quick)
    for name, found in (one for summary, _ in played for one in summary["scenarios"].items()):
        by_name, cells = {one["scheduler"]: one for one in found["summary"]}, [f"`{name}`"]
        for other, what, power, digits in (
            ("pipeline", "delay_mean", 1, "+.1f"),
            ("titanic", "delay_mean", 1, "+.1f"),
            ("vanilla_fl", "delay_mean", 1, "+.1f"),
            ("vanilla_fl", "delay_mean", -1, "+.0f"),  # samples per second
            ("vanilla_fl", "peak_memory_bytes", 1, "+.0f"),
        ):
            if other in by_name:
                ratio = by_name[REFERENCE][what]["mean"] / by_name[other][what]["mean"]
                cells.append(f"{100.0 * (ratio**power - 1.0):{digits}} %")
            else:
                cells.append("not possible")
        rows.append(cells)
    heads = ("scenario", "delay against PipeLine (even split)", "against TITANIC", "against VanillaFL")
    more = ("samples per second against VanillaFL", "most memory of a device against VanillaFL")
    return markdown_table((*heads, *more), rows)


class Row(NamedTuple):
    """A row of the matrix: its label, the scheduler's name, and the files of its training runs."""

    label: str
    scheduler: str
    files: tuple[Path, ...]

    def misfit(self, play: Play) -> str:
        """Reason why it cannot play a scenario; empty if it can."""
        try:
            if self.files:
                require_runs(self.label, self.files, play.scenario())
            else:
                make_scheduler(self.scheduler, play.scenario())
        except CollaPipeError as error:
            return str(error)
        return ""


def rows_of(agents: Mapping[str, Sequence[str]]) -> Iterator[Row]:
    """DSSRA and the rows of an entry: files or agents of the zoo, which are runs; or a scheduler's name."""
    yield Row(REFERENCE, REFERENCE, ())
    for label, given in agents.items():
        plain = given[0] in SCHEDULERS
        yield Row(label, given[0] if plain else LEARNED, () if plain else tuple(map(agent_path, given)))


def matrix(entry: Entry, quick: bool) -> str:
    """The matrix of agents on systems that they may never have seen.

    A cell is the mean priced delay over DSSRA's in the same episodes, less 1, with its interval over runs and
    episodes, and the worst node's energy over its budget. All rows and columns are shown, even where an agent
    loses; an agent that does not fit a size has a dash there.

    Raises:
        CheckpointError: If a row fits no column, as where its files are missing.
        ScenarioError: If DSSRA cannot play a column.
    """
    names = list(entry["columns"])[: 2 if quick else None]
    episodes, rounds = (1, 2) if quick else (entry["episodes"], entry["rounds"])
    columns = {}
    for name in names:
        of = entry["columns"][name]
        columns[name] = Play(of.get("base", name), {**of.get("with", {}), "name": name}, rounds=rounds)
    rows = list(rows_of(entry["agents"]))
    misfits = {(row.label, name): row.misfit(play) for row in rows for name, play in columns.items()}
    for row in rows:
        if all(reasons := [misfits[row.label, name] for name in columns]):
            raise CheckpointError(f"{row.label} fits no column: {reasons[0]}")
    folder = KEPT / ("quick" if quick else "generalisation")
    plans = {
        (row.label, name): EvaluationPlan(
            scenario=play.scenario(),
            schedulers=(row.scheduler,),
            agents=row.files,
            episodes=episodes,
            rounds=rounds,
            learner="surrogate",
            folder=folder / name / row.label.replace(" ", "-"),
        )
        for name, play in columns.items()
        for row in rows
        if not misfits[row.label, name]
    }
    played = dict(zip(plans, evaluate_all(list(plans.values()), PROCESSES, tolerant=True), strict=True))
    own = {name: Play(play.base, play.changes).scenario().dynamics.rounds for name, play in columns.items()}
    cells: dict[tuple[str, str], Summary] = {}
    for (label, name), outcome in played.items():
        for why in outcome.impossible.values():
            if label == REFERENCE:
                raise ScenarioError(f"column {name}: {REFERENCE} cannot play it: {why}")
            misfits[label, name] = why
        if outcome.results:
            (base,), (found,) = played[REFERENCE, name].results.values(), outcome.results.values()
            both = {REFERENCE: base, label: found}
            cells[label, name] = summarise_all(both, float("nan"), REFERENCE, own[name])[-1]
    body = []
    for row in rows:
        runs = f" ({len(row.files)} runs)" if len(row.files) > 1 else ""
        title = "DSSRA (s)" if row.label == REFERENCE else f"{row.label}{runs}"
        body.append([title, *(_cell(cells.get((row.label, name)), row.label) for name in names)])
    marked = f" {FAILS} marks these." if any(one.gate.failed for one in cells.values()) else ""
    meanings = [f"`{name}`: {text}." for name, text in entry.get("meanings", {}).items() if name in names]
    dashes = []
    for row in rows:
        missing = [name for name in names if misfits[row.label, name]]
        if missing:
            why = misfits[row.label, missing[0]]
            dashes.append(f"{row.label} does not play {', '.join(missing)}: {why}")
    about = (
        f"{counted(episodes, 'held-out episode')} of {rounds} rounds, surrogate learner. First row: priced "
        "delay of DSSRA (s). Others: priced delay relative to DSSRA's in the same episodes (%), with the "
        "95 % bootstrap interval over episodes and, where there are several, training runs. After the "
        "semicolon: the worst node's energy relative to its budget (%), in the worst run."
    )
    table = markdown_table(["", *(f"`{name}`" for name in names)], body)
    notes = [" ".join([about, *meanings]), gate_note(rounds, max(own.values())) + marked, *dashes]
    return "\n\n".join([table, *notes])


def _cell(found: Summary | None, label: str) -> str:
    if found is None:
        return "–"
    mark = f" {FAILS}" if found.gate.failed else ""
    text = "{priced_delay:.2f~}" if label == REFERENCE else "{difference.percent:+.1f~}"
    return f"{shown(text, found)}; {100.0 * found.gate.energy_excess:+.1f}{mark}"

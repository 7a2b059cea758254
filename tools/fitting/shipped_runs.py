"""Held-out runs, shipped beside the fits, so that the fits' errors can be recomputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collapipe_env.ground.errors import DataError
from collapipe_env.ground.files import read_json, write_json
from collapipe_env.learners.surrogate_fits import REMEDY, fits_file
from collapipe_env.scenario import load_scenario
from fitting.conditions import Condition
from fitting.least_squares import before_overfitting
from fitting.real_runs import Run, run_of

ABOUT = (
    "Real losses of the runs that the surrogate's fits were tested with, in nats: of the untrained model, "
    "then after every second round. Condition and seed decide which micro-batches arrived."
)


@dataclass(frozen=True)
class HeldOutRuns:
    """The held-out runs of one fit.

    Attributes:
        scenario: Name of the scenario, or path of its file.
        task: Name of the task.
        rounds: Length of the runs.
        runs: The runs; those read from a file are cut where overfitting begins, unless it is read whole.
    """

    scenario: str
    task: str
    rounds: int
    runs: Sequence[Run]


def held_out_file(fits: Path | None = None) -> Path:
    """The file of held-out runs beside a file of fits; beside the shipped one by default."""
    return (fits_file() if fits is None else fits).with_name("surrogate_runs.json")


def write_held_out(path: Path, key: str, held_out: HeldOutRuns) -> None:
    """Write the runs of a fit, by its key ``"<scenario>/<task>"``, into a file that keeps those of others.

    Raises:
        DataError: If the file is damaged or cannot be written.
    """
    entries = dict(_entries(path)) if path.exists() else {}
    entries[key] = {
        "scenario": held_out.scenario,
        "task": held_out.task,
        "rounds": held_out.rounds,
        "runs": [
            {
                "condition": asdict(run.condition),
                "seed": run.seed,
                # One line of text instead of a line for each number.
                "losses": " ".join(f"{loss:.4f}" for loss in run.losses),
            }
            for run in held_out.runs
        ],
    }
    write_json(path, {"about": ABOUT, "fits": dict(sorted(entries.items()))}, "--output")


def read_held_out(path: Path, *, whole: bool = False) -> dict[str, HeldOutRuns]:
    """The runs in a file, by the keys of their fits; ``whole`` ones are not cut where overfitting begins.

    Raises:
        DataError: If the file is damaged.
        ScenarioError: If it names a scenario that does not exist.
    """
    found = {}
    for key, entry in _entries(path).items():
        place = f"{path}: {key!r}"
        try:
            source, task, rounds = str(entry["scenario"]), str(entry["task"]), int(entry["rounds"])
            stored = [
                (dict(run["condition"]), int(run["seed"]), [float(loss) for loss in run["losses"].split()])
                for run in entry["runs"]
            ]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{place} is damaged ({error!r}); {REMEDY}") from None
        scenario = load_scenario(source).with_task(task)
        runs = [
            run_of(scenario, Condition.from_dict(condition, place), seed, rounds, losses)
            for condition, seed, losses in stored
        ]
        found[key] = HeldOutRuns(source, task, rounds, runs if whole else before_overfitting(runs))
    return found


def _entries(path: Path) -> Mapping[str, Any]:
    entries = read_json(path, REMEDY).get("fits")
    if not isinstance(entries, Mapping):
        raise DataError(f"{path} holds no runs; {REMEDY}")
    return entries

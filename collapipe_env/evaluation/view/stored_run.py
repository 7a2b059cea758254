"""Finished runs, read from their folders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collapipe_env.evaluation.episode_files import EpisodeFiles
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.run_directory import RunDirectory, folder_name
from collapipe_env.ground.errors import CollaPipeError, DataError, nearest_name, reason, shortened, shown
from collapipe_env.ground.files import read_json, without_nan
from collapipe_env.scenario import Scenario, load_scenario

AGAIN = "run its command again, which continues from there"
"""Remedy for a run that is not finished or has lost files."""
OTHERS = ("leaderboard", "calibration", "tuning", "execution")
"""Kinds of runs without episodes."""
REPORT_BYTES = 4 * 1024**3
"""Largest report that is read: some 220 bytes a round, and there may be millions of rounds."""
BUDGETS = {"failed": "over budget", "passed": "within", "too short": "filling"}
"""Words for the verdicts on energy budgets."""


@dataclass(frozen=True)
class StoredScenario:
    """Everything that a run played on one scenario.

    Attributes:
        scenario: The scenario as it was played.
        file: Its file.
        folder: Folder of its episodes.
        rounds: Rounds of an episode.
        results: Each scheduler's episodes, run by run.
        budgets: How each scheduler keeps to its energy budgets, in a word of :data:`BUDGETS`.
    """

    scenario: Scenario
    file: Path
    folder: Path
    rounds: int
    results: Mapping[str, Sequence[EpisodeResult]]
    budgets: Mapping[str, str]


@dataclass(frozen=True)
class StoredRun:
    """A finished run.

    Attributes:
        path: Its folder.
        report: Content of its ``summary.json`` or ``results.json``.
        scenarios: The played scenarios by name.
        validations: Rows of a table of the validations of the agent that was trained there; may be none.
    """

    path: Path
    report: Mapping[str, Any]
    scenarios: Mapping[str, StoredScenario]
    validations: Sequence[Mapping[str, Any]]

    def chosen(
        self, scenario: str | None, schedulers: Iterable[str], episode: int
    ) -> tuple[StoredScenario, list[EpisodeResult]]:
        """A scenario and an episode of some schedulers, each of the first training run.

        Args:
            scenario: Its name; the first by default.
            schedulers: Their names; none for all, the reference first.
            episode: Number of the episode, from 0.

        Raises:
            DataError: If one of them was not played.
        """
        if not self.scenarios:
            raise DataError(f"{self.path} holds no finished episodes: {AGAIN}")
        if scenario is not None and scenario not in self.scenarios:
            near = nearest_name(scenario, tuple(self.scenarios))
            raise DataError(f"scenario {shown(scenario, 80)} is not in {self.path}: {near}")
        stored = self.scenarios[scenario or next(iter(self.scenarios))]
        first, found = (self.report.get("reference"), "agent"), []
        names = sorted(stored.results, key=lambda name: tuple(name != one for one in first))
        for name in dict.fromkeys(schedulers) or names:
            if name not in stored.results:
                near = nearest_name(name, tuple(stored.results))
                where = f"{stored.scenario.name!r} in this run"
                raise DataError(f"scheduler {shown(name, 80)} did not play {where}: {near}")
            played = {e.episode: e for e in stored.results[name] if e.run == 0}
            if not played:
                raise DataError(f"{name!r} has no finished episodes in {self.path}: {AGAIN}")
            if episode not in played:
                some = f"use a number from 0 to {max(played)}"
                raise DataError(f"episode {episode} was not played by {name!r}: {some}")
            found.append(played[episode])
        return stored, found


def read_run(path: Path) -> StoredRun:
    """Read a finished run of ``train``, ``evaluate``, ``compare`` or :func:`collapipe_env.evaluate`.

    Raises:
        DataError: If there is no such run, it is not finished, or a file is missing or damaged.
    """
    run = RunDirectory(path, out_option="RUN")
    if not (run / "run.json").is_file():
        what = "not a run's folder (it has no run.json)" if run.path.is_dir() else "no folder"
        raise DataError(
            f"{shortened(str(run.path), 100)} is {what}: give the folder of a run, which collapipe train, "
            "evaluate and compare print at their end"
        )
    kind = read_json(run / "run.json", AGAIN).get("kind")
    if kind in OTHERS:
        raise DataError(
            f"{run.path} is a run of {kind}, of which collapipe view makes no page: see {kind}.json and the "
            "files beside it"
        )
    file = run / ("summary.json" if kind == "comparison" else "results.json")
    if not file.is_file():
        raise DataError(f"the run in {run.path} is not finished ({file.name} is missing): {AGAIN}")
    report = read_json(file, AGAIN, REPORT_BYTES)
    try:
        if kind == "comparison":
            scenarios = [_compared(run, name, part) for name, part in report["scenarios"].items()]
        else:
            scenarios = [_evaluated(run, report)]
        validations = [
            {
                "steps": int(score["steps"]),
                "priced delay (s)": score["priced_delay"],
                "delay (s)": score["mean_delay"],
                "over budget (%)": 100.0 * (score["energy_ratio"] - 1.0),
            }
            for score in report.get("training") or ()
        ]
    except CollaPipeError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else reason(error)
        what = f"damaged or of an older version ({shortened(what, 80)})"
        raise DataError(f"{file} is {what}: {AGAIN}") from None
    return StoredRun(run.path, report, {one.scenario.name: one for one in scenarios}, validations)


def _compared(run: RunDirectory, name: str, part: Mapping[str, Any]) -> StoredScenario:
    """One scenario of a comparison, whose report has the numbers of runs and episodes."""
    played = [
        (line["scheduler"], number, episode)
        for line in part["summary"]
        for number in range(line["runs"])
        for episode in range(part["episodes"])
    ]
    place = folder_name(name)
    file, folder = run / "scenarios" / f"{place}.yaml", run / "evaluation" / place
    return _stored(file, folder, part["summary"], played, part["rounds"])


def _evaluated(run: RunDirectory, report: Mapping[str, Any]) -> StoredScenario:
    """The only scenario of another run, whose report has all episodes."""
    episodes = [e for some in report["episodes"].values() for e in some]
    played = [(e["scheduler"], e["run"], e["episode"]) for e in episodes]
    rounds, (scheduler, number, episode) = len(episodes[0]["delay"]), played[0]
    # Other learners may have played there, too.
    for folder in sorted((run / "evaluation").glob(f"*-{rounds}")):
        first = EpisodeFiles(folder, scheduler, episode, number)
        if first.path.exists() and without_nan(first.read().to_dict()) == episodes[0]:
            return _stored(run / "scenario.yaml", folder, report["summary"], played, rounds)
    raise DataError(f"{run / 'evaluation'}/*-{rounds}, the folder of the episodes, is missing: {AGAIN}")


def _stored(
    file: Path, folder: Path, summary: Iterable[Any], played: Iterable[tuple[str, int, int]], rounds: int
) -> StoredScenario:
    """Read the scenario and the episodes, each scheduler, run and number of ``played``."""
    if not file.is_file():
        raise DataError(f"{file} is missing: {AGAIN}")
    titles, budgets = {}, {}
    for line in summary:
        titles[line["scheduler"]] = str(line["title"])
        budgets[line["scheduler"]] = BUDGETS[line["gate"]["verdict"]]
    results: dict[str, list[EpisodeResult]] = {name: [] for name in titles}
    for scheduler, number, episode in played:
        files = EpisodeFiles(folder, scheduler, episode, number)
        read = files.read()
        if len(read.delay) != rounds:
            raise DataError(f"{files.path} has {len(read.delay)} rounds, not {rounds}: {AGAIN}")
        results[scheduler].append(replace(read, title=titles[scheduler]))
    return StoredScenario(lasting(load_scenario(str(file)), rounds), file, folder, rounds, results, budgets)

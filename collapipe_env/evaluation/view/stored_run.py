"""Finished runs, read from their folders."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collapipe_env.evaluation.episode_files import EpisodeFiles
from collapipe_env.evaluation.episode_result import EpisodeResult
from collapipe_env.evaluation.raw_results import text_of
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.run_directory import RunDirectory, folder_name
from collapipe_env.ground.errors import DataError, nearest_name, shortened, shown
from collapipe_env.ground.files import read_json, read_regular
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario, load_scenario

AGAIN = "run its command again, which continues from there"
"""Remedy for a run that is not finished or has lost files."""
Line = tuple[str, int, int, int]
"""Scheduler, run, episode and rounds of a line of the table of episodes."""
_TABLE_BYTES = 256 * 1024**2
"""Largest table of episodes that is read; a line has some 200 bytes."""
_REPORT_BYTES = 4 * 1024**3
"""Largest report that is read: some 220 bytes a round, and there may be millions of rounds."""
_OTHER_REPORTS = {
    "leaderboard": "the results of collapipe leaderboard run are leaderboard.json and table.md there",
    "calibration": "its report is calibration.json, and the scenario of the machine is profile.yaml",
    "tuning": "its report is tuning.json, and its best scalars can be played with collapipe evaluate",
    "execution": "its operations are in trace.json, which trace viewers such as ui.perfetto.dev show",
}
"""Kinds of runs without episodes, and the places of their reports."""


@dataclass(frozen=True)
class StoredScenario:
    """Everything that a run played on one scenario.

    Attributes:
        scenario: The scenario as it was played.
        file: Its file.
        folder: Folder of its episodes.
        rounds: Rounds of an episode.
        results: Each scheduler's episodes, run by run, in the order of the table.
    """

    scenario: Scenario
    file: Path
    folder: Path
    rounds: int
    results: Mapping[str, Sequence[EpisodeResult]]

    def result(self, scheduler: str, episode: int) -> EpisodeResult:
        """An episode of a scheduler, of its first training run.

        Args:
            scheduler: Requested name of the scheduler.
            episode: Number of the episode, from 0.

        Raises:
            DataError: If the scheduler did not play, or did not play that episode.
        """
        if scheduler not in self.results:
            raise DataError(
                f"scheduler {shown(scheduler, 80)} did not play {self.scenario.name!r} in this run: "
                f"{nearest_name(scheduler, tuple(self.results))}"
            )
        found = [r for r in self.results[scheduler] if r.episode == episode and r.run == 0]
        if not found:
            last = max(r.episode for r in self.results[scheduler])
            raise DataError(
                f"episode {episode} was not played by {scheduler!r}: use a number from 0 to {last}"
            )
        return found[0]

    def decisions(self, result: EpisodeResult) -> list[Allocation]:
        """The decisions of an episode, one for each round.

        Raises:
            DataError: If their file is missing or damaged.
        """
        files = EpisodeFiles(self.folder, result.scheduler, result.episode, result.run)
        return files.read_decisions(self.scenario, self.rounds)


@dataclass(frozen=True)
class StoredRun:
    """A finished run.

    Attributes:
        path: Its folder.
        command: The command that made it; empty for an evaluation in Python.
        finished: Time of its end, in words.
        reference: Scheduler with which the others are compared; empty where there is none.
        scenarios: The played scenarios by name.
        history: Validations of the agent that was trained there; may be empty.
    """

    path: Path
    command: str
    finished: str
    reference: str
    scenarios: Mapping[str, StoredScenario]
    history: Sequence[Mapping[str, float]] = ()

    def scenario(self, name: str | None) -> StoredScenario:
        """One of its scenarios, the first by default.

        Args:
            name: Name of the scenario, or ``None``.

        Raises:
            DataError: If it was not played.
        """
        if name is None:
            return next(iter(self.scenarios.values()))
        if name not in self.scenarios:
            raise DataError(
                f"scenario {shown(name, 80)} is not in {self.path}: "
                f"{nearest_name(name, tuple(self.scenarios))}"
            )
        return self.scenarios[name]


def read_run(path: Path) -> StoredRun:
    """Read a finished run of ``train``, ``evaluate``, ``compare`` or :func:`collapipe_env.evaluate`.

    Args:
        path: Folder of the run.

    Raises:
        DataError: If there is no such run, it is not finished, or a file is missing or damaged.
    """
    run = RunDirectory(path, out_option="RUN")
    about = _request(run)
    kind = about.get("kind")
    if kind is not None and not isinstance(kind, str):
        raise DataError(f"{run / 'run.json'}: kind = {shown(kind, 80)} is not text: {AGAIN}")
    if kind in _OTHER_REPORTS:
        raise DataError(
            f"{run.path} is a run of {kind}, of which collapipe view makes no page: {_OTHER_REPORTS[kind]}"
        )
    several = kind == "comparison"
    report = run / "summary.json" if several else run / "results.json"
    listed = run / "episodes.csv"
    missing = [file.name for file in (report, listed) if not os.path.isfile(file)]
    if missing:
        raise DataError(f"the run in {run.path} is not finished ({missing[0]} is missing): {AGAIN}")
    content = read_json(report, AGAIN, _REPORT_BYTES)
    learner = _learner(about, content)
    table = _episode_lines(listed)
    reported = _reported(content, several, report, next(iter(table)))
    for name in dict.fromkeys([*reported, *table]):
        _require_same_episodes(listed, table.get(name, []), report, reported.get(name, []), name)
    scenarios = {}
    for name, lines in table.items():
        rounds = lines[0][3]
        file = run / "scenarios" / f"{folder_name(name)}.yaml" if several else run / "scenario.yaml"
        if not os.path.isfile(file):
            raise DataError(f"{file} is missing: {AGAIN}")
        folder = run / "evaluation" / folder_name(name) if several else _folder(run, learner, rounds)
        results: dict[str, list[EpisodeResult]] = {}
        titles = _titles(content, name if several else None)
        for scheduler, number, episode, length in lines:
            files = EpisodeFiles(folder, scheduler, episode, number)
            read = files.read()
            if len(read.delay) != length or length != rounds:
                raise DataError(f"{files.path} has {len(read.delay)} rounds, but {listed} {length}: {AGAIN}")
            results.setdefault(scheduler, []).append(replace(read, title=titles.get(scheduler, read.title)))
        scenario = lasting(load_scenario(str(file)), rounds)
        scenarios[name] = StoredScenario(scenario, file, folder, rounds, results)
    return StoredRun(
        path=run.path,
        command=_text(content, "command"),
        finished=_text(content, "finished"),
        reference=_text(content, "reference"),
        scenarios=scenarios,
        history=_history(content.get("training")),
    )


def _request(run: RunDirectory) -> dict[str, Any]:
    """Content of the ``run.json`` of a run's folder."""
    place = shortened(str(run.path), 100)
    if not os.path.isdir(run.path):
        raise DataError(
            f"there is no folder {place}: give the folder of a run, which collapipe train, evaluate and "
            "compare print at their end"
        )
    if not os.path.isfile(run / "run.json"):
        raise DataError(
            f"{place} is not a run's folder (it has no run.json): give the one that collapipe train, "
            "evaluate or compare printed"
        )
    return read_json(run / "run.json", AGAIN)


def _learner(about: Mapping[str, Any], content: Mapping[str, Any]) -> str | None:
    """Name of the learner of an evaluation; ``None`` where the report does not say."""
    options = content.get("options")
    for part in ("play", "evaluation"):
        if isinstance(options, Mapping) and isinstance(options.get(part), Mapping):
            options = {**options, **options[part]}
    found = options.get("learner") if isinstance(options, Mapping) else about.get("learner")
    return found if isinstance(found, str) and ":" not in found else None


def _folder(run: RunDirectory, learner: str | None, rounds: int) -> Path:
    """Folder of the episodes of a single scenario."""
    if learner is not None and os.path.isdir(folder := run.episodes_of(learner, rounds)):
        return folder
    found = sorted((run / "evaluation").glob(f"*-{rounds}"))
    if len(found) != 1:
        what = "is missing" if not found else "is there for several learners"
        raise DataError(f"{run / 'evaluation'}/*-{rounds}, the folder of the episodes, {what}: {AGAIN}")
    return found[0]


def _episode_lines(path: Path) -> dict[str, list[Line]]:
    """Scheduler, run, episode and rounds of each line of the table of episodes, by scenario."""
    found: dict[str, list[Line]] = {}
    try:
        text = read_regular(path, _TABLE_BYTES).decode("utf-8")
        reader = csv.DictReader(io.StringIO(text))
        for line in reader:
            if None in line or None in line.values():
                raise ValueError(f"line {reader.line_num} has not as many entries as the first")
            whole = (int(line["run"]), int(line["episode"]), int(line["rounds"]))
            if min(whole) < 0 or not whole[2]:
                raise ValueError(f"line {reader.line_num} has a number out of range")
            found.setdefault(text_of(line["scenario"]), []).append((text_of(line["scheduler"]), *whole))
        if not text.endswith("\n"):
            raise ValueError("its last line is cut short")
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}): {AGAIN}") from None
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise DataError(f"{path} is damaged ({shortened(str(error), 80)}): {AGAIN}") from None
    if not found:
        raise DataError(f"{path} holds no episodes: {AGAIN}")
    return found


def _reported(content: Mapping[str, Any], several: bool, report: Path, only: str) -> dict[str, list[Line]]:
    """The lines that the table of episodes must have, by scenario.

    Args:
        content: Content of the report.
        several: Whether the report is of a comparison, with only numbers of episodes; others hold episodes.
        report: File of the report, for errors.
        only: Name of the scenario, where there is only one.
    """
    try:
        if several:
            return {
                name: [
                    (str(line["scheduler"]), number, episode, int(one["rounds"]))
                    for line in one["summary"]
                    for number in range(int(line["runs"]))
                    for episode in range(int(one["episodes"]))
                ]
                for name, one in content["scenarios"].items()
            }
        return {
            only: [
                (name, int(e["run"]), int(e["episode"]), len(e["delay"]))
                for name, episodes in content["episodes"].items()
                for e in episodes
            ]
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DataError(
            f"{report} is damaged or of an older version ({shortened(what, 80)}): {AGAIN}"
        ) from None


def _require_same_episodes(
    table: Path, lines: Sequence[Line], report: Path, reported: Sequence[Line], scenario: str
) -> None:
    """Refuse a table of episodes with missing or repeated lines, or with others than the report's."""
    there, wanted = Counter(lines), Counter(reported)
    if there == wanted:
        return
    scheduler, number, episode, rounds = next(iter([*(wanted - there), *(there - wanted)]))
    run = f" of run {number}" if number else ""
    which = f"episode {episode}{run} of {shown(scheduler, 80)} on {shown(scenario, 80)} with {rounds} rounds"
    times = there[scheduler, number, episode, rounds]
    raise DataError(
        f"{table} does not fit {report.name}: {which} appears {times} times, not "
        f"{wanted[scheduler, number, episode, rounds]} (one of them is damaged): {AGAIN}"
    )


def _titles(content: Mapping[str, Any], scenario: str | None) -> dict[str, str]:
    """Titles of the schedulers, as in the run's tables."""
    if scenario is not None:
        scenarios = content.get("scenarios")
        content = scenarios.get(scenario, {}) if isinstance(scenarios, Mapping) else {}
    summary = content.get("summary") if isinstance(content, Mapping) else None
    return {
        line["scheduler"]: line["title"]
        for line in (summary if isinstance(summary, list) else ())
        if isinstance(line, Mapping)
        and isinstance(line.get("title"), str)
        and isinstance(line.get("scheduler"), str)
    }


def _text(content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    return value if isinstance(value, str) else ""


def _history(value: Any) -> list[dict[str, float]]:
    """Validations of a training, without malformed ones."""
    wanted = ("steps", "priced_delay", "mean_delay", "energy_ratio")
    return [
        {name: float(score[name]) for name in wanted}
        for score in (value if isinstance(value, list) else ())
        if isinstance(score, Mapping) and all(isinstance(score.get(name), int | float) for name in wanted)
    ]

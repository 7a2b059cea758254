"""``collapipe compare``: any schedulers x scenarios x seeds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from collapipe_env.cli.common import (
    DATASET_OPTION,
    LEARNER_OPTION,
    SCHEDULERS_HELP,
    TASK_OPTION,
    chosen_scenario,
    command_line,
    default_processes,
    file_digest,
    folder_name,
    guarded,
    hint,
    parse,
    record,
    require_data,
    require_schedulers,
    require_within,
    with_present_values,
)
from collapipe_env.errors import CheckpointError, ScenarioError, nearest_name
from collapipe_env.evaluation.own_names import registered_name
from collapipe_env.evaluation.provenance import note_versions, versions
from collapipe_env.evaluation.rounds import LARGEST_ROUNDS, lasting
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.evaluation.scheduler_loading import load_scheduler
from collapipe_env.files import write_text
from collapipe_env.learners.factory import LEARNERS
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.loading import scenario_digest
from collapipe_env.schedulers import LEARNED, scheduler_names

DESCRIPTION = """Compare any schedulers on any scenarios: tables, raw numbers and figures.

In each scenario all schedulers play the same held-out episodes, with the same channels, loads and data, and
differences are taken episode by episode. A scheduler that cannot play a scenario is reported, and the rest
goes on. Ctrl-C keeps the work done, as does SIGTERM; the same command goes on from there, and more scenarios,
schedulers or seeds are added to the same folder.

Examples:
  collapipe compare --scenarios small medium
  collapipe compare --schedulers dssra pipeline titanic --seeds 20 --rounds 500
  collapipe compare --agents medium=runs/medium-ppo-seed0/checkpoints/best.zip
"""


@dataclass(frozen=True)
class Options:
    """All options."""

    scenarios: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME|FILE ...")] = ("small", "medium")
    """Shipped scenarios (small, medium, large, xlarge; bert-small, bert-base,
    transformer-base) or YAML files."""
    task: Annotated[str | None, TASK_OPTION] = None
    dataset: Annotated[str | None, DATASET_OPTION] = None
    schedulers: Annotated[
        tuple[str, ...] | None,
        tyro.conf.arg(metavar="NAME ...", help=f"Who is compared: {SCHEDULERS_HELP}"),
        hint("default: all, and agent where --agents gives one"),
    ] = None
    agents: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SCENARIO=FILE ..."), hint("default: none")] = ()
    """Saved agents, at most one for each scenario; they play as 'agent'."""
    reference: Annotated[
        str | None, tyro.conf.arg(metavar="NAME"), hint("default: dssra, or the first scheduler")
    ] = None
    """Scheduler that the others are held against."""
    seeds: int = 10
    """Held-out episodes of each scheduler in each scenario; the same ones for all."""
    rounds: Annotated[int | None, tyro.conf.arg(metavar="INT"), hint("default: each scenario's")] = None
    """Rounds of an episode; may be more than the scenario's."""
    learner: Annotated[str, LEARNER_OPTION] = "surrogate"
    processes: Annotated[
        int | None, tyro.conf.arg(metavar="INT"), hint("default: 2, or 1 on a single core")
    ] = None
    """Episodes played at once, each in a process."""
    threads: int = 1
    """Threads of PyTorch, in each process."""
    out: Annotated[
        Path | None, tyro.conf.arg(metavar="FOLDER"), hint("default: runs/compare-<scenarios>")
    ] = None
    """One folder for episodes, tables, raw numbers and figures."""
    fresh: bool = False
    """Start over in that folder instead of going on where it stopped."""
    no_figures: bool = False
    """Leave the pictures out."""
    gantt: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="NAME ..."),
        hint("default: the reference, the agent and the three with the shortest delay"),
    ] = ()
    """Schedulers whose typical rounds are drawn side by side."""

    @property
    def names(self) -> tuple[str, ...]:
        """The schedulers without learned agents."""
        asked = scheduler_names() if self.schedulers is None else self.schedulers
        return tuple(name for name in asked if name != LEARNED)

    @property
    def workers(self) -> int:
        """Worker processes."""
        return default_processes() if self.processes is None else self.processes

    @property
    def held_against(self) -> str:
        """Name of the reference scheduler."""
        if self.reference is not None:
            return self.reference
        return "dssra" if "dssra" in self.names else (*self.names, LEARNED)[0]

    def check(self) -> None:
        """Refuse values out of range and combinations that make no sense.

        Raises:
            CollaPipeError: Names the option, its value and what is possible.
        """
        if not self.scenarios:
            raise ScenarioError("--scenarios is empty: name at least one, for instance medium")
        require_within(
            ("--seeds", self.seeds, 1, 100_000),
            ("--rounds", 1 if self.rounds is None else self.rounds, 1, LARGEST_ROUNDS),
            ("--processes", self.workers, 1, 1024),
            ("--threads", self.threads, 1, 1024),
        )
        asked = self.names if self.schedulers is None else self.schedulers
        require_schedulers(asked)
        if LEARNED in asked and not self.agents:
            raise CheckpointError(
                f"--schedulers names {LEARNED!r}: give its file with --agents SCENARIO=FILE"
            )
        playing = (*self.names, *([LEARNED] if self.agents else []))
        for option, names in (("--reference", (self.held_against,)), ("--gantt", self.gantt)):
            for name in names:
                if name not in playing:
                    raise ScenarioError(
                        f"{option} {name!r} does not play: add it to --schedulers, or name one of "
                        f"{', '.join(playing)}"
                    )


def main(arguments: Sequence[str] | None = None, *, program: str = "collapipe compare") -> int:
    """Run the command line.

    Args:
        arguments: Without the program's name; those of this process by default.
        program: How the user calls this.

    Returns:
        The exit status: 0, 2 for bad input, 130 after Ctrl-C, 143 after SIGTERM.
    """
    given = with_present_values(sys.argv[1:] if arguments is None else arguments, "--learner")
    options = parse(Options, program, DESCRIPTION, given)
    return guarded(lambda: _run(options, program, given), program, given)


def _run(options: Options, program: str, given: Sequence[str]) -> None:
    options.check()
    scenarios = _scenarios(options)
    agents = _agents(options, scenarios)
    learner = registered_name(LEARNERS, options.learner)
    if learner == "real":
        for scenario in scenarios.values():
            require_data(scenario)

    from collapipe_env.evaluation.comparison import summarise_scenario
    from collapipe_env.evaluation.comparison_report import write_comparison
    from collapipe_env.evaluation.runner import EvaluationPlan, evaluate_all

    default = Path("runs") / f"compare-{'-'.join(map(folder_name, scenarios))}"
    run = RunDirectory(options.out or default)
    # What may differ from one run in a folder to the next is not listed: it is added to what is there.
    asked = {"kind": "comparison", "rounds": options.rounds, "learner": learner}
    plans = [
        EvaluationPlan(
            scenario=scenario,
            schedulers=(*([LEARNED] if name in agents else []), *options.names),
            agent=agents.get(name),
            episodes=options.seeds,
            rounds=options.rounds or scenario.dynamics.rounds,
            learner=learner,
            folder=run.episodes / folder_name(name),
            own_learner=None if learner == options.learner else options.learner,
            threads=options.threads,
        )
        for name, scenario in scenarios.items()
    ]
    with run.locked(command_line(program, given)):
        continued = run.open(asked, fresh=options.fresh)
        print(f"{'going on in' if continued else 'writing to'} {run.path}")
        note_versions(run, versions())
        for name, scenario in scenarios.items():
            write_text(run.scenarios / f"{folder_name(name)}.yaml", scenario.to_yaml())
        count = len(options.names) + bool(agents)
        rounds = sum(plan.rounds * len(plan.schedulers) for plan in plans)
        print(
            f"comparing {count} schedulers on {', '.join(scenarios)}: {options.seeds} held-out episode"
            f"{'s' if options.seeds != 1 else ''} each, {rounds * options.seeds:,} rounds in all, "
            f"{learner} learner, {options.workers} process{'es' if options.workers > 1 else ''}"
        )
        outcomes = evaluate_all(plans, options.workers, tolerant=True)
        comparisons = [
            summarise_scenario(plan, outcome, options.held_against)
            for plan, outcome in zip(plans, outcomes, strict=True)
        ]
        more = {
            "scenario_digests": {name: scenario_digest(scenario) for name, scenario in scenarios.items()},
            "agent_digests": {name: file_digest(path) for name, path in agents.items()},
            "options": asdict(options),
        }
        write_comparison(
            comparisons,
            options.held_against,
            record(program, given, **more),
            run,
            figures=not options.no_figures,
            gantt=options.gantt,
        )


def _scenarios(options: Options) -> dict[str, Scenario]:
    """The scenarios by name, long enough for the rounds asked for."""
    found: dict[str, Scenario] = {}
    for source in options.scenarios:
        scenario = lasting(chosen_scenario(source, options.task, options.dataset), options.rounds)
        if folder_name(scenario.name) in map(folder_name, found):
            raise ScenarioError(
                f"--scenarios: {source} is the second one named {scenario.name!r}: leave it out, or give it "
                "another name in its file"
            )
        found[scenario.name] = scenario
    return found


def _agents(options: Options, scenarios: dict[str, Scenario]) -> dict[str, Path]:
    """The agent's file for each scenario that has one, each tried once."""
    sources = dict(zip(options.scenarios, scenarios, strict=True))
    found: dict[str, Path] = {}
    for entry in options.agents:
        source, equals, file = entry.partition("=")
        name = sources.get(source, source)
        if not equals or not file:
            raise CheckpointError(
                f"--agents {entry!r}: write SCENARIO=FILE, for instance "
                "medium=runs/medium-ppo-seed0/checkpoints/best.zip"
            )
        if name not in scenarios:
            raise CheckpointError(
                f"--agents {entry!r}: {source!r} is not among --scenarios: {nearest_name(source, scenarios)}"
            )
        if name in found:
            raise CheckpointError(f"--agents gives {name!r} more than once: give one agent for each scenario")
        file_digest(Path(file))
        load_scheduler(LEARNED, scenarios[name], Path(file))
        found[name] = Path(file)
    return found

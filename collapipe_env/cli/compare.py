"""Compare any schedulers on any scenarios: tables, raw numbers and figures.

In each scenario all schedulers play the same held-out episodes, with the same
channels, loads and data, and differences are paired by episode. If a
scheduler cannot play a scenario, this is reported and the rest goes on. After
Ctrl-C or SIGTERM, finished work is kept and the same command resumes there.
More scenarios, schedulers or episodes can be added to the same folder (name
the earlier ones again).

Examples:
  collapipe compare --scenarios small medium
  collapipe compare --schedulers dssra titanic --episodes 20 --rounds 500
  collapipe compare --agent medium=runs/mine/checkpoints/best.safetensors
  collapipe compare --schedulers dssra zoo:NAME  # one of collapipe zoo
  collapipe compare --episodes 50 --executor ray  # on other machines
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from collapipe_env.cli.chosen import chosen_scenario, file_digest, say_data
from collapipe_env.cli.common import opened, required_schedulers, run_folder
from collapipe_env.cli.early_end import Call
from collapipe_env.cli.option_types import (
    OWN_HELP,
    Dataset,
    ExecutorOptions,
    Folder,
    Fresh,
    Schedulers,
    TaskName,
    about,
)
from collapipe_env.cli.playing import PlayOptions, play_and_report
from collapipe_env.evaluation.agent_runs import require_runs
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.run_directory import folder_name
from collapipe_env.evaluation.scheduler_loading import full_names
from collapipe_env.ground.errors import CheckpointError, ScenarioError, nearest_name
from collapipe_env.ground.files import write_text
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.loading import scenario_digest
from collapipe_env.scenario.names import SHIPPED, is_tier
from collapipe_env.schedulers import LEARNED, NAMED_ONLY, also_playing, scheduler_names
from collapipe_env.zoo.shipped_agents import agent_path

ALL = "all"
"""Name that selects all schedulers."""
ON_TIERS = ("dssra", "pipeline", "random")
"""Default schedulers of a scenario of the tiers, in addition to those for which it has tuned scalars."""


@dataclass(frozen=True)
class Options:
    """All options."""

    scenarios: Annotated[
        tuple[str, ...],
        about("NAME|FILE ...", text=f"Shipped scenarios ({SHIPPED}), YAML files, {OWN_HELP}"),
    ] = ("small", "medium")
    task: TaskName = None
    dataset: Dataset = None
    schedulers: Annotated[
        Schedulers,
        about(
            default="all that fit the scenario's decisions; a few on scenarios of the tiers, where "
            f"{ALL!r} means all; and agent if --agent gives one"
        ),
    ] = None
    agent: Annotated[tuple[str, ...], about("[SCENARIO=]FILE|zoo:NAME ...", "none")] = ()
    """Agents to play as agent, for one scenario or all; several for one are training runs of one row."""
    reference: Annotated[str | None, about("NAME", "dssra, or the first scheduler")] = None
    """Scheduler to which the others are compared."""
    out: Annotated[Folder, about(default="runs/compare-<scenarios>")] = None
    fresh: Fresh = False
    gantt: Annotated[
        tuple[str, ...],
        about("NAME ...", "the reference, the agent and the three with the least priced delay"),
    ] = ()
    """Schedulers whose typical rounds the Gantt chart shows side by side."""
    play: tyro.conf.OmitArgPrefixes[PlayOptions] = field(default_factory=lambda: PlayOptions(episodes=10))
    where: tyro.conf.OmitArgPrefixes[ExecutorOptions] = field(default_factory=ExecutorOptions)

    @property
    def names(self) -> tuple[str, ...]:
        """The schedulers without learned agents."""
        if self.schedulers in (None, (ALL,)):
            return tuple(name for name in scheduler_names() if name not in NAMED_ONLY)
        return tuple(name for name in full_names(self.schedulers or ()) if name != LEARNED)

    @property
    def held_against(self) -> str:
        """Name of the reference scheduler."""
        from collapipe_env.evaluation.comparison import reference_of

        return full_names([self.reference or reference_of((*self.names, LEARNED))])[0]

    def names_for(self, scenario: Scenario) -> tuple[str, ...]:
        """The schedulers of one scenario; without a list, also those that differ from others only there.

        Without a list, a scenario of the tiers is played by the schedulers of its table in the documentation
        and by those that other options name: most planners of published systems ignore the effects of a tier,
        and some take long for its large sizes.
        """
        playing = self.names
        if self.schedulers is None and is_tier(scenario.name):
            asked = (*ON_TIERS, *full_names(self.gantt), *([self.held_against] if self.reference else []))
            playing = tuple(name for name in playing if name in asked)
        return (*playing, *(also_playing(scenario) if self.schedulers in (None, (ALL,)) else ()))


def run(options: Options, call: Call) -> None:
    """Play and compare."""
    play = options.play
    executor = options.where.build(play.processes, threads=play.threads)
    if options.schedulers != (ALL,):
        required_schedulers(options.schedulers or (), agent=bool(options.agent))
    playing = (*options.names, *([LEARNED] if options.agent else []))
    reference, drawn = options.held_against, full_names(options.gantt)
    for option, names in (("--reference", (reference,)), ("--gantt", drawn)):
        for name in names:
            if name not in playing:
                raise ScenarioError(
                    f"{option} {name!r} does not play: add it to --schedulers, or name one of "
                    f"{', '.join(playing)}"
                )
    scenarios = _scenarios(options)
    agents = _agents(options, scenarios)
    learner = play.learner_for(scenarios.values())
    say_data(scenarios.values())
    run = run_folder(options.out, "compare", *scenarios)
    plans = []
    for name, scenario in scenarios.items():
        files = agents.get(name, ())
        own = (*([LEARNED] if files else []), *options.names_for(scenario))
        plans.append(play.plan(scenario, own, files, learner, run, folder_name(name)))
    # Options that may differ between runs in a folder are not listed: their results are added.
    deciding = {"kind": "comparison", "rounds": play.rounds, "learner": learner}
    with opened(run, call, deciding, fresh=options.fresh):
        for name, scenario in scenarios.items():
            write_text(run / "scenarios" / f"{folder_name(name)}.yaml", scenario.to_yaml())
            few = options.names_for(scenario)
            if options.schedulers is None and (left := set(options.names) - set(few)):
                print(f"{name}: {', '.join(few)} play; --schedulers {ALL} adds {len(left)} more")
        play_and_report(
            plans,
            run,
            lambda: call.record(
                scenario_digests={name: scenario_digest(scenario) for name, scenario in scenarios.items()},
                agent_digests={name: list(map(file_digest, files)) for name, files in agents.items()},
                options=options,
            ),
            executor,
            figures=not play.no_figures,
            several=True,
            reference=reference,
            gantt=drawn,
        )


def _scenarios(options: Options) -> dict[str, Scenario]:
    """The scenarios by name, long enough for the requested rounds."""
    found: dict[str, Scenario] = {}
    for source in options.scenarios:
        scenario = lasting(chosen_scenario(source, options.task, options.dataset), options.play.rounds)
        if folder_name(scenario.name) in map(folder_name, found):
            raise ScenarioError(
                f"--scenarios: {source} is the second one named {scenario.name!r}: leave it out, or give it "
                "another name in its file"
            )
        found[scenario.name] = scenario
    return found


def _agents(options: Options, scenarios: dict[str, Scenario]) -> dict[str, tuple[Path, ...]]:
    """The files of the agent's runs for each scenario that has any, each tried once."""
    sources = dict(zip(options.scenarios, scenarios, strict=True))
    found: dict[str, tuple[Path, ...]] = {}
    for entry in options.agent:
        source, equals, file = entry.partition("=")
        name = sources.get(source, source)
        if name in scenarios and not file:
            raise CheckpointError(
                f"--agent {entry!r}: write SCENARIO=FILE, for instance "
                "medium=runs/medium-ppo-seed0/checkpoints/best.safetensors"
            )
        everywhere = not equals or os.path.exists(entry)
        if not everywhere and name not in scenarios:
            raise CheckpointError(
                f"--agent {entry!r}: {source!r} is not among --scenarios: {nearest_name(source, scenarios)}"
            )
        for place in scenarios if everywhere else [name]:
            path = agent_path(entry if everywhere else file)
            file_digest(path)
            found[place] = (*found.get(place, ()), path)
    for name, files in found.items():
        require_runs("--agent", files, scenarios[name])
    return found

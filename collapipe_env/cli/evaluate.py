"""Compare schedulers on the same held-out episodes of one scenario.

Ends with a table and figures. No scheduler is trained. Language models are
really trained and write samples, unless you choose another learner. After
Ctrl-C or SIGTERM, finished work is kept and the same command resumes there.

Examples:
  collapipe evaluate --scenario small
  collapipe evaluate --schedulers dssra titanic --episodes 10 --learner real
  collapipe evaluate --scenario llm-boards --schedulers dssra pipeline graph
  collapipe evaluate --agent runs/medium-ppo-seed0/checkpoints/best.safetensors
  collapipe evaluate --agent zoo:NAME     # one of collapipe zoo
  collapipe evaluate --agent runs/medium-ppo-seed*/checkpoints/best.safetensors
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from collapipe_env.cli.chosen import chosen_scenario, file_digest, say_data
from collapipe_env.cli.common import opened, required_schedulers, run_folder
from collapipe_env.cli.early_end import Call
from collapipe_env.cli.option_types import (
    EPISODES,
    EPISODES_HELP,
    LEARNER_HELP,
    Dataset,
    ExecutorOptions,
    Folder,
    Fresh,
    Schedulers,
    Source,
    TaskName,
    about,
)
from collapipe_env.cli.playing import PlayOptions, play_and_report
from collapipe_env.evaluation.agent_runs import require_runs
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.task_registry import task_traits
from collapipe_env.schedulers import DEFAULT_SCHEDULERS, LEARNED
from collapipe_env.zoo.shipped_agents import agent_path


@dataclass(frozen=True)
class EvaluatePlay(PlayOptions):
    """Episodes and how they are played."""

    # Their defaults depend on the scenario, see usual_for().
    episodes: Annotated[int | None, EPISODES, about("INT", "5; 1 for language models", EPISODES_HELP)] = None  # type: ignore[assignment]
    learner: Annotated[str | None, about("NAME", "surrogate; real for language models", LEARNER_HELP)] = None  # type: ignore[assignment]

    def usual_for(self, scenario: Scenario) -> EvaluatePlay:
        """Return these options with the defaults of a scenario: a language model is really trained."""
        trains = self.learner is None and task_traits(scenario.workload.task).causal
        if trains:
            print(
                "language models are trained here, and write samples; --learner surrogate only plays the "
                "schedulers, which is quicker"
            )
        return replace(
            self,
            episodes=self.episodes or (1 if trains else 5),
            learner=self.learner or ("real" if trains else "surrogate"),
        )


@dataclass(frozen=True)
class Options:
    """All options."""

    scenario: Source = "medium"
    task: TaskName = None
    dataset: Dataset = None
    schedulers: Annotated[Schedulers, about(default="dssra pipeline random, and agent with --agent")] = None
    agent: Annotated[tuple[Path, ...], about("FILE|zoo:NAME ...", "none")] = ()
    """Saved agent, or agent of the zoo, which plays as agent; several are the training runs of one row."""
    out: Annotated[Folder, about(default="runs/evaluate-<scenario>")] = None
    fresh: Fresh = False
    play: tyro.conf.OmitArgPrefixes[EvaluatePlay] = field(default_factory=EvaluatePlay)
    where: tyro.conf.OmitArgPrefixes[ExecutorOptions] = field(default_factory=ExecutorOptions)


def run(options: Options, call: Call) -> None:
    """Play and compare."""
    executor = options.where.build(options.play.processes, threads=options.play.threads)
    names: tuple[str, ...] = (*((LEARNED,) if options.agent else ()), *DEFAULT_SCHEDULERS)
    if options.schedulers is not None:
        names = required_schedulers(options.schedulers, agent=bool(options.agent))
    if options.agent and LEARNED not in names:
        raise ScenarioError(f"--agent is given but --schedulers leaves {LEARNED!r} out: add it")
    scenario = chosen_scenario(options.scenario, options.task, options.dataset)
    play = options.play.usual_for(scenario)
    played = lasting(scenario, play.rounds)
    files = tuple(map(agent_path, options.agent))
    digests = [file_digest(file) for file in files]
    require_runs("--agent", files, played)
    for name in names:  # refuse bad schedulers before anything is written
        if name != LEARNED:
            make_scheduler(name, played)
    learner = play.learner_for([scenario])
    say_data([scenario])
    run = run_folder(options.out, "evaluate", scenario.name)
    agent = digests[0] if len(digests) == 1 else digests or None
    asked = {"kind": "evaluation", "scenario": scenario.to_dict(), "agent": agent}
    with opened(run, call, asked, played, fresh=options.fresh):
        play_and_report(
            [play.plan(scenario, names, files, learner, run)],
            run,
            lambda: call.record(scenario=played.to_dict(), options=replace(options, play=play)),
            executor,
            figures=not play.no_figures,
        )

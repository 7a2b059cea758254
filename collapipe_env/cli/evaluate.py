"""``collapipe evaluate``: schedulers, or a saved agent, on held-out episodes of one scenario."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from collapipe_env.cli.common import Call, chosen_scenario, command, file_digest, opened, require_schedulers
from collapipe_env.cli.executor_options import ExecutorOptions
from collapipe_env.cli.option_types import (
    Dataset,
    Episodes,
    Folder,
    Learner,
    Schedulers,
    Source,
    TaskName,
    about,
)
from collapipe_env.cli.playing import PlayOptions, play_and_report
from collapipe_env.evaluation.agent_runs import require_runs
from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.run_directory import RunDirectory, folder_name
from collapipe_env.evaluation.scheduler_loading import full_names, load_scheduler
from collapipe_env.ground.errors import CheckpointError, ScenarioError
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.task_registry import task_traits
from collapipe_env.schedulers import DEFAULT_SCHEDULERS, LEARNED
from collapipe_env.zoo.shipped_agents import agent_path

DESCRIPTION = """Compare schedulers on the same held-out episodes of one scenario.

Ends with a table and figures. No scheduler is trained. Language models are really trained and write samples,
unless you choose another learner. After Ctrl-C or SIGTERM, finished work is kept and the same command resumes
there.

Examples:
  collapipe evaluate --scenario small
  collapipe evaluate --schedulers dssra titanic --episodes 10 --learner real
  collapipe evaluate --scenario llm-boards --schedulers dssra pipeline graph
  collapipe evaluate --agent runs/medium-ppo-seed0/checkpoints/best.safetensors
  collapipe evaluate --agent zoo:NAME     # one of collapipe zoo
  collapipe evaluate --agent runs/medium-ppo-seed*/checkpoints/best.safetensors
"""


USUAL_OF_LANGUAGE = {"learner": "real", "episodes": 1}
"""Defaults where a language model is trained: its table has a perplexity, and its samples need real training,
which takes a second or more per round."""


@dataclass(frozen=True)
class EvaluatePlay(PlayOptions):
    """Episodes and how they are played."""

    episodes: Annotated[Episodes, about(default="5; 1 for language models")] = PlayOptions.episodes
    learner: Annotated[Learner, about(default="surrogate; real for language models")] = PlayOptions.learner

    def usual_for(self, scenario: Scenario, asked: set[str]) -> EvaluatePlay:
        """Return these options with the defaults of a scenario.

        Args:
            asked: Options of the command line. They stay unchanged, and with another learner the number of
                episodes is the usual one.
        """
        if "--learner" in asked or not task_traits(scenario.workload.task).causal:
            return self
        usual = {name: value for name, value in USUAL_OF_LANGUAGE.items() if f"--{name}" not in asked}
        print(
            "language models are trained here, and write samples; --learner surrogate only plays the "
            "schedulers, which is quicker"
        )
        return replace(self, **usual)  # type: ignore[arg-type]


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
    """Folder for episodes, figures and results."""
    play: tyro.conf.OmitArgPrefixes[EvaluatePlay] = field(default_factory=EvaluatePlay)
    where: tyro.conf.OmitArgPrefixes[ExecutorOptions] = field(default_factory=ExecutorOptions)

    @property
    def names(self) -> tuple[str, ...]:
        """The schedulers, the agent first where there is one."""
        if self.schedulers is not None:
            return full_names(self.schedulers)
        return ((LEARNED,) if self.agent else ()) + DEFAULT_SCHEDULERS

    def check(self) -> None:
        """Refuse combinations that make no sense.

        Raises:
            CollaPipeError: Names the option, its value and the allowed values.
        """
        self.where.check()
        require_schedulers(self.names)
        if self.agent and LEARNED not in self.names:
            raise ScenarioError(f"--agent is given but --schedulers leaves {LEARNED!r} out: add it")
        if not self.agent and LEARNED in self.names:
            raise CheckpointError(f"--schedulers names {LEARNED!r}: give the file of one with --agent")


def _run(options: Options, call: Call) -> None:
    options.check()
    scenario = chosen_scenario(options.scenario, options.task, options.dataset)
    play = options.play.usual_for(scenario, call.given)
    options = replace(options, play=play)
    played = lasting(scenario, play.rounds)
    files = tuple(map(agent_path, options.agent))
    digests = [file_digest(file) for file in files]
    for name in options.names:  # refuse bad schedulers before anything is written
        if name == LEARNED:
            require_runs("--agent", files, played)
        else:
            load_scheduler(name, played, None)
    learner = play.usable_learner([scenario])
    run = RunDirectory(options.out or Path("runs") / f"evaluate-{folder_name(scenario.name)}")
    agent = digests[0] if len(digests) == 1 else digests or None
    asked = {"kind": "evaluation", "scenario": scenario.to_dict(), "agent": agent}
    with opened(run, call, asked, played, fresh=play.fresh):
        play_and_report(
            [play.plan(scenario, options.names, files, learner, run.episodes_of, play.threads)],
            run,
            lambda: call.record(scenario=played.to_dict(), options=asdict(options)),
            executor=options.where.build(play.processes, threads=play.threads),
            figures=not play.no_figures,
        )


main = command(Options, _run, DESCRIPTION, "collapipe evaluate")

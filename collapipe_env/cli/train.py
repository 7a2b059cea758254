"""Train a scheduler for CollaPipe and compare it with DSSRA and the baselines.

Trains PPO or SAC on a scenario, or one graph net for all scenarios. Then
compares the trained agent with DSSRA and the baselines on held-out episodes
in which the Transformer is really trained, and prints one table. All files go
to one folder. After Ctrl-C or SIGTERM, finished work is kept and the same
command resumes there. A larger --steps lengthens the training.

Examples:
  collapipe train                     # PPO on medium, then a comparison
  collapipe train --scenario small --algo sac
  collapipe train --algo graph        # one net for systems of every size
  collapipe train --algo graph --recipe wild --scenario large-wild
  collapipe train --task translation  # or ner, language-modelling
  collapipe train --runs 5            # five seeds, one row
  tensorboard --logdir runs
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.cli.chosen import chosen_learner, chosen_scenario, say_data
from collapipe_env.cli.common import opened, required_schedulers, run_folder
from collapipe_env.cli.early_end import Call
from collapipe_env.cli.playing import play_and_report
from collapipe_env.cli.train_options import Options
from collapipe_env.cli.trainings import train, train_all
from collapipe_env.envs.default_reward import default_reward, with_target
from collapipe_env.envs.rewards import REWARDS, make_reward
from collapipe_env.evaluation.own_code import registered_name
from collapipe_env.evaluation.provenance import started
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.ground.files import read_json, write_text
from collapipe_env.schedulers import LEARNED, also_playing
from collapipe_env.zoo.shipped_agents import PREFIX, shipped_agents


class Job:
    """One run: training, evaluation, report; nothing is written before :meth:`run`.

    Raises:
        CollaPipeError: If an option, the scenario or the agent cannot be used.

    Attributes:
        schedulers: Names of those that play in the comparison.
    """

    def __init__(self, options: Options, call: Call) -> None:
        # Imported late, so that --help and typing errors are answered at once.
        import torch

        self._options, self._call = options, call
        training, evaluation = options.training, options.evaluation
        self._scenario = chosen_scenario(training.scenario, training.task, training.dataset)
        options.check()
        self._executor = options.where.build(evaluation.processes, threads=evaluation.threads)
        torch.set_num_threads(evaluation.threads)
        seeds = range(training.seed, training.seed + training.runs)
        self._one = len(seeds) == 1  # a single training, directly in the folder
        name = f"seed{seeds[0]}" if self._one else f"seeds{seeds[0]}-{seeds[-1]}"
        self._run = run_folder(training.out, self._scenario.name, training.algo, name)
        self._folders = [self._run / ("." if self._one else f"trainings/seed{seed}") for seed in seeds]
        self._files = TrainingFiles(self._folders[0])
        self._reward = registered_name(REWARDS, training.reward or default_reward(self._scenario))
        make_reward(self._reward, with_target(self._scenario, self._reward), 1.0)
        self._train_learner = chosen_learner([self._scenario], training.train_learner)
        self._learner = evaluation.learner_for([self._scenario])
        asked = evaluation.schedulers
        self.schedulers = self._usual() if asked is None else required_schedulers(asked, agent=True)
        self._require_schedulers()
        if training.algo == "graph" and options.graph.start_from:
            from collapipe_env.agents.learned.graph.graph_files import first_weights

            # A training that has begun does not read the net that it started from.
            if training.fresh or not self._files.latest.exists():
                first_weights(options.graph)

    def run(self) -> None:
        """Do all remaining work, and print the folder."""
        options, fresh = self._options, self._options.training.fresh
        say_data([self._scenario])
        with opened(self._run, self._call, self._asked(), self._scenario, fresh=fresh, growing="steps"):
            if self._one:
                self._train()
            else:
                train_all(train_only, options, self._folders, self._call, self._executor)
            self._evaluate()

    def train_only(self) -> None:
        """Train in the folder, without a comparison: one of several trainings."""
        with started(self._run, str(self._call), self._asked(), fresh=False, growing="steps"):
            write_text(self._run / "scenario.yaml", self._scenario.to_yaml())
            self._train()

    def _train(self) -> None:
        train(self._options, self._scenario, self._files, self._train_learner, self._reward, str(self._call))

    def _usual(self) -> tuple[str, ...]:
        """The default schedulers of a comparison."""
        scenario = self._scenario
        usual = [LEARNED, "dssra", *also_playing(scenario)]
        if scenario.budgets.per == "round":  # the graph net knows only these
            usual.append(f"{PREFIX}graph")
        for algorithm in ("ppo", "sac"):
            name = f"{scenario.name}-{algorithm}"
            if name in shipped_agents() and algorithm != self._options.training.algo:
                # A scenario of the user's own may have the name of a shipped one, and not fit.
                with contextlib.suppress(CheckpointError):
                    make_scheduler(f"{PREFIX}{name}", scenario)
                    usual.append(f"{PREFIX}{name}")
        return (*usual, "pipeline", "random")

    def _require_schedulers(self) -> None:
        """Build each scheduler, and play a round with a user's own: errors come before hours of training."""
        from collapipe_env.evaluation.episode import play_episode
        from collapipe_env.evaluation.own_scheduler import OwnScheduler

        learners = (self._train_learner, self._learner)
        quick = "surrogate" if "surrogate" in learners else self._learner  # not every task has a surrogate
        for name in self.schedulers:
            scheduler = None if name == LEARNED else make_scheduler(name, self._scenario)
            if isinstance(scheduler, OwnScheduler):
                play_episode(name, scheduler, self._scenario, 0, 1, quick)
                scheduler.fingerprint()

    def _asked(self) -> dict[str, Any]:
        """Return the options that define the agent: a folder holds the results of only one agent."""
        options = self._options
        return {
            "scenario": self._scenario.to_dict(),
            "algo": options.training.algo,
            "steps": options.steps,
            "envs": options.envs,
            "learner": self._train_learner,
            "reward": self._reward,
            "seed": options.training.seed,
            options.training.algo: asdict(options.parameters),
            # A later command may request more trainings.
            **({} if self._one else {"several": True}),
        }

    def _evaluate(self) -> None:
        from collapipe_env.agents.learned.agent_file import read_agent_file

        options, agents, history = self._options, tuple[Path, ...](), []
        if LEARNED in self.schedulers:
            agents = tuple(TrainingFiles(folder).best for folder in self._folders)
            if self._one:  # the history of one training would pass for that of several
                history = read_agent_file(self._files.latest).record.history
        play_and_report(
            [options.evaluation.plan(self._scenario, self.schedulers, agents, self._learner, self._run)],
            self._run,
            lambda: self._call.record(
                scenario=self._scenario.to_dict(),
                options=options,
                made_for=read_json(self._run / "run.json", "choose another place with --out"),
                training=history,
            ),
            self._executor,
            figures=not options.evaluation.no_figures,
            history=history,
        )


def train_only(options: Options, call: Call) -> None:
    """Do one of several trainings, without a comparison."""
    Job(options, call).train_only()


def run(options: Options, call: Call) -> None:
    """Train and compare."""
    Job(options.with_recipe(call), call).run()

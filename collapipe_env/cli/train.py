"""``collapipe train``, also run by ``train_agent.py``: training, evaluation, report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapipe_env.cli.common import (
    Call,
    chosen_learners,
    chosen_scenario,
    command,
    file_digest,
    opened,
    say_data,
)
from collapipe_env.cli.playing import play_and_report
from collapipe_env.cli.several_trainings import train_all
from collapipe_env.cli.train_options import Options
from collapipe_env.cli.trainings import files_of
from collapipe_env.envs.default_reward import default_reward
from collapipe_env.envs.rewards import REWARDS
from collapipe_env.evaluation.own_code import registered_name
from collapipe_env.evaluation.provenance import started
from collapipe_env.evaluation.run_directory import RunDirectory, folder_name
from collapipe_env.evaluation.scheduler_loading import full_names
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.ground.files import read_json, write_text
from collapipe_env.schedulers import LEARNED, also_playing
from collapipe_env.zoo.shipped_agents import agent_path

if TYPE_CHECKING:
    from collapipe_env.agents.learned.agent_training import TrainingFiles
    from collapipe_env.agents.learned.graph.graph_run import GraphFiles

DESCRIPTION = """Train a scheduler for CollaPipe and compare it with DSSRA and the baselines.

Trains PPO or SAC on a scenario, or one graph net for all scenarios. Then compares the trained agent with
DSSRA and the baselines on held-out episodes in which the Transformer is really trained, and prints one table.
All files go to one folder. After Ctrl-C or SIGTERM, finished work is kept and the same command resumes there.
A larger --steps lengthens the training.

Examples:
  {program}                     # PPO on medium, then a comparison
  {program} --scenario small --algo sac
  {program} --algo graph        # one net for systems of every size
  {program} --algo graph --recipe wild --scenario large-wild
  {program} --task translation  # or ner, language-modelling: another task
  {program} --runs 5            # five seeds, one row
  {program} --evaluate-only --episodes 10
  {program} --agent runs/medium-ppo-seed0/checkpoints/best.safetensors
  {program} --agent zoo:NAME     # one of collapipe zoo
  tensorboard --logdir runs
"""


class Job:
    """One run: training, evaluation, report.

    Raises:
        CollaPipeError: If an option, the scenario or the agent cannot be used; raised before anything is
            written.
    """

    def __init__(self, options: Options, call: Call) -> None:
        # Imported late, so that --help and typing errors are answered at once.
        import torch

        self._options, self._call = options, call
        self._scenario = chosen_scenario(
            options.training.scenario, options.training.task, options.training.dataset
        )
        options.check(self._scenario)
        torch.set_num_threads(options.training.threads)
        given_agent = options.evaluation.agent
        self._agent = None if given_agent is None else agent_path(given_agent)
        self._run = RunDirectory(options.output.out or self._default_folder())
        self._reward = registered_name(REWARDS, options.training.reward or default_reward(self._scenario))
        self._train_learner, self._learner = chosen_learners(
            [self._scenario], options.training.train_learner, options.evaluation.learner
        )
        asked = options.evaluation.schedulers
        self._schedulers = self._usual_schedulers() if asked is None else full_names(asked)
        options.evaluation.require_models([self._scenario], self._learner)
        self._require_schedulers()
        self._require_start()

    def run(self) -> None:
        """Do all remaining work, and print the folder."""
        options, run = self._options, self._run
        say_data([self._scenario])
        if options.output.fresh:
            self._spare_the_agent()
        # An agent there was trained with the folder's recorded options, whatever the present ones are.
        there = not options.trains and options.evaluation.agent is None
        with opened(
            run,
            self._call,
            self._asked(),
            self._scenario,
            fresh=options.output.fresh,
            growing="steps" if options.trains else None,
            deciding=("scenario",) if there else None,
        ):
            if options.trains:
                self._train()
            self._evaluate(self._history())

    def _default_folder(self) -> Path:
        name = folder_name(self._scenario.name)
        agent = self._agent
        if agent is not None:
            return Path("runs") / f"{name}-agent-{file_digest(agent)[:8]}"
        training = self._options.training
        last = training.seed + training.runs - 1
        seeds = f"seed{training.seed}" if self._one else f"seeds{training.seed}-{last}"
        return Path("runs") / f"{name}-{training.algo}-{seeds}"

    @property
    def _one(self) -> bool:
        """Whether there is a single training, directly in the folder."""
        return self._options.training.runs == 1

    def _usual_schedulers(self) -> tuple[str, ...]:
        """The default schedulers of a comparison."""
        from collapipe_env.evaluation.scheduler_loading import load_scheduler
        from collapipe_env.zoo.shipped_agents import PREFIX, shipped_agents

        beside = []
        for algorithm in ("ppo", "sac"):
            name = f"{self._scenario.name}-{algorithm}"
            if name not in shipped_agents() or algorithm == self._options.training.algo:
                continue
            try:
                load_scheduler(f"{PREFIX}{name}", self._scenario, None)
            except CheckpointError:
                continue  # the user's own scenario, with the name of a shipped one
            beside.append(f"{PREFIX}{name}")
        graph = (f"{PREFIX}graph",) if self._scenario.budgets.per == "round" else ()  # it knows only these
        return (LEARNED, "dssra", *also_playing(self._scenario), *graph, *beside, "pipeline", "random")

    def _require_schedulers(self) -> None:
        """Build each scheduler once, so that errors appear before hours of training.

        A user's own schedulers also play a round: a policy for another scenario is built without complaint.
        """
        from collapipe_env.evaluation.episode import play_episode
        from collapipe_env.evaluation.own_scheduler import OwnScheduler
        from collapipe_env.evaluation.scheduler_loading import load_scheduler

        options = self._options
        learners = (self._train_learner, self._learner)
        quick = "surrogate" if "surrogate" in learners else self._learner  # not every task has a surrogate
        for name in self._schedulers:
            if name != LEARNED:
                scheduler = load_scheduler(name, self._scenario, None)
                if isinstance(scheduler, OwnScheduler):
                    play_episode(name, scheduler, self._scenario, 0, 1, quick)
                    scheduler.fingerprint()
            elif not options.trains:
                agent = self._agent_files()[0]
                if options.evaluation.agent is None and not agent.exists():
                    self._require_finished_part()
                    raise CheckpointError(
                        f"--evaluate-only, but there is no agent in {self._run.path}: train one first (the "
                        "same command without --evaluate-only), give one with --agent, or leave 'agent' "
                        "out of --schedulers"
                    )
                load_scheduler(name, self._scenario, agent)

    def _require_start(self) -> None:
        """Refuse a net to start from that does not suit; a training that has begun does not read it."""
        options = self._options
        if not (options.trains and options.training.algo == "graph" and options.graph.start_from):
            return
        if options.output.fresh or not self._files.latest.exists():
            from collapipe_env.agents.learned.graph.graph_files import first_weights

            first_weights(options.graph)

    def _require_finished_part(self) -> None:
        """Refuse an interrupted training that has no best version yet."""
        from collapipe_env.cli.trainings import steps_kept

        files = self._files
        if files.latest.exists():
            raise CheckpointError(
                f"--evaluate-only, but the training in {self._run.path} was interrupted at step "
                f"{steps_kept(files):,}, before a best version was "
                "chosen: continue it (the same command without --evaluate-only), or give that version with "
                f"--agent {files.latest}"
            )

    def _spare_the_agent(self) -> None:
        """Refuse to start over where this would delete the agent to evaluate."""
        if self._options.trains:
            return
        agent, folder = self._agent_files()[0].resolve(), self._run.path.resolve()
        if agent.exists() and agent.is_relative_to(folder):
            raise CheckpointError(
                f"--fresh would delete the agent {agent} that is to be evaluated: leave it out, or choose "
                "another --out"
            )

    def _asked(self) -> dict[str, Any]:
        """Return the options that define the agent: a folder holds the results of only one agent."""
        options = self._options
        common = {"scenario": self._scenario.to_dict()}
        if self._agent is not None:
            return {**common, "agent": file_digest(self._agent)}
        training = options.training
        return {
            **common,
            "algo": training.algo,
            "steps": options.steps,
            "envs": options.envs,
            "learner": self._train_learner,
            "reward": self._reward,
            "seed": training.seed,
            training.algo: asdict(options.parameters),
            # A later command may request more trainings.
            **({} if self._one else {"several": True}),
        }

    @property
    def _files(self) -> TrainingFiles | GraphFiles:
        """Files of the training, or of the first of several."""
        return files_of(self._options, self._folders()[0])

    def _folders(self) -> list[Path]:
        """Folders of the trainings."""
        training = self._options.training
        if self._one:
            return [self._run.path]
        return [self._run / "trainings" / f"seed{training.seed + number}" for number in range(training.runs)]

    def _agent_files(self) -> tuple[Path, ...]:
        if self._agent is not None:
            return (self._agent,)
        return tuple(files_of(self._options, folder).best for folder in self._folders())

    def train_only(self) -> None:
        """Train in the folder, without a comparison: one of several trainings."""
        with started(self._run, str(self._call), self._asked(), fresh=False, growing="steps"):
            write_text(self._run / "scenario.yaml", self._scenario.to_yaml())
            self._train()

    def _train(self) -> None:
        if not self._one:
            options = self._options
            executor = options.where.build(options.evaluation.processes, threads=options.training.threads)
            train_all(_train_only, options, self._folders(), executor, self._call)
            return
        from collapipe_env.agents.learned.graph.graph_run import GraphFiles
        from collapipe_env.cli.trainings import train_agent, train_graph

        options, command, files = self._options, str(self._call), self._files
        if isinstance(files, GraphFiles):
            train_graph(options, self._scenario, files, command)
        else:
            train_agent(options, self._scenario, files, self._train_learner, self._reward, command)

    def _history(self) -> list[dict[str, Any]]:
        """Return the validations of the agent's training, if the agent is evaluated."""
        from collapipe_env.agents.learned.agent_file import read_agent_file

        if LEARNED not in self._schedulers:
            return []
        if not self._one:
            return []  # the history of one training would pass for that of all
        latest = self._files.latest
        own = self._options.evaluation.agent is None and latest.exists()
        return read_agent_file(latest if own else self._agent_files()[0]).record.history

    def _evaluate(self, history: list[dict[str, Any]]) -> None:
        options, asked = self._options, self._options.evaluation
        plan = asked.plan(
            self._scenario,
            self._schedulers,
            self._agent_files() if LEARNED in self._schedulers else (),
            self._learner,
            self._run.episodes_of,
            options.training.threads,
        )
        play_and_report(
            [plan],
            self._run,
            lambda: self._call.record(
                scenario=self._scenario.to_dict(),
                options=asdict(options),
                made_for=read_json(self._run / "run.json", "choose another place with --out"),
                training=history,
            ),
            executor=options.where.build(asked.processes, threads=options.training.threads),
            figures=not options.output.no_figures,
            history=history,
        )


def _train_only(options: Options, call: Call) -> None:
    """Do one of several trainings, without a comparison."""
    Job(options, call).train_only()


def _run(options: Options, call: Call) -> None:
    Job(options.with_recipe(call.given), call).run()


main = command(Options, _run, DESCRIPTION, "collapipe train")

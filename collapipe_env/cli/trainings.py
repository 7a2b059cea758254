"""Trainings of ``collapipe train``: one, with a line before and a summary after it, or one for each seed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shlex
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.cli.early_end import Call, Terminated, terminable
from collapipe_env.cli.train_options import Options
from collapipe_env.evaluation.executor import Executor, Hooks
from collapipe_env.evaluation.folder_content import Files, files_below, write_below
from collapipe_env.evaluation.labels import counted
from collapipe_env.evaluation.run_directory import HOLDER, LOCK
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import LEARNED

if TYPE_CHECKING:
    from collapipe_env.agents.learned.validation import Score

VALIDATIONS = 20
"""Validations of a whole training."""
LEAST_BETWEEN_VALIDATIONS = 100
"""Fewest gradient steps of the graph net between validations, which take as long as dozens of steps."""


def train(
    options: Options, scenario: Scenario, files: TrainingFiles, learner: str, reward: str, command: str
) -> None:
    """Train what is not trained yet, with a line before and a summary after it."""
    plan: dict[str, Any] = {
        "scenario": scenario,
        "parameters": options.parameters,
        "steps": options.steps,
        "seed": options.training.seed,
        "command": command,
        "track": options.training.track,
    }
    if options.training.algo == "graph":
        _train_graph(options, plan, files)
    else:
        _train_agent(
            options, {**plan, "algorithm": options.training.algo, "learner": learner, "reward": reward}, files
        )


def _train_agent(options: Options, plan: dict[str, Any], files: TrainingFiles) -> None:
    from collapipe_env.agents.learned import agent_training
    from collapipe_env.agents.learned.training_state import read_training

    algorithm, steps, envs = options.training.algo, options.steps, options.envs
    before, _ = read_training(files)
    if before.steps >= steps:
        print(f"training is done: {before.steps:,} steps")
        return
    notes = []
    rollout = envs * (options.ppo.rollout_steps if algorithm == "ppo" else 1)
    whole = before.steps + -(-(steps - before.steps) // rollout) * rollout
    if whole != steps:
        notes.append(f"rounded up to {whole:,} steps, because a training ends with a whole rollout")
    if before.planned and before.planned < steps:
        notes.append(
            f"lengthened from {before.planned:,} to {steps:,} steps: the learning rate follows the longer "
            "schedule from here"
        )
    what = f"{steps:,} steps on {envs} environments, {plan['learner']} learner"
    _say_start(f"{algorithm.upper()} on {plan['scenario'].name!r}, {what}", before.steps, files, notes)
    every = max(steps // VALIDATIONS, 1)
    asked = agent_training.TrainingPlan(envs=envs, validate_every=every, **plan)
    state = agent_training.train(asked, files)
    _sum_up(state.best, state.seconds, files)


def _train_graph(options: Options, plan: dict[str, Any], files: TrainingFiles) -> None:
    from collapipe_env.agents.learned.graph.graph_training import GraphPlan, GraphTraining
    from collapipe_env.agents.learned.graph.training_range import systems_of

    steps, graph = options.steps, options.graph
    every = max(steps // VALIDATIONS, min(steps, LEAST_BETWEEN_VALIDATIONS))
    training = GraphTraining(GraphPlan(validate_every=every, **plan), files)
    state = training.state
    if training.done:
        print(f"training is done: {state.steps:,} steps")
        return
    left_out = f" without {', '.join(graph.without)}" if graph.without else ""
    what = f"{steps:,} gradient steps, validations on {plan['scenario'].name!r}"
    _say_start(f"graph net{left_out} on {systems_of(graph)}; {what}", state.steps, files)
    training.run()
    _sum_up(state.best, state.seconds, files)


def _say_start(what: str, step: int, files: TrainingFiles, notes: Sequence[str] = ()) -> None:
    print(f"{'going on' if step else 'training'}: {what}, from step {step:,}")
    for note in (*notes, f"curves: tensorboard --logdir {shlex.quote(str(files.tensorboard))}"):
        print(f"  {note}")


def _sum_up(best: Score | None, seconds: float, files: TrainingFiles) -> None:
    if best is not None:
        print(
            f"trained in {seconds:.0f} s; best version: priced delay {best.priced_delay:.2f} s, worst node's "
            f"energy {100.0 * (best.energy_ratio - 1.0):+.1f} % against its budget\n  {files.best}"
        )


@dataclass(frozen=True)
class Training:
    """One of several trainings: the task of an executor.

    Attributes:
        train: Trains in the folder of the options: a function of a module, which other processes import.
        options: Its options; ``training.out`` is its folder.
        call: The command, for the record.
        files: Files already in its folder, for a worker that does not see that folder; ``None`` if it does.
    """

    train: Callable[[Options, Call], None] = field(repr=False)
    options: Options
    call: Call
    files: Files | None = field(repr=False)

    def __str__(self) -> str:
        return f"the training with seed {self.options.training.seed}"

    def run(self, folder: Path | None) -> None:
        """Train in a folder, without a comparison."""
        training = replace(self.options.training, out=folder)
        self.train(replace(self.options, training=training), self.call)


def train_one(task: Training, _: Callable[[], None]) -> Files | None:
    """Do one training, continuing any earlier one.

    Returns:
        The files of its folder, if the calling process does not see that folder.
    """
    if task.files is not None:
        with tempfile.TemporaryDirectory(prefix="collapipe-") as place:
            folder = Path(place) / "run"
            write_below(folder, task.files)
            task.run(folder)
            return _unlocked(folder)
    if multiprocessing.parent_process() is None:
        task.run(task.options.training.out)
        return None
    # In a process of the pool it is silent, because others also print; SIGTERM saves the training.
    with open(os.devnull, "w") as nowhere, terminable():
        try:
            with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
                task.run(task.options.training.out)
        except Terminated as stop:
            raise SystemExit(stop.status) from None
    return None


def _unlocked(folder: Path) -> Files:
    """The files of a training's folder but for its lock."""
    return {name: content for name, content in files_below(folder).items() if name not in (LOCK, HOLDER)}


def train_all(
    train: Callable[[Options, Call], None],
    options: Options,
    folders: Sequence[Path],
    call: Call,
    executor: Executor,
) -> None:
    """Do all unfinished trainings, each in a folder of its own; seeds count up from the options' seed.

    If the user interrupts, finished trainings are kept, and on this machine also the progress of others.
    """
    from collapipe_env.agents.learned.agent_file import read_agent_file

    tasks = []
    for seed, folder in enumerate(folders, options.training.seed):
        files = TrainingFiles(folder)
        steps = read_agent_file(files.latest).record.steps if files.latest.exists() else 0
        if steps >= options.steps and files.best.exists():
            continue
        one = replace(
            options,
            training=replace(options.training, seed=seed, runs=1, out=folder, fresh=False),
            evaluation=replace(options.evaluation, schedulers=(LEARNED,)),
        )
        tasks.append(Training(train, one, call, _unlocked(folder) if executor.apart else None))
    if not tasks:
        print(f"{counted(len(folders), 'training')} done")
        return
    print(f"training: {counted(len(tasks), 'seed')}, {executor.where}", flush=True)

    def done(task: Training, files: Files | None) -> None:
        training = task.options.training
        if files is not None and training.out is not None:
            write_below(training.out, files)
        print(f"seed {training.seed}: trained, in {training.out}", flush=True)

    def again(task: Training, reason: str) -> None:
        print(f"seed {task.options.training.seed} restarted: {reason}", flush=True)

    executor.run(train_one, tasks, Hooks(done, again=again))

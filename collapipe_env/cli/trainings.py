"""Run the trainings of ``collapipe train``, with a line before and a summary after each."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.cli.train_options import Options
from collapipe_env.scenario import Scenario

if TYPE_CHECKING:
    from collapipe_env.agents.learned.validation import Score

VALIDATIONS = 20
"""Validations of a whole training."""
LEAST_BETWEEN_VALIDATIONS = 100
"""Fewest gradient steps of the graph net between validations, which take as long as dozens of steps."""


def steps_kept(files: TrainingFiles) -> int:
    """Steps of the training in a folder, 0 before it begins."""
    from collapipe_env.agents.learned.agent_file import read_agent_file

    return read_agent_file(files.latest).record.steps if files.latest.exists() else 0


def train(
    options: Options, scenario: Scenario, files: TrainingFiles, learner: str, reward: str, command: str
) -> None:
    """Train what is not trained yet, with a line before and a summary after it."""
    if options.training.algo == "graph":
        _train_graph(options, scenario, files, command)
    else:
        _train_agent(options, scenario, files, learner, reward, command)


def _train_agent(
    options: Options, scenario: Scenario, files: TrainingFiles, learner: str, reward: str, command: str
) -> None:
    from collapipe_env.agents.learned import agent_training

    algorithm = options.training.algo
    assert algorithm != "graph"
    before = agent_training.training_state(files)
    if before.steps >= options.steps:
        print(f"training is done: {before.steps:,} steps")
        return
    notes = []
    rollout = options.envs * (options.ppo.rollout_steps if algorithm == "ppo" else 1)
    whole = before.steps + -(-(options.steps - before.steps) // rollout) * rollout
    if whole != options.steps:
        notes.append(f"rounded up to {whole:,} steps, because a training ends with a whole rollout")
    if before.planned and before.planned < options.steps:
        notes.append(
            f"lengthened from {before.planned:,} to {options.steps:,} steps: the learning rate follows the "
            "longer schedule from here"
        )
    what = f"{options.steps:,} steps on {options.envs} environments, {learner} learner"
    _say_start(f"{algorithm.upper()} on {scenario.name!r}, {what}", before.steps, files, notes)
    plan = agent_training.TrainingPlan(
        scenario=scenario,
        algorithm=algorithm,
        parameters=getattr(options, algorithm),
        steps=options.steps,
        envs=options.envs,
        seed=options.training.seed,
        learner=learner,
        reward=reward,
        validate_every=max(options.steps // VALIDATIONS, 1),
        command=command,
        track=options.training.track,
    )
    state = agent_training.train(plan, files)
    _sum_up(state.best, state.seconds, files)


def _train_graph(options: Options, scenario: Scenario, files: TrainingFiles, command: str) -> None:
    from collapipe_env.agents.learned.graph.graph_files import systems_of
    from collapipe_env.agents.learned.graph.graph_training import GraphPlan, GraphTraining

    plan = GraphPlan(
        scenario=scenario,
        parameters=options.graph,
        steps=options.steps,
        seed=options.training.seed,
        validate_every=max(options.steps // VALIDATIONS, min(options.steps, LEAST_BETWEEN_VALIDATIONS)),
        command=command,
        track=options.training.track,
    )
    training = GraphTraining(plan, files)
    if training.done:
        print(f"training is done: {training.steps:,} steps")
        return
    left_out = f" without {', '.join(options.graph.without)}" if options.graph.without else ""
    what = f"{plan.steps:,} gradient steps, validations on {scenario.name!r}"
    _say_start(f"graph net{left_out} on {systems_of(plan.parameters)}; {what}", training.steps, files)
    training.run()
    _sum_up(training.best, training.seconds, files)


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

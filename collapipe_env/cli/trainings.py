"""Run the trainings of ``collapipe train``, with a line before and a summary after each."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collapipe_env.cli.train_options import Options
from collapipe_env.scenario import Scenario

if TYPE_CHECKING:
    from collapipe_env.agents.learned.agent_training import TrainingFiles
    from collapipe_env.agents.learned.graph.graph_run import GraphFiles
    from collapipe_env.agents.learned.validation import Score

VALIDATIONS = 20
"""Validations of a whole training."""
LEAST_BETWEEN_VALIDATIONS = 100
"""Fewest gradient steps of the graph net between validations, which take as long as dozens of steps."""


def files_of(options: Options, folder: Path) -> TrainingFiles | GraphFiles:
    """Return the files of the training in a folder."""
    if options.training.algo == "graph":
        from collapipe_env.agents.learned.graph.graph_run import GraphFiles

        return GraphFiles(folder)
    from collapipe_env.agents.learned.agent_training import TrainingFiles

    return TrainingFiles(folder)


def steps_kept(files: TrainingFiles | GraphFiles) -> int:
    """Steps of the training in a folder, 0 before it begins.

    Raises:
        CheckpointError: If its checkpoint is damaged.
    """
    if not files.latest.exists():
        return 0
    from collapipe_env.agents.learned.agent_file import read_agent_file

    return read_agent_file(files.latest).record.steps


def train_agent(
    options: Options, scenario: Scenario, files: TrainingFiles, learner: str, reward: str, command: str
) -> None:
    """Train PPO or SAC."""
    from collapipe_env.agents.learned.agent_training import TrainingPlan, train, training_state

    algorithm = options.training.algo
    assert algorithm != "graph"
    before = training_state(files)
    if before.steps >= options.steps:
        _say_done(before.steps)
        return
    notes = []
    whole = options.whole_steps(before.steps)
    if whole != options.steps:
        notes.append(f"rounded up to {whole:,} steps, because a training ends with a whole rollout")
    if before.planned and before.planned < options.steps:
        notes.append(
            f"lengthened from {before.planned:,} to {options.steps:,} steps: the learning rate follows the "
            "longer schedule from here"
        )
    what = f"{options.steps:,} steps on {options.envs} environments, {learner} learner"
    _say_start(f"{algorithm.upper()} on {scenario.name!r}, {what}", before.steps, files, notes)
    plan = TrainingPlan(
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
        track=options.output.track,
    )
    state = train(plan, files)
    _sum_up(state.best, state.seconds, files)


def train_graph(options: Options, scenario: Scenario, files: GraphFiles, command: str) -> None:
    """Train the graph net, and show its validations on a scenario."""
    from collapipe_env.agents.learned.graph.graph_files import systems_of
    from collapipe_env.agents.learned.graph.graph_run import GraphPlan
    from collapipe_env.agents.learned.graph.graph_training import GraphTraining

    plan = GraphPlan(
        scenario=scenario,
        parameters=options.graph,
        steps=options.steps,
        seed=options.training.seed,
        validate_every=max(options.steps // VALIDATIONS, min(options.steps, LEAST_BETWEEN_VALIDATIONS)),
        command=command,
        track=options.output.track,
    )
    training = GraphTraining(plan, files)
    if training.done:
        _say_done(training.steps)
        return
    left_out = f" without {', '.join(options.graph.without)}" if options.graph.without else ""
    what = f"{plan.steps:,} gradient steps, validations on {scenario.name!r}"
    _say_start(f"graph net{left_out} on {systems_of(plan.parameters)}; {what}", training.steps, files)
    training.run()
    _sum_up(training.best, training.seconds, files)


def _say_done(steps: int) -> None:
    print(f"training is done: {steps:,} steps")


def _say_start(what: str, step: int, files: TrainingFiles | GraphFiles, notes: Sequence[str] = ()) -> None:
    print(f"{'going on' if step else 'training'}: {what}, from step {step:,}")
    for note in (*notes, f"curves: tensorboard --logdir {shlex.quote(str(files.tensorboard))}"):
        print(f"  {note}")


def _sum_up(best: Score | None, seconds: float, files: TrainingFiles | GraphFiles) -> None:
    if best is not None:
        print(
            f"trained in {seconds:.0f} s; best version: priced delay {best.priced_delay:.2f} s, worst node's "
            f"energy {100.0 * (best.energy_ratio - 1.0):+.1f} % against its budget\n  {files.best}"
        )

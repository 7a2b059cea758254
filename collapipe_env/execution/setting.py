"""Setting of an execution: the parts of a scenario that each process needs, and executable scenarios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from collapipe_env.execution.device import DeviceSetting
from collapipe_env.execution.parts import LocalTraining
from collapipe_env.ground.errors import ScenarioError, StateError
from collapipe_env.ground.state_files import tree_bytes, tree_of
from collapipe_env.ground.state_trees import require_names
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.decision_names import opens
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.tasks.base import trained_architecture
from collapipe_env.training.beginning import Beginning, begin_training
from collapipe_env.training.federation import Federation
from collapipe_env.training.held_out_evaluation import EvaluationDesk
from collapipe_env.training.real_learner import TorchLearner
from collapipe_env.training.training_setup import Training, TrainingSetup

MOMENT_BITS = 32
"""Bits of moments that travel: each part keeps its own moments and sends them unchanged."""
REMEDY = "start over with --fresh"
"""Remedy for a damaged state."""


def require_executable(scenario: Scenario) -> None:
    """Refuse a scenario that processes cannot play as the simulator does.

    Raises:
        ScenarioError: If it cannot be executed; the message names the field, its value and the remedy.
    """
    workload = scenario.workload
    refused = [
        (workload.train_bits != 32, f"workload.train_bits = {workload.train_bits}", "set 32"),
        (workload.moment_bits != 32, f"workload.moment_bits = {workload.moment_bits}", "set 32"),
        (
            trained_architecture(scenario).dropout > 0.0,
            "dropout, which draws numbers in the order of one process",
            "set learning.dropout to 0",
        ),
        (
            scenario.radio.d2d_duplex != "full",
            f"radio.d2d_duplex = {scenario.radio.d2d_duplex}",
            "set full: two processes would share a link in both directions",
        ),
        (opens(scenario, "server_blocks"), "decisions with server_blocks", "take it off"),
    ]
    for is_refused, what, remedy in refused:
        if is_refused:
            raise ScenarioError(f"scenario {scenario.name!r} cannot be executed with {what}: {remedy}")


def local_training(learning: LearningSpec) -> LocalTraining:
    """Return the terms on which the nodes of clusters train."""
    return LocalTraining(**{field.name: getattr(learning, field.name) for field in fields(LocalTraining)})


def device_setting(scenario: Scenario) -> DeviceSetting:
    """Return the setting of a scenario's devices."""
    training = Training.of(scenario)
    return DeviceSetting(training.architecture, training.update_format, local_training(scenario.learning))


@dataclass(frozen=True)
class TrainingSetting:
    """Setting of the server and of control units: data and models.

    Attributes:
        setup: Setup of the training.
        desk: Evaluation of one run.
        rng: Returns the generator of the run, at its beginning.
    """

    setup: TrainingSetup
    desk: EvaluationDesk
    rng: Callable[[], np.random.Generator]

    @classmethod
    def of(cls, scenario: Scenario, rng: Callable[[], np.random.Generator]) -> TrainingSetting:
        """Load the data of a scenario.

        Args:
            rng: Returns the generator of the run, at its beginning, anew with every call.
        """
        setup, desk = TorchLearner(Training.of(scenario, MOMENT_BITS), 1, "cpu").prepare()
        return cls(setup, desk, rng)

    def beginning(self) -> Beginning:
        """Return the run's state before its first round."""
        return begin_training(self.setup, self.rng())

    def federation(self) -> Federation:
        """Return the run before its first round, and evaluate it."""
        run = Federation(self.setup, self.rng())
        self.desk.begin_run(0, *run.common_model)
        return run

    def save(self, run: Federation) -> bytes:
        """Return the state of a run between rounds, and that of its evaluation."""
        return tree_bytes(
            {
                "data": self.setup.data_digest,
                "run": run.get_state(),
                "desk": self.desk.get_state(),
            }
        )

    def restored(self, content: bytes) -> tuple[TrainingSetting, Federation]:
        """Return a setting and a run that continue from a state.

        Args:
            content: Result of :meth:`save`.

        Raises:
            StateError: If it is damaged, or comes from other data.
        """
        tree = tree_of(content, "the state of the training", REMEDY)
        require_names(tree, ("data", "run", "desk"), "training")
        if tree["data"] != self.setup.data_digest:
            raise StateError(
                "the state comes from training with other data: use the files with which the run began"
            )
        run = Federation.from_state(self.setup, tree["run"])
        return replace(self, desk=self.desk.restored(tree["desk"])), run

    def evaluate(self, run: Federation) -> dict[str, Any]:
        """Return loss and metrics of the common model after a round."""
        self.desk.end_round(0, *run.common_model)
        return {
            "loss": float(self.desk.loss[0]),
            **{name: float(values[0]) for name, values in self.desk.metrics.items()},
        }

"""Setting of an execution: executable scenarios, and the part of a scenario that devices need."""

from __future__ import annotations

from dataclasses import fields

from collapipe_env.execution.device import DeviceSetting
from collapipe_env.execution.parts import LocalTraining
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.decision_names import opens
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.tasks.base import trained_architecture
from collapipe_env.training.training_setup import Training


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

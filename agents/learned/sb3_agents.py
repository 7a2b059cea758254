"""Agents of Stable-Baselines3 after training: the part that plays, and its scheduler."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.scenario import Scenario

from .agent_file import AgentFile, AgentRecord
from .algorithms import AgentAlgorithm
from .checkpoint import SavedAgent, read_checkpoint, require_weights
from .hyperparameters import parameters_from_dict
from .sb3_models import TRAINING_ONLY, LearnedScheduler


class _SB3Agents:
    """PPO and SAC; see :class:`~.algorithms.AgentAlgorithm`."""

    def playing_part(self, checkpoint: Path) -> AgentFile:
        """The policy without value networks and optimisers."""
        saved = read_checkpoint(checkpoint)
        record = AgentRecord(
            algorithm=saved.algorithm,
            hyperparameters=asdict(saved.parameters),
            scenario=saved.scenario,
            systems={},
            features=saved.features,
            decisions=saved.decisions,
            steps=saved.steps,
            training=saved.training,
            history=saved.history,
            package_version=saved.package_version,
        )
        weights = {
            name: value.numpy() for name, value in saved.policy.items() if not name.startswith(TRAINING_ONLY)
        }
        return AgentFile(record, weights)

    def without_training(self, agent: AgentFile) -> AgentFile:
        """The same agent: checkpoints are archives, so its file holds nothing for training."""
        return agent

    def from_checkpoint(self, checkpoint: Path, scenario: Scenario) -> LearnedScheduler:
        """The scheduler that plays the most likely action of a checkpoint's policy."""
        return LearnedScheduler.load(checkpoint, scenario)

    def from_agent_file(self, agent: AgentFile, scenario: Scenario, place: str) -> LearnedScheduler:
        """The same for an agent's file, whose features and decisions must match the scenario's."""
        record, tensors = agent
        try:
            parameters = parameters_from_dict(record.algorithm, record.hyperparameters)
        except CheckpointError as error:
            raise CheckpointError(f"{place}: {error}") from None
        weights = {name: torch.from_numpy(value.copy()) for name, value in tensors.items()}
        require_weights(place, "the file", weights, parameters)
        saved = SavedAgent(
            algorithm=record.algorithm,
            parameters=parameters,
            scenario=record.scenario,
            features=record.features,
            decisions=record.decisions,
            steps=record.steps,
            training=record.training,
            history=record.history,
            package_version=record.package_version,
            policy=weights,
            optimisers={},
        )
        return LearnedScheduler.restore(saved, scenario, place)


SB3_AGENTS: AgentAlgorithm = _SB3Agents()

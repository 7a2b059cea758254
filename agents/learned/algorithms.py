"""Training algorithms of agents, by name: how a checkpoint becomes an agent that plays.

Each algorithm has one entry; commands, the zoo and ``load_agent`` know nothing more about it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.ground.registry import Registry
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler

from .agent_file import AgentFile


class AgentAlgorithm(Protocol):
    """Interface to an algorithm's agents after training."""

    def playing_part(self, checkpoint: Path) -> AgentFile:
        """Return the playing part of a checkpoint: record and weights, without what only training needs.

        Args:
            checkpoint: A file that training saved.

        Raises:
            CheckpointError: If it cannot be read.
        """
        ...

    def without_training(self, agent: AgentFile) -> AgentFile:
        """Return an agent's file without what only training needs, if its checkpoints are such files.

        Args:
            agent: Content of the file.
        """
        ...

    def from_checkpoint(self, checkpoint: Path, scenario: Scenario) -> Scheduler:
        """Build the scheduler of a checkpoint.

        Args:
            checkpoint: A file that training saved.

        Raises:
            CheckpointError: If it cannot be read, or does not fit the scenario.
        """
        ...

    def from_agent_file(self, agent: AgentFile, scenario: Scenario, place: str) -> Scheduler:
        """Build the scheduler of an agent's file.

        Args:
            agent: Its content.
            place: Path of the file, for errors.

        Raises:
            CheckpointError: If the weights do not fit the record, or the agent does not fit the scenario;
                names the feature or decision that differs.
        """
        ...


ALGORITHMS: Registry[AgentAlgorithm] = Registry(
    "algorithm",
    {
        "ppo": "collapipe_env.agents.learned.sb3_agents:SB3_AGENTS",
        "sac": "collapipe_env.agents.learned.sb3_agents:SB3_AGENTS",
        "graph": "collapipe_env.agents.learned.graph.graph_files:GRAPH_AGENTS",
    },
    group="collapipe_env.algorithms",
    error=CheckpointError,
)
"""Algorithms by name; each is imported on first use."""

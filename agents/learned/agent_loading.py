"""Saved agents as schedulers: each algorithm has one entry, and nothing else is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.ground.registry import Registry
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.schedulers import Scheduler
from collapipe_env.zoo.shipped_agents import agent_path, shown_agent

from .agent_file import AgentFile, read_agent_file

AgentAlgorithm: TypeAlias = Callable[[AgentFile, Scenario, str], Scheduler]
"""Builds the scheduler of an agent's file for a scenario; the text is the file's place, for errors. It raises
``CheckpointError`` if weights do not fit the record, or the agent does not fit the scenario, and names the
feature or decision that differs."""

ALGORITHMS: Registry[AgentAlgorithm] = Registry(
    "algorithm",
    {
        "ppo": "collapipe_env.agents.learned.sb3_models:sb3_agent",
        "sac": "collapipe_env.agents.learned.sb3_models:sb3_agent",
        "graph": "collapipe_env.agents.learned.graph.graph_files:graph_agent",
    },
    group="collapipe_env.algorithms",
    error=CheckpointError,
    use="is called with an agent's file, the scenario and the file's place",
)
"""Training algorithms of agents by name; each is imported on first use."""


def load_agent(source: str | Path, scenario: str | Path | Mapping[str, Any] | Scenario) -> Scheduler:
    """Load a saved agent for a scenario; nothing in its file is executed.

    Args:
        source: ``"zoo:NAME"`` of an agent in the package (``collapipe zoo`` lists them), or a file that
            ``collapipe train`` or ``collapipe zoo export`` wrote.
        scenario: The scenario to schedule: a shipped scenario, a YAML file, a mapping or an object.

    Returns:
        The scheduler.

    Raises:
        CheckpointError: If there is no such agent, its file is damaged or not the shipped one, or the
            scenario's observations or actions differ from those of its training; the message names the
            difference.
        ScenarioError: If the scenario cannot be used.
    """
    path = agent_path(source)
    chosen = load_scenario(scenario)
    agent = read_agent_file(path)
    if agent.record.algorithm not in ALGORITHMS:
        raise CheckpointError(
            f"{path}: {ALGORITHMS.unknown(agent.record.algorithm)}: train again with --fresh"
        )
    return ALGORITHMS.get(agent.record.algorithm)(agent, chosen, shown_agent(path))

"""Load saved agents of any algorithm and file format as schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.ground.files import open_regular
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.schedulers import Scheduler
from collapipe_env.zoo.shipped_agents import agent_path, shown_agent

from .agent_file import AgentFile, is_agent_file, read_agent_file
from .algorithms import ALGORITHMS, AgentAlgorithm


def load_agent(source: str | Path, scenario: str | Path | Mapping[str, Any] | Scenario) -> Scheduler:
    """Load a saved agent for a scenario; nothing in its file is executed.

    Args:
        source: ``"zoo:NAME"`` of an agent in the package (``collapipe zoo`` lists them), or a file: a
            checkpoint of ``collapipe train`` or an agent that ``collapipe zoo export`` wrote.
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
    if _only_plays(path):
        agent = read_agent_file(path)
        return _algorithm(agent.record.algorithm, path).from_agent_file(agent, chosen, shown_agent(path))
    from .checkpoint import read_metadata

    return _algorithm(read_metadata(path)["algorithm"], path).from_checkpoint(path, chosen)


def playing_part(checkpoint: Path) -> AgentFile:
    """Return the parts of any algorithm's checkpoint that playing needs, without those only for training.

    Args:
        checkpoint: A file that training saved, or one that already holds only these parts.

    Raises:
        CheckpointError: If it cannot be read.
    """
    if _only_plays(checkpoint):
        agent = read_agent_file(checkpoint)
        return _algorithm(agent.record.algorithm, checkpoint).without_training(agent)
    from .checkpoint import read_metadata

    return _algorithm(read_metadata(checkpoint)["algorithm"], checkpoint).playing_part(checkpoint)


def agent_history(path: Path) -> list[dict[str, Any]]:
    """Return the validations of a saved agent's training, oldest first.

    Raises:
        CheckpointError: If it cannot be read.
    """
    if _only_plays(path):
        return read_agent_file(path).record.history
    from .checkpoint import read_metadata

    history: list[dict[str, Any]] = read_metadata(path)["history"]
    return history


def _algorithm(name: str, path: Path) -> AgentAlgorithm:
    if name not in ALGORITHMS:
        raise CheckpointError(f"{path}: {ALGORITHMS.unknown(name)}: train again with --fresh")
    return ALGORITHMS.get(name)


def _only_plays(path: Path) -> bool:
    """Whether a file is of the kind that can only play; its reader reports files that cannot be opened."""
    if path.suffix == ".safetensors":
        return True
    try:
        with open_regular(path, 2**63) as file:
            return is_agent_file(file.read(9))
    except OSError:
        return False

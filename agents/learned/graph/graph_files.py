"""Files of graph nets: versions from which training continues, and agents that only play."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from collapipe_env.agents.learned.agent_file import (
    AgentFile,
    AgentRecord,
    Shapes,
    read_agent_file,
    require_tensors,
)
from collapipe_env.envs.graph_features import CONTEXT, CU, DEVICE, HOP
from collapipe_env.ground.errors import CheckpointError, shortened
from collapipe_env.ground.version import __version__
from collapipe_env.scenario import Scenario
from collapipe_env.zoo.shipped_agents import agent_path

from .graph_parameters import GraphParameters, graph_parameters_from_dict
from .graph_scheduler import GraphScheduler
from .net import GraphNet
from .training_range import outside, warn_outside

DECISIONS: Shapes = {
    "blocks": [1],
    "device_power": [1],
    "cu_power": [1],
    "micro_batches": [1],
    "bandwidth": [1],
}
"""Decisions of the net, each of one device or control unit."""
HEAT = "heat.weight"
"""Name of the weights for heat."""
LATER = (HEAT, "risk.", "share_")
"""Beginnings of the names of weights that a file may lack: they count as 0, without effect."""


def features() -> Shapes:
    """Features that the net reads, each of one device, control unit, hop or system."""
    arrays = (DEVICE, CU, HOP, CONTEXT)
    return {f"{array.name}/{feature.name}": [1] for array in arrays for feature in array.features}


def graph_record(
    parameters: GraphParameters,
    systems: Mapping[str, Any],
    steps: int,
    training: Mapping[str, Any],
    history: list[dict[str, Any]],
) -> AgentRecord:
    """Record of a graph net's file.

    Args:
        parameters: Its hyper-parameters.
        systems: Systems that it is trained on, see :func:`~.training_range.training_range`.
        steps: Gradient steps so far.
        training: Record of the training.
        history: Validations, oldest first.
    """
    return AgentRecord(
        algorithm="graph",
        hyperparameters={n: list(v) if isinstance(v, tuple) else v for n, v in asdict(parameters).items()},
        scenario={},
        systems=dict(systems),
        features=features(),
        decisions=DECISIONS,
        steps=steps,
        training=dict(training),
        history=history,
        package_version=__version__,
    )


def require_graph_net(agent: AgentFile, place: str) -> GraphNet:
    """The graph net of a file.

    Args:
        agent: Content of the file.
        place: Its path, for errors.

    Raises:
        CheckpointError: If the weights are not those of such a net, or it was trained with other features.
    """
    record = agent.record
    if record.algorithm != "graph":
        raise CheckpointError(
            f"{place} is an agent of {shortened(record.algorithm)}, not a graph net: give the file of one, "
            "as collapipe train --algo graph writes it"
        )
    try:
        parameters = graph_parameters_from_dict(record.hyperparameters)
    except CheckpointError as error:
        raise CheckpointError(f"{place}: {error}") from None
    for kind, found, present in (
        ("feature", record.features, features()),
        ("decision", record.decisions, DECISIONS),
    ):
        odd = [name for name in (*found, *present) if (name in found) != (name in present)]
        if odd or list(found) != list(present):
            named = shortened(", ".join(dict.fromkeys(odd))) if odd else "their order"
            raise CheckpointError(
                f"{place} was trained with other {kind}s than this version has ({named}): use the version "
                f"that wrote it ({shortened(record.package_version)}), or train again"
            )
    with torch.device("meta"):  # no weights are drawn
        net = GraphNet(parameters)
    wanted = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    own = agent.playing.tensors
    missing = (name for name in wanted if name.startswith(LATER) and name not in own)
    own |= {name: np.zeros(wanted[name], np.float32) for name in missing}
    require_tensors(own, wanted, place)
    net.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in own.items()}, assign=True)
    return net


def first_weights(parameters: GraphParameters) -> dict[str, torch.Tensor]:
    """Weights of the net that a training starts from, without those that its file lacks.

    Args:
        parameters: Hyper-parameters of the training, which name that net.

    Raises:
        CheckpointError: If it cannot be read, is not a graph net, or has other sizes.
    """
    path = agent_path(parameters.start_from)
    agent = read_agent_file(path)
    net = require_graph_net(agent, str(path))
    for name in ("width", "layers", "heads", "hidden", "edge_hidden", "plan_hidden"):
        held, wanted = getattr(net.sizes, name), getattr(parameters, name)
        if held != wanted:
            raise CheckpointError(
                f"{path}, which training is to start from, is a net with {name} = {held}, not {wanted}: "
                f"give --graph.{name.replace('_', '-')} {held}"
            )
    return {name: value for name, value in net.state_dict().items() if name in agent.tensors}


def graph_agent(agent: AgentFile, scenario: Scenario, place: str) -> GraphScheduler:
    """Build the scheduler of a graph net, for a scenario of any size.

    Args:
        agent: Content of its file.
        scenario: The scenario to schedule.
        place: The file, for errors.

    Raises:
        CheckpointError: If the file is not that of a graph net.
    """
    net = require_graph_net(agent, place)
    try:
        found = outside(scenario, agent.record.systems)
    except CheckpointError as error:
        raise CheckpointError(f"{place}: {error}") from None
    if found:
        warn_outside(place, scenario.name, tuple(found))
    return GraphScheduler(scenario, net)

"""Names and shapes of an agent's inputs and decisions, and the check that a scenario has the same."""

from __future__ import annotations

import math
from collections.abc import Iterator

from collapipe_env.envs.observation import FlatObserver
from collapipe_env.ground.errors import CheckpointError, shortened, shown
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import action_codec

from .agent_file import AgentRecord, Shapes

MOST_NAMED = 3
"""Differences that a message names; the others are counted."""


def features_of(scenario: Scenario) -> Shapes:
    """Shapes of the features of a scenario's flat observation."""
    return {name: list(part.shape) for name, part in FlatObserver(scenario).layout.items()}


def decisions_of(scenario: Scenario) -> Shapes:
    """Shapes of the parts of a scenario's action."""
    return {name: list(part.shape) for name, part in action_codec(scenario).parts.items()}


def require_same_layout(record: AgentRecord, scenario: Scenario, place: str) -> None:
    """Refuse an agent whose observations or actions differ from a scenario's in name or shape.

    Args:
        record: Record of the agent.
        scenario: The scenario that it is to play.
        place: File of the agent, for the error.

    Raises:
        CheckpointError: Names the features and decisions that differ.
    """
    features, decisions = features_of(scenario), decisions_of(scenario)
    found = [
        *_differences("feature", record.features, features),
        *_differences("decision", record.decisions, decisions),
    ]
    if not found:
        return
    more = f"; and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    raise CheckpointError(
        f"{place} was trained on {shown(record.trained_on)} (observations of {_numbers(record.features)} "
        f"numbers, actions of {_numbers(record.decisions)}); scenario {scenario.name!r} has "
        f"{_numbers(features)} and {_numbers(decisions)}: {shortened('; '.join(found[:MOST_NAMED]), 600)}"
        f"{more}: choose the agent's own scenario with --scenario, or train one for this"
    )


def _differences(kind: str, trained: Shapes, present: Shapes) -> Iterator[str]:
    """Yield the differences between two layouts, in words."""
    for name in {**trained, **present}:
        if trained.get(name) != present.get(name):
            here, there = (
                tuple(shapes[name]) if name in shapes else "absent" for shapes in (present, trained)
            )
            yield f"{kind} {shown(name)[1:-1]} is {here} in this scenario, {there} in training"
    if trained == present and list(trained) != list(present):
        yield f"{kind}s are in another order"


def _numbers(shapes: Shapes) -> int:
    """Count of all numbers in parts of these shapes."""
    return sum(math.prod(shape) for shape in shapes.values())

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


def numbers(shapes: Shapes) -> int:
    """Count of all numbers in parts of these shapes."""
    return sum(math.prod(shape) for shape in shapes.values())


def differences(kind: str, trained: Shapes, present: Shapes) -> Iterator[str]:
    """Yield the differences between two layouts, in words.

    Args:
        kind: Name of a part: ``"feature"`` or ``"decision"``.
        trained: Layout that the agent was trained with.
        present: Layout of the scenario that it is to play.
    """
    for name, shape in trained.items():
        if name not in present:
            yield f"{kind} {_name(name)} {_text(shape)} is missing in this scenario"
        elif present[name] != shape:
            yield f"{kind} {name} is {_text(present[name])} in this scenario, {_text(shape)} in training"
    for name, shape in present.items():
        if name not in trained:
            yield f"{kind} {name} {_text(shape)} of this scenario was absent in training"
    common = [name for name in trained if name in present]
    for name, other in zip(common, (name for name in present if name in trained), strict=True):
        if name != other:
            yield f"{kind}s are in another order, {other} in place of {name}"
            return


def require_same_layout(record: AgentRecord, scenario: Scenario, place: str) -> None:
    """Refuse an agent whose observations or actions differ from a scenario's in name or shape.

    Args:
        record: Record of the agent.
        scenario: The scenario that it is to play.
        place: File of the agent, for the error.

    Raises:
        CheckpointError: Names the features and decisions that differ.
    """
    present = features_of(scenario), decisions_of(scenario)
    found = [
        *differences("feature", record.features, present[0]),
        *differences("decision", record.decisions, present[1]),
    ]
    if not found:
        return
    more = f"; and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    raise CheckpointError(
        f"{place} was trained on {shown(record.trained_on)} (observations of {numbers(record.features)} "
        f"numbers, actions of {numbers(record.decisions)}); scenario {scenario.name!r} has "
        f"{numbers(present[0])} and {numbers(present[1])}: {shortened('; '.join(found[:MOST_NAMED]), 600)}"
        f"{more}: choose the agent's own scenario with --scenario, or train one for this"
    )


def _name(name: str) -> str:
    """A name from a file as messages show it."""
    return shown(name)[1:-1]


def _text(shape: list[int]) -> str:
    return str(tuple(shape))

"""Observers of the kinds of observation that environments offer."""

from __future__ import annotations

from typing import TypeAlias

from collapipe_env.envs.graph_layout import GraphLayout
from collapipe_env.envs.graph_observation import GraphObservations
from collapipe_env.envs.observation import FlatObserver, ObservationLayout
from collapipe_env.envs.observation_kinds import OBSERVATIONS
from collapipe_env.ground.errors import ScenarioError, nearest_name, shown
from collapipe_env.scenario import Scenario

Layout: TypeAlias = ObservationLayout | GraphLayout
"""Layout of either kind of observation."""
Observer: TypeAlias = FlatObserver | GraphObservations
"""Builds the observations of a scenario's environments; its ``layout`` names their features."""


def make_observer(kind: str, scenario: Scenario) -> Observer:
    """Make the observer of a kind of observation.

    Args:
        kind: ``"flat"`` or ``"graph"``.

    Raises:
        ScenarioError: If there is no such kind.
    """
    if kind not in OBSERVATIONS:
        hint = nearest_name(kind, OBSERVATIONS)
        raise ScenarioError(f"observation = {shown(kind)} is not known: {hint}")
    return GraphObservations(scenario) if kind == "graph" else FlatObserver(scenario)

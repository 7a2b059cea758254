"""Builders of the kinds of observation that environments offer."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from gymnasium import spaces

from collapipe_env.envs.graph_additions import graph_additions
from collapipe_env.envs.graph_layout import GraphLayout
from collapipe_env.envs.graph_observation import GraphObserver
from collapipe_env.envs.observation import ObservationLayout
from collapipe_env.envs.observation_kinds import OBSERVATIONS, Observation
from collapipe_env.envs.observed_processes import observation_builder
from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.ground.errors import ScenarioError, nearest_name, shown
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.state import SystemState

Layout: TypeAlias = ObservationLayout | GraphLayout
"""Layout of either kind of observation."""


class Observer(Protocol):
    """Builds the observations of a scenario's environments.

    Attributes:
        layout: Names, shapes and bounds of the features.
    """

    layout: Any

    def space(self) -> spaces.Space[Any]:
        """Space of the observations of one environment."""
        ...

    def build(self, state: SystemState) -> Observation:
        """Observations of states (E, ...) in NumPy arrays, as fresh float32 arrays."""
        ...

    def build_generic(self, state: SystemState) -> Observation:
        """Observations of states (E, ...) on any array library."""
        ...


class GraphObservations:
    """Graph observations as environments hand them out: dictionaries of float32 arrays.

    Attributes:
        layout: Names, shapes and bounds of the features.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._additions = graph_additions(scenario)
        self.layout = GraphLayout(scenario.clusters, scenario.max_devices, scenario.blocks, self._additions)
        self._observer = GraphObserver(system_parameters(scenario))

    def space(self) -> spaces.Dict:
        """Space of the observations of one environment."""
        return self.layout.space()

    def build(self, state: SystemState) -> dict[str, Array]:
        """Observations of states (E, ...) in NumPy arrays, as fresh float32 arrays."""
        return {**self._observer.build(state)._asdict(), **self._added(state)}

    def build_generic(self, state: SystemState) -> dict[str, Array]:
        """Observations of states (E, ...) on any array library."""
        xp = namespace(state.backlog)
        graph = self._observer.build_generic(state)._asdict()
        return {**{name: xp.astype(a, xp.float32) for name, a in graph.items()}, **self._added(state)}

    def _added(self, state: SystemState) -> dict[str, Array]:
        xp = namespace(state.backlog)
        return {added.name: xp.astype(added.seen(state), xp.float32) for added in self._additions}


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
    return GraphObservations(scenario) if kind == "graph" else observation_builder(scenario)

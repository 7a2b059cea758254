"""Builders of the kinds of observation that environments offer."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from gymnasium import spaces

from collapipe_env.arrays import Array, at_most, namespace
from collapipe_env.envs.graph_layout import GraphLayout
from collapipe_env.envs.graph_observation import GraphObserver, seen_absence
from collapipe_env.envs.observation import ObservationLayout
from collapipe_env.envs.observation_kinds import OBSERVATIONS, Observation
from collapipe_env.envs.observed_processes import observation_builder
from collapipe_env.errors import ScenarioError, nearest_name, shown
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.state import SystemState, other_memory_caps

Layout: TypeAlias = ObservationLayout | GraphLayout
"""Names of what an observation holds."""


class Observer(Protocol):
    """Builds the observations of a scenario's environments.

    Attributes:
        layout: Names, shapes and bounds of what they hold.
    """

    layout: Any

    def space(self) -> spaces.Space[Any]:
        """Space of the observations of one environment."""
        ...

    def build(self, state: SystemState) -> Observation:
        """Observations of states (E, ...) in NumPy arrays: fresh ones, float32."""
        ...

    def build_generic(self, state: SystemState) -> Observation:
        """The same on any array library."""
        ...


class GraphObservations:
    """Graph observations as environments hand them out: dictionaries of float32 arrays.

    Args:
        scenario: The scenario.

    Attributes:
        layout: Names, shapes and bounds of what they hold.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._parameters = system_parameters(scenario)
        self._opened = self._parameters.other_costs is not None
        self.layout = GraphLayout(
            scenario.clusters,
            scenario.max_devices,
            scenario.blocks,
            recompute=self._opened,
            participation=self._parameters.idle_round_s is not None,
        )
        self._observer = GraphObserver(self._parameters)

    def space(self) -> spaces.Dict:
        """Space of the observations of one environment."""
        return self.layout.space()

    def build(self, state: SystemState) -> dict[str, Array]:
        """Observations of states (E, ...) in NumPy arrays: fresh ones, float32."""
        return {**self._observer.build(state)._asdict(), **self._of_opened(state)}

    def build_generic(self, state: SystemState) -> dict[str, Array]:
        """The same on any array library."""
        xp = namespace(state.backlog)
        graph = {**self._observer.build_generic(state)._asdict(), **self._of_opened(state)}
        return {name: xp.astype(array, xp.float32) for name, array in graph.items()}

    def _of_opened(self, state: SystemState) -> dict[str, Array]:
        """Features that opened decisions add, by the name of their array."""
        xp = namespace(state.backlog)
        absence = {}
        if state.absence is not None:
            absence["absence"] = xp.astype(seen_absence(state.absence), xp.float32)
        if not self._opened:
            return absence
        caps = xp.astype(other_memory_caps(self._parameters, state), xp.float32)
        held = at_most(caps, self._parameters.costs.blocks)
        return {"opened": xp.where(state.present, held, 0.0)[..., None], **absence}


def make_observer(kind: str, scenario: Scenario) -> Observer:
    """Make the observer of a kind of observation.

    Args:
        kind: ``"flat"`` or ``"graph"``.
        scenario: The scenario.

    Raises:
        ScenarioError: If there is no such kind.
    """
    if kind not in OBSERVATIONS:
        hint = nearest_name(kind, OBSERVATIONS)
        raise ScenarioError(f"observation = {shown(kind)} is not known: {hint}")
    return GraphObservations(scenario) if kind == "graph" else observation_builder(scenario)

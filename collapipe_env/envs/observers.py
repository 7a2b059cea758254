"""Builders of the kinds of observation that environments offer."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from gymnasium import spaces

from collapipe_env.dynamics.presence import PRESENCE
from collapipe_env.envs.graph_layout import GraphLayout
from collapipe_env.envs.graph_motion import seen_departures, seen_motion
from collapipe_env.envs.graph_observation import GraphObserver, seen_absence
from collapipe_env.envs.graph_stay import seen_stays
from collapipe_env.envs.observation import ObservationLayout
from collapipe_env.envs.observation_kinds import OBSERVATIONS, Observation
from collapipe_env.envs.observed_processes import observation_builder
from collapipe_env.envs.opened_features import clock_share, flight_capacity
from collapipe_env.ground.arrays import Array, at_most, log1p, namespace
from collapipe_env.ground.errors import ScenarioError, nearest_name, shown
from collapipe_env.kernels.graph_rows import LOG_BOUND
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.decision_names import opens
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.process_registry import active_processes
from collapipe_env.simulator.state import SystemState, other_memory_caps
from collapipe_env.simulator.system import MOBILITY, walking_side

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


SERVER_PROCESSES = ("server", "tenants")
"""Processes that move the terms of the server."""


class GraphObservations:
    """Graph observations as environments hand them out: dictionaries of float32 arrays.

    Attributes:
        layout: Names, shapes and bounds of the features.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._parameters = system_parameters(scenario)
        self._recompute, self._schedule, self._clocks = (
            opens(scenario, name) for name in ("recompute", "schedule", "clock_cap")
        )
        # Processes that show something under the scenario's visibility.
        processes = active_processes(scenario)
        active = {process.name for process in processes if process.shown}
        self._server = not active.isdisjoint(SERVER_PROCESSES)
        self._heat = "heat" in active
        walks = {seen.carried for p in processes if p.name == MOBILITY for seen in p.shown}
        self._motion, self._departures = "x" in walks, "leaves_s" in walks
        self._stays = PRESENCE in active
        self._side = walking_side(scenario)
        self.layout = GraphLayout(
            scenario.clusters,
            scenario.max_devices,
            scenario.blocks,
            recompute=self._recompute,
            schedule=self._schedule,
            server=self._server,
            participation=self._parameters.chooses_players,
            heat=self._heat,
            motion=self._motion,
            departures=self._departures,
            stays=self._stays,
            clocks=self._clocks,
        )
        self._observer = GraphObserver(self._parameters)

    def space(self) -> spaces.Dict:
        """Space of the observations of one environment."""
        return self.layout.space()

    def build(self, state: SystemState) -> dict[str, Array]:
        """Observations of states (E, ...) in NumPy arrays, as fresh float32 arrays."""
        return {**self._observer.build(state)._asdict(), **self._of_processes(state)}

    def build_generic(self, state: SystemState) -> dict[str, Array]:
        """Observations of states (E, ...) on any array library."""
        xp = namespace(state.backlog)
        graph = {**self._observer.build_generic(state)._asdict(), **self._of_processes(state)}
        return {name: xp.astype(array, xp.float32) for name, array in graph.items()}

    def _of_processes(self, state: SystemState) -> dict[str, Array]:
        """Arrays that opened decisions and processes add."""
        found = {**self._of_opened(state), **self._of_server(state), **self._of_heat(state)}
        if self._motion:
            xp = namespace(state.loss)
            found["motion"] = xp.astype(seen_motion(state, self._side), xp.float32)
        if self._departures:
            xp = namespace(state.loss)
            found["departure"] = xp.astype(seen_departures(state), xp.float32)
        if self._stays:
            found["stay"] = namespace(state.loss).astype(seen_stays(state), namespace(state.loss).float32)
        return found

    def _of_heat(self, state: SystemState) -> dict[str, Array]:
        """Features of devices that warm up, by the name of their array."""
        if not self._heat:
            return {}
        xp, seen = namespace(state.loss), state.processes["heat"]
        columns = xp.stack((seen["headroom"], seen["share"]), axis=-1)
        present = xp.astype(state.present, columns.dtype)[..., None]
        return {"heat": xp.astype(columns * present, xp.float32)}

    def _of_opened(self, state: SystemState) -> dict[str, Array]:
        """Features that opened decisions add, by the name of their array."""
        xp, columns, found = namespace(state.backlog), [], {}
        if state.absence is not None:
            found["absence"] = xp.astype(seen_absence(state.absence), xp.float32)
        if self._recompute:
            caps = xp.astype(other_memory_caps(self._parameters, state), xp.float32)
            columns.append(at_most(caps, self._parameters.costs.blocks))
        if self._schedule:
            columns.append(xp.astype(flight_capacity(self._parameters, state), xp.float32))
        if self._clocks:
            columns.append(xp.astype(clock_share(state), xp.float32))
        if columns:
            found["opened"] = xp.where(state.present[..., None], xp.stack(columns, axis=-1), 0.0)
        return found

    def _of_server(self, state: SystemState) -> dict[str, Array]:
        """Features of the server where its terms move, by the name of their array."""
        if not self._server:
            return {}
        xp = namespace(state.loss)
        nothing = xp.zeros_like(state.uplink_gain[..., 0])
        queue = nothing if state.server_backlog is None else at_most(log1p(state.server_backlog), LOG_BOUND)
        used = nothing if state.server_share is None else 1.0 - state.server_share
        return {"server": xp.astype(xp.stack((queue, used), axis=-1), xp.float32)}


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

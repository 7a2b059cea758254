"""Sight of schedulers: the parts of a system and its processes that schedulers receive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.own_results import own_result
from collapipe_env.simulator.process import Carried, Process
from collapipe_env.simulator.state import EstimatedState, SystemState


class Sight:
    """Estimates of systems, for schedulers and observations.

    Args:
        scenario: The scenario, which sets the visibility of processes.
        checked: Names of those whose results are checked.

    Attributes:
        showing: Names of carried arrays that schedulers may see, by process.
        changes: Whether schedulers see another state than the true one even where all gains are known.
    """

    def __init__(self, scenario: Scenario, processes: tuple[Process, ...], checked: Collection[str]) -> None:
        self._checked = checked
        self._realistic = scenario.dynamics.visibility == "realistic"
        known = {
            p.name: [key for key, array in p.carries.items() if array.seen != "never"] for p in processes
        }
        self.showing = {name: keys for name, keys in known.items() if keys}
        self._told = {p.name: told for p in processes if (told := p.told)}
        self._estimating = tuple(p for p in processes if p.defines("known"))
        self.changes = self._realistic or bool(self._estimating)

    def shown(self, carried: Mapping[str, Carried]) -> Mapping[str, Carried]:
        """Arrays that may be known before the round, from the processes that show any."""
        return {owner: {name: carried[owner][name] for name in own} for owner, own in self.showing.items()}

    def estimate(
        self, truth: SystemState, carried: Mapping[str, Carried], numbers: Callable[[Process], Array]
    ) -> SystemState:
        """State that schedulers receive where not everything is known and shown.

        Memory and presence are always the true ones, because plans are decoded against them.

        Args:
            truth: The system before a round (E, ...).
            carried: Arrays that the processes carry in that round.
            numbers: Returns uniform numbers for a process's estimate (E, numbers / factors).
        """
        processes = truth.processes
        if self._realistic:
            processes = {
                owner: {name: _rounded(carried[owner][name], array.resolution) for name, array in own.items()}
                for owner, own in self._told.items()
            }
        state: SystemState = EstimatedState.of(truth, processes=processes)
        if not self._estimating:
            return state
        for process in self._estimating:
            found = process.known(carried[process.name], state, numbers(process))
            if process.name in self._checked:
                found = own_result(process, "known", found, SystemState, state)
            state = found
        return EstimatedState.of(
            state, memory_bytes=truth.memory_bytes, memory_cap=truth.memory_cap, present=truth.present
        )


def _rounded(values: Array, resolution: float) -> Array:
    if not resolution:
        return values
    rounded: Array = namespace(values).round(values / resolution) * resolution
    return rounded

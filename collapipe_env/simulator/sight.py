"""Sight of schedulers: the parts of a system and its processes that schedulers receive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.own_results import own_result
from collapipe_env.simulator.process import Carried, Observed, Process
from collapipe_env.simulator.state import EstimatedState, SystemState


class Sight:
    """Estimates of systems, for schedulers and observations.

    Args:
        scenario: The scenario, which sets the visibility of processes.
        processes: The active processes.
        checked: Names of those whose results are checked.

    Attributes:
        showing: Processes with arrays that schedulers may see.
        changes: Whether schedulers see another state than the true one even where all gains are known.
    """

    def __init__(self, scenario: Scenario, processes: tuple[Process, ...], checked: Collection[str]) -> None:
        self._checked = checked
        self._realistic = scenario.dynamics.visibility == "realistic"
        self.showing = tuple(p for p in processes if p.observed)
        self._told = [(p.name, p.told, p.shown) for p in self.showing if p.told or p.shown]
        self._estimating = tuple(p for p in processes if p.defines("known"))
        self.changes = self._realistic or bool(self._estimating)

    def shown(self, carried: Mapping[str, Carried]) -> Mapping[str, Carried]:
        """Arrays that may be known before the round, from the processes that show any."""
        found = {}
        for process in self.showing:
            found[process.name] = own = dict(carried[process.name])
            for name in process.hidden:
                own.pop(name, None)
        return found

    def estimate(
        self, truth: SystemState, carried: Mapping[str, Carried], numbers: Callable[[Process], Array]
    ) -> SystemState:
        """State that schedulers receive where not everything is known and shown.

        Memory and presence are always the true ones, because plans are decoded against them.

        Args:
            truth: The system before a round (E, ...).
            carried: Arrays that the processes carry in that round.
            numbers: Returns uniform numbers for a process's estimate (E, known_numbers).
        """
        processes = truth.processes
        if self._realistic:
            told = {name: _told(carried[name], names, shown) for name, names, shown in self._told}
            processes = {name: arrays for name, arrays in told.items() if arrays}
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


def _told(carried: Carried, told: Sequence[str], shown: Sequence[Observed]) -> Carried:
    """Carried arrays that schedulers receive under ``visibility: realistic``.

    Args:
        carried: Arrays of a process.
        told: Names of those that they receive as they are.
        shown: Those that they see in the observation.
    """
    found = {name: carried[name] for name in told if name in carried}
    for seen in shown:
        values = carried[seen.carried]
        if seen.resolution:
            values = namespace(values).round(values / seen.resolution) * seen.resolution
        found[seen.carried] = values
    return found

"""Sight of schedulers: the parts of a system and its processes that schedulers receive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from collapipe_env.ground.arrays import Array
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.own_results import own_result, require_realistic
from collapipe_env.simulator.process import Carried, Process
from collapipe_env.simulator.state import EstimatedState, SystemState


class Sight:
    """Estimates of systems, for schedulers and observations.

    Args:
        scenario: The scenario, which sets the visibility of processes.
        processes: The active processes.
        checked: Names of those whose results are checked.
    """

    def __init__(self, scenario: Scenario, processes: tuple[Process, ...], checked: Collection[str]) -> None:
        self._checked = checked
        self._realistic = scenario.dynamics.visibility == "realistic"
        self._showing = tuple(p for p in processes if p.observed)
        self._estimating = tuple(p for p in processes if p.defines("estimate"))

    def estimate(
        self, truth: SystemState, carried: Mapping[str, Carried], numbers: Callable[[Process], Array]
    ) -> SystemState:
        """State that schedulers receive: the state itself where everything is known and shown.

        Memory and presence are always the true ones, because plans are decoded against them.

        Args:
            truth: The system before a round (E, ...).
            carried: Arrays that the processes carry in that round.
            numbers: Returns uniform numbers for a process's estimate (E, estimate_numbers).
        """
        blurred = truth.known_uplink_gain is not None
        if not (self._estimating or self._realistic or blurred):
            return truth
        state: SystemState = EstimatedState.of(truth)
        if self._realistic or blurred:
            state = replace(state, processes=self._shown(carried, blurred=blurred))
        for process in self._estimating:
            found = process.estimate(carried[process.name], state, numbers(process))
            if process.name in self._checked:
                found = own_result(process, "estimate", found, SystemState, state)
            state = found
        return replace(
            EstimatedState.of(state),
            memory_bytes=truth.memory_bytes,
            memory_cap=truth.memory_cap,
            present=truth.present,
        )

    def _shown(self, carried: Mapping[str, Carried], *, blurred: bool) -> Mapping[str, Carried]:
        """Arrays of processes that schedulers receive.

        Args:
            blurred: Whether known gains differ from the true ones; no other array may then reveal the truth.
        """
        found = {}
        for process in self._showing:
            own = carried[process.name]
            if self._realistic:
                own = process.realistic(own)
                if process.name in self._checked:
                    require_realistic(process, own, carried[process.name])
            if process.hidden:
                own = {name: values for name, values in own.items() if name not in process.hidden}
            if blurred and process.gains:
                own = {name: values for name, values in own.items() if name not in process.gains}
            if own:
                found[process.name] = own
        return found

"""Events inside rounds: interruptions by processes, and devices that fail."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from collapipe_env.ground.arrays import Array
from collapipe_env.ground.backends import NUMPY, Backend
from collapipe_env.ground.errors import ScenarioError, shown
from collapipe_env.ground.records import mapped
from collapipe_env.physics.moves import LOST, STAY
from collapipe_env.physics.recovery import PLANNING_S, RecoveryTerms
from collapipe_env.simulator.failed_rounds import Failures
from collapipe_env.simulator.moving_system import MovingSystem
from collapipe_env.simulator.round import Interruption, RoundCosts
from collapipe_env.simulator.state import Parameters, SystemState


def events_of(parameters: Parameters, system: MovingSystem, backend: Backend) -> RoundEvents | None:
    """Return the events of a system's rounds; ``None`` where no process has any.

    Raises:
        ScenarioError: If the terms of recovery are not sound.
    """
    if not any(p.defines("events") for p in system.processes):
        return None
    terms = [_sound(p.name, found) for p in system.processes if (found := p.recovery) is not None]
    return RoundEvents(system, backend, Failures(parameters, terms[0]) if terms else None)


class RoundEvents:
    """Interruptions of the rounds that are played.

    Args:
        failures: What failing devices cost; ``None`` where none fails.
    """

    def __init__(self, system: MovingSystem, backend: Backend, failures: Failures | None) -> None:
        self._system, self._backend, self._failures = system, backend, failures

    def inside(self, state: SystemState, costs: RoundCosts) -> Interruption | None:
        """Combined events inside the rounds; ``None`` where there are none.

        Args:
            state: The system before the rounds (E, ...).
        """
        together, failing = self._system.events(costs)
        if failing is None or self._failures is None:
            return together
        if self._backend is not NUMPY:
            host = self._backend.host
            state, costs = state.map(host), mapped(costs, host)
        found = self._failures.replayed(state, costs, failing)
        if found is None:
            return together
        return on_backend(found, self._backend).after(together)


def on_backend(found: Interruption, backend: Backend) -> Interruption:
    """Copy events from the host, but for the records of failures, which stay there."""
    return mapped(found._replace(failed=None), backend.array)._replace(failed=found.failed)


def _sound(name: str, terms: object) -> RecoveryTerms:
    """Refuse terms of recovery that no cluster could follow, when the environment is built."""
    if (
        isinstance(terms, RecoveryTerms)
        and terms.kind in PLANNING_S
        and all(isinstance(value, int | float) for value in (terms.heartbeat_s, terms.misses))
        and 0.0 < terms.detection_s < math.inf
    ):
        return terms
    raise ScenarioError(
        f"recovery of the process {name!r} is {shown(terms)}: return RecoveryTerms(kind, heartbeat_s, "
        f"misses) with a kind of {', '.join(PLANNING_S)} and a positive number of seconds and of misses"
    )


def moments_after(moments: Array | None, interruption: Interruption) -> Array | None:
    """Fates of all blocks' moments in a round (E, N, L), int, including those lost to failures.

    Args:
        moments: Fates by the plan's own change; ``None`` where that changes nothing.
    """
    if interruption.failed is None or not interruption.failed.reset.any():
        return moments
    return np.where(interruption.failed.reset, LOST, STAY if moments is None else np.asarray(moments))


def as_left(costs: RoundCosts, interruption: Interruption, backend: Backend) -> RoundCosts:
    """A round with the plan that its clusters end with, from which the next round starts."""
    if interruption.failed is None:
        return costs
    failed, plan = interruption.failed, costs.allocation
    changed = {"blocks": failed.blocks}
    if plan.stage is not None:
        changed["stage"] = failed.stage
    return costs.changed(allocation=replace(plan, **{k: backend.array(v) for k, v in changed.items()}))

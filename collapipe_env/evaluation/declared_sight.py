"""Sight of schedulers: they get what is known of a system, oracles that say so the system itself."""

from __future__ import annotations

from collapipe_env.dynamics.process import active_processes
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.errors import SchedulerError, nearest_name, shown
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler
from collapipe_env.simulator.state import SystemState

SIGHTS = ("state", "truth")
"""Values of a scheduler's attribute ``sees``; the first is the default."""
MARK = "sees the truth"
"""Added to the title of an oracle where the others see an estimate."""


def sees_truth(scheduler: object) -> bool:
    """Whether a scheduler declares with its attribute ``sees`` that it is an oracle.

    Args:
        scheduler: The scheduler; one without a text of that name sees what all see.

    Raises:
        SchedulerError: If there is no such value.
    """
    try:
        sees = getattr(scheduler, "sees", None)
    except Exception:  # the user's code may fail at being asked for what it does not have
        sees = None
    if not isinstance(sees, str):
        return False
    if sees not in SIGHTS:
        raise SchedulerError(f"its sees = {shown(sees)} is not known: {nearest_name(sees, SIGHTS)}")
    return sees == "truth"


def seen_by(env: CollaPipeVectorEnv, *, oracle: bool) -> SystemState:
    """State that a scheduler decides from (E, ...): what is known of the system, for oracles the system.

    Args:
        env: The environment.
        oracle: Whether the scheduler says that it sees the truth.
    """
    return env.truth if oracle else env.state


def hides_truth(scenario: Scenario) -> bool:
    """Whether schedulers of a scenario get an estimate in place of the system.

    Args:
        scenario: The scenario.
    """
    if scenario.dynamics.visibility == "realistic":
        return True
    return any(p.hides_gains or p.defines("estimate") for p in active_processes(scenario))


def title_of(scheduler: Scheduler, scenario: Scenario) -> str:
    """Name of a scheduler for tables, which says of an oracle that it sees more than others do.

    Args:
        scheduler: The scheduler.
        scenario: What it schedules.
    """
    more = sees_truth(scheduler) and hides_truth(scenario)
    return f"{scheduler.name} ({MARK})" if more else scheduler.name

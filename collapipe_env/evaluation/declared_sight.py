"""Sight of schedulers: they receive estimates of a system; only declared oracles receive the true system."""

from __future__ import annotations

from collapipe_env.dynamics.channel_knowledge import gains_are_exact
from collapipe_env.envs.observation_kinds import declared
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler
from collapipe_env.simulator.process_registry import active_processes
from collapipe_env.simulator.state import SystemState

SIGHTS = ("state", "truth")
"""Values of a scheduler's attribute ``sees``; the first is the default."""
MARK = "sees the truth"
"""Added to the title of an oracle where the others see an estimate."""


def sees_truth(scheduler: object) -> bool:
    """Whether a scheduler declares with its attribute ``sees`` that it is an oracle.

    Raises:
        SchedulerError: If the attribute has an unknown value.
    """
    return declared(scheduler, "sees", SIGHTS) == "truth"


def seen_by(env: CollaPipeVectorEnv, *, oracle: bool) -> SystemState:
    """State from which a scheduler decides (E, ...): an estimate, or for oracles the true system.

    Args:
        oracle: Whether the scheduler declares that it sees the truth.
    """
    return env.truth if oracle else env.state


def hides_truth(scenario: Scenario) -> bool:
    """Whether schedulers of a scenario receive an estimate instead of the true system."""
    if scenario.dynamics.visibility == "realistic":
        return True
    return not gains_are_exact(scenario) or any(p.defines("known") for p in active_processes(scenario))


def is_marked(title: str) -> bool:
    """Whether a title says that its scheduler sees the truth."""
    return f"({MARK})" in title


def title_of(scheduler: Scheduler, scenario: Scenario) -> str:
    """Name of a scheduler for tables, which marks an oracle that sees more than the others."""
    more = sees_truth(scheduler) and hides_truth(scenario)
    return f"{scheduler.name} ({MARK})" if more else scheduler.name

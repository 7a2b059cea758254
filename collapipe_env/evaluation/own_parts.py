"""A user's own processes, prices, decisions and tasks that a scenario uses."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from collapipe_env.evaluation.executor import Executor
from collapipe_env.evaluation.own_code import OWN_FILE
from collapipe_env.evaluation.pool import LocalExecutor
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.ground.registry import Registry
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.decision_names import ROWS
from collapipe_env.scenario.task_registry import TASKS
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import PRICES
from collapipe_env.simulator.process_registry import PROCESSES, active_processes


def own_parts(scenario: Scenario) -> list[str]:
    """Names of the user's own processes, prices and decisions that are on in a scenario, and of an own task.

    They are registered only in this process of the machine.
    """
    processes, task = PROCESSES.added(), scenario.workload.task
    prices = set(system_parameters(scenario).prices).intersection(PRICES.added()).difference(processes)
    return [
        *(PROCESSES.get(p.name).__qualname__ for p in active_processes(scenario) if p.name in processes),
        *(f"price {name!r}" for name in sorted(prices)),
        *(f"decision {name!r}" for name in scenario.decisions if name in ROWS.added()),
        *([TASKS.get(task).__qualname__] if task in TASKS.added() else []),
    ]


def sources_of(scenario: Scenario) -> list[str]:
    """Files and modules that another process has to import before it can use a scenario.

    They define its own processes, prices, decisions and task; a script that is run itself is left out.
    """
    if not own_parts(scenario):
        return []
    kinds: tuple[Registry[Any], ...] = (PROCESSES, PRICES, ROWS, TASKS)
    modules = [kind.where(name).partition(":")[0] for kind in kinds for name in kind.added()]
    sources = [str(sys.modules[name].__file__) if name.startswith(OWN_FILE) else name for name in modules]
    return [source for source in dict.fromkeys(sources) if source != "__main__"]


def knowing_all(executor: Executor, scenarios: Iterable[Scenario], *, note: bool = True) -> Executor:
    """Return an executor that can play scenarios: this process alone if they have the user's own parts.

    Args:
        executor: The requested executor.
        note: Whether to say so if it is not used.
    """
    if not any(map(own_parts, scenarios)):
        return executor
    if note and (executor.apart or executor.jobs > 1):
        print(
            "note: only this process knows what you register yourself, so it does all the work",
            file=sys.stderr,
        )
    return LocalExecutor(1)


def require_known_everywhere(scenario: Scenario, command: str) -> None:
    """Refuse a scenario that other processes of the machine could not play.

    Args:
        command: Command that needs other processes, for the message.

    Raises:
        ScenarioError: Names what is your own.
    """
    names = own_parts(scenario)
    if names:
        raise ScenarioError(
            f"{command} cannot play your own {', '.join(names)}: the other processes that it starts do not "
            "know what you register. Use a scenario without it, or collapipe evaluate, which plays in one "
            "process"
        )

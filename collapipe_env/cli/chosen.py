"""Scenario, learners and data that options name, found and checked before any work."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from collapipe_env.evaluation.own_code import registered_name
from collapipe_env.evaluation.own_scenario import named_scenario
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.ground.files import ARCHIVE_BYTES, read_regular
from collapipe_env.learners.factory import LEARNERS, own_learner
from collapipe_env.scenario import Scenario


def chosen_scenario(source: str, task: str | None = None, dataset: str | None = None) -> Scenario:
    """Return the scenario that options select, named after task and data where these are new.

    The head gets an output for each class of the data.

    Raises:
        CollaPipeError: If there is no such scenario or task, or the task cannot read the data, whichever
            learner plays.
    """
    scenario = named_scenario(source)
    scenario = scenario.with_task(scenario.workload.task if task is None else task, dataset)
    if dataset is None:
        return scenario
    # An absolute path has a name even if it was typed as "." or "..".
    name = Path(os.path.abspath(dataset.rpartition(":")[2])).name.lstrip(".").partition(".")[0]
    changes: dict[str, object] = {"name": f"{scenario.name}-{name or 'data'}"}
    task_read, spec = _task_of(scenario)
    if classes := task_read.classes(spec):
        changes["workload.outputs"] = len(classes)
    return scenario.with_overrides(changes)


def chosen_learner(scenarios: Iterable[Scenario], asked: str) -> str:
    """Return the registered name of a learner, also of a user's own, which can learn on the scenarios.

    Raises:
        CollaPipeError: If there is no such learner, the real one cannot read the data, or a user's code
            returns no learner.
    """
    name = registered_name(LEARNERS, asked)
    for scenario in scenarios:
        if name == "real":
            task, spec = _task_of(scenario)
            task.load(spec)
        elif name in LEARNERS.added():
            found = LEARNERS.get(name)
            own_learner(getattr(found, "from_scenario", found), f"learner {asked!r}", scenario, 1)
    return name


def _task_of(scenario: Scenario) -> tuple[Any, Any]:
    """The task of a scenario, and what it reads of the scenario; its module imports PyTorch."""
    from collapipe_env.tasks import get_task
    from collapipe_env.tasks.base import task_spec

    return get_task(scenario.workload.task), task_spec(scenario)


def say_data(scenarios: Iterable[Scenario]) -> None:
    """Print a line about the user's own data of each scenario, for tasks that have one."""
    lines = {}
    for scenario in scenarios:
        if scenario.learning.dataset != "embedded":
            task, spec = _task_of(scenario)
            if hasattr(task, "data_line"):
                lines[f"{scenario.learning.dataset}: {task.data_line(spec)}"] = True
    for line in lines:
        print(line)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of an agent's file."""
    try:
        return hashlib.sha256(read_regular(path, ARCHIVE_BYTES)).hexdigest()
    except OSError as error:
        raise CheckpointError(
            f"cannot read the agent {path} ({error.strerror}): give the path of one that training "
            "saved, such as runs/medium-ppo-seed0/checkpoints/best.safetensors"
        ) from None

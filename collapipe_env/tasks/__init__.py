"""Tasks of the federation: data, the server's head, loss and metric, by name.

A task lives in a module of its own that is imported when it is first used; :func:`register_task` adds
another.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from collapipe_env.errors import ScenarioError, nearest_name
from collapipe_env.tasks import traits
from collapipe_env.tasks.base import Split, Task, TaskData, TaskSpec
from collapipe_env.tasks.traits import TaskTraits

__all__ = [
    "SHIPPED_TRAITS",
    "Split",
    "Task",
    "TaskData",
    "TaskSpec",
    "TaskTraits",
    "get_task",
    "register_task",
    "task_names",
    "task_traits",
]

_ENTRY_POINTS: dict[str, str] = {
    "classification": "collapipe_env.tasks.classification:Classification",
    "ner": "collapipe_env.tasks.ner:NamedEntities",
    "translation": "collapipe_env.tasks.translation:Translation",
}

SHIPPED_TRAITS: Mapping[str, TaskTraits] = MappingProxyType(
    {"classification": traits.CLASSIFICATION, "ner": traits.NER, "translation": traits.TRANSLATION}
)
"""Traits of the tasks of this package, whose modules import PyTorch: a scenario is priced without it."""


def task_names() -> tuple[str, ...]:
    """Return the names of the registered tasks, sorted."""
    return tuple(sorted(_ENTRY_POINTS))


def register_task(name: str, entry_point: str) -> None:
    """Add a task.

    Args:
        name: Name to use in scenarios; must be new.
        entry_point: ``"module:Class"`` of a class that follows :class:`Task` and needs no arguments. Its
            ``traits`` say what it is priced by.

    Raises:
        ScenarioError: If the name is taken or the entry point has no colon.
    """
    if name in _ENTRY_POINTS:
        raise ScenarioError(
            f"task {name!r} is registered already as {_ENTRY_POINTS[name]}; choose another name"
        )
    if ":" not in entry_point:
        raise ScenarioError(
            f"entry point {entry_point!r} of task {name!r} lacks a colon; write 'module:Class'"
        )
    _ENTRY_POINTS[name] = entry_point


def get_task(name: str) -> Task:
    """Return the task of that name.

    Raises:
        ScenarioError: If there is none; names the nearest.
    """
    if name not in _ENTRY_POINTS:
        raise ScenarioError(f"unknown task {name!r}; {nearest_name(name, _ENTRY_POINTS)}")
    module, _, attribute = _ENTRY_POINTS[name].partition(":")
    task: Task = getattr(importlib.import_module(module), attribute)()
    return task


def task_traits(name: str) -> TaskTraits:
    """Return what the task of that name says of itself; imports the module of a task that was registered.

    Raises:
        ScenarioError: If there is no such task, or its class has no traits.
    """
    if name in SHIPPED_TRAITS:
        return SHIPPED_TRAITS[name]
    found = getattr(get_task(name), "traits", None)
    if not isinstance(found, TaskTraits):
        raise ScenarioError(
            f"task {name!r} ({_ENTRY_POINTS[name]}) does not say what it is priced by: its traits are "
            f"{found!r}; give its class traits = TaskTraits(outputs='sentence') or "
            "TaskTraits(outputs='token')"
        )
    return found

"""Tasks of the federation: data, the server's head, loss and metrics, one module each.

:mod:`collapipe_env.scenario.task_registry` finds them by name.
"""

from collapipe_env.scenario.task_registry import (
    SHIPPED_TRAITS,
    TaskTraits,
    register_task,
    task_names,
    task_traits,
)
from collapipe_env.tasks.base import Split, Task, TaskData, TaskSpec, get_task

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

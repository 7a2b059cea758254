"""Tasks of the federation by name, and their traits, with which scenarios are checked and priced.

A task lives in a module of its own, which is imported on first use; :func:`register_task` adds a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.ground.registry import Registry


@dataclass(frozen=True)
class TaskTraits:
    """The traits from which a task is priced and its workload is checked.

    Attributes:
        outputs: Whether the head has one output for a ``sentence`` or one for each ``token``, as taggers and
            generators have.
        decoder: Whether the server needs decoder blocks.
        causal: Whether no position may attend to a later one: language models predict the next token. Their
            head has an output for every token of the vocabulary.
    """

    outputs: Literal["sentence", "token"]
    decoder: bool = False
    causal: bool = False

    def positions(self, sequence_length: int) -> int:
        """Return the number of positions of a sample that enter the head's output layer."""
        return 1 if self.outputs == "sentence" else sequence_length


TASKS: Registry[Any] = Registry(
    "task",
    {
        "classification": "collapipe_env.tasks.classification:Classification",
        "language-modelling": "collapipe_env.tasks.language_modelling:LanguageModelling",
        "ner": "collapipe_env.tasks.ner:NamedEntities",
        "translation": "collapipe_env.tasks.translation:Translation",
    },
    group="collapipe_env.tasks",
    names=None,
)
"""Classes of tasks by name; their modules import PyTorch."""

SHIPPED_TRAITS: Mapping[str, TaskTraits] = MappingProxyType(
    {
        "classification": TaskTraits(outputs="sentence"),
        "language-modelling": TaskTraits(outputs="token", causal=True),
        "ner": TaskTraits(outputs="token"),
        "translation": TaskTraits(outputs="token", decoder=True),
    }
)
"""Traits of the package's own tasks, kept outside their modules so that pricing does not import PyTorch."""


def task_names() -> tuple[str, ...]:
    """Return the names of the registered tasks, sorted."""
    return tuple(sorted(TASKS.names()))


def register_task(name: str, entry_point: str | type, *, replace: bool = False) -> None:
    """Add a task.

    Args:
        entry_point: ``"module:Class"``, or the class itself, which follows :class:`collapipe_env.tasks.Task`
            and needs no arguments. Its ``traits`` set its price.
        replace: Whether to replace another task registered under this name.

    Raises:
        ScenarioError: If the name is taken or the entry point has no colon.
    """
    TASKS.register(name, entry_point, replace=replace)


def task_traits(name: str) -> TaskTraits:
    """Return the traits of the task of that name; imports the module of a registered task.

    Raises:
        ScenarioError: If there is no such task, or its class has no traits.
    """
    if name in SHIPPED_TRAITS:
        return SHIPPED_TRAITS[name]
    found = getattr(TASKS.get(name)(), "traits", None)
    if not isinstance(found, TaskTraits):
        raise ScenarioError(
            f"task {name!r} ({TASKS.where(name)}) has no traits from which it can be priced: they are "
            f"{found!r}; give its class traits = TaskTraits(outputs='sentence') or "
            "TaskTraits(outputs='token')"
        )
    return found

"""Interface between a command's tasks and the engine that runs them: this machine or Ray."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from collapipe_env.ground.errors import (
    AllocationError,
    CheckpointError,
    CollaPipeError,
    DataError,
    ScenarioError,
    SchedulerError,
)
from collapipe_env.ground.version import __version__

TRIES = 3
"""Number of times that a task is started if its worker is lost each time."""
Work = Callable[[Any, Callable[[], None]], Any]
"""Function that does one task and returns its result; it calls its second argument at every bit of progress.

It must be importable, and the task and the result must be picklable.
"""


def _ignore(*_: object) -> None:
    """Do nothing."""


def _raise(_: object, error: CollaPipeError) -> None:
    raise error


def _always(_: object) -> bool:
    return True


@dataclass(frozen=True)
class Hooks:
    """Functions that an executor calls in the process that submitted the tasks.

    Attributes:
        done: Called with each finished task and its result.
        progress: Called with the task for every bit of its progress; not by engines on other machines.
        failed: Called with a task that raised and its error; the others continue unless this function raises.
            By default the first failure ends everything.
        again: Called with a task whose worker was lost and the reason, before the task is restarted.
        wanted: Called right before a task would start; a task that is no longer wanted is skipped.
    """

    done: Callable[[Any, Any], None] = _ignore
    progress: Callable[[Any], None] = _ignore
    failed: Callable[[Any, CollaPipeError], None] = _raise
    again: Callable[[Any, str], None] = _ignore
    wanted: Callable[[Any], bool] = _always


class Executor(Protocol):
    """Runs tasks on an engine, and returns each result as it arrives.

    A task whose worker is lost (killed, out of memory, its machine gone) is repeated, up to :data:`TRIES`
    times. Ctrl-C stops running tasks; results returned before stay with the caller.
    """

    @property
    def jobs(self) -> int:
        """Largest number of simultaneous tasks."""

    @property
    def apart(self) -> bool:
        """Whether workers may lack access to this process's files; tasks and results then carry them."""

    @property
    def where(self) -> str:
        """Place of the work, in words: ``"2 processes"``."""

    def run(self, work: Work, tasks: Sequence[Any], hooks: Hooks) -> None:
        """Do all tasks.

        Args:
            tasks: The tasks, in order; ``str`` of a task names it in errors.
            hooks: Functions to call on events.

        Raises:
            CollaPipeError: If a task fails and ``hooks.failed`` raises, a task's worker is lost for the last
                time, or the engine cannot be used.
            KeyboardInterrupt: If the user interrupts; tasks under way are lost.
        """


class Losses:
    """Counts how often each task's worker was lost.

    Args:
        hooks: Functions to call on events.
        remedy: Remedy for a task that is lost repeatedly, for the error.
    """

    def __init__(self, hooks: Hooks, remedy: str) -> None:
        self._hooks, self._remedy = hooks, remedy
        self._counts: Counter[int] = Counter()

    def note(self, number: int, task: Any, reason: str) -> None:
        """Count a loss; returns normally if the task should be restarted.

        Args:
            number: Place of the task among all.
            reason: Fate of its worker, as a clause: ``"a worker process ended with exit code -9"``.

        Raises:
            CollaPipeError: After the last try.
        """
        self._counts[number] += 1
        if self._counts[number] >= TRIES:
            raise CollaPipeError(
                f"{reason} while it worked on {task}, as in each of {TRIES} tries: {self._remedy}"
            )
        self._hooks.again(task, reason)


@dataclass(frozen=True)
class Errand:
    """A task on its way to a worker on another machine.

    Attributes:
        work: Function that does the task.
        task: The task.
        version: Version of this package that submitted it.
        folder: Working directory of the submitting process, used if the worker has a folder of that name.
    """

    work: Work
    task: Any
    version: str = field(default_factory=lambda: __version__)
    folder: str = field(default_factory=os.getcwd)


@dataclass(frozen=True)
class Reply:
    """A worker's answer to an :class:`Errand`.

    Attributes:
        kind: ``"done"``, ``"failed"`` by an error of this package, or ``"broken"`` by any other error.
        content: The result, the error, or the traceback as text.
        warnings: Texts of the warnings raised, with module and name of their category.
    """

    kind: Literal["done", "failed", "broken"]
    content: Any
    warnings: tuple[tuple[str, tuple[str, str]], ...] = ()


def run_errand(errand: Errand) -> Reply:
    """Run a task in a worker; its errors are part of the answer, so that engines do not retry it.

    Args:
        errand: The task.
    """
    if errand.version != __version__:
        return Reply(
            "failed",
            CollaPipeError(
                f"the worker on {platform.node()} has collapipe-env {__version__}, but this is "
                f"{errand.version}: install the same version on every machine"
            ),
        )
    caught: list[tuple[str, tuple[str, str]]] = []

    def show(message: object, category: type[Warning], *_: object, **__: object) -> None:
        caught.append((str(message), (category.__module__, category.__qualname__)))

    with contextlib.suppress(OSError):  # relative paths mean the same wherever the folder exists
        os.chdir(errand.folder)
    with warnings.catch_warnings():
        warnings.showwarning = show
        try:
            return Reply("done", errand.work(errand.task, _ignore), tuple(caught))
        except CollaPipeError as error:
            return Reply("failed", portable(error), tuple(caught))
        except Exception:
            return Reply("broken", traceback.format_exc(), tuple(caught))


class Replies:
    """Passes workers' answers on.

    Args:
        hooks: Functions to call on events.
    """

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._warned: set[tuple[str, tuple[str, str]]] = set()

    def take(self, task: Any, reply: Reply) -> None:
        """Raise the reply's warnings, each once, and report the end of the task.

        Raises:
            CollaPipeError: If anything broke in the worker; the traceback is on standard error.
        """
        for warning in reply.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                warn_again(*warning)
        if reply.kind == "done":
            self._hooks.done(task, reply.content)
        elif reply.kind == "failed":
            self._hooks.failed(task, reply.content)
        else:
            print(reply.content, file=sys.stderr)
            last = str(reply.content).strip().rpartition("\n")[2]
            raise CollaPipeError(f"a worker failed on {task} ({last}): see the traceback above")


def warn_again(text: str, category: tuple[str, str]) -> None:
    """Raise a worker's warning in this process, with its category where this process knows it.

    Args:
        text: The warning.
        category: Module and name of its class.
    """
    module, name = category
    found = getattr(sys.modules.get(module), name, None)
    kind = found if isinstance(found, type) and issubclass(found, Warning) else UserWarning
    warnings.warn_explicit(text, kind, "a worker process", 0)


def portable(error: CollaPipeError) -> CollaPipeError:
    """The error as one of the package's own kinds, which every process can rebuild from its text."""
    kinds = (ScenarioError, AllocationError, DataError, CheckpointError, SchedulerError)
    kind = next((kind for kind in kinds if isinstance(error, kind)), CollaPipeError)
    return kind(str(error))

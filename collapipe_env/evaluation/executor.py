"""Interface between a command's tasks and the engine that runs them: this machine or Ray."""

from __future__ import annotations

import contextlib
import sys
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from collapipe_env.ground import errors
from collapipe_env.ground.errors import CollaPipeError

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


@dataclass(frozen=True)
class Hooks:
    """Functions that an executor calls in the process that submitted the tasks.

    Attributes:
        done: Called with each finished task and its result.
        progress: Called with the task for every bit of its progress; not by engines on other machines.
        failed: Called with a task that raised and its error; the others continue unless this function raises,
            which it does by default.
        again: Called with a task whose worker was lost and the reason, before the task is restarted.
        wanted: Called right before a task would start; one that is no longer wanted is skipped.
    """

    done: Callable[[Any, Any], None] = _ignore
    progress: Callable[[Any], None] = _ignore
    failed: Callable[[Any, CollaPipeError], None] = _raise
    again: Callable[[Any, str], None] = _ignore
    wanted: Callable[[Any], bool] = lambda _: True


class Workers(Protocol):
    """Workers of an engine that has been started; ``close`` stops them at once."""

    jobs: int  # largest number of simultaneous tasks
    remedy: str  # for a task whose worker is lost repeatedly

    def start(self, number: int, work: Work, task: Any) -> None:
        """Have a task done, known by its number."""

    def news(self) -> Iterable[tuple[int, Reply]]:
        """Wait a moment, and return news of tasks, by number."""

    def close(self) -> None:
        """Stop all tasks."""


class Executor(Protocol):
    """Runs tasks on an engine, and hands over each result as it arrives.

    A task whose worker is lost (killed, out of memory, its machine gone) is started up to :data:`TRIES`
    times. Ctrl-C stops running tasks.
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
        """Do all tasks in order; ``str`` of a task names it in errors.

        Raises:
            CollaPipeError: If a task's worker is lost for the last time, or the engine cannot be used.
        """


class Reply(NamedTuple):
    """News of a task from its worker.

    Attributes:
        kind: ``"done"``, ``"failed"`` by an error of this package, ``"broken"`` by any other error,
            ``"lost"`` with its worker, or ``"progress"``.
        content: The result, the error, the traceback, the fate of the worker, or the bits of progress.
        warnings: Texts of the warnings raised, with module and name of their category: this process may know
            classes that the other does not.
    """

    kind: str
    content: Any
    warnings: Sequence[tuple[str, str, str]] = ()


def run_task(work: Work, task: Any, on_progress: Callable[[], None] = _ignore) -> Reply:
    """Run a task in a worker; its errors are part of the answer, so that engines do not retry it."""
    with warnings.catch_warnings(record=True) as caught:
        try:
            reply = Reply("done", work(task, on_progress))
        except CollaPipeError as error:
            # One of the package's own kinds, which every process can rebuild from its text.
            own = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
            reply = Reply("failed", own(str(error)))
        except Exception:
            reply = Reply("broken", traceback.format_exc())
    told = [(str(w.message), w.category.__module__, w.category.__qualname__) for w in caught]
    return reply._replace(warnings=told)


def run_all(workers: Workers, work: Work, tasks: Sequence[Any], hooks: Hooks) -> None:
    """Have workers do all tasks, and stop them; what broke in a worker is shown on standard error."""
    with contextlib.closing(workers):
        _work_off(workers, work, tasks, hooks)


def _work_off(workers: Workers, work: Work, tasks: Sequence[Any], hooks: Hooks) -> None:
    waiting, running = deque(range(len(tasks))), 0
    losses: Counter[int] = Counter()
    warned: set[tuple[str, str, str]] = set()
    while waiting or running:
        while waiting and running < workers.jobs:
            number = waiting.popleft()
            if hooks.wanted(tasks[number]):
                workers.start(number, work, tasks[number])
                running += 1
        for number, reply in workers.news() if running else ():
            task, content = tasks[number], reply.content
            if reply.kind == "progress":
                for _ in range(content):
                    hooks.progress(task)
                continue
            running -= 1
            for warning in reply.warnings:
                if warning not in warned:
                    _warn_again(*warning)
            warned.update(reply.warnings)
            if reply.kind == "done":
                hooks.done(task, content)
            elif reply.kind == "failed":
                hooks.failed(task, content)
            elif reply.kind == "broken":
                print(content, file=sys.stderr)
                last = content.strip().rpartition("\n")[2]
                raise CollaPipeError(f"a worker failed on {task} ({last}): see the traceback above")
            else:
                losses[number] += 1
                if losses[number] == TRIES:
                    raise CollaPipeError(
                        f"{content} while it worked on {task}, as in each of {TRIES} tries: {workers.remedy}"
                    )
                hooks.again(task, content)
                waiting.appendleft(number)


def _warn_again(text: str, module: str, name: str) -> None:
    """Raise a worker's warning in this process, with its category where this process knows it."""
    found = getattr(sys.modules.get(module), name, None)
    kind = found if isinstance(found, type) and issubclass(found, Warning) else UserWarning
    warnings.warn_explicit(text, kind, "a worker process", 0)

"""A few worker processes that take tasks, report progress and can be stopped at once."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from collapipe_env.errors import (
    AllocationError,
    CheckpointError,
    CollaPipeError,
    DataError,
    ScenarioError,
    SchedulerError,
)

Task = TypeVar("Task")
UNGUARDED = 87
"""Exit code of a worker process that ran the user's script a second time and found no guard in it."""
Work = Callable[[Any, Callable[[], None]], None]
"""Does one task; calls its second argument at every bit of progress."""


def leave_unless_guarded() -> None:
    """End this process if it is a worker that is still reading the user's script.

    Starting, a worker imports the script that started it. One without ``if __name__ == "__main__":`` comes to
    its own start of workers again, which Python refuses at length; :func:`run_tasks` says it in the first
    process.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(UNGUARDED)


def run_tasks(
    work: Callable[[Task, Callable[[], None]], None],
    tasks: Sequence[Task],
    processes: int,
    on_progress: Callable[[Task], None],
    on_done: Callable[[Task], None],
    on_failed: Callable[[Task, CollaPipeError], None] | None = None,
    wanted: Callable[[Task], bool] = lambda _: True,
) -> None:
    """Do all tasks, in this process if one is asked for, else in that many others.

    Processes are spawned, not forked: libraries with threads of their own survive that. They ignore Ctrl-C;
    it reaches this process, which stops them. Their warnings are raised here, with their
    category where this process knows it.

    Args:
        work: Does a task; importable, as the tasks are, where several processes are asked for.
        tasks: What to do, in order.
        processes: How many at once, at least 1.
        on_progress: Called here with the task for every bit of its progress.
        on_done: Called here with each finished task.
        on_failed: Called here with a task that raised and its error; the others go on unless it raises. By
            default the first failure ends everything.
        wanted: Asked right before a task would begin; one that is no longer wanted is left out.

    Raises:
        CollaPipeError: If a task fails, with its message, or a process dies.
        KeyboardInterrupt: If the user interrupts; tasks under way are lost.
    """
    hooks = _Hooks(on_progress, on_done, on_failed or _raise)
    if processes == 1 or len(tasks) <= 1:
        for task in tasks:
            if wanted(task):
                _do_here(work, task, hooks)
        return
    context = multiprocessing.get_context("spawn")
    waiting = iter([*tasks])
    workers: dict[Connection, tuple[BaseProcess, Any]] = {}
    try:
        for _ in range(min(processes, len(tasks))):
            here, there = context.Pipe()
            process: BaseProcess = context.Process(target=_serve, args=(there, work), daemon=True)
            process.start()
            there.close()
            workers[here] = process, None
            _hand_out(workers, here, waiting, wanted)
        while any(task is not None for _, task in workers.values()):
            for ready in wait([here for here, (_, task) in workers.items() if task is not None]):
                assert isinstance(ready, Connection)
                if _listen(workers, ready, hooks):
                    _hand_out(workers, ready, waiting, wanted)
    finally:
        for here, (process, task) in workers.items():
            if task is not None:
                process.terminate()
            here.close()  # an idle worker ends when its pipe does
        for process, _ in workers.values():
            process.join()


@dataclass(frozen=True)
class _Hooks:
    """Whom to tell what."""

    progress: Callable[[Any], None]
    done: Callable[[Any], None]
    failed: Callable[[Any, CollaPipeError], None]


def _raise(_: object, error: CollaPipeError) -> None:
    raise error


def _do_here(work: Work, task: Any, hooks: _Hooks) -> None:
    try:
        work(task, lambda: hooks.progress(task))
    except CollaPipeError as error:
        hooks.failed(task, error)
    else:
        hooks.done(task)


def _listen(workers: dict[Connection, tuple[BaseProcess, Any]], here: Connection, hooks: _Hooks) -> bool:
    """Take one message of a worker; returns whether its task is over."""
    process, task = workers[here]
    try:
        kind, content = here.recv()
    except (EOFError, ConnectionResetError):
        process.join()
        if process.exitcode == UNGUARDED:
            raise CollaPipeError(
                "worker processes run this script once more when they start: put what it does below "
                'if __name__ == "__main__":, or use processes=1'
            ) from None
        raise CollaPipeError(
            f"a worker process ended with exit code {process.exitcode} while it worked on {task}: see the "
            "traceback above, or, if there is none, it may have run out of memory: try --processes 1 "
            "(in Python: processes=1). Finished episodes are kept"
        ) from None
    if kind == "warning":
        text, category = content
        warnings.warn_explicit(text, _category(*category), "a worker process", 0)
    elif kind == "progress":
        hooks.progress(task)
    elif kind == "failed":
        hooks.failed(task, content)
    else:
        hooks.done(task)
    over: bool = kind in ("done", "failed")
    return over


def _category(module: str, name: str) -> type[Warning]:
    """The category of that name, as filters here know it; else the general one."""
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) and issubclass(found, Warning) else UserWarning


def _hand_out(
    workers: dict[Connection, tuple[BaseProcess, Any]],
    here: Connection,
    waiting: Iterator[Any],
    wanted: Callable[[Any], bool],
) -> None:
    task = next((task for task in waiting if wanted(task)), None)
    workers[here] = workers[here][0], task
    if task is not None:
        with contextlib.suppress(BrokenPipeError):  # of a worker that has died: listening to it says so
            here.send(task)


def _serve(there: Connection, work: Work) -> None:
    """The life of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sending = threading.Lock()  # a learner's thread may warn

    def tell(kind: str, content: object = None) -> None:
        with sending:
            there.send((kind, content))

    def show(message: object, category: type[Warning], *_: object, **__: object) -> None:
        # By name: this process may know classes that the other does not.
        tell("warning", (str(message), (category.__module__, category.__qualname__)))

    warnings.showwarning = show
    # A broken pipe means that the parent is gone, however it went: nobody waits for more.
    with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):
        while True:
            task = there.recv()
            try:
                work(task, lambda: tell("progress"))
            except CollaPipeError as error:
                tell("failed", _portable(error))
            else:
                tell("done")


def _portable(error: CollaPipeError) -> CollaPipeError:
    """The error as one of the package's own kinds, which every process can rebuild from its text."""
    kinds = (ScenarioError, AllocationError, DataError, CheckpointError, SchedulerError)
    kind = next((kind for kind in kinds if isinstance(error, kind)), CollaPipeError)
    return kind(str(error))

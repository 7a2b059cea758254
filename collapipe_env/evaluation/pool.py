"""A few worker processes that take tasks, report progress and can be stopped at once."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from collapipe_env.errors import CollaPipeError

Task = TypeVar("Task")
Work = Callable[[Any, Callable[[], None]], None]
"""Does one task; calls its second argument at every bit of progress."""


def run_tasks(
    work: Callable[[Task, Callable[[], None]], None],
    tasks: Sequence[Task],
    processes: int,
    on_progress: Callable[[], None],
    on_done: Callable[[Task], None],
) -> None:
    """Do all tasks, in this process if one is asked for, else in that many others.

    Processes are spawned, not forked: libraries with threads of their own survive that. They ignore Ctrl-C;
    it reaches this process, which stops them.

    Args:
        work: Does a task; importable, as the tasks are, where several processes are asked for.
        tasks: What to do, in order.
        processes: How many at once, at least 1.
        on_progress: Called here for every bit of progress.
        on_done: Called here with each finished task.

    Raises:
        CollaPipeError: If a task fails, with its message, or a process dies.
        KeyboardInterrupt: If the user interrupts; tasks under way are lost.
    """
    if processes == 1 or len(tasks) <= 1:
        for task in tasks:
            work(task, on_progress)
            on_done(task)
        return
    context = multiprocessing.get_context("spawn")
    waiting = list(reversed(tasks))
    workers: dict[Connection, tuple[BaseProcess, Any]] = {}
    try:
        for _ in range(min(processes, len(tasks))):
            here, there = context.Pipe()
            process: BaseProcess = context.Process(target=_serve, args=(there, work), daemon=True)
            process.start()
            there.close()
            workers[here] = process, None
            _hand_out(workers, here, waiting)
        while any(task is not None for _, task in workers.values()):
            for ready in wait([here for here, (_, task) in workers.items() if task is not None]):
                assert isinstance(ready, Connection)
                _listen(workers, ready, waiting, on_progress, on_done)
    finally:
        for here, (process, task) in workers.items():
            if task is not None:
                process.terminate()
            here.close()  # an idle worker ends when its pipe does
        for process, _ in workers.values():
            process.join()


def _listen(
    workers: dict[Connection, tuple[BaseProcess, Any]],
    here: Connection,
    waiting: list[Any],
    on_progress: Callable[[], None],
    on_done: Callable[[Any], None],
) -> None:
    process, task = workers[here]
    try:
        kind, text = here.recv()
    except (EOFError, ConnectionResetError):
        process.join()
        raise CollaPipeError(
            f"a worker process ended with exit code {process.exitcode} while it worked on {task}; it may "
            "have run out of memory: try --processes 1. Finished episodes are kept"
        ) from None
    if kind == "progress":
        on_progress()
    elif kind == "failed":
        raise CollaPipeError(text)
    else:
        on_done(task)
        _hand_out(workers, here, waiting)


def _hand_out(
    workers: dict[Connection, tuple[BaseProcess, Any]], here: Connection, waiting: list[Any]
) -> None:
    task = waiting.pop() if waiting else None
    workers[here] = workers[here][0], task
    if task is not None:
        here.send(task)


def _serve(there: Connection, work: Work) -> None:
    """The life of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A broken pipe means that the parent is gone, however it went: nobody waits for more.
    with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):
        while True:
            task = there.recv()
            try:
                work(task, lambda: there.send(("progress", "")))
            except CollaPipeError as error:
                there.send(("failed", str(error)))
                return
            there.send(("done", ""))

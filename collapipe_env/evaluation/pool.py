"""A few worker processes that run tasks, report progress and can be stopped at once."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, cast

from collapipe_env.evaluation.executor import Hooks, Losses, Work, portable, warn_again
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.ground.interrupts import OF_TERMINAL

UNGUARDED = 87
"""Exit code of a worker process that ran the user's script a second time and found no guard in it."""
RAISED = 1
"""Exit code of a worker process in which Python raised an error, which would recur."""
REMEDY = (
    "see the traceback above, or, if there is none, it may have run out of memory: try --processes 1 "
    "(in Python: processes=1). Finished work is kept"
)


def leave_unless_guarded() -> None:
    """End this process if it is a worker that is still reading the user's script.

    When it starts, a worker imports the script that started it. A script without ``if __name__ ==
    "__main__":`` would start workers again, which Python refuses with a long error; :func:`run_tasks` reports
    it in the first process.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(UNGUARDED)


@dataclass(frozen=True)
class LocalExecutor:
    """Runs tasks on this machine; see :func:`run_tasks`.

    Attributes:
        jobs: Simultaneous processes, at least 1; with 1 the tasks run in this process.
    """

    jobs: int = 1

    @property
    def apart(self) -> bool:
        """False: workers write to the same disk."""
        return False

    @property
    def where(self) -> str:
        """The number of processes."""
        return f"{self.jobs} process{'es' if self.jobs > 1 else ''}"

    def run(self, work: Work, tasks: Sequence[Any], hooks: Hooks) -> None:
        """Do all tasks; see :meth:`~collapipe_env.evaluation.executor.Executor.run`."""
        run_tasks(work, tasks, self.jobs, hooks)


def run_tasks(work: Work, tasks: Sequence[Any], processes: int, hooks: Hooks) -> None:
    """Run all tasks, in this process for ``processes = 1``, otherwise in that many others.

    Processes are spawned, because libraries with threads of their own do not survive a fork. They ignore
    Ctrl-C; it reaches this process, which stops them. Their warnings are raised here, with their category
    if this process knows it. A killed process is replaced, and its task repeated.

    Args:
        work: Runs a task; importable, like the tasks, if there are several processes.
        tasks: The tasks, in order.
        processes: Number of simultaneous processes, at least 1.
        hooks: Functions to call on events.

    Raises:
        CollaPipeError: If a task fails, with its message, or its process dies repeatedly.
        KeyboardInterrupt: If the user interrupts; tasks under way are lost.
    """
    if processes == 1 or len(tasks) <= 1:
        for task in tasks:
            if hooks.wanted(task):
                _do_here(work, task, hooks)
        return
    pool = _Pool(work, enumerate(tasks), hooks)
    try:
        for _ in range(min(processes, len(tasks))):
            pool.add(pool.next())
        pool.work_off()
    finally:
        pool.end()


def _do_here(work: Work, task: Any, hooks: Hooks) -> None:
    try:
        result = work(task, lambda: hooks.progress(task))
    except CollaPipeError as error:
        hooks.failed(task, error)
    else:
        hooks.done(task, result)


_Numbered = tuple[int, Any]
"""A task with its place among all."""


class _Pool:
    """The worker processes and their tasks, by the connection to each.

    Args:
        waiting: The tasks, numbered.
        hooks: Functions to call on events.
    """

    def __init__(self, work: Work, waiting: Iterator[_Numbered], hooks: Hooks) -> None:
        self.workers: dict[Connection, tuple[BaseProcess, _Numbered | None]] = {}
        self._work, self._waiting, self._hooks = work, waiting, hooks
        self._losses = Losses(hooks, REMEDY)
        self._context = multiprocessing.get_context("spawn")

    def next(self) -> _Numbered | None:
        """The next wanted task; ``None`` if there is none."""
        return next((numbered for numbered in self._waiting if self._hooks.wanted(numbered[1])), None)

    def add(self, numbered: _Numbered | None) -> None:
        """Start a process for a task, if there is one."""
        if numbered is None:
            return
        here, there = self._context.Pipe()
        process: BaseProcess = self._context.Process(target=_serve, args=(there, self._work), daemon=True)
        process.start()
        there.close()
        self.workers[here] = process, None
        self.hand_out(here, numbered)

    def hand_out(self, here: Connection, numbered: _Numbered | None) -> None:
        """Give a task to an idle process."""
        self.workers[here] = self.workers[here][0], numbered
        if numbered is not None:
            with contextlib.suppress(BrokenPipeError):  # the worker has died, which listen() will notice
                here.send(numbered[1])

    def work_off(self) -> None:
        """Listen to the processes until no task is left."""
        while busy := [here for here, (_, task) in self.workers.items() if task is not None]:
            for ready in wait(busy):
                assert isinstance(ready, Connection)
                self.listen(ready)

    def listen(self, here: Connection) -> None:
        """Take one message from a process; if its task is over, give it the next one.

        Raises:
            CollaPipeError: If the process ended and its task must not be repeated.
        """
        process, numbered = self.workers[here]
        assert numbered is not None
        number, task = numbered
        kind, content = "", cast("Any", None)
        with contextlib.suppress(EOFError, ConnectionResetError):
            kind, content = here.recv()
        if not kind:
            process.join()
            self._lost(here, process.exitcode, number, task)
        elif kind == "warning":
            warn_again(*content)
        elif kind == "progress":
            self._hooks.progress(task)
        elif kind == "failed":
            self._hooks.failed(task, content)
            self.hand_out(here, self.next())
        else:
            self._hooks.done(task, content)
            self.hand_out(here, self.next())

    def _lost(self, here: Connection, exitcode: int | None, number: int, task: Any) -> None:
        """Replace a process that has ended."""
        if exitcode == UNGUARDED:
            raise CollaPipeError(
                "worker processes run this script once more when they start: put its code below "
                'if __name__ == "__main__":, or use processes=1'
            )
        reason = f"a worker process ended with exit code {exitcode}"
        if exitcode == RAISED:
            raise CollaPipeError(f"{reason} while it worked on {task}: {REMEDY}")
        self._losses.note(number, task, reason)
        del self.workers[here]
        here.close()
        self.add((number, task))

    def end(self) -> None:
        """Stop all processes."""
        for here, (process, task) in self.workers.items():
            if task is not None:
                process.terminate()
            here.close()  # an idle worker ends when its pipe does
        for process, _ in self.workers.values():
            process.join()


def _serve(there: Connection, work: Work) -> None:
    """Run a worker process until the parent closes its connection."""
    for number in OF_TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    sending = threading.Lock()  # a learner's thread may warn

    def tell(kind: str, content: object = None) -> None:
        with sending:
            there.send((kind, content))

    def show(message: object, category: type[Warning], *_: object, **__: object) -> None:
        # By name: this process may know classes that the other does not.
        tell("warning", (str(message), (category.__module__, category.__qualname__)))

    warnings.showwarning = show
    # A broken pipe means that the parent is gone for whatever reason: nobody waits for results.
    with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):
        while True:
            task = there.recv()
            try:
                result = work(task, lambda: tell("progress"))
            except CollaPipeError as error:
                tell("failed", portable(error))
            else:
                tell("done", result)

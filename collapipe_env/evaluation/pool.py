"""Tasks in processes of this machine, which report progress and can be stopped at once."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any, ClassVar

from collapipe_env.evaluation.executor import Hooks, Reply, Work, run_all, run_task
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.ground.interrupts import OF_TERMINAL, uninterrupted

UNGUARDED = 87
"""Exit code of a worker process that ran the user's script a second time and found no guard in it."""
_POLL_S = 0.1  # between two looks at the progress [s]


def leave_unless_guarded() -> None:
    """End this process if it is a worker that is still reading the user's script.

    When it starts, a worker imports the script that started it. A script without ``if __name__ ==
    "__main__":`` would start workers again, which Python refuses with a long error; the first process says
    it in one line.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(UNGUARDED)


@dataclass(frozen=True)
class LocalExecutor:
    """Runs tasks on this machine.

    Processes are spawned, because libraries with threads of their own do not survive a fork. They ignore
    Ctrl-C; it reaches this process, which stops them. A killed process is replaced, and its task repeated.

    Attributes:
        jobs: Simultaneous processes, at least 1; with 1 the tasks run in this process.
    """

    jobs: int = 1
    apart: ClassVar[bool] = False  # workers see the same disk

    @property
    def where(self) -> str:
        """The number of processes."""
        return f"{self.jobs} process{'es' if self.jobs > 1 else ''}"

    def run(self, work: Work, tasks: Sequence[Any], hooks: Hooks) -> None:
        """Do all tasks; see :meth:`~collapipe_env.evaluation.executor.Executor.run`."""
        if self.jobs > 1 and len(tasks) > 1:
            run_all(_Processes(self.jobs), work, tasks, hooks)
            return
        for task in filter(hooks.wanted, tasks):
            try:
                result = work(task, lambda task=task: hooks.progress(task))  # type: ignore[misc]
            except CollaPipeError as error:
                hooks.failed(task, error)
            else:
                hooks.done(task, result)


class _Worker:
    """One process, in a pool of its own: if it is killed, no other task is lost."""

    def __init__(self) -> None:
        self.progress = multiprocessing.RawValue(ctypes.c_uint64)  # counted by the process
        self.told = 0
        self.future: Future[Reply]
        self.process: BaseProcess
        context = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(1, context, _begin, (self.progress,))

    def start(self, work: Work, task: Any) -> None:
        with uninterrupted():
            self.future = self.pool.submit(_run, work, task)
            (self.process,) = self.pool._processes.values()  # their exit codes have no public name


class _Processes:
    """The worker processes; see :class:`~collapipe_env.evaluation.executor.Workers`."""

    remedy = (
        "see the traceback above, or, if there is none, it may have run out of memory: try --processes 1 "
        "(in Python: processes=1). Finished work is kept"
    )

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._idle: list[_Worker] = []
        self._busy: dict[int, _Worker] = {}

    def start(self, number: int, work: Work, task: Any) -> None:
        """Have a process do a task."""
        worker = self._busy[number] = self._idle.pop() if self._idle else _Worker()
        try:
            worker.start(work, task)
        except BrokenProcessPool:  # it was killed while it was idle
            worker = self._busy[number] = _Worker()
            worker.start(work, task)

    def news(self) -> Iterator[tuple[int, Reply]]:
        """Progress of all tasks, and the ends of those that ended."""
        ended, _ = wait([w.future for w in self._busy.values()], _POLL_S, FIRST_COMPLETED)
        for number, worker in list(self._busy.items()):
            told, worker.told = worker.told, worker.progress.value
            yield number, Reply("progress", worker.told - told)
            if worker.future not in ended:
                continue
            del self._busy[number]
            error = worker.future.exception()
            if isinstance(error, BrokenProcessPool | SystemExit):
                yield number, _lost(worker, error)
            else:
                self._idle.append(worker)
                yield number, worker.future.result()

    def close(self) -> None:
        """Stop all processes."""
        for worker in self._busy.values():
            worker.process.terminate()
        for worker in [*self._busy.values(), *self._idle]:
            worker.pool.shutdown(cancel_futures=True)


def _lost(worker: _Worker, error: BaseException) -> Reply:
    """The news that a process has ended, or that its task wanted it to end."""
    worker.pool.shutdown()
    code = error.code if isinstance(error, SystemExit) else worker.process.exitcode
    if code == UNGUARDED:
        raise CollaPipeError(
            "worker processes run this script once more when they start: put its code below "
            'if __name__ == "__main__":, or use processes=1'
        )
    return Reply("lost", f"a worker process ended with exit code {code}")


_progress: Any = None  # of this process, if it is a worker


def _begin(progress: Any) -> None:
    """Prepare a worker process, which ends with the process that started it, however that one ends."""
    global _progress
    _progress = progress
    for number in OF_TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _count() -> None:
    _progress.value += 1


def _run(work: Work, task: Any) -> Reply:
    """Do a task in a worker process."""
    return run_task(work, task, _count)

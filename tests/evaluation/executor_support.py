"""Tasks for executors, and an executor that sends everything through pickle, as engines do."""

import os
import pickle
import signal
from dataclasses import dataclass, field
from pathlib import Path

from collapipe_env.evaluation.executor import Reply, run_all, run_task
from collapipe_env.ground.errors import ScenarioError

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Task:
    """What a worker is to do."""

    number: int
    how: str = "square"
    mark: str = ""

    def __str__(self) -> str:
        return f"task {self.number}"


def work(task: Task, on_progress) -> int:
    """Square a number, or go wrong in some way; marks keep it from going wrong twice."""
    on_progress()
    if task.how == "impossible":
        raise ScenarioError(f"{task.number} is not possible")
    if task.how == "mistake":
        raise ValueError("a mistake")
    if task.mark and not os.path.exists(task.mark):
        Path(task.mark).touch()
        os.kill(os.getpid(), getattr(signal, task.how))
    if task.how == "exit":
        raise SystemExit(3)
    if task.how == "always":
        os.kill(os.getpid(), signal.SIGKILL)
    return task.number**2


@dataclass(frozen=True)
class Pickling:
    """Does tasks in this process, as a worker that shares neither memory nor, by its own account, files."""

    jobs: int = 3
    apart: bool = True
    where: str = "pickled"
    remedy: str = ""
    sent: list[object] = field(default_factory=list)
    _ended: list[tuple[int, Reply]] = field(default_factory=list)

    def run(self, work, tasks, hooks) -> None:
        run_all(self, work, tasks, hooks)

    def start(self, number, work, task) -> None:
        work, task = pickle.loads(pickle.dumps((work, task)))
        self.sent.append(task)
        self._ended.append((number, pickle.loads(pickle.dumps(run_task(work, task)))))

    def close(self) -> None:
        self._ended.clear()

    def news(self):
        while self._ended:
            yield self._ended.pop(0)

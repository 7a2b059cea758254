"""Worker processes: every failure is one clear error."""

import contextlib
import os
import signal

import pytest
from executor_support import Task, work

from collapipe_env.evaluation import pool
from collapipe_env.evaluation.executor import Hooks, Reply
from collapipe_env.evaluation.pool import LocalExecutor
from collapipe_env.ground.errors import CollaPipeError, ScenarioError


@pytest.mark.parametrize("processes", [1, 2])
def test_a_failure_that_is_not_tolerated_ends_everything(processes: int) -> None:
    done, ticks = [], []
    hooks = Hooks(lambda task, _: done.append(task.number), ticks.append)
    with pytest.raises(ScenarioError, match="2 is not possible"):
        LocalExecutor(processes).run(work, [Task(1), Task(2, "impossible"), Task(3)], hooks)
    assert ticks
    assert processes > 1 or done == [1]


def test_workers_that_die_at_any_time_are_replaced() -> None:
    with contextlib.closing(pool._Processes(1)) as processes:
        processes.start(0, work, Task(3))
        assert ended(processes).content == 9
        os.kill(processes._idle[0].process.pid, signal.SIGKILL)
        processes.start(1, work, Task(4))
        reply = ended(processes)
        if reply.kind == "lost":  # its death was not noticed before
            assert reply.content == "a worker process ended with exit code -9"
            processes.start(1, work, Task(4))
            reply = ended(processes)
        assert reply.content == 16


def ended(processes) -> Reply:
    while True:
        for _, reply in processes.news():
            if reply.kind != "progress":
                return reply


def test_a_mistake_is_not_made_again(capfd) -> None:
    again = []
    with pytest.raises(CollaPipeError, match=r"on task 2 \(ValueError: a mistake\): see the traceback"):
        LocalExecutor(2).run(
            work, [Task(1), Task(2, "mistake")], Hooks(again=lambda *about: again.append(about))
        )
    assert not again
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.slow
def test_a_task_that_ends_its_process_is_lost_with_its_exit_code() -> None:
    with pytest.raises(CollaPipeError, match="ended with exit code 3 while it worked on task 2, as in each"):
        LocalExecutor(2).run(work, [Task(1), Task(2, "exit")], Hooks())

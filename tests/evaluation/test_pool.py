"""Worker processes: every failure is one clear error."""

import os

import pytest

from collapipe_env.errors import CollaPipeError
from collapipe_env.evaluation.pool import run_tasks


def _fail(task: int, on_progress) -> None:
    on_progress()
    if task == 2:
        raise CollaPipeError("two is not possible")
    if task == 3:
        os._exit(7)


@pytest.mark.parametrize(("tasks", "message"), [([1, 2], "two is not possible"), ([1, 3], "exit code 7")])
def test_failures_of_workers_become_one_error(tasks: list[int], message: str) -> None:
    ticks: list[int] = []
    with pytest.raises(CollaPipeError, match=message):
        run_tasks(_fail, tasks, 2, lambda: ticks.append(1), lambda _: None)
    assert ticks

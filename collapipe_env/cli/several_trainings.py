"""Several trainings of one command with different seeds, each a task of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from collapipe_env.agents.learned.training_files import TrainingFiles
from collapipe_env.cli.early_end import Call, Terminated, terminable
from collapipe_env.cli.train_options import Options
from collapipe_env.cli.trainings import steps_kept
from collapipe_env.evaluation.executor import Hooks
from collapipe_env.evaluation.folder_content import Files, files_below, write_below
from collapipe_env.evaluation.labels import counted
from collapipe_env.evaluation.run_directory import HOLDER, LOCK
from collapipe_env.schedulers import LEARNED


@dataclass(frozen=True)
class Training:
    """One training.

    Attributes:
        train: Trains in the folder of the options: a function of a module, which other processes import.
        options: Its options; ``training.out`` is its folder.
        call: The command, for the record.
        files: Files already in its folder, for a worker that does not see that folder; ``None`` if it does.
    """

    train: Callable[[Options, Call], None] = field(repr=False)
    options: Options
    call: Call
    files: Files | None = field(repr=False)

    def __str__(self) -> str:
        return f"the training with seed {self.options.training.seed}"


def train_one(task: Training, _: Callable[[], None]) -> Files | None:
    """Do one training, continuing any earlier one: the task of an executor.

    Returns:
        The files of its folder, if the calling process does not see that folder.
    """
    if task.files is not None:
        with tempfile.TemporaryDirectory(prefix="collapipe-") as place:
            folder = Path(place) / "run"
            write_below(folder, task.files)
            training = replace(task.options.training, out=folder)
            task.train(replace(task.options, training=training), task.call)
            return _unlocked(folder)
    if multiprocessing.parent_process() is None:
        task.train(task.options, task.call)
        return None
    # In a process of the pool it is silent, because others also print; SIGTERM saves the training.
    with open(os.devnull, "w") as nowhere, terminable():
        try:
            with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
                task.train(task.options, task.call)
        except Terminated as stop:
            raise SystemExit(stop.status) from None
    return None


def _unlocked(folder: Path) -> Files:
    """The files of a training's folder but for its lock."""
    return {name: content for name, content in files_below(folder).items() if name not in (LOCK, HOLDER)}


def train_all(
    train: Callable[[Options, Call], None],
    options: Options,
    folders: Sequence[Path],
    call: Call,
) -> None:
    """Do all unfinished trainings, each in a folder of its own; seeds count up from the options' seed.

    If the user interrupts, finished trainings are kept, and on this machine also the progress of others.
    """
    executor = options.where.build(options.evaluation.processes, threads=options.evaluation.threads)
    tasks = []
    for seed, folder in enumerate(folders, options.training.seed):
        files = TrainingFiles(folder)
        if steps_kept(files) >= options.steps and files.best.exists():
            continue
        one = replace(
            options,
            training=replace(options.training, seed=seed, runs=1, out=folder, fresh=False),
            evaluation=replace(options.evaluation, schedulers=(LEARNED,)),
        )
        tasks.append(Training(train, one, call, _unlocked(folder) if executor.apart else None))
    if not tasks:
        print(f"{counted(len(folders), 'training')} done")
        return
    print(f"training: {counted(len(tasks), 'seed')}, {executor.where}", flush=True)

    def done(task: Training, files: Files | None) -> None:
        folder = task.options.training.out
        assert folder is not None
        if files is not None:
            write_below(folder, files)
        print(f"seed {task.options.training.seed}: trained, in {folder}", flush=True)

    def again(task: Training, reason: str) -> None:
        print(f"seed {task.options.training.seed} restarted: {reason}", flush=True)

    executor.run(train_one, tasks, Hooks(done, again=again))

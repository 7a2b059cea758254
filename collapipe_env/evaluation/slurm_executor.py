"""Tasks as jobs of a Slurm cluster, through submitit."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from collapipe_env.evaluation.executor import Errand, Hooks, Losses, Replies, Reply, Work, run_errand
from collapipe_env.ground.errors import CollaPipeError, DataError

LARGEST_ARRAY = 500
"""Jobs submitted to Slurm at once; clusters accept arrays of 1,001 by default."""
TIMEOUTS = 10
"""Number of times that a resumable job is put back into the queue at its time limit."""
NO_REQUEUE = "Job not requeued because"
"""Beginning of submitit's message about a job that reached its time limit for the last time."""
ENDED_BY = {
    "TIMEOUT": "it reached the time limit of {minutes} minutes: give more with --slurm-minutes",
    "OUT_OF_MEMORY": "it needed more than its {memory:g} GB of memory: give more with --slurm-memory",
    "CANCELLED": "it was cancelled: run the same command to continue",
}
"""Reasons, by Slurm state, for ends of jobs after which repeating them would not help."""


@dataclass(frozen=True)
class SlurmExecutor:
    """Runs each task in a Slurm job of its own, submitted as arrays.

    Attributes:
        folder: Folder of submitit's tasks, results and logs, on a disk that all machines share.
        jobs: Largest number of simultaneous jobs.
        partition: Partition of the cluster; its default one otherwise.
        minutes: Time limit of a job [min].
        cpus: CPUs of a job.
        memory: Memory of a job [GB].
        cluster: ``"slurm"``, or ``"local"`` for processes on this machine, to try submitit without Slurm.
        resumes: Whether a restarted task continues from its work in ``scratch``. Such a job goes back into
            the queue at its time limit.
        poll_s: Interval between checks of the jobs [s].
        setup: Lines that each job's script begins with.
    """

    folder: Path
    jobs: int
    partition: str | None = None
    minutes: int = 60
    cpus: int = 1
    memory: float = 4.0
    cluster: Literal["slurm", "local"] = "slurm"
    resumes: bool = False
    poll_s: float = 2.0
    setup: tuple[str, ...] = field(default=())

    @property
    def apart(self) -> bool:
        """True: only submitit's folder has to be on a shared disk."""
        return True

    @property
    def scratch(self) -> Path | None:
        """A folder beside submitit's files."""
        return self.folder / "scratch"

    @property
    def where(self) -> str:
        """The number of jobs and submitit's folder, in words."""
        kind = "Slurm jobs" if self.cluster == "slurm" else "jobs of submitit on this machine"
        return f"{self.jobs} {kind} at once, with files in {self.folder}"

    def run(self, work: Work, tasks: Sequence[Any], hooks: Hooks) -> None:
        """Do all tasks; see :meth:`~collapipe_env.evaluation.executor.Executor.run`."""
        if tasks:
            _Run(self, work, tasks, hooks).work_off()

    def prepared(self) -> Any:
        """Return submitit's executor.

        Raises:
            CollaPipeError: If submitit or Slurm is missing, or the folder cannot be used.
        """
        submitit = require_submitit()
        timeouts = TIMEOUTS if self.resumes else 0
        try:
            found = submitit.AutoExecutor(
                folder=self.folder / "jobs",
                cluster=self.cluster,
                slurm_max_num_timeout=timeouts,
                local_max_num_timeout=timeouts,
            )
            found.update_parameters(
                name="collapipe",
                timeout_min=self.minutes,
                cpus_per_task=self.cpus,
                mem_gb=self.memory,
                slurm_array_parallelism=self.jobs,
                **({} if self.partition is None else {"slurm_partition": self.partition}),
                **({"slurm_setup": [*self.setup], "local_setup": [*self.setup]} if self.setup else {}),
            )
        except RuntimeError as error:  # of submitit, without Slurm's commands
            raise CollaPipeError(
                f"there is no Slurm here ({str(error).strip()}): run the command on a machine of the cluster "
                "that has sbatch, or use --executor local or ray"
            ) from None
        except OSError as error:
            raise DataError(
                f"cannot use {self.folder} ({error.strerror}): choose another --slurm-folder"
            ) from None
        return found


class Resumable:
    """A job's function: a task that a preempted job repeats, continuing from its earlier work if any."""

    def __call__(self, errand: Errand) -> Reply:
        """Do a task."""
        import submitit

        return run_errand(errand, through=submitit.core.utils.UncompletedJobError)

    def checkpoint(self, errand: Errand) -> Any:
        """Return the submission that submitit puts back into the queue."""
        import submitit

        return submitit.helpers.DelayedSubmission(self, errand)


class _Run:
    """Jobs under way.

    Args:
        executor: Runs the tasks.
        work: Runs a task.
        hooks: Functions to call on events.
    """

    def __init__(self, executor: SlurmExecutor, work: Work, tasks: Sequence[Any], hooks: Hooks) -> None:
        self._executor, self._work, self._tasks, self._hooks = executor, work, tasks, hooks
        self._engine = executor.prepared()
        # Slurm itself holds back jobs beyond --processes; submitit's local processes would all start at once.
        self._window = LARGEST_ARRAY if executor.cluster == "slurm" else executor.jobs
        self._waiting = iter(range(len(tasks)))
        self._pending: dict[Any, int] = {}
        self._replies = Replies(hooks)
        self._losses = Losses(hooks, f"look into its files in {executor.folder / 'jobs'}")

    def work_off(self) -> None:
        """Do all tasks."""
        try:
            self._fill()
            while self._pending:
                ended = [job for job in self._pending if job.done()]
                for job in ended:
                    self._take(job, self._pending.pop(job))
                self._leave_out()
                self._fill()
                if not ended:
                    time.sleep(self._executor.poll_s)
        finally:
            for job in self._pending:
                _cancel(job)

    def _fill(self) -> None:
        """Submit tasks, once there is room for many of them."""
        room = self._window - len(self._pending)
        if self._pending and room < math.ceil(self._window / 4):
            return
        chosen: list[int] = []
        while len(chosen) < room:
            number = next((n for n in self._waiting if self._hooks.wanted(self._tasks[n])), None)
            if number is None:
                break
            chosen.append(number)
        self._submit(chosen)

    def _submit(self, numbers: Sequence[int]) -> None:
        if not numbers:
            return
        errands = [Errand(self._work, self._tasks[number]) for number in numbers]
        try:
            if len(errands) == 1:  # an array of one has another name for its only job
                jobs = [self._engine.submit(Resumable(), errands[0])]
            else:
                jobs = self._engine.map_array(Resumable(), errands)
        except (RuntimeError, OSError) as error:
            raise CollaPipeError(f"jobs cannot be submitted ({str(error).strip()})") from None
        self._pending.update(zip(jobs, numbers, strict=True))

    def _leave_out(self) -> None:
        """Cancel jobs whose tasks are no longer wanted."""
        for job, number in [*self._pending.items()]:
            if not self._hooks.wanted(self._tasks[number]):
                _cancel(job)
                del self._pending[job]

    def _take(self, job: Any, number: int) -> None:
        """Take the answer to a task, or submit it again where its job ended without one."""
        from submitit.core.utils import FailedJobError

        task, error = self._tasks[number], job.exception()
        if error is None:
            reply = job.result()
            assert isinstance(reply, Reply)
            self._replies.take(task, reply)
            return
        state = str(job.state).partition(" ")[0].rstrip("+")
        if NO_REQUEUE in str(error):
            state = "TIMEOUT"
        if state in ENDED_BY:
            reason = ENDED_BY[state].format(minutes=self._executor.minutes, memory=self._executor.memory)
            raise CollaPipeError(f"job {job.job_id} of {task}: {reason}. Finished work is kept")
        if isinstance(error, FailedJobError):
            trace = str(error).strip()
            raise CollaPipeError(
                f"job {job.job_id} could not begin {task}: install the same versions of Python, "
                f"collapipe-env and its dependencies on every machine; see {job.paths.stderr}\n{trace}"
            )
        self._losses.note(number, task, f"job {job.job_id} ended without a result (state {state})")
        self._submit([number])


def _cancel(job: Any) -> None:
    with contextlib.suppress(Exception):  # it may just have ended
        job.cancel(check=False)


def require_submitit() -> Any:
    """Return the library submitit.

    Raises:
        CollaPipeError: If it is not installed.
    """
    try:
        import submitit
    except ImportError:
        raise CollaPipeError(
            "--executor slurm needs the package submitit, which is not installed: pip install "
            "'collapipe-env[slurm]'"
        ) from None
    logging.getLogger("submitit").setLevel(logging.WARNING)
    return submitit

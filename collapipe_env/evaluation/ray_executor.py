"""Tasks on a Ray cluster, or on a local Ray that is started for one command."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collapipe_env.evaluation.executor import Errand, Hooks, Losses, Replies, Reply, Work, run_errand
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.ground.ray_cluster import RayCluster, first_line

REMEDY = (
    "it may have run out of memory: ask for fewer at once with --processes, or look into Ray's logs (of a "
    "Ray that was started here: /tmp/ray/session_latest/logs). Finished work is kept"
)


@dataclass(frozen=True)
class RayExecutor:
    """Runs tasks on Ray, with one CPU each unless more threads are requested.

    Attributes:
        asked: Largest number of simultaneous tasks; by default as many as the CPUs allow.
        address: Address of the cluster; by default that of the variable ``RAY_ADDRESS``. Without either, a
            Ray of this size is started here and ended with the tasks.
        cpus: CPUs that a task takes.
    """

    asked: int | None = None
    address: str | None = None
    cpus: int = 1

    @property
    def jobs(self) -> int:
        """Simultaneous tasks; before connecting, this machine's CPUs stand in for the cluster's."""
        return self.asked or max((os.cpu_count() or 1) // self.cpus, 1)

    @property
    def apart(self) -> bool:
        """True: a cluster need not share a disk."""
        return True

    @property
    def where(self) -> str:
        """The cluster and the number of simultaneous tasks, in words."""
        cluster = self._cluster
        place = f"the cluster at {cluster}" if cluster else "a Ray of this command's own"
        many = "as many at once as there are CPUs" if cluster and not self.asked else f"{self.jobs} at once"
        return f"{many} on {place}"

    @property
    def _cluster(self) -> str | None:
        """Address of a running cluster; ``None`` for a Ray started here."""
        address = self.address or os.environ.get("RAY_ADDRESS") or "local"
        return None if address == "local" else address

    def run(self, work: Work, tasks: Sequence[Any], hooks: Hooks) -> None:
        """Do all tasks; see :meth:`~collapipe_env.evaluation.executor.Executor.run`."""
        if not tasks:
            return
        with contextlib.closing(
            RayCluster(self._cluster, {"num_cpus": self.jobs * self.cpus}, "--executor ray")
        ) as ray:
            _Run(ray.ray, self, work, tasks, hooks).work_off()


class _Run:
    """Tasks under way.

    Args:
        ray: The library.
        executor: Runs the tasks.
        hooks: Functions to call on events.
    """

    def __init__(
        self, ray: Any, executor: RayExecutor, work: Work, tasks: Sequence[Any], hooks: Hooks
    ) -> None:
        self._ray, self._work, self._tasks, self._hooks = ray, work, tasks, hooks
        # Ray itself would repeat a lost task silently, without saying what was lost.
        self._remote = ray.remote(num_cpus=executor.cpus, max_retries=0)(run_errand)
        cpus = int(ray.cluster_resources().get("CPU", 1))
        self._jobs = executor.asked or max(cpus // executor.cpus, 1)
        self._waiting = iter(range(len(tasks)))
        self._pending: dict[Any, int] = {}
        self._losses, self._replies = Losses(hooks, REMEDY), Replies(hooks)

    def work_off(self) -> None:
        """Do all tasks."""
        try:
            self._fill()
            while self._pending:
                ready, _ = self._ray.wait([*self._pending], num_returns=1)
                for reference in ready:
                    self._take(reference, self._pending.pop(reference))
                self._fill()
        finally:
            for reference in self._pending:
                with contextlib.suppress(Exception):  # the cluster may be gone
                    self._ray.cancel(reference, force=True)

    def _fill(self) -> None:
        """Hand out tasks up to the allowed number of simultaneous ones."""
        while len(self._pending) < self._jobs:
            number = next((n for n in self._waiting if self._hooks.wanted(self._tasks[n])), None)
            if number is None:
                return
            self._submit(number)

    def _submit(self, number: int) -> None:
        self._pending[self._remote.remote(Errand(self._work, self._tasks[number]))] = number

    def _take(self, reference: Any, number: int) -> None:
        """Take the answer to a task, or hand it out again where its worker was lost."""
        task, errors = self._tasks[number], self._ray.exceptions
        try:
            reply = self._ray.get(reference)
        except errors.RayTaskError as error:  # run_errand returns its own errors, so it was not even reached
            raise CollaPipeError(
                f"a Ray worker could not begin {task} ({_last_line(error)}): install the same versions of "
                "Python, collapipe-env and its dependencies on every machine of the cluster"
            ) from None
        except errors.RaySystemError as error:
            raise CollaPipeError(f"Ray failed on {task} ({first_line(error)})") from None
        except errors.RayError as error:
            self._losses.note(number, task, f"a Ray worker was lost ({type(error).__name__})")
            self._submit(number)
            return
        assert isinstance(reply, Reply)
        self._replies.take(task, reply)


def _last_line(error: Exception) -> str:
    return str(error).strip().rpartition("\n")[2]

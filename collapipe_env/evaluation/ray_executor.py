"""Tasks on a Ray cluster, or on a local Ray that is started for one command."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from collapipe_env.evaluation.executor import Hooks, Reply, Work, run_all, run_task
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.ground.ray_cluster import RayCluster, first_line
from collapipe_env.ground.version import __version__


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
    apart: ClassVar[bool] = True  # a cluster need not share a disk

    @property
    def jobs(self) -> int:
        """Simultaneous tasks; before connecting, this machine's CPUs stand in for the cluster's."""
        return self.asked or max((os.cpu_count() or 1) // self.cpus, 1)

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
        options = {"num_cpus": self.jobs * self.cpus}
        with contextlib.closing(RayCluster(self._cluster, options, "--executor ray")) as cluster:
            run_all(_RayTasks(cluster.ray, self), work, tasks, hooks)


def run_there(work: Work, task: Any, version: str, folder: str) -> Reply:
    """Run a task in a worker, if it has the version that submitted it.

    Args:
        folder: Working directory of the submitting process, used if the worker has a folder of that name.
    """
    if version != __version__:
        other = CollaPipeError(
            f"the worker on {platform.node()} has collapipe-env {__version__}, but this is {version}: "
            "install the same version on every machine"
        )
        return Reply("failed", other)
    with contextlib.suppress(OSError):  # relative paths mean the same wherever the folder exists
        os.chdir(folder)
    return run_task(work, task)


class _RayTasks:
    """Tasks under way; see :class:`~collapipe_env.evaluation.executor.Workers`."""

    remedy = (
        "it may have run out of memory: ask for fewer at once with --processes, or look into Ray's logs (of "
        "a Ray that was started here: /tmp/ray/session_latest/logs). Finished work is kept"
    )

    def __init__(self, ray: Any, executor: RayExecutor) -> None:
        self._ray = ray
        # Ray itself would repeat a lost task silently, without saying what was lost.
        self._remote = ray.remote(num_cpus=executor.cpus, max_retries=0)(run_there)
        cpus = int(ray.cluster_resources().get("CPU", 1))
        self.jobs = executor.asked or max(cpus // executor.cpus, 1)
        self._running: dict[Any, int] = {}

    def start(self, number: int, work: Work, task: Any) -> None:
        """Have the cluster do a task."""
        self._running[self._remote.remote(work, task, __version__, os.getcwd())] = number

    def news(self) -> Iterator[tuple[int, Reply]]:
        """The end of a task."""
        for reference in self._ray.wait([*self._running], num_returns=1)[0]:
            yield self._running.pop(reference), self._reply(reference)

    def _reply(self, reference: Any) -> Reply:
        errors = self._ray.exceptions
        try:
            reply: Reply = self._ray.get(reference)
        except errors.RayTaskError as error:  # it returns its own errors, so it was not even reached
            last = str(error).strip().rpartition("\n")[2]
            raise CollaPipeError(
                f"a Ray worker could not begin its task ({last}): install the same versions of Python, "
                "collapipe-env and its dependencies on every machine of the cluster"
            ) from None
        except errors.RaySystemError as error:
            raise CollaPipeError(f"Ray failed on a task ({first_line(error)})") from None
        except errors.RayError as error:
            return Reply("lost", f"a Ray worker was lost ({type(error).__name__})")
        return reply

    def close(self) -> None:
        """Cancel the tasks under way."""
        for reference in self._running:
            with contextlib.suppress(Exception):  # the cluster may be gone
                self._ray.cancel(reference, force=True)

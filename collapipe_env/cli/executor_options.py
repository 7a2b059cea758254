"""Options for the place of a command's tasks: this machine, Ray or Slurm."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from collapipe_env.cli.common import hint, require_within
from collapipe_env.evaluation.run_directory import RunDirectory
from collapipe_env.ground.errors import ScenarioError

if TYPE_CHECKING:
    from collapipe_env.evaluation.executor import Executor

USUAL_SLURM_JOBS = 64
"""Default number of simultaneous Slurm jobs."""


@dataclass(frozen=True)
class ExecutorOptions:
    """Place where the work is done: this machine, Ray or Slurm."""

    executor: Literal["local", "ray", "slurm"] = "local"
    """Engine for whole tasks: processes of this machine, a Ray cluster, or Slurm jobs; same results."""
    ray_address: Annotated[
        str | None,
        tyro.conf.arg(metavar="ADDRESS"),
        hint("default: RAY_ADDRESS, or a Ray that the command starts"),
    ] = None
    """Ray cluster to use, such as auto or 10.0.0.1:6379."""
    slurm_folder: Annotated[
        Path | None, tyro.conf.arg(metavar="FOLDER"), hint("default: slurm in the folder of --out")
    ] = None
    """Folder for submitit's tasks, results and logs, on a disk that all machines share."""
    slurm_partition: Annotated[
        str | None, tyro.conf.arg(metavar="NAME"), hint("default: the cluster's default")
    ] = None
    """Slurm partition for the jobs."""
    slurm_minutes: int = 60
    """Time limit per job in minutes."""
    slurm_cpus: Annotated[int | None, tyro.conf.arg(metavar="INT"), hint("default: --threads, or 1")] = None
    """CPUs per job."""
    slurm_memory: float = 4.0
    """Memory per job in GB."""
    slurm_cluster: Literal["slurm", "local"] = "slurm"
    """local runs the jobs as processes on this machine, to try submitit without Slurm."""

    def check(self) -> None:
        """Refuse values out of range, options of another engine, and an engine that is not installed.

        Raises:
            CollaPipeError: Names the option, its value and the remedy.
        """
        plain = ExecutorOptions()
        for engine, names in (
            ("ray", ("ray_address",)),
            ("slurm", [name for name in vars(self) if name.startswith("slurm_")]),
        ):
            for name in names:
                if self.executor != engine and getattr(self, name) != getattr(plain, name):
                    raise ScenarioError(
                        f"--{name.replace('_', '-')} with --executor {self.executor}: it is an option of "
                        f"--executor {engine}; leave it out"
                    )
        require_within(
            ("--slurm-minutes", self.slurm_minutes, 1, 525_600),
            ("--slurm-cpus", self.slurm_cpus or 1, 1, 1024),
        )
        if not 0.1 <= self.slurm_memory <= 100_000:
            raise ScenarioError(
                f"--slurm-memory = {self.slurm_memory}: use a number from 0.1 to 100,000 (GB)"
            )
        if self.executor == "ray":
            from collapipe_env.evaluation.ray_executor import require_ray

            require_ray()
        elif self.executor == "slurm":
            from collapipe_env.evaluation.slurm_executor import require_submitit

            require_submitit()

    def build(
        self,
        run: RunDirectory,
        processes: int | None,
        *,
        threads: int = 1,
        resumes: bool = False,
        usual: int | None = None,
    ) -> Executor:
        """Return the executor.

        Args:
            run: Folder of the command.
            processes: Number of simultaneous tasks; the engine's default if not given.
            threads: Threads of a task.
            resumes: Whether a restarted task continues from the work that it left.
            usual: Default number of local processes; two, or one on a single core, if not given.
        """
        if self.executor == "ray":
            from collapipe_env.evaluation.ray_executor import RayExecutor

            return RayExecutor(processes, self.ray_address, threads)
        if self.executor == "slurm":
            from collapipe_env.evaluation.slurm_executor import SlurmExecutor

            jobs = processes or (USUAL_SLURM_JOBS if self.slurm_cluster == "slurm" else os.cpu_count() or 1)
            return SlurmExecutor(
                folder=(self.slurm_folder or run.slurm).absolute(),
                jobs=jobs,
                partition=self.slurm_partition,
                minutes=self.slurm_minutes,
                cpus=self.slurm_cpus or threads,
                memory=self.slurm_memory,
                cluster=self.slurm_cluster,
                resumes=resumes,
                poll_s=2.0 if self.slurm_cluster == "slurm" else 0.1,
            )
        from collapipe_env.evaluation.pool import LocalExecutor

        return LocalExecutor(processes or usual or min(2, os.cpu_count() or 1))

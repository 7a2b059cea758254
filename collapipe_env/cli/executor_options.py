"""Options for the place of a command's tasks: this machine or Ray."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from collapipe_env.cli.option_types import about
from collapipe_env.ground.errors import ScenarioError

if TYPE_CHECKING:
    from collapipe_env.evaluation.executor import Executor


@dataclass(frozen=True)
class ExecutorOptions:
    """Place where the work is done: this machine or Ray."""

    executor: Literal["local", "ray"] = "local"
    """Engine for whole tasks: processes of this machine, or a Ray cluster; same results."""
    ray_address: Annotated[str | None, about("ADDRESS", "RAY_ADDRESS, or a Ray that the command starts")] = (
        None
    )
    """Ray cluster to use, such as auto or 10.0.0.1:6379."""

    def check(self) -> None:
        """Refuse an option of another engine, and an engine that is not installed.

        Raises:
            CollaPipeError: Names the option and the remedy.
        """
        if self.executor == "ray":
            from collapipe_env.ground.ray_cluster import require_ray

            require_ray("--executor ray")
        elif self.ray_address is not None:
            raise ScenarioError(
                f"--ray-address with --executor {self.executor}: it is an option of --executor ray; "
                "leave it out"
            )

    def build(self, processes: int | None, *, threads: int = 1, usual: int | None = None) -> Executor:
        """Return the executor.

        Args:
            processes: Number of simultaneous tasks; the engine's default if not given.
            usual: Default number of local processes; two, or one on a single core, if not given.
        """
        if self.executor == "ray":
            from collapipe_env.evaluation.ray_executor import RayExecutor

            return RayExecutor(processes, self.ray_address, threads)
        from collapipe_env.evaluation.pool import LocalExecutor

        return LocalExecutor(processes or usual or min(2, os.cpu_count() or 1))

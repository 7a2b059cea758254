"""Types of options: words for ``--help`` and ranges, and the options that commands share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from collapipe_env.evaluation.rounds import LARGEST_ROUNDS
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario.names import SHIPPED
from collapipe_env.scenario.task_registry import task_names
from collapipe_env.schedulers import LEARNED, scheduler_names

if TYPE_CHECKING:
    from collapipe_env.evaluation.executor import Executor


def about(metavar: str | None = None, default: str = "", text: str | None = None, **more: Any) -> object:
    """Return the part of an option's type that ``--help`` shows.

    Args:
        metavar: Stands for its values.
        default: Its default in words; that of its class where it is empty.
        text: Its description, in place of a docstring below it.
    """
    words = f"(default: {default})" if default else None
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=words, help=text, **more)


@dataclass(frozen=True)
class Within:
    """Least and largest value of a number, in the type of its option."""

    low: float
    high: float

    def require(self, name: str, value: float | None) -> None:
        """Refuse a number out of the range; ``None`` stands for an option that is not given.

        Raises:
            ScenarioError: Names the option, its value and the range.
        """
        if value is not None and not self.low <= value <= self.high:
            low, high = (f"{x:,}" if isinstance(x, int) else f"{x:g}" for x in (self.low, self.high))
            raise ScenarioError(f"{name} = {value}: use a number from {low} to {high}")


OWN_HELP = "or your own: file.py:Name, package.module:Name."
UNTRAINED_HELP = f"{', '.join(scheduler_names())}, graph or another agent of collapipe zoo; {OWN_HELP}"
Source = Annotated[str, about("NAME|FILE", text=f"A shipped scenario ({SHIPPED}), a YAML file, {OWN_HELP}")]
TaskName = Annotated[
    str | None,
    about(
        "NAME",
        "the scenario's",
        f"Task that the Transformer learns: {', '.join(task_names())}. A task other than the scenario's "
        "comes with suitable data, head and learning rates.",
    ),
]
Dataset = Annotated[
    str | None,
    about(
        "PATH",
        "the scenario's, shipped with the package",
        "Training data: a local file or folder, or hf:NAME from the Hugging Face hub.",
    ),
]
LEARNER_HELP = (
    "Learner that supplies the loss: surrogate (a fitted bound), real (training in every round), "
    f"{OWN_HELP} Delays and energies do not depend on it."
)
Learner = Annotated[str, about("NAME", text=LEARNER_HELP)]
Schedulers = Annotated[
    tuple[str, ...] | None,
    about("NAME ...", text=f"Schedulers to compare: {LEARNED} (the trained one), {UNTRAINED_HELP}"),
]
EPISODES = Within(1, 100_000)
EPISODES_HELP = "Number of held-out episodes, the same for every scheduler."
Episodes = Annotated[int, EPISODES, about(text=EPISODES_HELP)]
ROUNDS = Within(1, LARGEST_ROUNDS)
Count = Annotated[int | None, about("INT")]
Processes = Annotated[
    Count,
    Within(1, 1024),
    about(
        default="2, or 1 on a single core; depends on the engine with --executor",
        text="Number of episodes played at once, each in its own process or job.",
    ),
]
Rounds = Annotated[
    Count, ROUNDS, about(None, "the scenario's", "Rounds per episode; may be more than the scenario's.")
]
Seed = Annotated[int, Within(0, 2**31 - 1), about(text="Seed of the episode.")]
Threads = Annotated[int, Within(1, 1024)]
Folder = Annotated[Path | None, about("FOLDER", text="Folder for all files.")]
Fresh = Annotated[bool, about(text="Start over in the folder instead of resuming.")]


@dataclass(frozen=True)
class ExecutorOptions:
    """Place where the work is done: this machine or Ray."""

    executor: Literal["local", "ray"] = "local"
    """Engine for whole tasks: processes of this machine, or a Ray cluster; same results."""
    ray_address: Annotated[str | None, about("ADDRESS", "RAY_ADDRESS, or a Ray that the command starts")] = (
        None
    )
    """Ray cluster to use, such as auto or 10.0.0.1:6379."""

    def build(self, processes: int | None, *, threads: int = 1, usual: int = 2) -> Executor:
        """Return the executor, which starts nothing before it has tasks.

        Args:
            processes: Number of simultaneous tasks; the engine's default if not given.
            usual: Default number of local processes; fewer on fewer cores.

        Raises:
            CollaPipeError: If an option is of another engine, or the engine is not installed.
        """
        if self.executor == "ray":
            from collapipe_env.evaluation.ray_executor import RayExecutor
            from collapipe_env.ground.ray_cluster import require_ray

            require_ray("--executor ray")
            return RayExecutor(processes, self.ray_address, threads)
        if self.ray_address is not None:
            raise ScenarioError(
                f"--ray-address with --executor {self.executor}: it is an option of --executor ray; "
                "leave it out"
            )
        from collapipe_env.evaluation.pool import LocalExecutor

        return LocalExecutor(processes or min(usual, os.cpu_count() or 1))

"""Processor time from the import to DSSRA's first decision, with nothing compiled and with everything.

Every sample is a fresh process: import, ``gymnasium.make``, reset, first step, first decision. A cold process
has an empty folder for compiled code, a warm one the folder of the cold process before it. The time is
processor time, because wall-clock time depends on the machine's other work. Run::

    python benchmarks/first_decision.py
    python benchmarks/first_decision.py --processes 5
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

from measuring import BenchmarkOptions, Figure, command, publish
from pydantic import Field

WHAT = "processor seconds of fresh processes up to DSSRA's first decision, Python's start included"
COLD_GOAL_S = 10.0

DECIDE = """
import json, time
import gymnasium as gym
import collapipe_env
env = gym.make("CollaPipeSurrogate-v0")
observation, _ = env.reset(seed=0)
env.action_space.seed(0)
env.step(env.action_space.sample())
step = time.process_time()
from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.vector import CollaPipeVectorEnv
batch = CollaPipeVectorEnv(scenario="medium", num_envs=1, learner="surrogate")
batch.reset(seed=0)
DSSRA(batch.scenario, threads=1).allocate(batch.state)
print(json.dumps({"first step": step, "first decision": time.process_time()}))
"""


class Options(BenchmarkOptions):
    """Processor time up to DSSRA's first decision, cold and warm."""

    processes: Annotated[int, Field(ge=1)] = 3
    """Processes of each kind, at least 1."""


def figures(options: Options) -> list[Figure]:
    """Measure, cold and warm in turns."""
    samples: dict[str, list[float]] = {}
    for _ in range(options.processes):
        with tempfile.TemporaryDirectory() as folder:
            for kind in ("cold", "warm"):
                for name, seconds in _first_decision(Path(folder)).items():
                    samples.setdefault(f"{kind}, {name}", []).append(seconds)
    return [
        Figure(
            name,
            statistics.median(values),
            "s",
            min(values),
            max(values),
            COLD_GOAL_S if name == "cold, first decision" else None,
        )
        for name, values in samples.items()
    ]


def _first_decision(folder: Path) -> dict[str, float]:
    """Seconds of one fresh process that keeps its compiled code in the folder."""
    result = subprocess.run(  # noqa: S603 - this interpreter with a constant script
        [sys.executable, "-c", DECIDE],
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return found


main = command(Options, lambda options: publish(options, WHAT, figures(options)), __doc__)

if __name__ == "__main__":
    sys.exit(main())

"""Environments as PyTorch tensors against the NumPy vector environment: time of a step per environment.

All contestants take turns in short slices, see ``side_by_side.py``. Each plays the surrogate with random
actions that are already on its device, and resets itself. Without a GPU the rows of the GPU are skipped, with
the reason. Run::

    python benchmarks/torch_backend.py
    python benchmarks/torch_backend.py --scenario small --num-envs 1024 --compiled
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import torch
from measuring import RESULTS, Between, Figure, command, publish
from side_by_side import ACTIONS_IN_STORE, Contestant, VectorOptions, ratio_figure, take_turns, vector

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.scenario import load_scenario

WHAT = "time of a step per environment, torch backend over the NumPy vector environment of the same size"
NUM_ENVS = (256, 1024, 4096)
GPU_NUM_ENVS = (16384,)
"""Further sizes, which only the GPU plays."""


@dataclass(frozen=True)
class Options(VectorOptions):
    """Environments as PyTorch tensors against the NumPy vector environment."""

    slice_seconds: float = 0.5
    """Length of a slice [s], 0.001 to 60."""
    repeats: int = 5
    """Slices of each contestant, 1 to 1000."""
    scenario: str = "medium"
    """A shipped scenario or a YAML file."""
    num_envs: tuple[int, ...] = NUM_ENVS
    """Sizes of the batch, at least 1 each."""
    dtypes: tuple[Literal["float64", "float32"], ...] = ("float64", "float32")
    """Real types."""
    compiled: bool = False
    """Also measure torch.compile; compiles first."""
    threads: Annotated[int | None, Between(1, 1024)] = None
    """Threads of PyTorch on the CPU, 1 to 1024; PyTorch's own choice by default."""
    output: Path = RESULTS / "torch_backend.json"
    """JSON file to write."""

    def check(self) -> None:
        """Refuse options that cannot be run."""
        super().check()
        load_scenario(self.scenario)


def numpy_contestant(scenario: str, num_envs: int) -> Contestant:
    """The NumPy vector environment."""
    return vector(f"numpy, {num_envs}", "CollaPipeSurrogate-v0", num_envs, scenario=scenario)


def torch_contestant(
    scenario: str, num_envs: int, device: str, dtype: str = "float64", compiled: bool = False
) -> Contestant:
    """The torch vector environment without the check of actions, which would wait for the device."""
    env = CollaPipeTorchVectorEnv(
        num_envs, scenario, device=device, dtype=dtype, compiled=compiled, check_actions=False
    )
    shape = (ACTIONS_IN_STORE, num_envs, env.codec.action_size)
    actions = torch.empty(shape, device=device).uniform_(-1.0, 1.0)
    env.reset(seed=0)

    def play(calls: int) -> None:
        for i in range(calls):
            env.step(actions[i % ACTIONS_IN_STORE])
        if device != "cpu":
            torch.cuda.synchronize(device)

    return Contestant(_name(device, num_envs, dtype, compiled), num_envs, play)


def figures(
    scenario: str = "medium",
    num_envs: Sequence[int] = NUM_ENVS,
    dtypes: Sequence[str] = ("float64", "float32"),
    compiled: bool = False,
    slice_seconds: float = 0.5,
    repeats: int = 5,
) -> list[Figure]:
    """Measure; see the module.

    Args:
        scenario: A shipped scenario.
        num_envs: Sizes.
        dtypes: Real types of the tensors.
        compiled: Also measure compiled environments.
        slice_seconds: Length of a slice.
        repeats: Slices of each.

    Returns:
        Time of a step per environment, over that of NumPy at the same size; GPU sizes beyond those of NumPy
        over NumPy's largest.
    """
    found: list[Figure] = []
    gpu = torch.cuda.is_available()
    kinds = [(dtype, wanted) for dtype in dtypes for wanted in ((False, True) if compiled else (False,))]
    sizes = list(dict.fromkeys(num_envs))
    # One size at a time, so that contestants of other sizes hold no memory.
    for size in sizes:
        yardstick = numpy_contestant(scenario, size)
        devices = ("cpu", "cuda") if gpu else ("cpu",)
        contestants = [
            torch_contestant(scenario, size, device, *kind) for device in devices for kind in kinds
        ]
        if gpu and size == sizes[-1]:
            contestants += [
                torch_contestant(scenario, n, "cuda", *kind) for n in GPU_NUM_ENVS for kind in kinds
            ]
        timings = take_turns([yardstick, *contestants], slice_seconds, repeats)
        found += [ratio_figure(t.name, t, timings[yardstick.name], rate=True) for t in timings.values()]
    if not gpu:
        reason = f"PyTorch {torch.__version__} can use no GPU here"
        for size in (*sizes, *GPU_NUM_ENVS):
            found += [Figure(_name("cuda", size, *kind), None, "", note=reason) for kind in kinds]
    return found


def _name(device: str, num_envs: int, dtype: str, compiled: bool) -> str:
    return f"torch {device} {dtype}{' compiled' if compiled else ''}, {num_envs}"


def _run(options: Options) -> None:
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    found = figures(
        options.scenario,
        options.num_envs,
        options.dtypes,
        options.compiled,
        options.slice_seconds,
        options.repeats,
    )
    publish(replace(options, threads=torch.get_num_threads()), WHAT, found)


main = partial(command, Options, _run, __doc__)

if __name__ == "__main__":
    sys.exit(main())

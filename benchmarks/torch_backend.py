"""Environments as PyTorch tensors against the NumPy vector environment: time of a step per environment.

All contestants take turns in short slices, see ``measuring.py``. Every one plays the surrogate with random
actions that are already where it computes, and its own resets. Without a GPU the rows of the GPU are skipped,
with the reason. Run::

    python benchmarks/torch_backend.py
    python benchmarks/torch_backend.py --scenario small --num-envs 1024 --compiled
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import (
    RESULTS,
    Contestant,
    Figure,
    check_slices,
    figure_table,
    ratio_figure,
    take_turns,
    write_figures,
)

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario import scenario_names

WHAT = "time of a step per environment, torch backend over the NumPy vector environment of the same size"
NUM_ENVS = (256, 1024, 4096)
GPU_NUM_ENVS = (16384,)
"""Sizes that only the GPU plays, besides the others."""
ACTIONS_IN_STORE = 4


def numpy_contestant(scenario: str, num_envs: int) -> Contestant:
    """The NumPy vector environment."""
    env = CollaPipeVectorEnv(num_envs, scenario, "surrogate")
    actions = _actions((num_envs, env.codec.action_size))
    env.reset(seed=0)

    def play(calls: int) -> None:
        for i in range(calls):
            env.step(actions[i % ACTIONS_IN_STORE])

    return Contestant(f"numpy, {num_envs}", num_envs, play)


def torch_contestant(
    scenario: str, num_envs: int, device: str, dtype: str = "float64", compiled: bool = False
) -> Contestant:
    """The torch vector environment without the check of actions, which would wait for the device."""
    env = CollaPipeTorchVectorEnv(
        num_envs, scenario, device=device, dtype=dtype, compiled=compiled, check_actions=False
    )
    actions = torch.from_numpy(np.stack(_actions((num_envs, env.codec.action_size)))).to(device)
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
        compiled: Measure compiled environments, too.
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
    # Size by size, so that what is not measured just now holds no memory.
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
        for timing in timings.values():
            figure = ratio_figure(timing.name, timing, timings[yardstick.name])
            found.append(replace(figure, note=f"{1.0 / timing.median:,.0f} steps/s"))
    if not gpu:
        reason = f"PyTorch {torch.__version__} can use no GPU here"
        for size in (*sizes, *GPU_NUM_ENVS):
            found += [Figure(_name("cuda", size, *kind), None, "", note=reason) for kind in kinds]
    return found


def _name(device: str, num_envs: int, dtype: str, compiled: bool) -> str:
    return f"torch {device} {dtype}{' compiled' if compiled else ''}, {num_envs}"


def _actions(shape: tuple[int, int]) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1.0, 1.0, shape).astype(np.float32) for _ in range(ACTIONS_IN_STORE)]


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scenario", default="medium", metavar="NAME", help="a shipped scenario")
    parser.add_argument(
        "--num-envs", nargs="+", type=int, default=list(NUM_ENVS), metavar="E", help="sizes of the batch"
    )
    parser.add_argument(
        "--dtypes", nargs="+", default=["float64", "float32"], metavar="TYPE", help="real types"
    )
    parser.add_argument("--compiled", action="store_true", help="measure torch.compile, too; compiles first")
    parser.add_argument("--threads", type=int, metavar="T", help="threads of PyTorch on the CPU")
    parser.add_argument("--slice-seconds", type=float, default=0.5, metavar="S", help="length of a slice")
    parser.add_argument("--repeats", type=int, default=5, metavar="R", help="slices of each")
    default = RESULTS / "torch_backend.json"
    parser.add_argument("--output", type=Path, default=default, metavar="FILE", help="JSON file to write")
    options = parser.parse_args(arguments)
    if options.scenario not in scenario_names():
        parser.error(
            f"--scenario: {options.scenario!r} is not shipped; there are {', '.join(scenario_names())}"
        )
    if any(size < 1 for size in options.num_envs):
        parser.error(f"--num-envs: {options.num_envs} must be at least 1 each")
    for name in options.dtypes:
        if name not in ("float64", "float32"):
            parser.error(f"--dtypes: {name!r} is not one of float64, float32")
    if options.threads is not None and options.threads < 1:
        parser.error(f"--threads: {options.threads} must be at least 1")
    check_slices(parser, options)
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and store it."""
    options = parse_arguments(arguments)
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
    print(figure_table(found))
    chosen = {key: value for key, value in vars(options).items() if key != "output"}
    write_figures(options.output, WHAT, found, {**chosen, "threads": torch.get_num_threads()})
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()

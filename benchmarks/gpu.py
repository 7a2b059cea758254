"""PyTorch on a GPU: the environments as tensors beside NumPy's, and a short training of the graph net.

For every scenario and size it first plays rounds on both backends, with the same seeds and actions: the
largest difference of observations and rewards, relative where they exceed 1, has a goal. Then the contestants
take turns in short slices, see ``side_by_side.py``, with random actions that are already on their device;
they reset themselves. At last the graph net takes the same steps of training with its weights on the GPU and
on the CPU; the step's environments and prices are on the CPU in both. All takes about three minutes on a GPU,
besides compiling. Sizes for which the memory does not suffice are skipped. Run::

    python benchmarks/gpu.py
    python benchmarks/gpu.py --device cpu --scenarios medium --num-envs 256 1024 4096 --compiled
"""

from __future__ import annotations

import itertools
import os
import sys
import tracemalloc
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import gymnasium as gym
import numpy as np
import torch
from measuring import Figure, command, publish
from pydantic import Field
from side_by_side import ACTIONS_IN_STORE, Contestant, SliceOptions, ratio_figure, take_turns, vector

from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
from collapipe_env.agents.learned.graph.net import GraphNet
from collapipe_env.agents.learned.graph.step import Losses, learn_and_play
from collapipe_env.agents.learned.graph.systems import Group
from collapipe_env.agents.learned.hyperparameters import usual
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario

WHAT = "torch over NumPy: largest differences, time of a step per environment, time of a step of training"
ID = "CollaPipeSurrogate-v0"
NUM_ENVS = {"cuda": (256, 4096, 65_536), "cpu": (64, 256)}
"""Sizes by device."""
CHECKED_ROUNDS = 3
DIFFERENCE = 1e-6
"""Largest difference wanted of float32 observations and rewards that were computed in float64."""
LOSS_DIFFERENCE = 1e-3
"""Largest relative difference wanted of the first step's loss, which the net computes in float32."""
SPARE = 4.0
"""Memory wanted for a batch, over what NumPy holds for its rows at the peak: tensors take more."""


class Options(SliceOptions):
    """PyTorch on a GPU: environments as tensors beside NumPy's, and a training of the graph net."""

    device: Literal["cuda", "cpu"] = "cuda"
    """Where the tensors are; cpu shows that everything works without a GPU."""
    repeats: int = 3
    """Slices of each contestant, 1 to 1000."""
    scenarios: tuple[str, ...] = ("medium", "large")
    """Shipped scenarios or YAML files; the net trains on the first."""
    num_envs: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Sizes of the batch, at least 1 each; by default 256, 4096 and 65536 on a GPU, 64 and 256 on the CPU."""
    dtypes: tuple[Literal["float64", "float32"], ...] = ("float64", "float32")
    """Real types."""
    compiled: bool = False
    """Also measure torch.compile; compiles first."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """Threads of PyTorch on the CPU, at least 1; PyTorch's own choice by default."""


def figures(options: Options) -> list[Figure]:
    """All figures; sizes that do not fit the memory are skipped."""
    found: list[Figure] = []
    for scenario, size in itertools.product(options.scenarios, options.num_envs or NUM_ENVS[options.device]):
        try:
            found += compared(scenario, size, options)
        except (MemoryError, torch.OutOfMemoryError) as error:
            note = next(iter(str(error).splitlines()), type(error).__name__)
            found.append(Figure(f"{scenario}, {size}", None, "", note=note))
    return [*found, *_training(options)]


def compared(scenario: str, size: int, options: Options) -> Iterator[Figure]:
    """Figures of a scenario and a number of environments.

    Raises:
        MemoryError: If the batch would take more than half of the machine's memory.
        torch.OutOfMemoryError: If it does not fit the GPU's.
    """
    wanted = SPARE * size * bytes_of_a_row(scenario)
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if wanted > 0.5 * there:
        raise MemoryError(f"wants {wanted / 1e9:.1f} GB, the machine has {there / 1e9:.1f}")
    name = f"{scenario}, {size}: largest difference"
    yield Figure(name, difference(scenario, size, options.device), "", goal=DIFFERENCE)
    yardstick = vector(f"{scenario}, {size}: numpy", ID, size, scenario=scenario)
    # PyTorch cannot compile for both types in one process, and keeps only eight compiled forms of a function.
    together = [(dtype,) for dtype in options.dtypes] if options.compiled else [options.dtypes]
    for dtypes in together:
        if options.compiled:
            torch.compiler.reset()
        kinds = itertools.product(dtypes, (False, True) if options.compiled else (False,))
        contestants = [torch_contestant(scenario, size, options.device, *kind) for kind in kinds]
        timings = take_turns([yardstick, *contestants], options.slice_seconds, options.repeats)
        for timing in timings.values():
            if timing.name != yardstick.name or dtypes == together[0]:
                yield ratio_figure(timing.name, timing, timings[yardstick.name], rate=True)


def bytes_of_a_row(scenario: str) -> float:
    """Most bytes that NumPy holds for an environment of a batch, while it begins and plays a round."""
    size = 64

    def play() -> None:
        env = gym.make_vec(ID, num_envs=size, scenario=scenario)
        for _ in _played(env, [env.action_space.sample()]):
            pass

    play()  # what is kept of a first run says nothing about larger batches
    tracemalloc.start()
    try:
        play()
        return tracemalloc.get_traced_memory()[1] / size
    finally:
        tracemalloc.stop()


def difference(scenario: str, num_envs: int, device: str) -> float:
    """Largest difference of observations and rewards from NumPy's, relative where they exceed 1.

    Args:
        scenario: A shipped scenario or a YAML file.
        num_envs: Environments that play on each backend.
        device: Of the tensors, which are float64.
    """
    ours = CollaPipeTorchVectorEnv(num_envs, scenario, device=device)
    shape = (CHECKED_ROUNDS, num_envs, ours.codec.action_size)
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, shape).astype(np.float32)
    theirs = gym.make_vec(ID, num_envs=num_envs, scenario=scenario)
    return max(
        float(np.max(np.abs(found.cpu().numpy() - expected) / np.maximum(np.abs(expected), 1.0)))
        for found, expected in zip(_played(ours, actions), _played(theirs, actions), strict=True)
    )


def _played(env: Any, actions: Any) -> Iterator[Any]:
    """Observations and rewards of rounds."""
    yield env.reset(seed=0)[0]
    for action in actions:
        yield from env.step(action)[:2]


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
        _wait_for(device)

    name = f"{scenario}, {num_envs}: torch {device} {dtype}{' compiled' if compiled else ''}"
    return Contestant(name, num_envs, play)


class Training:
    """Steps of the graph net's training in one scenario, with its weights on a device.

    Args:
        scenario: A shipped scenario or a YAML file.
        device: Of the weights.
    """

    def __init__(self, scenario: str, device: str) -> None:
        p, loaded = usual(GraphParameters), load_scenario(scenario)
        torch.manual_seed(0)
        self._net = GraphNet(p).to(device)
        self._adam = torch.optim.Adam(self._net.parameters(), lr=p.learning_rate)
        self._group = Group(loaded, max(p.clusters // loaded.clusters, 1), sys.maxsize, 0)
        self._rng, self._parameters, self._device = np.random.default_rng(0), p, device

    def step(self) -> Losses:
        """Take a step, and return the losses before it."""
        p = self._parameters
        losses = learn_and_play(self._net, self._group, p, p.entropy, self._rng)
        self._adam.zero_grad()
        losses.total.backward()  # type: ignore[no-untyped-call]
        self._adam.step()
        return losses

    def play(self, calls: int) -> None:
        """Take steps."""
        for _ in range(calls):
            self.step()
        _wait_for(self._device)


def _training(options: Options) -> Iterator[Figure]:
    scenario, device = options.scenarios[0], options.device
    name = f"{scenario}, graph net's training"
    # Without a GPU both are on the CPU and do the same.
    runs = [Training(scenario, place) for place in ("cpu", device)]
    expected, found = (float(run.step().total.detach()) for run in runs)
    yield Figure(f"{name}: difference of the loss", abs(found / expected - 1.0), "", goal=LOSS_DIFFERENCE)
    rows = [f"{name}: numpy and torch cpu", f"{name}: weights on {device}"]
    contestants = [Contestant(row, 1, run.play) for row, run in zip(rows, runs, strict=True)]
    timings = take_turns(contestants, options.slice_seconds, options.repeats)
    for timing in timings.values():
        yield ratio_figure(timing.name, timing, timings[rows[0]], rate=True)


def _wait_for(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


def _run(options: Options) -> None:
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ScenarioError(f"PyTorch {torch.__version__} can use no GPU here: --device cpu shows the rest")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    gpu = torch.cuda.get_device_name() if options.device == "cuda" else None
    used = options.model_copy(update={"threads": torch.get_num_threads()})
    publish(used, WHAT, figures(options), gpu=gpu)


main = command(Options, _run, __doc__)

if __name__ == "__main__":
    sys.exit(main())

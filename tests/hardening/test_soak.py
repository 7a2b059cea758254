"""Ten minutes of ordinary work in one process: memory, file descriptors and threads stay as they were.

``COLLAPIPE_SOAK_SECONDS`` sets the time, after a warm-up of a tenth of it.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import collapipe_env
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv

SECONDS = float(os.environ.get("COLLAPIPE_SOAK_SECONDS", "600"))
SCENARIOS = ("small", "small-migration", "small-channel", "small-thermal", "small-mobile", "small-stale",
             "small-churn", "small-wild", "medium")  # fmt: skip
MAY_GROW = 8 * 1024**2
"""Bytes that the resident memory may grow by after the warm-up: pools of the allocator, and no leak of
hundreds of bytes a step."""


def resident() -> int:
    """Resident memory of this process [byte]."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    """Open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def cycle(number: int, folder: Path) -> int:
    """Build, play, save, load and close environments, and compare two schedulers; returns the steps."""
    scenario = {"base": SCENARIOS[number % len(SCENARIOS)], "dynamics": {"rounds": 12}}
    rng, steps = np.random.default_rng(number), 0
    env = CollaPipeEnv(scenario, learner="surrogate", observation=("flat", "graph")[number // 8 % 2])
    for episode in range(3):
        env.reset(seed=episode)
        over = False
        while not over:
            over = env.step(rng.uniform(-1.0, 1.0, env.action_space.shape))[3]
            steps += 1
    env.save_state(folder / "state.safetensors")
    env.load_state(folder / "state.safetensors")
    env.close()
    many = CollaPipeVectorEnv(8, scenario, learner="surrogate")
    many.reset(seed=number)
    for _ in range(26):
        many.step(rng.uniform(-1.0, 1.0, many.action_space.shape))
        steps += 8
    many.close()
    given = {"seeds": 1, "rounds": 3, "learner": "surrogate", "out": folder / "run", "fresh": True}
    collapipe_env.evaluate(["pipeline", "random"], scenario, **given)
    return steps


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_descriptors_and_threads_stay_as_they_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warnings.simplefilter("ignore")
    begin, steps, cycles = time.monotonic(), 0, 0
    # A warm-up of at least every scenario with both observations: compiled code and caches.
    while time.monotonic() - begin < 0.1 * SECONDS or cycles < 2 * len(SCENARIOS):
        steps += cycle(cycles, tmp_path)
        cycles += 1
    gc.collect()
    memory, files, threads = [resident()], descriptors(), threading.active_count()
    warm, last = time.monotonic(), cycles
    while time.monotonic() - warm < SECONDS:
        steps += cycle(cycles, tmp_path)
        cycles += 1
        if cycles % 8 == 0:
            gc.collect()
            memory.append(resident())
    gc.collect()
    memory.append(resident())
    with capsys.disabled():
        print(f"\n{cycles - last} cycles, {steps:,} steps; resident memory {memory[0] / 1e6:.1f} MB, "
              f"{max(memory) / 1e6:.1f} MB at most, {memory[-1] / 1e6:.1f} MB at the end")  # fmt: skip
    assert memory[-1] - memory[0] < MAY_GROW
    assert descriptors() == files
    assert threading.active_count() == threads

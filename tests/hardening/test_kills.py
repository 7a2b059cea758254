"""kill -9 at random moments: what is there reads, a rerun cleans up, and ends as if nothing had been.

``COLLAPIPE_KILLS`` sets the number of kills, ``COLLAPIPE_KILL_SEED`` their moments.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_support import kill_group, run, start
from run_files_support import figures, partials, require_readable

from collapipe_env.agents.learned.agent_file import read_agent_file

KILLS = int(os.environ.get("COLLAPIPE_KILLS", "30"))
SEED = int(os.environ.get("COLLAPIPE_KILL_SEED", "1"))
COMPARE = [
    *("compare", "--scenarios", "small", "--schedulers", "pipeline", "dssra", "random", "--episodes", "4"),
    *("--rounds", "20", "--processes", "2"),
]
TRAIN = [
    *("train", "--scenario", "small", "--steps", "256", "--envs", "2", "--learner", "surrogate"),
    *("--ppo.rollout-steps", "16", "--ppo.minibatch", "16", "--ppo.epochs", "2", "--ppo.hidden-units", "8"),
    *("--schedulers", "agent", "pipeline", "--episodes", "2", "--rounds", "3", "--processes", "1"),
]
needs_kill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no SIGKILL")


def begins(process: subprocess.Popen[str], begun: str) -> None:
    """Wait for the line that says that a command is at work."""
    assert process.stdout is not None
    for line in process.stdout:
        if begun in line or "going on" in line:
            return


def work_s(arguments: list[str], begun: str) -> float:
    """Let a command end, and return how long it was at work."""
    process = start(arguments)
    begins(process, begun)
    first = time.monotonic()
    output, _ = process.communicate(timeout=1200)
    assert process.returncode == 0, output
    return time.monotonic() - first


def killed(arguments: list[str], chance: random.Random, most_s: float, begun: str) -> bool:
    """Start a command and kill it at a random moment of its work; whether it was still at work."""
    process = start(arguments)
    assert process.stdout is not None
    begins(process, begun)
    time.sleep(chance.uniform(0.0, most_s))
    if process.poll() is not None:
        process.stdout.close()
        return False
    if chance.random() < 0.5:
        process.kill()  # its workers end by themselves
        process.wait()
        time.sleep(chance.uniform(0.0, 0.5))
    else:
        kill_group(process)
    process.stdout.close()
    return True


def play_with_kills(arguments: list[str], folder: Path, expected: Any, found: Any, begun: str) -> str:
    """Kill runs in new folders and in killed ones, and let each end; all ends equal the expected one.

    A rerun has less left to do than the run before it, so its moment is drawn from a shorter time. A run
    that ended before its moment came is not counted as killed.
    """
    chance, kills, missed, files, chains = random.Random(SEED), 0, 0, 0, 0
    whole_s = work_s([*arguments, "--out", str(folder / "whole")], begun)
    whole = expected(folder / "whole")
    left = 0
    while kills < KILLS:
        out = folder / f"chain{chains}"
        chains += 1
        for earlier in range(min(3, KILLS - kills)):
            if not killed([*arguments, "--out", str(out)], chance, whole_s / (1 + earlier), begun):
                missed += 1
                break
            kills += 1
            files += require_readable(out)
            left += len(partials(out))
        status, output = run([*arguments, "--out", str(out)])
        assert status == 0, output
        assert not partials(out)
        require_readable(out)
        found(whole, expected(out))
    return (
        f"{kills} kills in {chains} folders ({missed} further runs ended before their moment came); "
        f"{files} files read after them, {left} temporary ones were left by kills and none by reruns; "
        "all equal to the run without kills"
    )


@needs_kill
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_comparisons_that_are_killed_end_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def same(one: dict[str, Any], other: dict[str, Any]) -> None:
        assert one.keys() == other.keys()
        for name, content in one.items():
            assert other[name] == content, name

    said = play_with_kills(COMPARE, tmp_path, figures, same, "writing to")
    with capsys.disabled():
        print(f"\ncompare: {said}")


@needs_kill
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_trainings_that_are_killed_end_with_all_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A training goes on from its last checkpoint with new rollouts: all steps, other weights."""

    def trained(folder: Path) -> int:
        saved = read_agent_file(folder / "checkpoints" / "latest.safetensors")
        assert saved.playing.tensors
        assert all(np.isfinite(array).all() for array in saved.tensors.values())
        return saved.record.steps

    def same(one: int, other: int) -> None:
        assert one == other == 256

    said = play_with_kills(TRAIN, tmp_path, trained, same, "training:")
    with capsys.disabled():
        print(f"\ntrain: {said}")

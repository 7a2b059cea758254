"""Files made to harm: only errors of the package come out, within bounded memory and time.

``COLLAPIPE_FILE_FUZZ`` sets the damaged files of each kind in the long run.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cli_support import environment
from damage_support import damaged
from readers_support import HOSTILE, READERS

import collapipe_env
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.scenario import load_scenario
from collapipe_env.zoo.shipped_agents import agent_path

FAST, LONG = 25, int(os.environ.get("COLLAPIPE_FILE_FUZZ", "3000"))


FUZZED = (
    "state.safetensors", "agent.safetensors", "pipeline-1.npz", "pipeline-0.npz", "trace.csv",
    "scenario.yaml",
)  # fmt: skip
PROGRAM = """
import resource, sys, warnings
from pathlib import Path
sys.path[:0] = sys.argv[2].split(":")
warnings.simplefilter("ignore")
from readers_support import HOSTILE, READERS
from collapipe_env.ground.errors import CollaPipeError
folder = Path(sys.argv[1])
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
files = {name: build() for name, build in HOSTILE.items()}
resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, used + 2**30))
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
count = 0
for reader, (read, _) in READERS.items():
    (folder / reader).parent.mkdir(exist_ok=True)
    for name, content in files.items():
        path = folder / reader
        path.write_bytes(content)
        try:
            read(path)
        except CollaPipeError as error:
            assert len(str(error)) < 4000, (reader, name)
            assert "MemoryError" not in str(error), (reader, name, error)
            count += 1
        else:
            sys.exit(f"{reader} took {name}")
print(count)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits its memory, and reads /proc")
def test_hostile_files_stay_within_memory_and_time(tmp_path: Path) -> None:
    """Every reader gets every file, with a GiB beside what the libraries take, and two minutes."""
    places = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), places],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) == len(READERS) * len(HOSTILE)
    assert {f.relative_to(tmp_path).as_posix() for f in tmp_path.rglob("*") if f.is_file()} == set(READERS)


@cache
def intact() -> dict[str, bytes]:
    """A whole file of each kind, small ones."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        collapipe_env.evaluate(
            "pipeline", "small", seeds=2, rounds=2, learner="surrogate", out=folder / "run"
        )
        env = CollaPipeEnv("small", learner="surrogate")
        env.reset(seed=0)
        env.step(np.zeros(env.action_space.shape))
        env.save_state(folder / "state.safetensors")
        found = {path.name: path.read_bytes() for path in (folder / "run").rglob("pipeline-?.npz")}
        found["state.safetensors"] = (folder / "state.safetensors").read_bytes()
    found["scenario.yaml"] = load_scenario("small-wild").to_yaml().encode()
    found["trace.csv"] = b"time_s,RSRP\n" + b"".join(b"%d,-%d\n" % (i, 80 + i % 9) for i in range(60))
    found["agent.safetensors"] = agent_path("zoo:graph").read_bytes()
    return found


@pytest.mark.parametrize("name", FUZZED)
def test_damaged_files_read_or_get_the_packages_error(name: str, tmp_path: Path) -> None:
    assert fuzz(name, tmp_path, FAST) > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FUZZED)
def test_many_damaged_files(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = fuzz(name, tmp_path, LONG)
    with capsys.disabled():
        print(f"\n{name}: {LONG} damaged files, {refused} refused, the others read")


def fuzz(name: str, folder: Path, count: int) -> int:
    """Read damaged and cut files; returns how many were refused."""
    chance, content, refused = random.Random(name), intact()[name], 0
    path = folder / name
    for number in range(count):
        spoilt = content[: chance.randrange(len(content))] if number % 3 == 0 else damaged(content, chance)
        path.write_bytes(spoilt)
        try:
            READERS[name][0](path)
        except CollaPipeError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"damage {number} of {name}: {type(error).__name__}: {error}") from error
    return refused

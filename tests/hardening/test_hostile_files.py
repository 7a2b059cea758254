"""Files made to harm: only errors of the package come out, within bounded memory and time.

``COLLAPIPE_FILE_FUZZ`` sets the damaged files of each kind in the long run.
"""

from __future__ import annotations

import io
import json
import os
import random
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_support import environment
from damage_support import damaged

import collapipe_env
from collapipe_env.agents.learned.agent_file import read_agent_file
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.evaluation.episode_files import EpisodeFiles
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.ground.state_files import read_tree
from collapipe_env.scenario import load_scenario
from collapipe_env.trace_files import Columns, read_traces
from collapipe_env.zoo.shipped_agents import agent_path

FAST, LONG = 25, int(os.environ.get("COLLAPIPE_FILE_FUZZ", "3000"))


def zipped(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in members.items():
            archive.writestr(name, part)
    return content.getvalue()


def npy_header(shape: str) -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({shape},), }}".encode()
    text += b" " * (63 - (10 + len(text)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def safetensors(header: dict[str, Any] | bytes, length: int | None = None, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


BOMB = bytes(200 * 1024**2)
HOSTILE: dict[str, Callable[[], bytes]] = {
    "zip bomb": lambda: zipped({"tree.npy": BOMB, "metadata.json": b"{}", "policy.pt": BOMB}),
    "zip bomb in JSON": lambda: zipped({"metadata.json": b"[" * 50_000_000}),
    "zip with paths": lambda: zipped({"../../harmed": b"x", "/harmed": b"x"}),
    "zip of many": lambda: zipped({f"m{i}": b"" for i in range(60_000)}),
    "npy of terabytes": lambda: zipped({"tree.npy": npy_header("9999999999999"), "blocks.npy": b""}),
    "npy of a pickle": lambda: zipped({"tree.npy": b"\x93NUMPY\x01\x00\x08\x00cos\nsystem"}),
    "long header": lambda: safetensors({}, 2**63),
    "long header of the file": lambda: safetensors(b"{" * 100, 101),
    "tensor of terabytes": lambda: safetensors(
        {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
    ),
    "shape that overflows": lambda: safetensors(
        {"a": {"dtype": "F32", "shape": [2**33, 2**33], "data_offsets": [0, 4]}}, data=bytes(4)
    ),
    "tensor with negative offsets": lambda: safetensors(
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}, data=bytes(4)
    ),
    "deep JSON": lambda: safetensors(b"[" * 1_000_000),
    "digits": lambda: b"9" * 5_000_000,
    "nothing": lambda: b"",
    "a name twice": lambda: b'{"key": "a", "key": "b"}',
    "endless zeros": lambda: bytes(3_000_000),
    "lines of commas": lambda: b"time_s,RSRP\n" + b"," * 3_000_000,
}

READERS: dict[str, Callable[[Path], Any]] = {
    "state.safetensors": read_tree,
    "agent.safetensors": read_agent_file,
    "pipeline-1.npz": lambda path: EpisodeFiles(path.parent, "pipeline", 1).read(),
    "pipeline-0.npz": lambda path: EpisodeFiles(path.parent, "pipeline", 0).read_decisions(
        load_scenario("small"), 2
    ),
    "trace.csv": lambda path: read_traces(path, Columns(column="RSRP")),
    "scenario.yaml": load_scenario,
}
PROGRAM = """
import resource, sys, warnings
from pathlib import Path
sys.path[:0] = sys.argv[2].split(":")
warnings.simplefilter("ignore")
from test_hostile_files import HOSTILE, READERS, CollaPipeError
folder = Path(sys.argv[1])
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
files = {name: build() for name, build in HOSTILE.items()}
resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, used + 2**30))
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
count = 0
for reader, read in READERS.items():
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


QUICK = [name for name in HOSTILE if name not in ("zip bomb", "zip bomb in JSON", "zip of many")]


@pytest.mark.parametrize("reader", list(READERS))
def test_hostile_files_get_the_packages_error(reader: str, tmp_path: Path) -> None:
    for name in QUICK:
        path = tmp_path / reader
        path.write_bytes(HOSTILE[name]())
        with pytest.raises(CollaPipeError) as raised:
            READERS[reader](path)
        assert len(str(raised.value)) < 4000, name
    assert [path.name for path in tmp_path.iterdir()] == [reader]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits its memory, and reads /proc")
def test_hostile_files_stay_within_memory_and_time(tmp_path: Path) -> None:
    """Every reader gets every file, with a GiB beside what the libraries take, and two minutes."""
    places = f"{Path(__file__).parent}:{Path(__file__).parents[1]}"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), places],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) == len(READERS) * len(HOSTILE)
    assert {path.name for path in tmp_path.iterdir()} == set(READERS)


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


@pytest.mark.parametrize("name", list(READERS))
def test_damaged_files_read_or_get_the_packages_error(name: str, tmp_path: Path) -> None:
    assert fuzz(name, tmp_path, FAST) > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", list(READERS))
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
            READERS[name](path)
        except CollaPipeError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"damage {number} of {name}: {type(error).__name__}: {error}") from error
    return refused

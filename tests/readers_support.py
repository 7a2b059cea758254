"""Files that runs read again: their readers, and files made to harm."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collapipe_env.agents.learned.agent_file import read_agent_file
from collapipe_env.evaluation.episode_files import EpisodeFiles
from collapipe_env.evaluation.leaderboard.board_row import read_row
from collapipe_env.evaluation.leaderboard.season import present_season
from collapipe_env.evaluation.leaderboard.submission import read_submission
from collapipe_env.evaluation.provenance import started
from collapipe_env.evaluation.run_directory import HOLDER, LOCK, RunDirectory
from collapipe_env.evaluation.tuning_study import Store
from collapipe_env.evaluation.view.stored_run import read_run
from collapipe_env.execution.calibration_rounds import read_round
from collapipe_env.execution.committed_rounds import reports
from collapipe_env.ground.files import write_json
from collapipe_env.ground.state_files import read_tree
from collapipe_env.scenario import load_scenario
from collapipe_env.trace_files import Columns, read_traces
from collapipe_env.zoo import shipped_agents


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
    "no text": lambda: b"\xff\xfe",
    "a list": lambda: b"[]",
    "a pickle": lambda: b"cos\nsystem\n(S'touch harmed'\ntR.",
}

READERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "state.safetensors": (read_tree, ""),
    "agent.safetensors": (read_agent_file, ""),
    "pipeline-1.npz": (lambda path: EpisodeFiles(path.parent, "pipeline", 1).read(), "run again to measure"),
    "pipeline-0.npz": (
        lambda path: EpisodeFiles(path.parent, "pipeline", 0).read_decisions(load_scenario("small"), 2),
        "run again",
    ),
    "trace.csv": (lambda path: read_traces(path, Columns(column="RSRP")), ""),
    "scenario.yaml": (load_scenario, ""),
    "run.json": (lambda path: RunDirectory(path.parent).open({}, fresh=False), "another place with --out"),
    "versions.json": (lambda path: note_versions(path), "delete it, or start over with --fresh"),
    "results.json": (lambda path: viewed(path, "evaluation"), "run its command again"),
    "summary.json": (lambda path: viewed(path, "comparison"), "run its command again"),
    "leaderboard.json": (lambda path: read_row(path, present_season()), ""),
    "submission.json": (lambda path: read_submission(path.parent), ""),
    "candidates.db": (Store, "delete it, and the candidates are played again"),
    "played/round-1.json": (
        lambda path: reports(RunDirectory(path.parents[1]), "", 1),
        "start over with --fresh",
    ),
    "index.json": (lambda path: in_zoo(path), "install the package again"),
    "measured/01-01.json": (read_round, "delete"),
}
"""What a command reads again: each file's reader, and the remedy that its error names."""


def note_versions(path: Path) -> None:
    write_json(path.with_name("run.json"), {"kind": "evaluation"})
    try:
        with started(RunDirectory(path.parent), "again", {"kind": "evaluation"}, fresh=False):
            pass
    finally:
        for name in ("run.json", LOCK, HOLDER):
            path.with_name(name).unlink(missing_ok=True)


def viewed(path: Path, kind: str) -> None:
    write_json(path.with_name("run.json"), {"kind": kind})
    try:
        read_run(path.parent)
    finally:
        path.with_name("run.json").unlink()


def in_zoo(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shipped_agents, "FOLDER", path.parent)
        shipped_agents.shipped_agents()

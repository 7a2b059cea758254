"""Rounds that Flower carries: records and strategy, and a real deployment on this machine."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from executed_support import Changed, quick
from process_support import alive, descendants
from test_flower_rounds import played

from collapipe_env.errors import CollaPipeError
from collapipe_env.execution.flower.federated_rounds import FederatedRounds
from collapipe_env.execution.flower.frame_records import to_plain
from collapipe_env.execution.frames import Frame, FrameError, Tag
from collapipe_env.execution.joining import ExecutionError

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
flwr = pytest.importorskip("flwr", reason="Flower is not installed: pip install 'collapipe-env[flower]'")
pytestmark = pytest.mark.slow

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

from collapipe_env.execution.flower import apps, strategy  # noqa: E402


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """Messages say which task has made them."""
    for name in ("run", "node", "task"):
        monkeypatch.setattr(TaskIdentity, f"_{name}_id", 1)


def test_records_hold_frames_and_nothing_pickled():
    frame = Frame("update", Tag(3), 1.5, {"why": [1, None]}, {"b0/values": np.arange(3, dtype=np.float32)})
    found = strategy.frame_of(strategy.records_of(frame), "update")
    assert (found.kind, found.tag, found.at_s, dict(found.meta)) == (
        "update",
        Tag(3),
        1.5,
        {"why": [1, None]},
    )
    assert np.array_equal(found.arrays["b0/values"], frame.arrays["b0/values"])
    with pytest.raises(FrameError, match="no header"):
        strategy.frame_of(RecordDict(), "update")
    stream = io.BytesIO()
    np.save(stream, np.array([{}], dtype=object), allow_pickle=True)
    pickled = ArrayRecord({"a": Array("object", (1,), "numpy.ndarray", stream.getvalue())})
    header = ConfigRecord({strategy.HEADER: to_plain(frame)[1]})
    with pytest.raises(ValueError, match="allow_pickle"):
        strategy.frame_of(RecordDict({strategy.MODEL: pickled, strategy.FRAME: header}), "update")


class Grid:
    """Nodes in this process: each answers by the client app."""

    def __init__(self, clusters, answer=apps.client):
        self._contexts = {
            11 + i: SimpleNamespace(node_config={"cluster": n}, state=RecordDict(), run_config={})
            for i, n in enumerate(clusters)
        }
        self._answer = answer
        self.kinds = []

    def get_node_ids(self):
        return list(self._contexts)

    def send_and_receive(self, messages, *, timeout=None):  # noqa: ARG002 - as the real one
        from concurrent.futures import ThreadPoolExecutor

        messages = list(messages)
        self.kinds += [message.metadata.message_type for message in messages]
        with ThreadPoolExecutor(max(len(messages), 1)) as pool:
            return list(pool.map(self._one, messages))

    def _one(self, message):
        node = message.metadata.dst_node_id
        try:
            reply = self._answer(message, self._contexts[node])
        except CollaPipeError as error:
            reply = Message(Error(0, str(error)), reply_to=message)
        return reply


def test_nodes_are_found_by_their_clusters_and_rounds_are_those_without_flower():
    scenario = quick()
    rows, grid = [], Grid([1, 0])
    with FederatedRounds(scenario, Changed(scenario)) as rounds:
        nodes = apps.find_nodes(grid, 2, 5.0)
        assert nodes == {0: 12, 1: 11}
        start = strategy.array_record(rounds.model_arrays())
        result = strategy.CollaPipeStrategy(rounds, nodes, rows.append).start(grid, start, 2, 60.0)
        found = rounds.all_weights()
        model = rounds.model_arrays()
    assert grid.kinds == ["query"] * 2 + ["train"] * 4
    assert [row.round for row in rows] == [1, 2]
    assert all(np.array_equal(a.numpy(), model[name]) for name, a in result.arrays.items())
    with FederatedRounds(scenario, Changed(scenario)) as rounds:
        moments = {}
        for _ in range(2):
            played(rounds, moments)
        assert all(np.array_equal(found[name], array) for name, array in rounds.all_weights().items())


@pytest.mark.parametrize(
    ("clusters", "words"),
    [
        ([0, 0], "two SuperNodes are for cluster 0"),
        ([0, 2], "is for cluster 2"),
        ([1], "no SuperNode for cluster 0"),
    ],
)
def test_wrong_nodes_are_refused(clusters, words):
    with pytest.raises(ExecutionError, match=words):
        apps.find_nodes(Grid(clusters), 2, 0.5)


def test_a_client_that_fails_ends_the_run():
    def fails(message, context):
        if message.metadata.message_type == "query":
            return apps.client(message, context)
        raise ExecutionError("no more disk")

    scenario, grid = quick(), Grid([0, 1], fails)
    with FederatedRounds(scenario, Changed(scenario)) as rounds:
        nodes = apps.find_nodes(grid, 2, 5.0)
        play = strategy.CollaPipeStrategy(rounds, nodes, lambda _: None)
        with pytest.raises(
            ExecutionError, match="round 1 failed in cluster 0: no more disk; cluster 1: no more"
        ):
            play.start(grid, strategy.array_record(rounds.model_arrays()), 1, 60.0)


def command(folder, *options):
    run = [sys.executable, "-m", "collapipe_env.execution.flower", "--out", str(folder), *options]
    return subprocess.run(run, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.timeout(420)
def test_a_real_deployment_leaves_the_learners_weights_and_no_process(tmp_path):
    scenario = tmp_path / "quick.yaml"
    scenario.write_text(quick().to_yaml())
    before = set(descendants(os.getpid()))
    done = command(
        tmp_path / "run",
        "--scenario",
        str(scenario),
        "--rounds",
        "2",
        "--scheduler",
        "pipeline",
        "--tolerance",
        "0",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "weights after 2 rounds: equal to the bit" in done.stdout
    comparison = json.loads((tmp_path / "run" / "comparison.json").read_text())
    assert comparison["largest_difference"] == 0.0
    assert [row["round"] for row in comparison["rounds"]] == [1, 2]
    assert (tmp_path / "run" / "token").stat().st_mode & 0o077 == 0
    assert not [pid for pid in set(descendants(os.getpid())) - before if alive(pid)]
    left = [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(p)]
    assert not left


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_run_that_fails_says_why(tmp_path):
    done = command(tmp_path, "--scenario", "small", "--rounds", "1", "--scheduler", "none-such")
    assert done.returncode == 2
    assert "none-such" in done.stderr

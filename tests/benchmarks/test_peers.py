"""The peer comparison: workers that answer, fail and die; installs that fail; no network anywhere."""

import json
import subprocess
import sys

import peer_worker
import peers
import pytest

REPLY = {"versions": {"python": "0"}, "reasons": {"highway-v0": "ValueError: the road ends"}}


def reply(mine, factor):
    """CartPole takes 1 us, all else 5 us, times a factor."""
    rows = [p.row for p in peers.CONTESTANTS if p.mine is mine and p.row not in REPLY["reasons"]]
    return REPLY | {"seconds": {row: [factor * (1e-6 if "CartPole" in row else 5e-6)] * 3 for row in rows}}


def test_each_is_held_against_the_cartpole_of_its_own_interpreter():
    found = {f.name: f for f in peers.figures_of({True: reply(True, 1.0), False: reply(False, 2.0)}, "")}
    assert list(found) == [p.row for p in peers.CONTESTANTS]
    assert found["highway-v0"].value is None
    assert found["highway-v0"].note == "ValueError: the road ends"
    for name, figure in found.items():
        if name != "highway-v0":
            assert figure.value == pytest.approx(1.0 if "CartPole" in name else 5.0)
            assert figure.unit == "x CartPole-v1"
    assert found["mobile-env small"].note == "100,000 steps/s"


def test_without_the_peers_only_this_project_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(peers, "install", lambda _: "not installed: no network")
    monkeypatch.setattr(peers, "measure", lambda _, mine, *__: reply(mine, 1.0))
    path = tmp_path / "peers.json"
    assert peers.main(["--folder", str(tmp_path / "venv"), "--output", str(path)]) == 0
    assert "only this project is measured: not installed: no network" in capsys.readouterr().err
    figures = {f["name"]: f for f in json.loads(path.read_text())["figures"]}
    assert {n for n, f in figures.items() if f["value"]} == {p.row for p in peers.CONTESTANTS if p.mine}
    assert figures["ANM6Easy-v0"]["note"] == "not installed: no network"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("raise SystemExit('cannot start')", "cannot start"),
        ('print(\'{"reasons": {"CartPole-v1": "no such id"}}\')', "cannot step CartPole-v1: no such id"),
    ],
)
def test_a_broken_cartpole_of_ones_own_stops_everything(tmp_path, monkeypatch, capsys, script, reason):
    (tmp_path / "worker.py").write_text(script)
    monkeypatch.setattr(peers, "WORKER", tmp_path / "worker.py")
    monkeypatch.setattr(peers, "install", lambda _: "no network")
    assert peers.main(["--folder", str(tmp_path), "--output", str(tmp_path / "x.json")]) == 2
    assert reason in capsys.readouterr().err


def test_worker_takes_turns_and_leaves_out_what_fails(tmp_path):
    """In a process of its own, where an environment prints while it is imported."""
    (tmp_path / "chatty.py").write_text("print('hello from an import')\n")
    environments = [
        {"row": "a", "imports": ["chatty"], "id": "CartPole-v1"},
        {"row": "b", "imports": ["no_such_module"], "id": "CartPole-v1"},
        {"row": "c", "imports": [], "id": "NoSuch-v0"},
    ]
    request = {"environments": environments, "packages": ["numpy", "no-such"]}
    request |= {"slice_seconds": 0.002, "repeats": 3}
    done = subprocess.run(
        [sys.executable, peer_worker.__file__], input=json.dumps(request), capture_output=True, text=True,
        check=True, env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert len(found["seconds"]["a"]) == 3
    assert all(0.0 < seconds < 1e-3 for seconds in found["seconds"]["a"])
    assert found["reasons"]["b"].startswith("ModuleNotFoundError")
    assert "NoSuch" in found["reasons"]["c"]
    assert found["versions"]["no-such"] is None
    assert "hello from an import" in done.stderr


def test_install_once(tmp_path, monkeypatch):
    asked, status = [], [0, 1]

    def run(command, **_):
        asked.append(command)
        code = status.pop(0) if status else 0
        return subprocess.CompletedProcess(command, code, "", "ERROR: no matching distribution\n\n")

    monkeypatch.setattr(subprocess, "run", run)
    (tmp_path / "venv").mkdir()
    assert peers.install(tmp_path / "venv") == "not installed: ERROR: no matching distribution"
    assert peers.install(tmp_path / "venv") == ""
    assert len(asked) == 4
    assert peers.install(tmp_path / "venv") == ""
    assert len(asked) == 4


def test_every_peer_is_pinned():
    lines = [line.partition("#")[0].strip() for line in peers.REQUIREMENTS.read_text().splitlines()]
    pinned = {line.partition("==")[0] for line in lines if "==" in line}
    assert pinned == {p.package for p in peers.CONTESTANTS if not p.mine} | {"numpy"}

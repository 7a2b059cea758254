"""The peer comparison: workers that answer, fail and die; installs that fail; no network anywhere."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import peer_install
import peer_worker
import peers
from measuring import INTERRUPTED, Timing

FAKE_WORKER = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    key = request.get("key", "")
    reply = {"python": "0", "numpy": "1"} if request["do"] == "versions" else {}
    if request["do"] == "make" and key == "mobile-env small":
        reply = {"error": "ModuleNotFoundError: No module named 'mobile_env'"}
    if request["do"] == "make" and key == "mobile-env medium":
        print("out of memory", file=sys.stderr)
        os._exit(7)
    if request["do"] == "play" and request["calls"] != 3 and key == "highway-v0":
        reply = {"error": "ValueError: the road ends"}
    if request["do"] == "play":
        time.sleep(2e-4 * request["calls"])
    print(json.dumps(reply), flush=True)
"""


@pytest.fixture
def fake_worker(tmp_path, monkeypatch):
    """Workers that only pretend; two environments fail at once, one with its process, one under way."""
    script = tmp_path / "worker.py"
    script.write_text(FAKE_WORKER)
    monkeypatch.setattr(peers, "WORKER", script)


def both():
    return {True: Path(sys.executable), False: Path(sys.executable)}


def test_whatever_fails_is_left_out_with_its_reason(fake_worker):
    found = peers.compare(both(), {"gym-anm": "no matching distribution"}, 0.002, 2)
    figures = {f.name: f for f in found.figures}
    assert list(figures) == [p.row for p in (*peers.YARDSTICKS.values(), *peers.CONTESTANTS)]
    skipped = {name: f.note for name, f in figures.items() if f.value is None}
    assert skipped == {
        "mobile-env small": "ModuleNotFoundError: No module named 'mobile_env'",
        "mobile-env medium": "its process ended: out of memory",
        "highway-v0": "ValueError: the road ends",
        "ANM6Easy-v0": "no matching distribution",
    }
    assert all(f.unit == "x CartPole-v1" for f in figures.values())
    for yardstick in peers.YARDSTICKS.values():
        assert figures[yardstick.row].value == 1.0
    assert found.versions == {"ours": {"python": "0", "numpy": "1"}, "peers": {"python": "0", "numpy": "1"}}


def test_each_is_held_against_the_cartpole_of_its_own_interpreter(monkeypatch, fake_worker):
    """Steps of the peers' interpreter take twice as long: their ratios are the same nevertheless."""

    def take_turns(contestants, seconds, repeats):
        rows = {p.row: p.mine for p in (*peers.YARDSTICKS.values(), *peers.CONTESTANTS)}
        factor = {c.name: 1.0 if rows[c.name] else 2.0 for c in contestants}
        plain = {c.name: 1.0 if "CartPole" in c.name else 5.0 for c in contestants}
        return {c.name: peers_timing(c.name, plain[c.name] * factor[c.name], repeats) for c in contestants}

    monkeypatch.setattr(peers, "take_turns", take_turns)
    found = peers.compare(both(), {}, 0.002, 3)
    for figure in found.figures:
        if figure.value is not None:
            assert figure.value == (1.0 if "CartPole" in figure.name else 5.0)


def peers_timing(name, seconds, repeats):
    return Timing(name, 1, (seconds,) * repeats)


def test_without_the_peers_only_this_project_is_measured(tmp_path, monkeypatch, fake_worker, capsys):
    monkeypatch.setattr(peers, "install", lambda _, wanted: dict.fromkeys(names(wanted), "no network"))
    path = tmp_path / "peers.json"
    arguments = ["--folder", str(tmp_path / "venv"), "--output", str(path)]
    assert peers.main([*arguments, "--slice-seconds", "0.002", "--repeats", "1"]) == 0
    captured = capsys.readouterr()
    assert "measuring only this project" in captured.err
    assert f"written to {path}" in captured.out
    figures = {f["name"]: f for f in json.loads(path.read_text())["figures"]}
    ours = {p.row for p in peers.CONTESTANTS if p.mine}
    assert {name for name, f in figures.items() if f["value"] is not None} == ours | {"CartPole-v1"}
    assert figures["ANM6Easy-v0"]["note"]


def test_without_install_the_remedy_is_named(tmp_path, monkeypatch, fake_worker):
    monkeypatch.setattr(peers, "install", None)  # not called
    found = peers.comparison(0.002, 1, tmp_path / "venv", may_install=False)
    assert "--no-install" in {f.name: f.note for f in found.figures}["highway-v0"]


def test_a_broken_cartpole_stops_everything(tmp_path, monkeypatch, capsys):
    script = tmp_path / "worker.py"
    script.write_text("raise SystemExit('cannot start')")
    monkeypatch.setattr(peers, "WORKER", script)
    monkeypatch.setattr(peers, "install", lambda *_: {})
    assert peers.main(["--folder", str(tmp_path), "--output", str(tmp_path / "x.json")]) == 2
    assert "cannot start" in capsys.readouterr().err


def test_interrupt_says_what_stays(tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(peers, "install", interrupted)
    path = tmp_path / "peers.json"
    assert peers.main(["--folder", str(tmp_path), "--output", str(path)]) == INTERRUPTED
    assert not path.exists()
    assert "interrupted: what was stored before is kept" in capsys.readouterr().err


def names(requirements):
    return [peer_install.package_of(r) for r in requirements]


def test_real_worker_answers_and_reports_errors():
    player = peer_worker.Player()
    assert player.answer({"do": "versions", "packages": ["numpy", "no-such"]})["no-such"] is None
    made = {"do": "make", "key": "a", "imports": [], "id": "CartPole-v1"}
    assert player.answer(made) == {}
    assert player.answer({"do": "play", "key": "a", "calls": 100}) == {}
    assert player.answer(made | {"imports": ["no_such_module"]})["error"].startswith("ModuleNotFoundError")
    assert "NoSuch" in player.answer(made | {"id": "NoSuch-v0"})["error"]


def test_real_worker_keeps_prints_out_of_its_replies(tmp_path):
    (tmp_path / "chatty.py").write_text("print('hello from an import')\n")
    request = {"do": "make", "key": "a", "imports": ["chatty"], "id": "CartPole-v1"}
    done = subprocess.run(
        [sys.executable, peer_worker.__file__],
        input=json.dumps(request) + "\n",
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert json.loads(done.stdout) == {}
    assert "hello from an import" in done.stderr


@pytest.fixture
def fake_run(monkeypatch, tmp_path):
    """In place of the commands that would install: what was asked for, and what is to fail."""
    asked, failing = [], {}

    def run(command):
        asked.append(command)
        if command[2] == "venv":
            python = peer_install.interpreter(Path(command[3]))
            python.parent.mkdir(parents=True)
            python.touch()
        return next((reason for name, reason in failing.items() if any(name in c for c in command)), "")

    monkeypatch.setattr(peer_install, "_run", run)
    return asked, failing


def test_install_once_and_what_failed_again(tmp_path, fake_run):
    asked, failing = fake_run
    wanted = ["gymnasium==1", "numpy==2", "a-peer==3", "b-peer==4"]
    failing["a-peer"] = "ERROR: no matching distribution"
    assert peer_install.install(tmp_path / "venv", wanted) == {"a-peer": failing["a-peer"]}
    assert len(asked) == 5
    # A peer may not change the versions of the common packages.
    assert asked[-1][-3:] == ["b-peer==4", "gymnasium==1", "numpy==2"]
    failing.clear()
    assert peer_install.install(tmp_path / "venv", wanted) == {}
    assert len(asked) == 6
    assert peer_install.install(tmp_path / "venv", wanted) == {}
    assert len(asked) == 6


def test_install_gives_up_without_gymnasium(tmp_path, fake_run):
    asked, failing = fake_run
    failing["gymnasium==1"] = "no network"
    found = peer_install.install(tmp_path / "venv", ["gymnasium==1", "a-peer==3"])
    assert found == {"gymnasium": "no network", "a-peer": "no network"}
    assert len(asked) == 2


def test_the_error_of_a_command_is_its_reason():
    code = "import sys; print('ERROR: no such thing'); print('more', file=sys.stderr); sys.exit(1)"
    assert peer_install._run([sys.executable, "-c", code]) == "ERROR: no such thing"
    assert peer_install._run([sys.executable, "-c", "raise SystemExit(2)"]) == "exit status 2"
    assert peer_install._run([sys.executable, "-c", "pass"]) == ""
    assert peer_install._run(["/no/such/program"]).startswith("FileNotFoundError")


def test_every_peer_is_pinned():
    wanted = peer_install.read_requirements(peers.REQUIREMENTS)
    assert all("==" in requirement for requirement in wanted)
    assert {p.package for p in peers.CONTESTANTS if not p.mine} == set(names(wanted)) - {
        "gymnasium",
        "numpy",
    }


@pytest.mark.parametrize(
    "arguments",
    [["--slice-seconds", "nan"], ["--repeats", "0"], ["--output", "."], ["--folder", __file__]],
    ids=lambda arguments: arguments[0],
)
def test_bad_options_are_refused(arguments, capsys):
    assert peers.main(arguments) == 2
    assert arguments[0] in capsys.readouterr().err

"""``collapipe warm-up``: afterwards nothing is left to compile."""

import os
import re
import subprocess
import sys

import pytest

from collapipe_env.agents.learned.graph import graph_scheduler, step
from collapipe_env.cli import warm_up as warm_up_module
from collapipe_env.cli.main import main
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.kernels import scheduled_round

RUN = """
import sys
from collapipe_env.cli.main import main
sys.exit(main(["warm-up", "--schedulers", "greedy_dpp"]))
"""


def said(environment):
    """Output of a run in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stderr == ""
    return result.stdout


def test_afterwards_all_is_warm(capsys):
    for first in ("", "everything is compiled already; compiled code is "):
        assert main(["warm-up", "--schedulers", "greedy_dpp"]) == 0
        said = capsys.readouterr().out
        assert said.startswith(first)
        assert "kept below" in said


@pytest.mark.slow
def test_a_cold_run_says_how_long_it_took(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    first = re.fullmatch(
        r"compiled (\d+) functions in (\d+) s; they are kept below (.*)\n", said(environment)
    )
    assert first is not None
    assert int(first[1]) > 10
    assert first[3] == str(tmp_path)
    assert said(environment) == f"everything is compiled already; compiled code is kept below {tmp_path}\n"


def test_what_one_scenario_needs_is_less_than_everything(capsys, monkeypatch):
    played = []
    monkeypatch.setattr(warm_up_module, "_play", lambda name, place: played.append((name, place.name)))
    monkeypatch.setattr(warm_up_module, "_play_environments", lambda: played.append(("all", "small")))
    assert main(["warm-up", "--schedulers", "dssra", "random", "--scenarios", "small", "medium"]) == 0
    assert played == [(name, place) for place in ("small", "medium") for name in ("dssra", "random")]
    played.clear()
    assert main(["warm-up", "--schedulers", "dssra"]) == 0
    assert [name for name, _ in played] == ["all", "dssra", "dssra"]
    monkeypatch.setattr(warm_up_module, "_train_graph_net", lambda: played.append(("training", "small")))
    played.clear()
    assert main(["warm-up", "--schedulers", "zoo:graph"]) == 0
    assert [name for name, _ in played] == ["all", "zoo:graph", "training"]


@pytest.mark.parametrize(
    ("job", "needed"),
    [
        (
            "_train_graph_net",
            {"compare_counts": step, "expected_costs": step, "cheaper_to_stay": graph_scheduler},
        ),
        ("_play_environments", {"scheduled_round": scheduled_round}),
    ],
)
def test_what_no_scheduler_needs_is_compiled_too(job, needed, monkeypatch):
    called = set()

    def counted(name, function):
        return lambda *given: (called.add(name), function(*given))[1]

    for name, module in needed.items():
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    getattr(warm_up_module, job)()
    assert called == needed.keys()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--schedulers", "random", "--scenarios", "smal"], "there is no shipped scenario 'smal'"),
        (["--schedulers", "dsra"], "scheduler 'dsra' is not known"),
        (["--schedulers"], "--schedulers is empty: name at least one"),
        (["--scenarios"], "--scenarios is empty: name at least one"),
    ],
)
def test_bad_input_is_one_line(given, message, capsys):
    assert main(["warm-up", *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line


FAULTY = """
class Unbuilt:
    name = "unbuilt"

    def __init__(self, scenario):
        raise ValueError("first line\\nsecond line")


class Failing:
    name = "failing"

    def __init__(self, scenario):
        pass

    def reset(self, seed):
        pass

    def act(self, observation, state):
        raise RuntimeError("nothing to say")
"""


@pytest.fixture
def faulty(tmp_path, monkeypatch):
    (tmp_path / "faulty.py").write_text(FAULTY)
    monkeypatch.setattr(warm_up_module, "_play_environments", lambda: None)
    return [f"{tmp_path / 'faulty.py'}:{name}" for name in ("Unbuilt", "Failing")]


@pytest.mark.parametrize("where", [[], ["--scenarios", "small"]])
def test_status_2_where_none_of_the_named_can_play(faulty, where, capsys):
    assert main(["warm-up", "--schedulers", *faulty, *where]) == 2
    said = capsys.readouterr()
    lines = [line for line in said.out.splitlines() if line.startswith("left out: ")]
    place = " on small" if where else ""
    for line, name, why in zip(
        lines, faulty, ["cannot be built: ValueError: first line", "nothing to say"], strict=True
    ):
        assert line.startswith(f"left out: {name}{place}: ")
        assert why in line
    assert "second line" not in said.out
    assert "error: none of these schedulers can play: " in said.err
    assert "warm" not in said.out


def test_pairs_that_cannot_play_are_named(faulty, capsys):
    pairs = ["warm-up", "--schedulers", "random", "small-ppo", faulty[0], "--scenarios", "medium"]
    assert main(pairs) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" on medium: ")[0] for line in lines[:-1]] == [
        "left out: small-ppo",
        f"left out: {faulty[0]}",
    ]
    assert "kept" in lines[-1]


def test_the_run_of_everything_leaves_out_silently(monkeypatch, capsys):
    def impossible(name, place):
        raise ScenarioError(f"{name} cannot play {place.name}")

    monkeypatch.setattr(warm_up_module, "_play", impossible)
    monkeypatch.setattr(warm_up_module, "_play_environments", lambda: None)
    assert main(["warm-up"]) == 0
    assert capsys.readouterr().out.startswith("everything is compiled already; ")


def test_help_names_only_what_can_be_warmed_up(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["warm-up", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "Schedulers whose searches to compile: dssra, dssra-bound, dssra-plus, dssra-truth," in text
    assert "trained one" not in text

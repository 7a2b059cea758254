"""``collapipe leaderboard``: golden scores, verification, hidden seeds, attacks, and what is refused."""

import dataclasses
import functools
import hashlib
import io
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from collapipe_env.cli.main import main
from collapipe_env.envs.suite import scores_between
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation import scheduler_process, suite_plays
from collapipe_env.evaluation.leaderboard import board_row, season
from collapipe_env.evaluation.leaderboard.board_row import read_row
from collapipe_env.evaluation.leaderboard.board_table import board_markdown, score_cell
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.zoo.shipped_agents import agent_path

EPISODES, ROUNDS = 2, 3
SHORT = ["--episodes", str(EPISODES), "--rounds", str(ROUNDS), "--processes", "1"]
ONE = ["--processes", "1"]
SALT = "0123456789abcdef"
CODE = """
from pathlib import Path

import collapipe_env.evaluation.leaderboard.scoring as scoring
from collapipe_env.agents.dssra.policy import DSSRA

scoring.scores_between = lambda *means: 1e9
MODE = Path(__file__).with_name("mode.txt")

class Mine(DSSRA):
    name = "Mine"

    @property
    def sees(self):
        return "truth" if MODE.read_text() == "sees" else "state"

    def act(self, observation, state):
        if MODE.read_text() == "fails":
            raise ValueError("no")
        return super().act(observation, state)

make = Mine
"""
"""DSSRA, which tries to change how it is scored; a file beside it says what else it does."""


def leaderboard(*arguments: object) -> int:
    return main(["leaderboard", *map(str, arguments)])


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """Folder of a submission whose code does not change, so one process plays it in all cases."""
    folder = tmp_path_factory.mktemp("here") / "mine"
    folder.mkdir()
    (folder / "scheduler.py").write_text(CODE)
    return folder


@pytest.fixture
def submission(kept, monkeypatch) -> Path:
    """A submission of DSSRA's code, in the current folder."""
    about = {"name": "Mine", "authors": ["A"], "track": "model-based", "licence": "MIT"}
    (kept / "submission.json").write_text(json.dumps({**about, "cells": ["small"]}))
    (kept / "mode.txt").write_text("")
    monkeypatch.chdir(kept.parent)
    return kept


@pytest.fixture
def tiny(monkeypatch) -> season.Season:
    """A season with a salt, in which `small` has two episodes of three rounds and no measured anchors."""
    salted = season.Season("1", hashlib.sha256(SALT.encode()).hexdigest())
    monkeypatch.setattr(season, "present_season", lambda: salted)
    monkeypatch.setitem(season.CELLS, "small", dataclasses.replace(season.CELLS["small"], episodes=EPISODES))
    short = load_scenario("small").with_overrides({"dynamics.rounds": ROUNDS})
    for module in (board_row, suite_plays):
        monkeypatch.setattr(module, "load_scenario", lambda _: short)
    return salted


@functools.cache
def by_hand(name: str, cell: str, seeds: tuple[int, ...]) -> list[float]:
    """Return of each episode, in the environment alone."""
    scenario = load_scenario(cell)
    found = []
    for episode, number in enumerate(seeds):
        scheduler = make_scheduler(name, scenario)
        env = CollaPipeVectorEnv(1, scenario, "surrogate", max_episode_steps=ROUNDS)
        observation, _ = env.reset(seed=number)
        seed = hashlib.sha256(f"collapipe scheduler|0|{episode}".encode()).hexdigest()[:8]
        scheduler.reset(int(seed, 16) // 2)
        total = 0.0
        for _ in range(ROUNDS):
            decision = scheduler.act(observation, env.state)
            step = env.step_allocation if isinstance(decision, Allocation) else env.step
            observation, reward, *_ = step(decision)
            total += float(reward[0])
        found.append(total)
    return found


@pytest.mark.parametrize(
    ("name", "cell"),
    [("pipeline", "small"), ("dssra", "small"), ("random", "small"), ("dssra-plus", "medium-thermal")],
)
def test_golden_scores(name, cell, tmp_path, capsys) -> None:
    bar, seeds = season.CELLS[cell].bar, (1_300_000_000, 1_300_000_001)
    assert leaderboard("run", "--scheduler", name, "--cells", cell, *SHORT, "--out", tmp_path) == 0
    shown = capsys.readouterr().out.replace("\n", " ")
    assert f"Provisional, not played in full: {cell} (of 20 episodes)." in shown
    row = read_row(tmp_path / "leaderboard.json", season.present_season())
    own, even, plus = (by_hand(one, cell, seeds) for one in (name, "pipeline", bar))
    assert [e.total_reward for e in row.cells[cell].episodes] == pytest.approx(own, rel=1e-12)
    expected = 100.0 * np.log(sum(even) / sum(own)) / np.log(sum(even) / sum(plus))
    assert {"pipeline": 0.0, bar: 100.0}.get(name, expected) == pytest.approx(expected)
    assert f"| {cell} | {expected:.1f}" in (tmp_path / "table.md").read_text()


@pytest.fixture(scope="module")
def quick_results(tmp_path_factory) -> str:
    """Results of a quick run."""
    out = tmp_path_factory.mktemp("quick") / "run"
    assert leaderboard("run", "--scheduler", "dssra", *SHORT, "--out", out) == 0
    return (out / "leaderboard.json").read_text()


def changed(text: str, path: str, value: object) -> str:
    """Results with one entry changed."""
    content = json.loads(text)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    inner = content
    for part in parents:
        inner = inner[part]
    inner[last] = value(inner[last]) if callable(value) else value
    return json.dumps(content)


def with_unplayed_run(episodes: list[dict]) -> list[dict]:
    """Episodes, and those of a further training run that nobody played."""
    return episodes + [{**one, "run": 1, "total_reward": -0.1} for one in episodes]


SMALL = "cells/small"


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        (
            {
                "version": "1.0",
                f"{SMALL}/decision_s": 1.0,
                f"{SMALL}/episodes/1/total_reward": lambda d: d * (1 + 1e-11),
            },
            ["verified: small"],
        ),
        (
            {
                f"{SMALL}/episodes/1/total_reward": lambda d: d * (1 - 1e-8),
                f"{SMALL}/episodes/0/worst_energy_ratio": 0.5,
                f"{SMALL}/episodes/0/server_blocks": 2,
                f"{SMALL}/zero/1": 100.0,
                f"{SMALL}/made_from": "0" * 64,
                "name": "Best of all",
                "scheduler": "random",
            },
            [
                "small, total_reward, run 0, episode 1: ",
                "worst_energy_ratio, run 0, episode 0: 0.5 in the",
                "server_blocks, run 0, episode 0: 2 in the results, 0 in",
                "small, zero, episode 1: 100.0 in the results",
                "small, made_from: '000",
                "name is 'Best of all' in the results, 'DSSRA' in fact",
                "scheduler is 'random' in the results, 'dssra' in fact",
            ],
        ),
        (
            {f"{SMALL}/episodes": with_unplayed_run},
            ["small, number of episodes: 4 in the results, 2 in the re"],
        ),
    ],
    ids=["nothing that counts", "seven figures", "a run that nobody played"],
)
def test_verification_plays_again_and_finds_every_change(
    quick_results, changes, messages, tmp_path, capsys
) -> None:
    for path, value in changes.items():
        quick_results = changed(quick_results, path, value)
    file = tmp_path / "claimed.json"
    file.write_text(quick_results)
    status = leaderboard("verify", "--scheduler", "dssra", "--results", file, *ONE)
    told = capsys.readouterr()
    for message in messages:
        assert message in told.out
    verified = messages[0].startswith("verified")
    assert status == (0 if verified else 2)
    assert ("verified: " in told.out) is verified
    assert verified or f"differences from the re-run: {len(messages)}" in told.err


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", "x", "does not say format"),
        ("season", "0", "has no results of season 1"),
        ("season", "1\nerror: all is well", "season is '1\\nerror: all is well'"),
        ("name", "a\x1b[31m", "name is 'a\\x1b[31m'"),
        (f"{SMALL}/rounds", 0, "rounds is 0: it should be greater than or equal to 1"),
        ("cells", {}, "has no results"),
        ("cells", lambda cells: {"nowhere": cells["small"]}, "nowhere: no cell of the season"),
        (f"{SMALL}/hundred", [1.0], "small: no cell of the season with episodes and anchors"),
        (f"{SMALL}/episodes", lambda e: [e[0], e[0]], "small: episodes are missing, or appear twice"),
        (f"{SMALL}/episodes", lambda e: e[:1], "small: no cell of the season with episodes"),
        (f"{SMALL}/episodes/0/energy_j", -1.0, "energy_j is -1.0: it should be greater than"),
        (f"{SMALL}/episodes/0/backlog_slope", None, "backlog_slope is None"),
    ],
)
def test_malformed_results_are_one_line(quick_results, path, value, message, tmp_path, capsys) -> None:
    file = tmp_path / "claimed.json"
    file.write_text(changed(quick_results, path, value))
    assert leaderboard("verify", "--scheduler", "dssra", "--results", file) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.err.count("\n") == 1
    assert told.err.strip("\n").isprintable()
    assert not told.out


def test_hidden_episodes_are_scored_with_anchors_of_their_own(
    tiny, submission, tmp_path, capsys, monkeypatch
) -> None:
    """Their seeds follow from the salt, which stands in no file and no command line."""
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{SALT}\n"))
    how = ["--submission", submission, "--hidden", "--trust-code", *ONE]
    assert leaderboard("verify", *how, "--out", tmp_path / "row.json") == 0
    row = read_row(tmp_path / "row.json", tiny)
    assert row.hidden
    seeds = tuple(tiny.seeds(season.CELLS["small"], SALT))
    cell = row.cells["small"]
    assert list(cell.zero) == pytest.approx(by_hand("pipeline", "small", seeds), rel=1e-12)
    assert list(cell.hundred) == pytest.approx(by_hand("dssra", "small", seeds), rel=1e-12)
    assert [e.total_reward for e in cell.episodes] == list(cell.hundred)
    assert "Mine" in board_markdown([row])
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.StringIO("guessed\n"))
    assert leaderboard("verify", *how) == 2
    assert "is not that of season 1" in capsys.readouterr().err


def test_verification_works_in_an_empty_folder_whatever_lies_about(submission) -> None:
    """Planted episodes of another scheduler, with the right keys, in all folders that a command would use."""
    assert leaderboard("run", "--submission", submission, *SHORT, "--out", "run") == 0
    for file in Path("run/evaluation").rglob("*scheduler_py*.npz"):
        with zipfile.ZipFile(file) as archive:
            key, members = archive.comment, {name: archive.read(name) for name in archive.namelist()}
        content = json.loads(members["episode.json"])
        members["episode.json"] = json.dumps(
            {**content, "reward": [r / 2 for r in content["reward"]]}
        ).encode()
        with zipfile.ZipFile(file, "w") as archive:
            archive.comment = key
            for name, member in members.items():
                archive.writestr(name, member)
    assert leaderboard("run", "--submission", submission, *SHORT, "--out", "run") == 0
    for folder in ("runs/leaderboard-Mine", "runs/leaderboard-verify-Mine", "results"):
        shutil.copytree("run", folder)
    how = ["--submission", submission, "--results", "run/leaderboard.json", *ONE]
    assert leaderboard("verify", *how, "--trust-code") == 2


def test_code_of_a_submission_decides_elsewhere_and_asks_for_trust(
    submission, quick_results, tmp_path, capsys, monkeypatch
) -> None:
    out = tmp_path / "run"
    assert leaderboard("run", "--submission", submission, *SHORT, "--out", out) == 0
    from collapipe_env.evaluation.leaderboard import scoring

    assert scoring.scores_between is scores_between
    own = json.loads((out / "leaderboard.json").read_text())["cells"]["small"]["episodes"]
    assert own == json.loads(quick_results)["cells"]["small"]["episodes"]  # DSSRA's
    results = ["--results", out / "leaderboard.json", *ONE]
    with monkeypatch.context() as patched:
        patched.setattr(scheduler_process, "process_of", lambda _: pytest.fail("it runs without consent"))
        assert leaderboard("verify", "--submission", submission, *results) == 2
    assert "add --trust-code" in capsys.readouterr().err
    assert leaderboard("verify", "--submission", submission, *results, "--trust-code") == 0
    (submission / "notes.txt").write_text("changed\n")
    assert leaderboard("verify", "--submission", submission, *results, "--trust-code") == 2
    assert "submission_sha256 is " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("sees", "sees the true system, which no real scheduler knows"),
        ("fails", "failed in act: ValueError: no"),
    ],
)
def test_a_cell_that_is_refused_is_a_row_that_is_refused(submission, mode, message, tmp_path, capsys) -> None:
    about = submission / "submission.json"
    about.write_text(about.read_text().replace('["small"]', '["large-stale", "small"]'))
    (submission / "mode.txt").write_text(mode)
    assert leaderboard("run", "--submission", submission, *SHORT, "--out", tmp_path / "run") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run" / "leaderboard.json").exists()


def test_an_oracle_of_the_package_is_refused_before_it_plays(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(board_row, "evaluate_all", lambda *_: pytest.fail("it plays"))
    name = ("--scheduler", "dssra-truth", "--cells", "large-stale")
    assert leaderboard("run", *name, *SHORT, "--out", tmp_path / "run") == 2
    assert "sees the true system, which no real scheduler knows" in capsys.readouterr().err


def test_saved_agents_are_the_runs_of_a_row(tmp_path) -> None:
    shutil.copyfile(agent_path("zoo:graph"), tmp_path / "mine.safetensors")
    for number, files in enumerate((["zoo:graph"], [tmp_path / "mine.safetensors", "zoo:graph-llm"])):
        assert leaderboard("run", "--agent", *files, *SHORT, "--out", tmp_path / str(number)) == 0
    one, two = (read_row(tmp_path / name / "leaderboard.json", season.present_season()) for name in "01")
    assert [e.run for e in two.cells["small"].episodes] == [0, 0, 1, 1]
    assert two.cells["small"].episodes[:2] == one.cells["small"].episodes
    assert one.submission_sha256 != two.submission_sha256
    assert one.name == two.name == "graph net"
    again = ["--agent", "zoo:graph", "--results", tmp_path / "0" / "leaderboard.json", *ONE]
    assert leaderboard("verify", *again) == 0


def test_the_track_observation_only_hides_the_state(submission, tmp_path, capsys) -> None:
    about = submission / "submission.json"
    about.write_text(about.read_text().replace("model-based", "observation-only"))
    assert leaderboard("run", "--submission", submission, *SHORT, "--out", tmp_path / "run") == 2
    assert "decides from the state, which is None" in capsys.readouterr().err


def test_rows_are_ranked_by_class_and_gated(quick_results, tmp_path, monkeypatch) -> None:
    """Over its energy budget, a row has no rank; systems that use the edge server are ranked apart."""
    file = tmp_path / "row.json"
    file.write_text(quick_results)
    row = read_row(file, season.present_season())
    monkeypatch.setitem(season.CELLS, "small", dataclasses.replace(season.CELLS["small"], episodes=2))
    cell = row.cells["small"]

    def variant(name, returned, energy=1.0, slope=0.0, blocks=0, rounds=100):
        figures = {"total_reward": returned, "worst_energy_ratio": energy, "backlog_slope": slope}
        episodes = [dataclasses.replace(e, **figures, server_blocks=blocks) for e in cell.episodes]
        new = {"episodes": tuple(episodes), "rounds": rounds, "zero": (-10.0, -10.0), "hundred": (-5.0, -5.0)}
        return dataclasses.replace(row, name=name, cells={"small": dataclasses.replace(cell, **new)})

    rows = [
        variant("worse", -6.0),
        variant("better", -4.0),
        variant("greedy", -3.0, 1.1, 0.1),
        variant("split", -2.0, blocks=3),
        variant("short", -1.0, rounds=50),
    ]
    lines = [line for line in board_markdown(rows).splitlines() if line.startswith("| ") or "**" in line]
    assert lines[2].startswith("| – | better | – | 132.2 #1 |")
    assert lines[3].startswith("| – | worse | – | 73.7 #2 |")
    assert lines[4].startswith("| – | greedy | – | (173.7) ‡ |")
    assert lines[5] == "**With the edge server**"
    assert lines[7].startswith("| – | split | – | 232.2 #1 |")
    assert len(lines) == 8


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["small", "medium-thermal"])
def test_dssra_has_a_rank(cell, tmp_path) -> None:
    where = ("--cells", cell, *ONE, "--out", tmp_path / "run")
    assert leaderboard("run", "--scheduler", "dssra", *where) == 0
    row = read_row(tmp_path / "run" / "leaderboard.json", season.present_season())
    found = score_cell(cell, row.cells[cell])
    assert found.gate.verdict == "passed"
    assert found.score.mean > 50.0

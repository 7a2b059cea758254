"""The suite's returns are played once, written into the package's file, and shown with their scores."""

import json
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from studies import suite as study

from collapipe_env.envs import suite as module
from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.evaluation.suite_plays import made_from
from collapipe_env.scenario import load_scenario


def test_returns_are_measured_once_and_shown_with_scores(tmp_path, monkeypatch):
    entry, file = replace(module.SUITE[0], episodes=2), tmp_path / "suite.json"
    file.write_text("{}")
    measured = cache(lambda: json.loads(file.read_text()))
    for place in (module, study):
        monkeypatch.setattr(place, "_measured", measured)
    monkeypatch.setattr(study, "SUITE", (entry, replace(entry, id="CollaPipeSurrogate-Medium-v0")))
    monkeypatch.setattr(study, "is_measured", lambda one: bool(one.returns) or one is not entry)
    monkeypatch.setattr(study, "plan_of", partial(study.plan_of, rounds=2))
    monkeypatch.setattr(study, "FILE", str(file))
    monkeypatch.setattr(study, "KEPT", tmp_path)
    monkeypatch.setattr(study, "PROCESSES", 1)
    columns = {"columns": {"any": "random", "even": "pipeline", "best": "dssra"}}
    table = study.scores(columns, quick=False)
    written = json.loads(file.read_text())[entry.id]
    assert written["made_from"] == made_from(entry)
    assert {name: len(each) for name, each in written["returns"].items()} == dict.fromkeys(
        entry.schedulers, 2
    )
    even, bar = (sum(written["returns"][name]) / 2 for name in ("pipeline", "dssra"))
    assert f"{even:,.1f} (0) | **{bar:,.1f} (100)** |" in table
    assert table.count(study.NOTHING) == 1  # the other id
    monkeypatch.setattr(study, "evaluate_all", lambda *_: pytest.fail("played again"))
    assert study.scores(columns, quick=False) == table


def test_training_runs_stand_beside_the_bar_episode_by_episode(tmp_path, monkeypatch):
    entry, runs = replace(module.SUITE[0], episodes=2), ["zoo:small-ppo", "zoo:small-sac"]
    returns = {"pipeline": [-4.0, -4.0], "dssra": [-2.0, -1.0]}
    monkeypatch.setattr(module, "_measured", lambda: {entry.id: {"returns": returns}})
    monkeypatch.setattr(study, "SUITE", (entry,))
    monkeypatch.setattr(study, "plan_of", partial(study.plan_of, rounds=2))
    monkeypatch.setattr(study, "KEPT", tmp_path)
    monkeypatch.setattr(study, "PROCESSES", 1)
    wanted = {"scenarios": ["small"], "columns": {"even split": "pipeline"}, "runs": runs}
    *_, row = study.runs(wanted, quick=False).splitlines()
    scenario = load_scenario("small")

    def returned(name, episode):
        player = make_scheduler(name, scenario)
        return np.sum(play_episode(name, player, scenario, episode, 2, "surrogate").result.reward)

    found = np.array([[returned(name, episode) for episode in range(2)] for name in runs])
    means = 100.0 * (found / np.array(returns["dssra"]) - 1.0).mean(axis=1)
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[1] == "DSSRA -1.5"
    assert cells[2].startswith("+200.0 (")  # twice and four times the bar's, less 1
    assert cells[3].startswith(f"{means.mean():+.1f} (")
    assert cells[4:] == [f"{means.min():+.1f} to {means.max():+.1f}", f"{entry.score(found.mean()):.0f}"]

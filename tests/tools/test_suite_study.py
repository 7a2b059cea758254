"""The suite's returns are played once, written into the package's file, and shown with their scores."""

import json
from dataclasses import replace
from functools import cache, partial

import pytest
from studies import suite as study

from collapipe_env.envs import suite as module
from collapipe_env.evaluation.suite_plays import made_from


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

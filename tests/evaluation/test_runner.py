"""Parallel evaluation: the same as in one process, resumable, and clear when a worker fails."""

import dataclasses
import json
from pathlib import Path

import pytest

from collapipe_env.errors import DataError
from collapipe_env.evaluation import runner
from collapipe_env.evaluation.runner import EvaluationPlan, decisions_of, evaluate
from collapipe_env.scenario import load_scenario


@pytest.fixture
def plan(tmp_path: Path) -> EvaluationPlan:
    scenario = load_scenario({"base": "small", "dynamics": {"rounds": 3}})
    return EvaluationPlan(scenario, ("pipeline", "random"), None, 2, 3, "surrogate", tmp_path / "episodes")


def test_finished_episodes_are_kept_and_only_the_rest_is_played(plan, monkeypatch) -> None:
    whole = runner._work
    played: list[str] = []

    def interrupted(unit, on_round) -> None:
        if len(played) == 3:
            raise KeyboardInterrupt
        played.append(str(unit))
        whole(unit, on_round)

    monkeypatch.setattr(runner, "_work", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate(plan)
    assert len(list(plan.folder.glob("*.json"))) == 3
    monkeypatch.setattr(
        runner, "_work", lambda unit, on_round: (played.append(str(unit)), whole(unit, on_round))
    )
    results = evaluate(plan)
    assert len(played) == len(set(played)) == 4
    assert {name: [r.episode for r in rs] for name, rs in results.items()} == {
        "pipeline": [0, 1],
        "random": [0, 1],
    }
    evaluate(plan)
    assert len(played) == 4


def test_episodes_of_other_options_are_played_again(plan) -> None:
    evaluate(plan)
    shorter = evaluate(dataclasses.replace(plan, rounds=2))
    assert [len(r.delay) for r in shorter["random"]] == [2, 2]


def test_several_processes_give_the_same_figures(plan, tmp_path: Path) -> None:
    alone = evaluate(plan)
    together = evaluate(dataclasses.replace(plan, processes=2, folder=tmp_path / "parallel"))
    for name in plan.schedulers:
        assert [r.delay for r in alone[name]] == [r.delay for r in together[name]]


def test_damaged_files_are_named_with_the_remedy(plan) -> None:
    evaluate(plan)
    (plan.folder / "random-1.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(DataError, match=r"random-1\.npz is damaged.*delete it"):
        decisions_of(plan, "random", 1)
    (plan.folder / "random-1.json").write_text("{")
    with pytest.raises(DataError, match=r"random-1\.json is damaged.*delete it"):
        evaluate(plan)
    (plan.folder / "random-1.json").write_text(json.dumps({"key": 1}))
    assert len(evaluate(plan)["random"]) == 2

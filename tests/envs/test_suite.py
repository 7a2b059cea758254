"""The suite: ids that exist, returns of scenarios as they are, scores, and plays that are the id's own."""

import gymnasium as gym
import pytest

from collapipe_env import suite
from collapipe_env.envs import suite as module
from collapipe_env.evaluation import runner
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.evaluation.suite_plays import agents_of, episode_return, made_from, plan_of
from collapipe_env.ground.errors import DataError, ScenarioError
from collapipe_env.scenario import load_scenario


def test_the_suite_is_a_choice_of_at_most_forty_ids():
    registered = [name for name in gym.registry if name.startswith("CollaPipe")]
    assert len(registered) <= 40
    assert len(suite()) == 8
    for entry in suite():
        assert gym.spec(entry.id).kwargs["scenario"] == entry.scenario
        assert gym.spec(entry.id).kwargs["learner"] == entry.learner
        assert gym.spec(entry.id).reward_threshold == entry.reward_threshold


@pytest.mark.parametrize("entry", [entry for entry in suite() if entry.returns], ids=lambda entry: entry.id)
def test_measured_returns_are_of_the_scenario_as_it_is(entry):
    remedy = f"{entry.id} changed since its returns were measured: python -m tools.docs suite"
    assert (entry.made_from, entry.agents) == (made_from(entry), agents_of(entry)), remedy
    assert {name: len(values) for name, values in entry.returns.items()} == dict.fromkeys(
        entry.schedulers, entry.episodes
    ), remedy
    assert entry.reward_threshold > sum(entry.returns["pipeline"]) / entry.episodes


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, marks=pytest.mark.slow if entry.scenario.partition("large")[1] else [])
        for entry in suite()
        if entry.returns and entry.learner == "surrogate"
    ],
    ids=lambda entry: entry.id,
)
def test_the_simulator_still_plays_what_was_measured(entry, tmp_path):
    plan = plan_of(entry, tmp_path, ("pipeline", entry.bar), episodes=1)
    remedy = "the simulator changed: write {} into envs/suite.json, and run python -m tools.docs suite"
    for name, (result,) in runner.evaluate_all([plan], 1, lines=False)[0].results.items():
        assert episode_return(result) == pytest.approx(entry.returns[name][0], rel=1e-9), remedy


def test_the_even_split_scores_0_and_the_bar_100(monkeypatch):
    entry = suite()[1]
    monkeypatch.setattr(module, "_measured", dict)
    assert entry.reward_threshold is None
    with pytest.raises(DataError, match=r"has no measured returns: run python -m tools\.docs suite"):
        entry.score(-1.0)
    found = {"pipeline": [-10.0, -30.0], "dssra-plus": [-8.0, -12.0]}
    monkeypatch.setattr(module, "_measured", lambda: {entry.id: {"returns": found}})
    assert entry.reward_threshold == -10.0
    assert [entry.score(value) for value in (-20.0, -10.0, -5.0)] == pytest.approx([0.0, 100.0, 200.0])
    for wrong in (0.5, float("nan"), float("-inf"), [-10.0, -12.0]):
        with pytest.raises(ScenarioError, match="give one number below 0"):
            entry.score(wrong)


def test_what_is_measured_is_the_return_of_the_id(tmp_path):
    entry = suite()[-2]
    plan = plan_of(entry, tmp_path, ("pipeline",), episodes=1)
    (result,) = runner.evaluate_all([plan], 1, lines=False)[0].results["pipeline"]
    env = gym.make(entry.id).unwrapped
    scheduler = make_scheduler("pipeline", load_scenario(entry.scenario))
    observation, _ = env.reset(seed=1_300_000_000)
    total, rounds, ended = 0.0, 0, False
    while not ended:
        observation, reward, ended, truncated, _ = env.step_allocation(scheduler.act(observation, env.state))
        total, rounds = total + reward, rounds + 1
        assert not truncated
    assert episode_return(result) == pytest.approx(total, rel=1e-12)
    assert len(result.delay) == rounds < plan.rounds
    assert all(map(runner._finished, runner._units(plan)))  # though shorter

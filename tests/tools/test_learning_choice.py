"""The choice of hyper-parameters: which value is taken, and what sees the test part."""

import numpy as np
import pytest
from studies import learning_choice, learning_runs

import docs as tool
from collapipe_env.scenario import load_scenario

ENTRY = tool.entries()["learning/choice"]


@pytest.fixture
def played(monkeypatch, tmp_path):
    """Runs whose scores follow from their settings; returns the scenarios that were played, in order."""
    scenarios = []

    def train(plans, processes):
        assert processes == 1
        ((name, plan),) = plans.items()
        scenarios.append(plan.scenario)
        return {name: [Run(plan.scenario, seed) for seed in range(plan.episodes)]}

    class Run:
        initial_loss = 0.7

        def __init__(self, scenario, seed):
            learning = scenario.learning
            score = 0.7 + 0.002 * seed
            score += 0.05 * (learning.proxy.style == "bert")
            score += 0.02 * (learning.token_dropout == 0.5)
            # On average better than the start, but not from seed to seed.
            score += (0.03, -0.02)[seed % 2] * (learning.learning_rate == 2e-3)
            score -= 0.04 * (learning.warmup_steps == 30)
            # Before the last quarter everything is worse, and that must not count.
            rounds = scenario.dynamics.rounds
            self.metric = np.where(np.arange(rounds) < 0.75 * rounds, 0.0, score)
            self.loss = 1.0 - self.metric
            self.delay = np.ones(rounds)

    monkeypatch.setattr(learning_runs, "train", train)
    options = learning_runs.Training("small", 100, 4, tmp_path, 1)
    monkeypatch.setattr(learning_runs.Training, "of", lambda *_: options)
    return scenarios


def test_fields_are_chosen_one_after_another_on_dev_and_tested_once(played):
    text = learning_choice.study(ENTRY, False)
    parts = [scenario.learning.evaluation_split for scenario in played]
    assert parts == ["dev"] * (len(parts) - 2) + ["test"] * 2
    start, choice = (scenario.learning for scenario in played[-2:])
    assert (start.proxy.style, start.token_dropout, start.learning_rate) == ("pre-ln", 0.3, 3e-3)
    assert (choice.proxy.style, choice.token_dropout, choice.learning_rate) == ("bert", 0.5, 3e-3)
    assert (choice.gradient_clip, choice.warmup_steps) == (0.0, 10)
    # What was chosen before is kept while later fields are tried.
    assert {scenario.learning.proxy.style for scenario in played[2:-2]} == {"bert"}
    assert "| style | **bert** | 0.753" in text
    assert "| warm-up | **10** |" in text
    assert "the start has accuracy 0.703" in text


@pytest.mark.parametrize(
    ("scores", "present", "better"),
    [
        ([0.8, 0.8], [0.7, 0.7], True),
        ([0.8], [0.7], True),
        ([0.7], [0.7], False),
        ([0.8, 0.7], [0.7, 0.78], False),  # gains 0.1 and -0.08: mean 0.01, standard error 0.09
        ([0.8, 0.73], [0.7, 0.72], True),  # gains 0.1 and 0.01: mean 0.055, standard error 0.045
    ],
)
def test_a_value_must_be_better_by_more_than_chance(scores, present, better):
    assert learning_choice.clearly_better(np.array(scores), np.array(present)) is better


def test_the_start_is_the_first_value_of_every_field_and_all_are_valid():
    small = load_scenario("small")
    for field in ENTRY["fields"].values():
        for values in learning_choice.candidates(**field):
            assert small.with_overrides(values) is not None
    names = [name for field in ENTRY["fields"].values() for name in field["names"]]
    assert len(names) == len(set(names))

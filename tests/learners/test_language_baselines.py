"""A run that fits a CPU beats counted unigrams and Kneser-Ney's trigrams: same tokens, same held-out text."""

import importlib
import sys
from pathlib import Path

import pytest

from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.scheduler_loading import load_scheduler
from collapipe_env.scenario import load_scenario

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
baselines = importlib.import_module("ngram_baselines")

EVERYTHING = {"learning.evaluation_samples": 1_000_000, "learning.metric_samples": 1_000_000}


def perplexity(scenario, rounds):
    """Perplexity on the whole test part after an episode of even splits."""
    seldom = {"learning.evaluate_every": rounds, "learning.metric_every": rounds, "dynamics.rounds": rounds}
    scenario = scenario.with_overrides({**EVERYTHING, **seldom})
    scheduler = load_scheduler("pipeline", scenario, None)
    played = play_episode("pipeline", scheduler, scenario, 0, rounds, "real")
    return played.result.metrics["perplexity"]


def require_better(scenario, rounds):
    """Train, count, compare."""
    counted = baselines.perplexities(scenario.learning.dataset, scenario.learning.proxy.vocabulary)
    found = perplexity(scenario, rounds)
    print(scenario.name, found, counted)  # for pytest -s
    assert found < counted["trigram perplexity"] < counted["unigram perplexity"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_on_the_embedded_stories():
    require_better(load_scenario("small").with_task("language-modelling"), 200)

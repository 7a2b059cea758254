"""A run that fits a CPU beats counted unigrams and Kneser-Ney's trigrams: same tokens, same held-out text."""

import importlib
import os
import shutil
import sys
from pathlib import Path

import pytest

from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.scheduler_loading import load_scheduler
from collapipe_env.scenario import load_scenario

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
baselines = importlib.import_module("ngram_baselines")

DATA = Path(os.environ.get("COLLAPIPE_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
CAPTIONS = DATA / "mt" / "multi30k_en_de"
PARTS = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
EVERYTHING = {"learning.evaluation_samples": 1_000_000, "learning.metric_samples": 1_000_000}
WIDER = {
    "learning.proxy.width": 64,
    "learning.proxy.feedforward": 128,
    "learning.proxy.heads": 4,
    "learning.token_dropout": 0.0,
    "learning.schedule": "cosine",
}


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


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not CAPTIONS.is_dir(), reason="set COLLAPIPE_DATA to the folder of real data")
def test_on_english_captions(tmp_path):
    for part, name in PARTS.items():
        shutil.copy(CAPTIONS / f"{name}.en.gz", tmp_path / f"{part}.txt.gz")
    scenario = load_scenario("small").with_task("language-modelling", str(tmp_path))
    require_better(scenario.with_overrides(WIDER), 400)

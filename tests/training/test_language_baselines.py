"""A run that fits a CPU beats counted unigrams and Kneser-Ney's trigrams: same tokens, same held-out text."""

import importlib
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from collapipe_env.evaluation.episode import play_episode
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.scenario import load_scenario

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
baselines = importlib.import_module("ngram_baselines")

DATA = Path(os.environ.get("COLLAPIPE_DATA", ROOT.parent / "shared" / "data"))
CAPTIONS = DATA / "mt" / "multi30k_en_de"
PARTS = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
EVERYTHING = {"learning.evaluation_samples": 1_000_000, "learning.metric_samples": 1_000_000}


@pytest.fixture
def captions(tmp_path):
    """The scenario of the page, as a file of its own."""
    page = (ROOT / "docs" / "learning.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n([^`]*name: small-captions\n[^`]*)```", page)
    file = tmp_path / "captions.yaml"
    file.write_text(block, encoding="utf-8")
    return load_scenario(str(file))


def perplexity(scenario, rounds):
    """Perplexity on the whole test part after an episode of even splits."""
    seldom = {"learning.evaluate_every": rounds, "learning.metric_every": rounds, "dynamics.rounds": rounds}
    scenario = scenario.with_overrides({**EVERYTHING, **seldom})
    scheduler = make_scheduler("pipeline", scenario)
    played = play_episode("pipeline", scheduler, scenario, 0, rounds, "real")
    return played.result.metrics["perplexity"]


def require_better(scenario, rounds):
    """Train, count, compare."""
    counted = baselines.perplexities(scenario.learning.dataset, scenario.learning.proxy.vocabulary)
    found = perplexity(scenario, rounds)
    print(scenario.name, found, counted)  # for pytest -s
    assert found < counted["trigram perplexity"] < counted["unigram perplexity"]


def test_the_page_shows_a_scenario_of_english_captions(captions):
    assert captions.workload.task == "language-modelling"
    assert captions.learning.evaluation_split == "test"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_on_the_embedded_stories():
    require_better(load_scenario("small").with_task("language-modelling"), 200)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not CAPTIONS.is_dir(), reason=f"Multi30k is not at {CAPTIONS}; set COLLAPIPE_DATA")
def test_on_english_captions(captions, tmp_path):
    folder = tmp_path / "captions"
    folder.mkdir()
    for part, name in PARTS.items():
        shutil.copy(CAPTIONS / f"{name}.en.gz", folder / f"{part}.txt.gz")
    require_better(captions.with_overrides({"learning.dataset": str(folder)}), captions.dynamics.rounds)

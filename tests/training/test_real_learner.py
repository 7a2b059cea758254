"""The real learner: what a scenario hands on, figures, samples, and refusals."""

import math

import numpy as np
import pytest
from learner_support import BLOCKS, B, N, language_learner, new_learner, outcome_of, small_learner
from oracles.documents import documents_of

from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.models.architecture import Architecture
from collapipe_env.physics.payload import UpdateFormat
from collapipe_env.scenario import load_scenario
from collapipe_env.tasks import TaskSpec, get_task
from collapipe_env.tasks.base import NO_TARGET
from collapipe_env.training.real_learner import TorchLearner


def test_misuse_is_refused():
    """All rules of outcomes are in the tests of their checks."""
    with pytest.raises(AllocationError, match="must be non-negative and sum to 4"):
        small_learner().train_round(outcome_of([(3, 3)] * N))
    fresh = new_learner()
    for entry in (lambda: fresh.train_round(outcome_of()), lambda: fresh.written_samples(1)):
        with pytest.raises(RuntimeError, match="call reset"):
            entry()
    with pytest.raises(RuntimeError, match="environment 0 has no training run"):
        fresh.save_checkpoint("tuned")
    with pytest.raises(ValueError, match="2 generators for 1 environments"):
        fresh.reset([np.random.default_rng(seed) for seed in (0, 1)])
    with pytest.raises(ScenarioError, match="task 'classification' does not continue texts"):
        small_learner().written_samples(1)


def test_evaluation_in_the_background_changes_no_training():
    inline, background = (
        small_learner(evaluate_every=1, evaluation=when) for when in ("inline", "background")
    )
    for _ in range(3):
        before = inline.train_round(outcome_of()), background.train_round(outcome_of())
        assert before[0].train_loss == before[1].train_loss
    assert background.train_round(outcome_of()).loss == before[0].loss


def training_of(proxy=None, **changes):
    workload = {"blocks": BLOCKS, "width": 12, "feedforward": 20, "heads": 3, "sequence_length": 9}
    workload |= {"vocabulary": 200, "batch_size": B, "local_steps": 2}
    fields = {f"workload.{name}": value for name, value in workload.items()}
    fields |= {"cluster.clusters": N, "learning.proxy": proxy, **changes}
    return TorchLearner.from_scenario(load_scenario("small").with_overrides(fields), 2).training


def test_a_scenario_trains_the_proxy_or_the_priced_architecture():
    proxy = {"width": 8, "feedforward": 10, "heads": 2, "sequence_length": 7, "vocabulary": 150}
    expected = Architecture(BLOCKS, 8, 10, 2, 7, 150, "bert", learned_positions=7, token_types=2)
    assert training_of(proxy).architecture == expected
    assert training_of({**proxy, "style": None}).architecture == Architecture(BLOCKS, 8, 10, 2, 7, 150)
    assert training_of().architecture == Architecture(BLOCKS, 12, 20, 3, 9, 200)


def test_a_scenario_hands_the_update_format_the_head_and_the_schedule_on():
    changes = {
        "workload.weight_bits": 8, "workload.update_compression": "top-k", "workload.top_k_share": 0.25,
        "workload.head": "common", "dynamics.rounds": 17,
    }  # fmt: skip
    found = training_of(**changes)
    assert found.update_format == UpdateFormat(8, "top-k", 0.25)
    assert (found.schedule_steps, found.local_steps, found.head) == (34, 2, "common")
    assert training_of(**changes, **{"learning.schedule_steps": 9}).schedule_steps == 9


def data_of(learner):
    return get_task("language-modelling").load(TaskSpec(learner.training.architecture, 300))


def test_figures_are_those_of_the_evaluated_rows():
    found = language_learner()
    report = found.train_round(outcome_of())
    assert report.metric[0] == report.metrics["perplexity"][0]
    assert report.metric[0] == pytest.approx(math.exp(report.loss[0]), rel=1e-5)
    data = data_of(found)
    rows = np.random.default_rng(0).permutation(len(data.test))[:20]
    tokens = (data.test.targets[rows] != NO_TARGET).sum()
    size = sum(data.test.references[i] for i in rows)
    expected = report.loss[0] * tokens / math.log(2) / size
    assert report.metrics["bits_per_byte"][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_samples_continue_held_out_documents_and_change_nothing():
    found, silent = language_learner(), language_learner()
    for one in (found, silent):
        one.train_round(outcome_of())
    samples = found.written_samples(3)
    assert found.written_samples(3) == samples
    data = data_of(found)
    texts = data.decode(documents_of(data.test.targets))
    assert len(samples) == 3
    for sample, place in zip(samples, (0, 50, 99), strict=True):
        assert set(sample) == {"prompt", "document", "greedy", "top_p"}
        assert texts[place].startswith(sample["prompt"] + sample["document"])
        assert sample["prompt"]
        assert sample["greedy"] != sample["top_p"]
    assert len(found.written_samples(1000)) == len(texts)
    assert found.train_round(outcome_of()).train_loss[0] == silent.train_round(outcome_of()).train_loss[0]

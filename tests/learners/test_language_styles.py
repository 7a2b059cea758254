"""Language modelling with every style of blocks that it is meant for, from a scenario on."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from variants_support import mostly_slow

from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.language_head import LanguageHead
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.learner import Arrivals, RoundOutcome
from collapipe_env.tasks import get_task
from collapipe_env.tasks.base import NO_TARGET, task_spec, trained_architecture
from collapipe_env.tasks.heads import TokenLinear
from collapipe_env.training.real_learner import TorchLearner

N, BLOCKS, ROUNDS, VOCABULARY, LENGTH = 2, 2, 60, 300, 16
STYLES = {
    "pre-ln": {"style": "pre-ln"},
    "gpt2": {"style": "gpt2", "learned_positions": 128},
    "gpt2-tied": {"style": "gpt2", "learned_positions": 128, "tied_head": True},
    "llama": {"style": "llama", "kv_heads": 2},
    "llama-tied": {"style": "llama", "kv_heads": 2, "qkv_bias": True, "tied_head": True},
}
styled = pytest.mark.parametrize("name", STYLES)


def scenario_of(name, **workload):
    grouped = {"kv_heads": 1} if name.startswith("llama") else {}
    return load_scenario(
        {
            "base": "small",
            "workload": {
                "task": "language-modelling", "blocks": BLOCKS, "batch_size": 16, **STYLES[name], **workload,
            },
            "cluster": {"clusters": N, "devices": 2},
            "learning": {
                "evaluate_every": ROUNDS, "metric_every": ROUNDS, "evaluation_samples": 10_000,
                "metric_samples": 10_000, "learning_rate": 0.02, "server_learning_rate": 0.02,
                "warmup_steps": 0, "token_dropout": 0.0,
                "proxy": {
                    "style": None, "width": 16, "feedforward": 24, "heads": 2, "sequence_length": LENGTH,
                    "vocabulary": VOCABULARY, **grouped,
                },
            },
        }
    )  # fmt: skip


def trained(scenario, rounds):
    """A learner after so many rounds in which everything arrives, and its last report."""
    learner = TorchLearner.from_scenario(scenario, num_envs=1)
    report = learner.reset([np.random.default_rng(3)])
    micro_batches = np.full((1, N), 2)
    arrived = Arrivals.of(np.ones((1, N, 1, 2), dtype=bool), micro_batches)
    for _ in range(rounds):
        outcome = RoundOutcome(np.ones((1, N, 2), dtype=np.int64), micro_batches, arrived, np.ones((1, N)))
        report = learner.train_round(outcome)
    return learner, report


def unigram_perplexity(data):
    train, asked = (part.targets[part.targets != NO_TARGET] for part in (data.train, data.test))
    shares = (np.bincount(train, minlength=VOCABULARY) + 1) / (len(train) + VOCABULARY)
    return math.exp(-np.log(shares[asked]).mean())


@styled
def test_a_scenario_trains(name):
    scenario = scenario_of(name)
    learner, report = trained(scenario, ROUNDS)
    data = get_task("language-modelling").load(task_spec(scenario))
    assert report.metric[0] < 0.6 * unigram_perplexity(data)

    model, head = learner._runs[0].common_model
    assert isinstance(head, TokenLinear if name == "pre-ln" else LanguageHead)
    assert torch.equal(head.weight, model.embedding.weight) == ("tied" in name)


@pytest.mark.parametrize("name", mostly_slow(["gpt2-tied", "llama"]))
def test_adapters_of_language_models_learn(name):
    scenario = scenario_of(name, update_compression="lora", lora_rank=4)
    before = trained(scenario, 0)[1].loss[0]
    learner, report = trained(scenario, ROUNDS)
    assert report.loss[0] < before - 0.05
    fresh = trained(scenario, 0)[0]._runs[0].common_model[0].embedding.weight
    assert torch.equal(learner._runs[0].common_model[0].embedding.weight, fresh)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_styles_of_language_models_need_no_word_that_they_are_causal(name):
    spec = task_spec(scenario_of(name))
    unmarked = replace(spec, architecture=replace(spec.architecture, causal=False))
    task = get_task("language-modelling")
    assert np.array_equal(task.load(unmarked).train.tokens, task.load(spec).train.tokens)
    tokens = torch.randint(3, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    made = [ClusterModel(one.architecture, torch.Generator().manual_seed(0)) for one in (spec, unmarked)]
    assert torch.equal(*(model(tokens) for model in made))


@pytest.mark.parametrize(("model", "style", "vocabulary"), [
    ("gpt2-small", "gpt2", 50_257), ("qwen2.5-0.5b", "llama", 151_936), ("llama-3.2-1b", "llama", 128_256),
])  # fmt: skip
def test_a_published_model_takes_the_task(model, style, vocabulary):
    fields = {"task": "language-modelling", "model": model, "batch_size": 1, "micro_batches": [1]}
    roomy = [{"switched_capacitance": 1e-27, "memory_bytes": [32e9]}]
    scenario = load_scenario({"base": "medium", "workload": fields, "devices": {"profiles": roomy}})
    assert (scenario.workload.outputs, scenario.workload.vocabulary) == (vocabulary, vocabulary)
    sizes = trained_architecture(scenario)
    assert (sizes.style, sizes.causal, sizes.tied_head) == (style, True, True)
    assert sizes.vocabulary == scenario.learning.proxy.vocabulary == 1000
    head = get_task("language-modelling").build_head(task_spec(scenario), torch.Generator())
    assert head.weight.shape == (1000, sizes.width)

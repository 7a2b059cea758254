"""Language modelling with every style of blocks that it is meant for, from a scenario on."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_support import outcome_of

from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.language_head import LanguageHead
from collapipe_env.scenario import load_scenario
from collapipe_env.tasks import get_task
from collapipe_env.tasks.base import task_spec, trained_architecture
from collapipe_env.tasks.heads import TokenLinear
from collapipe_env.training.federation import Federation
from collapipe_env.training.outcome_checks import trained_round
from collapipe_env.training.real_learner import TorchLearner

N, BLOCKS, VOCABULARY, LENGTH = 2, 2, 300, 16
TASK = get_task("language-modelling")
STYLES = {
    "pre-ln": {"style": "pre-ln"},
    "gpt2": {"style": "gpt2", "learned_positions": 128},
    "gpt2-tied": {"style": "gpt2", "learned_positions": 128, "tied_head": True},
    "llama": {"style": "llama", "kv_heads": 2},
    "llama-tied": {"style": "llama", "kv_heads": 2, "qkv_bias": True, "tied_head": True},
}


def scenario_of(name, **workload):
    proxy = {"style": None, "width": 16, "feedforward": 24, "heads": 2, "sequence_length": LENGTH}
    proxy |= {"vocabulary": VOCABULARY, **({"kv_heads": 1} if name.startswith("llama") else {})}
    rates = {"learning_rate": 0.05, "server_learning_rate": 0.05, "warmup_steps": 0, "token_dropout": 0.0}
    workload |= {"task": "language-modelling", "blocks": BLOCKS, "batch_size": 16, **STYLES[name]}
    return load_scenario(
        {
            "base": "small",
            "workload": workload,
            "cluster": {"clusters": N, "devices": 2},
            "learning": {**rates, "proxy": proxy},
        }
    )


@pytest.mark.parametrize("adapters", [False, True])
@pytest.mark.parametrize("name", STYLES)
def test_a_scenario_trains(name, adapters):
    """Checkpoints of these styles are fine-tuned in `test_language_checkpoints.py`."""
    workload = {"update_compression": "lora", "lora_rank": 4} if adapters else {}
    setup = TorchLearner.from_scenario(scenario_of(name, **workload), 1).prepare()[0]
    run = Federation(setup, np.random.default_rng(3))
    model, head = run.common_model
    table = model.embedding.weight.detach().clone()
    outcome = outcome_of([(1, 1)] * N, np.ones((N, 1, 16), dtype=bool), micro_batches=(2,) * N)
    losses = [run.train_round(trained_round(outcome, setup, 1)[0]) for _ in range(4)]
    assert losses[0] == pytest.approx(math.log(VOCABULARY), abs=1.5)
    assert losses[-1] < losses[0]
    assert torch.equal(model.embedding.weight, table) == adapters
    assert isinstance(head, TokenLinear if name == "pre-ln" else LanguageHead)
    assert torch.equal(head.weight, model.embedding.weight) == ("tied" in name)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_styles_of_language_models_need_no_word_that_they_are_causal(name):
    spec = task_spec(scenario_of(name))
    unmarked = replace(spec, architecture=replace(spec.architecture, causal=False))
    assert np.array_equal(TASK.load(unmarked).train.tokens, TASK.load(spec).train.tokens)
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
    head = TASK.build_head(task_spec(scenario), torch.Generator())
    assert head.weight.shape == (1000, sizes.width)

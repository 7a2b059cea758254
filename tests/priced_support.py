"""Models of every style that are trained as they are priced."""

import pytest
import torch

from collapipe_env.models.cluster_model import ClusterModel, additive_mask
from collapipe_env.scenario import load_scenario
from collapipe_env.tasks.base import task_spec

SAMPLES = 3
GPT2 = {"style": "gpt2", "learned_positions": 40}
SIZES = {
    "gpt2": {**GPT2, "blocks": 2, "width": 32, "feedforward": 128, "heads": 2, "sequence_length": 32},
    "gpt2-odd": {**GPT2, "blocks": 3, "width": 24, "feedforward": 100, "heads": 3, "sequence_length": 10},
    "llama": {
        "style": "llama", "blocks": 2, "width": 32, "feedforward": 64, "heads": 4, "sequence_length": 32,
    },
    "llama-grouped": {
        "style": "llama", "blocks": 3, "width": 48, "feedforward": 100, "heads": 6, "kv_heads": 2,
        "sequence_length": 10,
    },
    "qwen2": {
        "style": "llama", "blocks": 2, "width": 56, "feedforward": 152, "heads": 7, "kv_heads": 1,
        "qkv_bias": True, "sequence_length": 17,
    },
}  # fmt: skip
HALF = dict.fromkeys(("stored_activation_bits", "activation_bits", "gradient_bits", "train_bits"), 16)
"""What computes in bfloat16."""


def sized(*names):
    """Run a test for models of these sizes."""
    return pytest.mark.parametrize("sizes", [SIZES[name] for name in names], ids=names)


def scenario_of(sizes, **workload):
    """A scenario that trains what it prices."""
    workload = {"vocabulary": 77, "outputs": 77, **sizes, **workload}
    return load_scenario({"workload": workload, "learning": {"proxy": "off"}})


def model_of(scenario):
    return ClusterModel(task_spec(scenario).architecture, torch.Generator().manual_seed(0))


def inputs_of(sizes):
    """Activations before a block, and their mask."""
    x = torch.randn(SAMPLES, sizes["sequence_length"], sizes["width"], requires_grad=True)
    return x, additive_mask(torch.ones(x.shape[:2], dtype=torch.int64))

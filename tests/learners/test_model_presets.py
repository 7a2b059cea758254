"""Named models have the sizes that their papers publish."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.scenario.published_models import MODELS, model_fields
from collapipe_env.scenario.sections import WorkloadSpec
from collapipe_env.scenario.style_fields import LANGUAGE_FIELDS
from collapipe_env.training.flat_parameters import parameter_count

SIZES = (
    "blocks", "width", "feedforward", "heads", "sequence_length", "vocabulary", "style",
    "learned_positions", "token_types", *LANGUAGE_FIELDS,
)  # fmt: skip


def encoder(name):
    """The model of a name, without memory."""
    workload = WorkloadSpec(**model_fields(name))
    with torch.device("meta"):
        return workload, ClusterModel(
            Architecture(**{field: getattr(workload, field) for field in SIZES}), torch.Generator()
        )


@pytest.mark.parametrize(
    ("name", "with_pooler"),
    # The published totals, 110 M and 28.8 M, count a pooler of d x d weights and d biases.
    [("bert-base", 109_482_240), ("bert-small", 28_763_648)],
)
def test_berts_have_their_published_parameters(name, with_pooler):
    workload, model = encoder(name)
    d = workload.width
    assert parameter_count(model) == with_pooler - (d * d + d)


def test_bert_base_to_the_parameter():
    assert parameter_count(encoder("bert-base")[1]) == 108_891_648


def test_transformer_base_has_its_published_parameters():
    """65 M in table 3 of the paper, with one embedding table for encoder, decoder and output."""
    workload, model = encoder("transformer-base")
    with torch.device("meta"):
        decoder_block = nn.TransformerDecoderLayer(workload.width, workload.heads, workload.feedforward)
    total = parameter_count(model) + workload.decoder_blocks * parameter_count(decoder_block)
    assert total == 63_082_496
    assert total == pytest.approx(65e6, rel=0.03)


@pytest.mark.parametrize("name", MODELS)
def test_workload_prices_the_parameters_of_the_real_modules(name):
    workload, model = encoder(name)
    assert workload.embedding_parameters == parameter_count(model.embedding)
    d, f = workload.width, workload.feedforward
    if workload.style == "llama":
        kv = workload.kv_heads * d // workload.heads
        biases = d + 2 * kv if workload.qkv_bias else 0
        expected = 2 * d * d + 2 * d * kv + 3 * d * f + 2 * d + biases
    else:
        expected = 4 * d * d + 2 * d * f + 9 * d + f
    assert parameter_count(model.blocks[0]) == expected
    assert len(model.blocks) == workload.blocks


def test_fields_are_copies():
    model_fields("bert-base")["blocks"] = 1
    assert model_fields("bert-base")["blocks"] == 12
    with pytest.raises(TypeError):
        MODELS["bert-base"] = {}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("bert-basis", "did you mean 'bert-base'"),
        ("gpt2-smal", "did you mean 'gpt2-small'"),
        ("mamba", "valid names: .*bert-base, bert-small.*transformer-base"),
        (["bert-base"], "unknown model"),
    ],
)
def test_unknown_names(name, hint):
    with pytest.raises(ScenarioError, match=hint):
        model_fields(name)


def test_names_need_no_pytorch():
    code = "import sys, collapipe_env.scenario.published_models; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

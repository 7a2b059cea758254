"""Named models have the sizes that their papers publish."""

import pytest
import torch
from torch import nn

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.style_fields import LANGUAGE_FIELDS
from collapipe_env.scenario.block_prices import block_prices
from collapipe_env.scenario.published_models import MODELS, model_fields
from collapipe_env.scenario.sections import WorkloadSpec
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
    ("name", "total"),
    [
        # The published totals, 110 M and 28.8 M, count a pooler of d x d weights and d biases.
        ("bert-base", 109_482_240 - 768 * 769),
        ("bert-small", 28_763_648 - 512 * 513),
        # 124 M (with the tied table once), 0.49 B, 1.24 B, with the last norm, which is the head's here.
        ("gpt2-small", 124_439_808 - 2 * 768),
        ("qwen2.5-0.5b", 494_032_768 - 896),
        ("llama-3.2-1b", 1_235_814_400 - 2048),
    ],
)
def test_models_have_their_published_parameters(name, total):
    assert parameter_count(encoder(name)[1]) == total


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
    assert parameter_count(model.blocks[0]) == block_prices(workload).parameters
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

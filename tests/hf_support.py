"""Checkpoints to load, written by this package or by transformers, and models to compare with."""

import contextlib
import functools
import io
import json
import os
import tempfile
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file

from collapipe_env.ground.errors import CheckpointError
from collapipe_env.models.architecture import Architecture
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.hf_checkpoint import load_into
from collapipe_env.models.hf_places import place_of
from collapipe_env.models.hf_saving import save_checkpoint
from collapipe_env.models.language_head import LanguageHead

LENGTH, VOCABULARY, WIDTH, FEEDFORWARD, HEADS, BLOCKS = 9, 61, 24, 40, 4, 3
FAMILIES = {
    "gpt2": {"style": "gpt2", "learned_positions": 12},
    "llama": {"style": "llama", "kv_heads": 2},
    "qwen2": {"style": "llama", "kv_heads": 1, "qkv_bias": True, "rope_theta": 1e6, "norm_epsilon": 1e-6},
    # Llama 3's stretched rotations; the original length is short, so that some pairs are stretched in part.
    "llama3": {
        "style": "llama", "kv_heads": 2, "rope_theta": 50.0, "rope_factor": 8.0, "rope_original_length": 32,
    },
}  # fmt: skip
"""Language models."""
BERT = {"style": "bert", "learned_positions": 12, "token_types": 2}
BERT_FIELDS = {**BERT, "blocks": 3, "width": 24, "feedforward": 40, "heads": 4, "vocabulary": 61}
"""As they are read from a checkpoint."""
BERT_SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": BLOCKS,
    "num_attention_heads": HEADS, "intermediate_size": FEEDFORWARD, "max_position_embeddings": 12,
    "type_vocab_size": 2,
}  # fmt: skip


@functools.cache
def transformers():
    """The library, imported once and only by the tests that compare with it: it takes seconds."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = pytest.importorskip("transformers", reason="compares with transformers (extra `dev`)")
        _ = library.BertModel, library.BertForTokenClassification, library.BertTokenizerFast
    return library


def some_tokens(samples=5, length=LENGTH, padded=True):
    """Rows of unequal length, padded by 0 behind."""
    tokens = torch.randint(2, VOCABULARY, (samples, length), generator=torch.Generator().manual_seed(2))
    if padded:
        for row in range(samples):
            tokens[row, 2 + row % length :] = 0
    return tokens


def architecture(family, tied=False, length=LENGTH, **changes):
    sizes = {
        "blocks": BLOCKS, "width": WIDTH, "feedforward": FEEDFORWARD, "heads": HEADS,
        "sequence_length": length, "vocabulary": VOCABULARY, "tied_head": tied,
        **(BERT if family == "bert" else FAMILIES[family]),
    }  # fmt: skip
    return Architecture(**{**sizes, **changes})


def model_and_head(sizes, seed=0):
    """A model with fresh weights; BERT has no head of its own."""
    generator = torch.Generator().manual_seed(seed)
    model = ClusterModel(sizes, generator)
    if sizes.style not in ("gpt2", "llama"):
        return model, None
    head = LanguageHead(sizes, sizes.vocabulary, generator)
    if sizes.tied_head:
        head.weight = model.embedding.weight
    return model, head


def loaded(sizes, folder, seed=1):
    """A model and its head with the weights of a checkpoint."""
    model, head = model_and_head(sizes, seed)
    load_into(model, folder, head)
    return model, head


def write_checkpoint(folder, family="bert", stem="bert."):
    """A checkpoint of fresh weights, written without transformers."""
    model, head = model_and_head(architecture(family), seed=4)
    if head is not None:
        save_checkpoint(folder, model, head)
        return
    tensors = {}
    for name, value in model.named_parameters():
        value = torch.randn(value.shape, generator=torch.Generator().manual_seed(len(tensors)))
        tensors |= place_of(model.architecture, name, tuple(value.shape), stem).parted(value)
    save_file(tensors, folder / "model.safetensors")
    config = {"model_type": "bert", "hidden_act": "gelu", **BERT_SIZES}
    (folder / "config.json").write_text(json.dumps(config))


def edit_config(folder, **changes):
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))


def edit_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def weights(*modules):
    """Copies of all parameters by name."""
    return {
        (i, name): value.detach().clone()
        for i, module in enumerate(modules)
        if module is not None
        for name, value in module.named_parameters()
    }


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert torch.equal(value, expected[name]), name


def save(model, folder, **options):
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
        model.save_pretrained(folder, **options)


def config_of(sizes, family):
    """The configuration of transformers for an architecture of a family."""
    library = transformers()
    common = {"vocab_size": sizes.vocabulary, "tie_word_embeddings": sizes.tied_head}
    if family == "gpt2":
        return library.GPT2Config(
            n_layer=sizes.blocks, n_embd=sizes.width, n_inner=sizes.feedforward, n_head=sizes.heads,
            n_positions=sizes.learned_positions, layer_norm_epsilon=sizes.norm_epsilon,
            bos_token_id=1, eos_token_id=1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **common,
        )  # fmt: skip
    common |= {
        "num_hidden_layers": sizes.blocks, "hidden_size": sizes.width, "intermediate_size": sizes.feedforward,
        "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.kv_heads or sizes.heads,
        "rms_norm_eps": sizes.norm_epsilon, "max_position_embeddings": 4 * sizes.sequence_length,
        "bos_token_id": 1, "eos_token_id": 1,
    }  # fmt: skip
    rope = {"rope_theta": sizes.rope_theta, "rope_type": "default"}
    if family == "llama3":
        rope |= {
            "rope_type": "llama3", "factor": sizes.rope_factor, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": sizes.rope_original_length,
        }  # fmt: skip
    kind = library.Qwen2Config if family == "qwen2" else library.LlamaConfig
    return kind(rope_parameters=rope, **common)


def enlarged(build):
    """A model of transformers with weights large enough for every part to matter."""
    with torch.random.fork_rng([]):
        torch.manual_seed(11)
        made = build().eval()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    return made


def random_bert(kind="BertModel", attention="eager"):
    library = transformers()
    config = library.BertConfig(**BERT_SIZES, attn_implementation=attention)
    return enlarged(lambda: getattr(library, kind)(config))


def random_language_model(sizes, family, attention="eager"):
    kind = {"gpt2": "GPT2LMHeadModel", "qwen2": "Qwen2ForCausalLM"}.get(family, "LlamaForCausalLM")
    config = config_of(sizes, family)
    config._attn_implementation = attention
    return enlarged(lambda: getattr(transformers(), kind)(config))


def of_transformers(theirs, sizes):
    """Our model and head with the weights of a model of transformers."""
    with tempfile.TemporaryDirectory() as folder:
        save(theirs, folder)
        return loaded(sizes, folder)


def refusal(folder, message, family="bert", **changes):
    """Load into a model, which has to be refused, and return what the error says."""
    made = model_and_head(architecture(family, **changes))
    before = weights(*made)
    with pytest.raises(CheckpointError, match=message) as error:
        load_into(made[0], folder, made[1])
    assert_same(weights(*made), before)
    assert len(str(error.value)) < 2000
    return str(error.value)


@torch.no_grad()
def logits(made, tokens):
    """Those of real tokens."""
    real = tokens != 0
    if isinstance(made, tuple):
        model, head = made
        return head(model(tokens), real)[real]
    return made(input_ids=tokens, attention_mask=real.long()).logits[real]


def from_transformers(folder):
    return transformers().AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

"""Published Transformers as workloads, by name; free of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from collapipe_env.ground.errors import ScenarioError, nearest_name, shown
from collapipe_env.scenario.style_fields import OWNERS
from collapipe_env.scenario.workload_section import WorkloadSpec

SEQUENCE_LENGTH = 128
"""Tokens per sample of every model here. It is not part of a published size: this is the length of most of
BERT's pre-training (Devlin et al., 2019, appendix A.2), and few single sentences are longer."""

_BERT: dict[str, object] = {
    "style": "bert",
    "vocabulary": 30_522,
    "learned_positions": 512,
    "token_types": 2,
}

_LANGUAGE_MODEL: dict[str, object] = {"tied_head": True, "decoder_blocks": 0}

MODELS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        # Vaswani et al., 2017 (arXiv 1706.03762), table 3 and section 5.1: encoder and decoder of 6 blocks
        # each, one vocabulary for both languages. The embedding tables of the two sides are separate here,
        # as they sit on different machines.
        "transformer-base": {
            "task": "translation",
            "style": "transformer",
            "blocks": 6,
            "width": 512,
            "feedforward": 2048,
            "heads": 8,
            "vocabulary": 37_000,
            "decoder_blocks": 6,
            "outputs": 37_000,
        },
        # Turc et al., 2019 (arXiv 1908.08962), table 1.
        "bert-small": {**_BERT, "blocks": 4, "width": 512, "feedforward": 2048, "heads": 8},
        # Devlin et al., 2019 (arXiv 1810.04805), section 3; the vocabulary is the uncased one.
        "bert-base": {**_BERT, "blocks": 12, "width": 768, "feedforward": 3072, "heads": 12},
        # Radford et al., 2019, table 2, first row; config.json of openai-community/gpt2.
        "gpt2-small": {
            **_LANGUAGE_MODEL,
            "style": "gpt2",
            "blocks": 12,
            "width": 768,
            "feedforward": 3072,
            "heads": 12,
            "vocabulary": 50_257,
            "outputs": 50_257,
            "learned_positions": 1024,
        },
        # Yang et al., 2024 (arXiv 2412.15115), table 1; config.json of Qwen/Qwen2.5-0.5B.
        "qwen2.5-0.5b": {
            **_LANGUAGE_MODEL,
            "style": "llama",
            "blocks": 24,
            "width": 896,
            "feedforward": 4864,
            "heads": 14,
            "kv_heads": 2,
            "qkv_bias": True,
            "rope_theta": 1e6,
            "norm_epsilon": 1e-6,
            "vocabulary": 151_936,
            "outputs": 151_936,
        },
        # Meta, 2024, model card of Llama 3.2; config.json of meta-llama/Llama-3.2-1B.
        "llama-3.2-1b": {
            **_LANGUAGE_MODEL,
            "style": "llama",
            "blocks": 16,
            "width": 2048,
            "feedforward": 8192,
            "heads": 32,
            "kv_heads": 8,
            "rope_theta": 500_000.0,
            "rope_factor": 32.0,
            "vocabulary": 128_256,
            "outputs": 128_256,
        },
    }
)
"""Workload fields of each model, at its published size, without those of other styles."""


def model_fields(name: str) -> dict[str, object]:
    """Return the workload fields that a model's name implies.

    Returns:
        A new dictionary of fields of :class:`~collapipe_env.scenario.sections.WorkloadSpec`; fields that are
        not part of a model's size, such as ``batch_size``, are not in it.

    Raises:
        ScenarioError: If there is no such model; the message names the nearest.
    """
    if not isinstance(name, str) or name not in MODELS:  # a file may hold anything
        raise ScenarioError(f"unknown model {shown(name)}; {nearest_name(name, MODELS)}")
    neutral = {name: getattr(WorkloadSpec, name) for name in OWNERS}
    return {**neutral, "sequence_length": SEQUENCE_LENGTH, **MODELS[name]}

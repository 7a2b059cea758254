"""Published Transformers as workloads, by name; free of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from collapipe_env.ground.errors import ScenarioError, nearest_name, shown
from collapipe_env.models.style_fields import OWNERS
from collapipe_env.scenario.workload_section import WorkloadSpec

SEQUENCE_LENGTH = 128
"""Tokens per sample of every model here. It is not part of a published size: this is the length of most of
BERT's pre-training (Devlin et al., 2019, appendix A.2), and few single sentences are longer."""


SIZES = ("blocks", "width", "feedforward", "heads", "vocabulary")


def _model(style: str, sizes: Sequence[int], **more: object) -> Mapping[str, object]:
    """Workload fields of a model, from its style and :data:`SIZES`."""
    return {"style": style, **dict(zip(SIZES, sizes, strict=True)), **more}


def _language_model(style: str, sizes: Sequence[int], **more: object) -> Mapping[str, object]:
    """Workload fields of a language model, whose embedding is its head."""
    return _model(style, sizes, outputs=sizes[-1], tied_head=True, decoder_blocks=0, **more)


_BERT = {"learned_positions": 512, "token_types": 2}
MODELS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        # Vaswani et al., 2017 (arXiv 1706.03762), table 3 and section 5.1: encoder and decoder of 6 blocks
        # each, one vocabulary for both languages. The embedding tables of the two sides are separate here,
        # as they sit on different machines.
        "transformer-base": _model(
            "transformer", (6, 512, 2048, 8, 37_000), task="translation", decoder_blocks=6, outputs=37_000
        ),
        # Turc et al., 2019 (arXiv 1908.08962), table 1.
        "bert-small": _model("bert", (4, 512, 2048, 8, 30_522), **_BERT),
        # Devlin et al., 2019 (arXiv 1810.04805), section 3; the vocabulary is the uncased one.
        "bert-base": _model("bert", (12, 768, 3072, 12, 30_522), **_BERT),
        # Radford et al., 2019, table 2, first row; config.json of openai-community/gpt2.
        "gpt2-small": _language_model("gpt2", (12, 768, 3072, 12, 50_257), learned_positions=1024),
        # Yang et al., 2024 (arXiv 2412.15115), table 1; config.json of Qwen/Qwen2.5-0.5B.
        "qwen2.5-0.5b": _language_model(
            "llama",
            (24, 896, 4864, 14, 151_936),
            kv_heads=2,
            qkv_bias=True,
            rope_theta=1e6,
            norm_epsilon=1e-6,
        ),
        # Meta, 2024, model card of Llama 3.2; config.json of meta-llama/Llama-3.2-1B.
        "llama-3.2-1b": _language_model(
            "llama", (16, 2048, 8192, 32, 128_256), kv_heads=8, rope_theta=500_000.0, rope_factor=32.0
        ),
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

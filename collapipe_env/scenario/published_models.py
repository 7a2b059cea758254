"""Published Transformers as workloads, by name; free of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from collapipe_env.errors import ScenarioError, nearest_name, shown

SEQUENCE_LENGTH = 128
"""Tokens per sample of every model here. It is no part of a published size: this is the length of most of
BERT's pre-training (Devlin et al., 2019, appendix A.2), and few single sentences are longer."""

_BERT: dict[str, object] = {
    "style": "bert",
    "vocabulary": 30_522,
    "learned_positions": 512,
    "token_types": 2,
    "sequence_length": SEQUENCE_LENGTH,
}

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
            "learned_positions": 0,
            "token_types": 0,
            "decoder_blocks": 6,
            "outputs": 37_000,
            "sequence_length": SEQUENCE_LENGTH,
        },
        # Turc et al., 2019 (arXiv 1908.08962), table 1.
        "bert-small": {**_BERT, "blocks": 4, "width": 512, "feedforward": 2048, "heads": 8},
        # Devlin et al., 2019 (arXiv 1810.04805), section 3; the vocabulary is the uncased one.
        "bert-base": {**_BERT, "blocks": 12, "width": 768, "feedforward": 3072, "heads": 12},
    }
)
"""Workload fields of each model, at its published size."""


def model_fields(name: str) -> dict[str, object]:
    """Return the workload fields that a model's name stands for.

    Args:
        name: One of :data:`MODELS`.

    Returns:
        A new dictionary of fields of :class:`~collapipe_env.scenario.sections.WorkloadSpec`; fields that are
        not part of a model's size, such as ``batch_size``, are not in it.

    Raises:
        ScenarioError: If there is no such model; names the nearest.
    """
    if not isinstance(name, str) or name not in MODELS:  # a file may hold anything
        raise ScenarioError(f"unknown model {shown(name)}; {nearest_name(name, MODELS)}")
    return dict(MODELS[name])

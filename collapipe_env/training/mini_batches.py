"""Mini-batches of a cluster: the next samples of its stream, some of their tokens hidden."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.models.tokenization import PADDING
from collapipe_env.training.cluster_samples import ClusterSamples
from collapipe_env.training.sample_stream import SampleStream
from collapipe_env.training.training_setup import TrainingSetup


class MiniBatch(NamedTuple):
    """Mini-batch of a local step.

    Attributes:
        tokens: Token ids (B, q), some hidden.
        targets: Targets (B, ...).
        units: Number of predictions in each sample (B,).
    """

    tokens: Tensor
    targets: Tensor
    units: FloatArray


def next_batch(setup: TrainingSetup, samples: ClusterSamples, stream: SampleStream) -> MiniBatch:
    """Return a cluster's next mini-batch.

    Args:
        stream: Order of the cluster's samples.
    """
    tokens, targets = samples.tokens, samples.targets
    indices = stream.take(setup.batch_size)
    chosen = torch.from_numpy(indices).to(tokens.device)
    tokens, targets = tokens[chosen], targets[chosen]
    hidden = torch.from_numpy(stream.hide(tuple(tokens.shape), setup.learning.token_dropout))
    tokens = tokens.masked_fill(hidden.to(tokens.device) & (tokens != PADDING), setup.hidden)
    return MiniBatch(tokens, targets, samples.units[indices])

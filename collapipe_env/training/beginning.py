"""Beginning of a training run: each cluster's samples, and the parameters that all clusters start from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.hf_checkpoint import load_into
from collapipe_env.models.lora import add_adapters
from collapipe_env.tasks.partition import partition
from collapipe_env.training.cluster_samples import ClusterSamples, SampleStream
from collapipe_env.training.tied_head import share_table
from collapipe_env.training.training_setup import TrainingSetup


class Beginning(NamedTuple):
    """State of a training run before its first round; ``noise_rng`` is for later draws."""

    samples: ClusterSamples
    streams: list[SampleStream]
    model: ClusterModel
    head: nn.Module
    noise_rng: np.random.Generator


def begin_training(setup: TrainingSetup, rng: np.random.Generator) -> Beginning:
    """Spread the data and initialise the parameters; child generators of ``rng`` draw everything."""
    learning, device = setup.learning, setup.train[0].device
    partition_rng, model_rng, *stream_rngs, noise_rng = rng.spawn(3 + setup.clusters)
    parts = partition(
        learning.partition,
        setup.strata,
        setup.lengths,
        setup.clusters,
        learning.dirichlet_alpha,
        partition_rng,
    )
    samples = ClusterSamples.of(setup, parts)
    streams = [SampleStream(part, child) for part, child in zip(samples.parts, stream_rngs, strict=True)]
    generator = torch.Generator().manual_seed(int(model_rng.integers(2**63)))
    model = ClusterModel(setup.architecture, generator)
    head = setup.task.build_head(setup.task_spec, generator)
    if setup.task_spec.checkpoint is not None:
        load_into(model, setup.task_spec.checkpoint, head)
    wire = setup.update_format
    if wire.compression == "lora":
        add_adapters(model, wire.lora_rank, wire.lora_alpha, generator)
    if setup.memory.train_bits == 16:
        model = model.bfloat16()
    share_table(model, head)
    return Beginning(samples, streams, model.to(device), head.to(device), noise_rng)

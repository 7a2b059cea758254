"""Merged step, a shortcut for plain SGD: N clusters' local steps and their average as one step of one model.

From a common model ``w``, one local step of cluster n without momentum makes ``w_n = w - eta g_n`` with the
cluster's mean gradient ``g_n``, and the round ends with ``sum_n p_n w_n = w - eta sum_n p_n g_n``. Gradients
at the same ``w`` are sums over samples, so all clusters' batches can go through one model in joint passes,
each sample with the weight that it has in ``sum_n p_n g_n``. That saves N - 1 optimiser steps and allows
larger passes: small passes leave hardware idle, GPUs above all.

The head weights samples differently: its gradient is the mean over all arrivals. So the loss carries the
head's weights, and at the boundary between encoder and server each sample's gradient is multiplied by the
ratio of its two weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.tokenization import PADDING
from collapipe_env.physics.allocation import COMMON
from collapipe_env.training.cluster_samples import MiniBatch
from collapipe_env.training.compute_device import full_precision, mixed_precision
from collapipe_env.training.outcome_checks import TrainedRound
from collapipe_env.training.pipeline_step import LossFunction
from collapipe_env.training.training_setup import TrainingSetup

CACHED_SAMPLES = 64
"""Samples whose activations stay in a core's cache, for small models."""


def can_merge(setup: TrainingSetup, plan: TrainedRound) -> bool:
    """Whether :func:`merged_step` may compute a round, that is, whether the round is linear in the gradients.

    FedProx is no obstacle, as its pull is zero in the first local step; nor is an asynchronous pipeline, as
    no stage lags behind in that step; nor is the server's aggregation, which sees only the mean. Obstacles
    are optimisers other than SGD without momentum; clipping, which depends on each cluster's norm; more local
    steps than one, or none in some cluster; a server that steps between batches and so changes the gradients;
    updates that are rounded cluster by cluster, as these do not add up to one step; dropout, as joint passes
    would draw other masks; and recomputation, as joint passes store activations.
    """
    learning = setup.learning
    return (
        learning.optimizer == "sgd"
        and not learning.momentum
        and not learning.gradient_clip
        and bool((plan.local_steps == 1).all())
        and int(plan.server_mode) == COMMON
        and setup.update_format.lossless
        and not setup.architecture.dropout
        and not plan.recompute.any()
    )


def joint_pass_size(samples_per_pass: int, clusters: int, device: torch.device) -> int:
    """Return the samples of a joint pass, between ``samples_per_pass`` and N times as many.

    Args:
        samples_per_pass: Most samples that one cluster's pass takes.
        clusters: N.
        device: A GPU takes all it may. On a CPU, larger passes are faster up to :data:`CACHED_SAMPLES`.
    """
    most = samples_per_pass * clusters
    return most if device.type != "cpu" else max(samples_per_pass, min(most, CACHED_SAMPLES))


def merged_step(
    model: ClusterModel,
    head: nn.Module,
    loss: LossFunction,
    batches: Sequence[MiniBatch],
    survived: Sequence[Sequence[bool]],
    data_sizes: FloatArray,
    samples_per_pass: int,
    precision: str = "float32",
) -> tuple[FloatArray, Tensor]:
    """Accumulate ``sum_n p_n g_n`` in the model and the mean gradient over all arrivals in the head.

    Args:
        model: The common model. Gradients are added to the ``grad`` of its parameters and the head's.
        loss: Mean loss of (outputs, targets).
        survived: True for each cluster's micro-batches whose gradients arrive; at most B entries.
        data_sizes: Weights of the clusters in the average, above 0, shape (N,); clusters without arrivals are
            left out, and the other weights are scaled to sum to 1.
        samples_per_pass: Most samples in a pass, at least 1.
        precision: Precision of forward passes; see :class:`~collapipe_env.training.pipeline_step.CutModel`.

    Returns:
        Number of predictions that arrived from each cluster, shape (N,), and their mean loss, a detached
        scalar; 0 if there are none.
    """
    arrived = [_arrived(batch.units, kept) for batch, kept in zip(batches, survived, strict=True)]
    units = np.array([batch.units[kept].sum() for batch, kept in zip(batches, arrived, strict=True)])
    updated = units > 0
    total = float(units.sum())
    mean_loss = torch.zeros((), device=batches[0].tokens.device)
    if not total:
        return units, mean_loss
    weights = data_sizes * updated / (data_sizes * updated).sum()
    # A unit weighs p_n / u_n in the encoder's gradient and 1 / u in the head's.
    ratios = np.divide(weights * total, units, out=np.zeros_like(units), where=updated)
    chosen = [torch.from_numpy(kept).to(mean_loss.device) for kept in arrived]
    tokens = torch.cat([batch.tokens[kept] for batch, kept in zip(batches, chosen, strict=True)])
    targets = torch.cat([batch.targets[kept] for batch, kept in zip(batches, chosen, strict=True)])
    counts = np.concatenate([batch.units[kept] for batch, kept in zip(batches, arrived, strict=True)])
    ratio = torch.from_numpy(np.repeat(ratios, [len(kept) for kept in arrived])).to(model.embedding.weight)
    for start in range(0, len(tokens), samples_per_pass):
        part = slice(start, start + samples_per_pass)
        share = float(counts[part].sum()) / total
        with mixed_precision(precision, tokens.device):
            hidden = model(tokens[part])
            boundary = hidden.detach().requires_grad_()
            outputs = full_precision(head(boundary, tokens[part] != PADDING, targets[part]))
        loss_of_part = loss(outputs, targets[part])
        torch.autograd.backward(loss_of_part * share)
        torch.autograd.backward(hidden, boundary.grad * ratio[part, None, None])
        mean_loss += loss_of_part.detach() * share
    return units, mean_loss


def _arrived(units: FloatArray, survived: Sequence[bool]) -> IntArray:
    """Return the indices of the samples that arrive and contain any predictions."""
    sizes = [len(part) for part in np.array_split(units, len(survived))]
    return np.flatnonzero(np.repeat(survived, sizes) & (units > 0))

"""One local step of one cluster, executed as its devices would: segment by segment, in micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.models.cluster_model import ClusterModel, additive_mask
from collapipe_env.models.tokenization import PADDING
from collapipe_env.training.compute_device import full_precision, mixed_precision

LossFunction = Callable[[Tensor, Tensor], Tensor]


class CutModel:
    """A model cut over hosts: the control unit with the embedding, the stages, and the server.

    Host 0 is the control unit, hosts 1 to S are the stages and host S + 1 is the server, which runs the last
    encoder blocks (if any were given to it), the head and the loss.

    Attributes:
        hosts: Number of hosts, S + 2.
        dtype: Type of the model's weights and activations. The head computes in single precision.
    """

    def __init__(
        self,
        model: ClusterModel,
        head: nn.Module,
        loss: LossFunction,
        blocks: Sequence[int],
        server_blocks: Sequence[nn.Module] = (),
        precision: str = "float32",
        *,
        recompute: bool = False,
    ) -> None:
        """Cut a model.

        Args:
            loss: Mean loss of (outputs, targets).
            blocks: Blocks of each stage slot, summing to L less the server's; slots with 0 are skipped.
            server_blocks: The blocks that the server runs in place of the model's last ones.
            precision: ``"bfloat16"`` runs the forward passes in mixed precision; see
                :func:`~collapipe_env.training.compute_device.mixed_precision`. The loss is computed in
                float32.
            recompute: Stages keep only the input of each block, and run the block forward again in its
                backward pass; the server keeps all activations.
        """
        self.loss = loss
        self._precision, self._recompute = precision, recompute
        self._draws = model.architecture.dropout > 0.0
        self.dtype = model.embedding.weight.dtype
        self._embedding, self._head = model.embedding, head
        self._segments = [*model.segments([size for size in blocks if size]), server_blocks]
        self.hosts = len(self._segments) + 1

    def run(self, host: int, x: Tensor, tokens: Tensor, attention_mask: Tensor, targets: Tensor) -> Tensor:
        """Compute one host's part of the forward pass.

        Args:
            x: Activations from the host before, shape (samples, q, d); host 0 does not read them.
            tokens: Token ids, shape (samples, q).
            attention_mask: Their :func:`~collapipe_env.models.cluster_model.additive_mask`.
            targets: Targets, for a decoder under teacher forcing.

        Returns:
            Activations (samples, q, d), or the head's outputs.
        """
        with mixed_precision(self._precision, tokens.device):
            if host == 0:
                embedded: Tensor = self._embedding(tokens)
                return embedded
            last = host == self.hosts - 1
            x = run_blocks(
                self._segments[host - 1],
                x,
                attention_mask,
                recompute=self._recompute and not last,
                draws=self._draws,
            )
            if not last:
                return x
            return full_precision(self._head(full_precision(x), tokens != PADDING, targets))


def run_blocks(
    blocks: Iterable[nn.Module], x: Tensor, attention_mask: Tensor, *, recompute: bool, draws: bool
) -> Tensor:
    """Compute blocks one after another.

    Args:
        x: Activations, shape (samples, q, d).
        attention_mask: The samples' :func:`~collapipe_env.models.cluster_model.additive_mask`.
        recompute: Keep only the input of each block, and run the block forward again in its backward pass.
        draws: Whether blocks draw random numbers, which recomputation must repeat.
    """
    for block in blocks:
        if recompute:
            x = checkpoint(block, x, attention_mask, use_reentrant=False, preserve_rng_state=draws)
        else:
            x = block(x, attention_mask)
    return x


def through_hosts(cut: CutModel, tokens: Tensor, targets: Tensor, weight: float) -> Tensor:
    """Run samples forward through all hosts and back; return the mean loss over their predictions, detached.

    A host's input is cut off from the graph of the host before, so the gradient crosses a boundary only where
    it is handed over. ``weight`` times the gradient of the loss is added to the ``grad`` of the parameters.
    """
    attention_mask, x = additive_mask(tokens).to(cut.dtype), tokens
    crossed: list[tuple[Tensor, Tensor]] = []  # as it was sent, and as it was received
    for host in range(cut.hosts):
        if host:
            crossed.append((x, x.detach().requires_grad_()))
            x = crossed[-1][1]
        x = cut.run(host, x, tokens, attention_mask, targets)
    loss = cut.loss(x, targets)
    torch.autograd.backward(loss * weight)
    for sent, received in reversed(crossed):
        if sent.requires_grad:  # a frozen embedding needs no gradient
            torch.autograd.backward(sent, received.grad)
    return loss.detach()


def pipeline_step(
    cut: CutModel,
    tokens: Tensor,
    targets: Tensor,
    units: FloatArray,
    survived: Sequence[bool],
    samples_per_pass: int = 1,
) -> tuple[float, Tensor]:
    """Accumulate the gradients of one mini-batch, micro-batch after micro-batch.

    The mini-batch is cut into as many micro-batches as ``survived`` has entries, their sizes differing by
    one at most. A micro-batch that does not arrive gives no gradient and is not computed. Each one that does
    is weighted by its share of the *arriving* units (samples, tagged words, target tokens: whatever the loss
    is a mean of), so the accumulated gradient is that of the mean loss over the arrivals: an unbiased
    estimate of the full gradient for any number of arrivals (shares of the whole mini-batch would shrink it).

    Every schedule of the devices (GPipe, 1F1B, interleaved chunks, ZB-H1), and data parallelism inside a
    stage, sums the same terms. Here each micro-batch runs backward right after its forward pass, so only one
    micro-batch's activations exist at a time, still in the cache. Like GPipe it adds the micro-batches up in
    their order.

    Args:
        cut: The cluster's replica and its server. Gradients are added to the ``grad`` of their parameters.
        tokens: Token ids of the mini-batch, shape (B, q).
        targets: Its targets, shape (B, ...).
        units: Number of predictions in each sample, shape (B,).
        survived: True for micro-batches whose gradients arrive; at most B entries.
        samples_per_pass: Surviving micro-batches in a row are computed in one pass as long as together they
            have at most that many samples. The accumulated gradient is the same sum, and passes over very
            few samples cost as much time as larger ones. 1 computes every micro-batch on its own.

    Returns:
        Number of predictions in the surviving micro-batches, and their mean loss, a detached scalar; 0 and 0
        if none survived.
    """
    passes = joint_passes(survived, units, samples_per_pass)
    arrived = [float(sum(units[part].sum() for part in parts)) for parts in passes]
    total = sum(arrived)
    mean_loss = torch.zeros((), device=tokens.device)
    for parts, own in zip(passes, arrived, strict=True):
        share = own / total
        read, asked = (torch.cat([whole[part] for part in parts]) for whole in (tokens, targets))
        mean_loss += through_hosts(cut, read, asked, share) * share
    return total, mean_loss


def joint_passes(survived: Sequence[bool], units: FloatArray, most: int) -> list[list[slice]]:
    """Return the micro-batches of a mini-batch that arrive and contain any predictions, pass by pass.

    Neighbours share a pass while together they have at most ``most`` samples.
    """
    passes: list[list[slice]] = []
    held = stop = 0
    for arrives, part in zip(survived, np.array_split(units, len(survived)), strict=True):
        start, stop = stop, stop + len(part)
        if not arrives or not part.any():
            continue
        if not passes or held + len(part) > most:
            passes.append([])
            held = 0
        passes[-1].append(slice(start, stop))
        held += len(part)
    return passes

"""Stale weights, with which stages of an asynchronous pipeline compute (XPipe, PipeDream)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from collapipe_env.training.compact_adam import CompactAdamW
from collapipe_env.training.flat_parameters import Trained


class WeightVersions:
    """The recent versions of one cluster's weights, from which stages that lag behind take theirs.

    In an asynchronous pipeline the H mini-batches of a round overlap, so a stage meets mini-batch ``g``
    (0-based) before the gradients of the last few have been applied to it. With a version gap of ``s`` it
    computes mini-batch ``g``, forward and backward, from version ``max(g - s, 0)``, where version ``g`` holds
    the weights after all mini-batches before ``g``; the gradient is applied to the true weights. With
    prediction the version is first carried on by ``min(s, g)`` steps of the optimiser's own rule: AdamW
    ``w - min(s, g) lr m_hat / (sqrt(v_hat) + eps)`` with PyTorch's bias correction, SGD
    ``w - min(s, g) lr (last gradient applied)``, and SGD with momentum ``w - min(s, g) lr (velocity)``. The
    learning rate is that of the local step that made the version, and of the round's first for version 0.

    Only the idea of XPipe is public: mini-batches overlap, and weights predicted by the optimiser's rule
    compensate for staleness. Reconstructed [R] are the gap per stage, the rule above, the use of the same
    weights in the forward and backward passes of a mini-batch (its micro-batches share one prediction), and
    these choices:

    * Decoupled weight decay is left out of the prediction, as the rule has none.
    * A mini-batch without arrivals makes no step, so its version equals the one before. A device cannot know
      that in advance, so it still predicts ``min(s, g)`` steps.
    * A round ends with a flush, so version 0 is the common model and no gap reaches back into an earlier
      round. AdamW's moments and SGD's velocity live on over rounds, so predictions also start from version 0;
      SGD without momentum has no gradient to use before the round's first step, so there version 0 itself is
      used.

    Versions are kept as long as some gap reaches back to them, each as its weights and one step.
    """

    def __init__(
        self,
        replica: Trained[Any],
        gaps: Sequence[tuple[Sequence[slice], int]],
        *,
        predict: bool,
    ) -> None:
        """Begin a round with version 0.

        Args:
            gaps: Places in the flat vector and their version gap s >= 0; places may be left out.
            predict: Predict weights instead of using stale ones.
        """
        self._replica, self._gaps, self._predict = replica, gaps, predict
        self._mini_batch = 0
        # Weights, and the optimiser's next step from them, if it can be predicted.
        self._versions: deque[tuple[Tensor, Tensor | None]] = deque(
            maxlen=1 + max((gap for _, gap in gaps), default=0)
        )
        self._append(applied=False)

    def fill(self, values: Tensor) -> None:
        """Write the weights for the next mini-batch into a flat vector (P,), at the places with a gap."""
        for places, gap in self._gaps:
            lag = min(gap, self._mini_batch)
            weights, step = self._versions[-1 - lag]
            for place in places:
                if lag and step is not None:
                    torch.sub(weights[place], step[place], alpha=lag, out=values[place])
                else:
                    values[place].copy_(weights[place])

    def record(self, updated: bool) -> None:
        """Keep the version after a mini-batch; if the optimiser stepped, its gradients are still there."""
        self._mini_batch += 1
        if updated:
            self._append(applied=True)
        else:
            self._versions.append(self._versions[-1])

    def _append(self, *, applied: bool) -> None:
        step = next_step(self._replica.optimizer, applied=applied) if self._predict else None
        self._versions.append((self._replica.flat.values.detach().clone(), step))


@torch.no_grad()
def next_step(optimizer: torch.optim.Optimizer, *, applied: bool) -> Tensor | None:
    """Return the optimiser's next step, to be subtracted from the weights, for an unchanged gradient.

    Args:
        optimizer: AdamW or SGD; its parameters one after another are the flat vector.
        applied: Whether the present gradients are those of its last step; SGD without momentum can use no
            others.

    Returns:
        The step without weight decay, shape (P,); None if the optimiser has seen no gradient yet.
    """
    parts, known = [], False
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if not state and (isinstance(optimizer, torch.optim.AdamW) or group["momentum"]):
                parts.append(torch.zeros_like(parameter))  # a part that has not stepped yet
                continue
            known = True
            if isinstance(optimizer, torch.optim.AdamW):
                count, (beta1, beta2) = float(state["step"]), group["betas"]
                mean, square = state["exp_avg"], state["exp_avg_sq"]
                if isinstance(optimizer, CompactAdamW):
                    mean, square = optimizer.moments(parameter)
                mean = mean / (1 - beta1**count)
                deviation = square.sqrt() / (1 - beta2**count) ** 0.5
                parts.append(group["lr"] * mean / (deviation + group["eps"]))
            elif group["momentum"]:
                parts.append(group["lr"] * state["momentum_buffer"])
            elif applied:
                parts.append(group["lr"] * parameter.grad)
            else:
                return None
    return torch.cat(parts) if known else None

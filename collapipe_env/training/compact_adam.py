"""AdamW with weights in bfloat16 or moments in eight bits, as ``train_bits`` and ``moment_bits`` price it.

There is no second copy of the weights in single precision. A step is computed in single precision and rounded
up or down at random such that the expectation is the exact result (stochastic rounding: Zamirai et al., 2020,
arXiv 2010.06192). Rounding to the nearest bfloat16, which has 8 significant bits, would lose most steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Generator, Tensor

from collapipe_env.physics.training_memory import MOMENTS_TOGETHER
from collapipe_env.training.eight_bit_moments import decode, encode, scale_count

NUMBERS_AT_ONCE = 1024 * MOMENTS_TOGETHER
"""Parameters that step at once; few enough that little memory is ever in single precision."""
MOMENTS = {"exp_avg": torch.int8, "exp_avg_sq": torch.uint8}
"""First and second moments, and the type of their codes in eight bits."""
_LOST_BITS = 16
"""Bits by which bfloat16 is shorter than single precision."""


def rounded_like(values: Tensor, like: Tensor, generator: Generator | None) -> Tensor:
    """Return float32 numbers in another tensor's type, stochastically rounded if that is bfloat16."""
    if like.dtype != torch.bfloat16:
        return values
    noise = torch.randint(
        1 << _LOST_BITS, values.shape, generator=generator, device=values.device, dtype=torch.int32
    )
    bits = (values.contiguous().view(torch.int32) + noise) & -(1 << _LOST_BITS)
    return torch.where(values.isfinite(), bits.view(torch.float32), values).to(torch.bfloat16)


class CompactAdamW(torch.optim.AdamW):
    """PyTorch's AdamW for parameters that are flat vectors, with less memory.

    ``state`` holds ``step``, ``exp_avg`` and ``exp_avg_sq`` of each parameter, the last two in float32 or as
    eight-bit codes beside ``exp_avg_scale`` and ``exp_avg_sq_scale``. Moments enter a step before they are
    rounded.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        learning_rate: float,
        betas: tuple[float, float],
        moment_bits: int,
        generator: Generator,
    ) -> None:
        """Begin without moments, with groups of one flat parameter each, and moments in 32 or 8 bits."""
        super().__init__(groups, lr=learning_rate, betas=betas)
        self._eight_bits, self._generator = moment_bits == 8, generator

    def memory_like(self, parameter: Tensor) -> dict[str, Tensor]:
        """Return the memory of a parameter, shape (P,), before its first step."""
        device, size = parameter.device, parameter.numel()
        found = {"step": torch.zeros(())}
        for name, kind in MOMENTS.items():
            found[name] = torch.zeros(size, dtype=kind if self._eight_bits else None, device=device)
            if self._eight_bits:
                found[f"{name}_scale"] = torch.zeros(scale_count(size), device=device)
        return found

    def moments(self, parameter: Tensor, start: int = 0, stop: int | None = None) -> tuple[Tensor, Tensor]:
        """Return a part of a parameter's moments, float32.

        Args:
            parameter: A parameter that has stepped.
            start: First number, a multiple of 256.
            stop: Number after the last one; None for all.
        """
        state = self.state[parameter]
        mean, square = (state[name][start:stop] for name in MOMENTS)
        if not self._eight_bits:
            return mean, square
        scales = slice(start // MOMENTS_TOGETHER, None if stop is None else scale_count(stop))
        return (
            decode(mean, state["exp_avg_scale"][scales]),
            decode(square, state["exp_avg_sq_scale"][scales]),
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Take a step with the present gradients; closures are not supported."""
        assert closure is None
        for group in self.param_groups:
            (parameter,) = group["params"]
            if parameter not in self.state:
                self.state[parameter] = self.memory_like(parameter)
            self.state[parameter]["step"] += 1
            for start in range(0, parameter.numel(), NUMBERS_AT_ONCE):
                self._step_part(group, parameter, start, min(start + NUMBERS_AT_ONCE, parameter.numel()))

    def _step_part(self, group: dict[str, Any], parameter: Tensor, start: int, stop: int) -> None:
        assert parameter.grad is not None
        values, gradient = parameter[start:stop], parameter.grad[start:stop].float()
        (beta1, beta2), count = group["betas"], float(self.state[parameter]["step"])
        mean, square = self.moments(parameter, start, stop)
        mean = mean.lerp_(gradient, 1.0 - beta1)
        square = square.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        deviation = (square.sqrt() / (1.0 - beta2**count) ** 0.5).add_(group["eps"])
        moved = values.float() * (1.0 - group["lr"] * group["weight_decay"])
        moved.addcdiv_(mean, deviation, value=-group["lr"] / (1.0 - beta1**count))
        values.copy_(rounded_like(moved, values, self._generator))
        if not self._eight_bits:
            return
        state, scales = self.state[parameter], slice(start // MOMENTS_TOGETHER, scale_count(stop))
        for name, values in zip(MOMENTS, (mean, square), strict=True):
            codes, largest = encode(values, MOMENTS[name], self._generator)
            state[name][start:stop], state[f"{name}_scale"][scales] = codes, largest

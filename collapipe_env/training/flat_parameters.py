"""A module's parameters as one contiguous vector, and the optimiser that steps them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from collapipe_env.training.compact_adam import CompactAdamW

M = TypeVar("M", bound=nn.Module)


class OptimizerTerms(Protocol):
    """Terms of an optimiser, such as the section ``learning`` of a scenario."""

    @property
    def optimizer(self) -> str:
        """Kind, ``adamw`` or ``sgd``."""
        ...

    @property
    def momentum(self) -> float:
        """Momentum of SGD."""
        ...

    @property
    def weight_decay(self) -> float:
        """Weight decay of matrices."""
        ...


class FlatParameters:
    """One contiguous vector of a module's trained parameters, and one of their gradients.

    The module's parameters become views, so that an optimiser step, an average over clusters or a reset of
    the gradients is one operation on a vector instead of one on each of hundreds of small tensors. Matrices
    come first, vectors (biases, norms) after them: only the former are decayed. Parameters that are not
    trained (``requires_grad`` False, as under low-rank adapters) stay where they are.

    Attributes:
        values: The parameters, shape (P,).
        gradients: Their gradients, shape (P,).
        places: Place of each trained parameter of the module in the vectors.
    """

    def __init__(self, module: nn.Module, values: Tensor, gradients: Tensor) -> None:
        """Move the parameters into the vectors.

        Args:
            module: The module; the choice of its trained parameters must not change afterwards.
            values: Vector to hold them, shape (P,) with P the module's :func:`parameter_count`.
            gradients: Vector to hold their gradients, shape (P,).
        """
        self.values, self.gradients = values, gradients
        ordered = sorted(_trained(module), key=lambda parameter: parameter.ndim < 2)  # the sort is stable
        self._matrices = sum(parameter.numel() for parameter in ordered if parameter.ndim >= 2)
        self.places: dict[nn.Parameter, slice] = {}
        start = 0
        for parameter in ordered:
            place = self.places[parameter] = slice(start, start + parameter.numel())
            values[place].copy_(parameter.detach().view(-1))
            parameter.data = values[place].view(parameter.shape)
            parameter.grad = gradients[place].view(parameter.shape)
            start += parameter.numel()

    def slices(self, modules: Iterable[nn.Module]) -> list[slice]:
        """Return the places of parts of the module in the vectors, in ascending order, neighbours joined.

        Args:
            modules: Parts of the module, each at most once. Blocks in a row take two slices: all their
                matrices and all their vectors.
        """
        places = [self.places[parameter] for module in modules for parameter in _trained(module)]
        joined: list[slice] = []
        for place in sorted(places, key=lambda place: int(place.start)):
            if joined and joined[-1].stop == place.start:
                joined[-1] = slice(joined[-1].start, place.stop)
            else:
                joined.append(place)
        return joined

    def optimizer(
        self,
        learning: OptimizerTerms,
        learning_rate: float,
        apart: Sequence[nn.Module] = (),
        moment_bits: int = 32,
        rounding: torch.Generator | None = None,
    ) -> torch.optim.Optimizer:
        """Return a PyTorch optimiser of these parameters.

        Args:
            learning: Kind of optimiser, SGD's momentum, and the weight decay of matrices. AdamW applies it
                apart from its moments; SGD adds it to the gradient, so momentum accumulates it.
            apart: Parts of the module whose memory the optimiser keeps apart, so that each can be forgotten
                (:meth:`Trained.memories`).
            moment_bits: Bits of AdamW's moments, 32 or 8.
            rounding: Draws the rounding of parameters in bfloat16 and of moments in eight bits; required for
                either. Scenarios allow these with AdamW only.
        """
        cuts = {0, self._matrices, len(self.values)}
        for part in apart:
            for place in self.slices([part]):
                cuts |= {place.start, place.stop}
        edges, groups = sorted(cuts), []
        for start, stop in itertools.pairwise(edges):
            values = nn.Parameter(self.values[start:stop])
            values.grad = self.gradients[start:stop]
            decay = learning.weight_decay if start < self._matrices else 0.0
            groups.append({"params": [values], "weight_decay": decay})
        if learning.optimizer == "adamw":
            # The original Transformer's betas; with PyTorch's 0.999 the steps grow too long as gradients
            # sharpen.
            betas = (0.9, 0.98)
            if moment_bits != 32 or self.values.dtype == torch.bfloat16:
                assert rounding is not None
                return CompactAdamW(groups, learning_rate, betas, moment_bits, rounding)
            return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=True)
        return torch.optim.SGD(groups, lr=learning_rate, momentum=learning.momentum, fused=True)


class Trained(NamedTuple, Generic[M]):
    """A module with its flat vectors and its optimiser."""

    module: M
    flat: FlatParameters
    optimizer: torch.optim.Optimizer

    @classmethod
    def of(
        cls,
        module: M,
        learning: OptimizerTerms,
        learning_rate: float,
        rounding: torch.Generator | None = None,
    ) -> Trained[M]:
        """Lay a module's parameters out flat: they become views of one vector.

        Args:
            rounding: Draws the rounding of steps in bfloat16; None for modules in single precision.
        """
        values = torch.empty(parameter_count(module)).to(next(module.parameters()))
        flat = FlatParameters(module, values, torch.zeros_like(values))
        return cls(module, flat, flat.optimizer(learning, learning_rate, rounding=rounding))

    def memories(self, part: nn.Module) -> list[nn.Parameter]:
        """Return the optimiser's parameters that belong to a part of the module, one of those kept apart."""
        places, found, start = self.flat.slices([part]), [], 0
        for group in self.optimizer.param_groups:
            (parameter,) = group["params"]
            if any(place.start <= start < place.stop for place in places):
                found.append(parameter)
            start += parameter.numel()
        return found


def parameter_count(module: nn.Module) -> int:
    """Return how many numbers a module trains; frozen parameters do not count."""
    return sum(parameter.numel() for parameter in _trained(module))


def _trained(module: nn.Module) -> Iterable[nn.Parameter]:
    return (parameter for parameter in module.parameters() if parameter.requires_grad)

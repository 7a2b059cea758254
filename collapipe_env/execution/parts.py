"""Parts of a model that travel between roles: a block or an embedding, its weights and its moments.

A part lies in memory as the learner lays it out: all its matrices, then its vectors, in one vector. So its
own optimiser takes the same steps as the learner's, number by number, and a part's arrays fit into a
cluster's whole vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from collapipe_env.ground.errors import StateError
from collapipe_env.training.flat_parameters import FlatParameters, parameter_count

Arrays = dict[str, np.ndarray[Any, Any]]
"""Arrays of a part, by name."""
PartName = int | str
"""Number of a block, or :data:`EMBEDDING`."""
Parts = dict[PartName, Arrays]
"""Arrays of parts."""
EMBEDDING = "embedding"
"""Name of the embedding among the parts of a model."""

VALUES, STEP, FROZEN = "values", "step", "frozen/"
"""Names of arrays: trained weights, steps of the optimiser, and the prefix of frozen weights."""


def is_frozen(name: str) -> bool:
    """Whether an array of a part holds weights that are not trained."""
    return name.startswith(FROZEN)


def is_weight(name: str) -> bool:
    """Whether an array of a part holds weights, rather than an optimiser's memory."""
    return name == VALUES or is_frozen(name)


def without_frozen(arrays: Mapping[str, np.ndarray[Any, Any]]) -> Arrays:
    """Return the arrays of a part that are trained."""
    return {name: array for name, array in arrays.items() if not is_frozen(name)}


@dataclass(frozen=True)
class LocalTraining:
    """Terms on which the nodes of a cluster train, as plain data that needs no scenario.

    Attributes:
        optimizer: ``adamw`` or ``sgd``.
        learning_rate: Full step size.
        momentum: That of SGD.
        weight_decay: That of matrices.
        precision: Precision of forward passes.
        gradient_clip: Largest norm of a cluster's gradient, 0 for any.
        proximal: Weight of FedProx's pull, 0 for none.
    """

    optimizer: str
    learning_rate: float
    momentum: float
    weight_decay: float
    precision: str
    gradient_clip: float
    proximal: float


class Part:
    """A module with its weights in one vector and its own optimiser.

    Attributes:
        module: The module.
        flat: Its trained weights and their gradients; ``None`` if nothing of it is trained.
        optimizer: Optimiser of the trained weights; ``None`` if there are none.
    """

    def __init__(self, module: nn.Module, learning: LocalTraining) -> None:
        """Lay the weights out.

        Args:
            learning: Kind of optimiser, step size, momentum and weight decay.
        """
        self.module = module
        self.flat: FlatParameters | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        if parameter_count(module):
            size = parameter_count(module)
            like = next(parameter for parameter in module.parameters() if parameter.requires_grad)
            values = torch.empty(size).to(like)
            self.flat = FlatParameters(module, values, torch.zeros_like(values))
            self.optimizer = self.flat.optimizer(learning, learning.learning_rate)

    def arrays(self, *, frozen: bool = False) -> Arrays:
        """Return copies of weights and moments as arrays.

        Args:
            frozen: Whether to include weights that are not trained.
        """
        found: Arrays = {}
        if self.flat is not None and self.optimizer is not None:
            found[VALUES] = self.flat.values.numpy().copy()
            found |= memory_arrays(self.flat, self.optimizer, self.module)
        if frozen:
            found |= frozen_arrays(self.module)
        return found

    @torch.no_grad()
    def set_arrays(self, arrays: Mapping[str, np.ndarray[Any, Any]], place: str) -> None:
        """Take over weights and moments; without moments the optimiser begins anew.

        Args:
            arrays: As :meth:`arrays` returns them.
            place: Name of the part, for errors.

        Raises:
            StateError: If shapes do not fit, or something is missing.
        """
        for name, parameter in _frozen(self.module):
            if FROZEN + name in arrays:
                parameter.copy_(_tensor(arrays, FROZEN + name, parameter, place))
        if self.flat is None or self.optimizer is None:
            return
        self.flat.values.copy_(_tensor(arrays, VALUES, self.flat.values, place))
        set_memory(self.flat, self.optimizer, self.module, arrays, place)

    def set_rate(self, rate: float) -> None:
        """Set the step size of the next step."""
        if self.optimizer is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = rate

    def clear_gradients(self) -> None:
        """Forget the gradients."""
        if self.flat is not None:
            self.flat.gradients.zero_()


def frozen_arrays(module: nn.Module) -> Arrays:
    """Return copies of the weights of a module that are not trained."""
    return {FROZEN + name: p.detach().numpy().copy() for name, p in _frozen(module)}


def memory_arrays(flat: FlatParameters, optimizer: torch.optim.Optimizer, module: nn.Module) -> Arrays:
    """Return an optimiser's memory of a module, a vector for each kind of moments; empty before a step.

    Args:
        flat: Parameters, which include the module's.
        optimizer: Their optimiser, from :meth:`FlatParameters.optimizer`.
    """
    found: dict[str, list[Tensor]] = {}
    arrays: Arrays = {}
    for place in flat.slices([module]):
        for parameter, inside in _groups(optimizer, place):
            for name, values in optimizer.state.get(parameter, {}).items():
                if name == STEP:
                    arrays[STEP] = np.array(float(values), dtype=np.float32)
                elif values is not None:
                    found.setdefault(name, []).append(values[inside])
    return arrays | {name: torch.cat(parts).numpy() for name, parts in found.items()}


@torch.no_grad()
def set_memory(
    flat: FlatParameters,
    optimizer: torch.optim.Optimizer,
    module: nn.Module,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    place: str,
) -> None:
    """Set an optimiser's memory of a module; without one in the arrays, it is as before the first step.

    Args:
        flat: Parameters, which include the module's.
        optimizer: Their optimiser.
        module: The module. If others share a group with it, all of them must be set.
        arrays: As :func:`memory_arrays` returns them.
        place: Name of the module, for errors.

    Raises:
        StateError: If shapes do not fit.
    """
    names = [name for name in arrays if name != STEP and not is_weight(name)]
    start = 0
    for wanted in flat.slices([module]):
        for parameter, inside in _groups(optimizer, wanted):
            size = inside.stop - inside.start
            if not names:
                optimizer.state.pop(parameter, None)
                start += size
                continue
            memory = optimizer.state[parameter]
            if STEP in arrays:
                memory[STEP] = torch.tensor(float(arrays[STEP]))
            for name in names:
                values = memory.setdefault(name, torch.zeros_like(parameter))
                part = torch.from_numpy(np.array(arrays[name][start : start + size]))
                if len(part) != size:
                    raise StateError(f"{place}: {name} has {len(arrays[name])} numbers, too few for the part")
                values[inside] = part
            start += size


def _groups(optimizer: torch.optim.Optimizer, place: slice) -> list[tuple[nn.Parameter, slice]]:
    """Return the optimiser's parameters that a slice of the vector overlaps, and the slices within them."""
    found, start = [], 0
    for group in optimizer.param_groups:
        (parameter,) = group["params"]
        stop = start + parameter.numel()
        first, last = max(start, place.start), min(stop, place.stop)
        if first < last:
            found.append((parameter, slice(first - start, last - start)))
        start = stop
    return found


def _frozen(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in module.named_parameters() if not p.requires_grad]


def _tensor(arrays: Mapping[str, np.ndarray[Any, Any]], name: str, like: Tensor, place: str) -> Tensor:
    if name not in arrays:
        raise StateError(f"{place}: {name} is missing among {', '.join(sorted(arrays)) or 'no arrays'}")
    values = torch.from_numpy(np.array(arrays[name]))
    if values.shape != like.shape or values.dtype != like.dtype:
        raise StateError(
            f"{place}: {name} has shape {tuple(values.shape)} and type {values.dtype}, "
            f"expected {tuple(like.shape)} and {like.dtype}"
        )
    return values

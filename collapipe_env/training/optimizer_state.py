"""Tensors and optimisers of PyTorch as NumPy arrays, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from collapipe_env.ground.errors import StateError
from collapipe_env.ground.state_trees import REMEDY, Tree, require_alike, require_names
from collapipe_env.training.compact_adam import CompactAdamW

MOST_STEPS = 2.0**24
"""Most steps that an optimiser can count in single precision."""


def array_of(tensor: Tensor) -> npt.NDArray[Any]:
    """Return a copy of a tensor as an array; the bits of bfloat16, which NumPy lacks, become int16."""
    tensor = tensor.detach().cpu()
    return np.array((tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy())


def tensor_of(array: npt.NDArray[Any], like: Tensor) -> Tensor:
    """Return an array from :func:`array_of` as a new tensor, of the type and on the device of another."""
    values = torch.tensor(array, device=like.device)
    return values.view(torch.bfloat16) if like.dtype == torch.bfloat16 else values


def optimizer_tree(optimizer: torch.optim.Optimizer) -> Tree:
    """Return an optimiser's memory (moments, steps taken), one entry a group; empty before its first step.

    Step sizes are no part of it: they are set before every step.
    """
    return {
        str(i): {
            name: array_of(value)
            for name, value in optimizer.state.get(group["params"][0], {}).items()
            if value is not None
        }
        for i, group in enumerate(optimizer.param_groups)
    }


def set_optimizer(optimizer: torch.optim.Optimizer, tree: Tree, place: str) -> None:
    """Give an optimiser the memory of another of its kind, a tree from :func:`optimizer_tree`.

    Each of its groups has one parameter, of the same shape as the other's.

    Raises:
        StateError: If the state does not fit.
    """
    require_names(tree, map(str, range(len(optimizer.param_groups))), place)
    for i, group in enumerate(optimizer.param_groups):
        where, found, (parameter,) = f"{place}/{i}", tree[str(i)], group["params"]
        if found == {}:
            continue
        like = _memory_like(optimizer, parameter)
        require_alike(found, {name: array_of(value) for name, value in like.items()}, where)
        memory = {name: tensor_of(found[name], value) for name, value in like.items()}
        # PyTorch divides by a function of the count. NaN in the other entries means that training diverged.
        if "step" in memory and not 1 <= float(memory["step"]) <= MOST_STEPS:
            raise StateError(f"{where}/step is {float(memory['step'])}, expected at least 1: {REMEDY}")
        optimizer.state[parameter] = {name: value.to(parameter.device) for name, value in memory.items()}


def _memory_like(optimizer: torch.optim.Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """Return tensors, by name, like an optimiser's memory of a parameter that has stepped."""
    if isinstance(optimizer, CompactAdamW):
        return optimizer.memory_like(parameter)
    if isinstance(optimizer, torch.optim.AdamW):
        moments = dict.fromkeys(("exp_avg", "exp_avg_sq"), parameter.detach())
        return {"step": torch.zeros(()), **moments}
    return {"momentum_buffer": parameter.detach()} if optimizer.param_groups[0]["momentum"] else {}

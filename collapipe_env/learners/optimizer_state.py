"""Tensors, optimisers and generators of PyTorch as NumPy arrays, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor, nn

from collapipe_env.errors import StateError
from collapipe_env.state_trees import REMEDY, Tree, require_array


def array_of(tensor: Tensor) -> npt.NDArray[Any]:
    """A tensor's numbers, copied."""
    return np.array(tensor.detach().cpu().numpy())


def tensor_of(array: Any, like: Tensor, place: str) -> Tensor:
    """A fresh tensor of an array.

    Args:
        array: The array.
        like: What it must be like in shape and type; where it is put.
        place: Its name, for the error.

    Raises:
        StateError: If shape or type differ.
    """
    require_array(array, tuple(like.shape), array_of(like.flatten()[:0]).dtype, place)
    return torch.tensor(array, device=like.device)


@torch.no_grad()
def set_parameters(module: nn.Module, arrays: Any, place: str) -> None:
    """Write a module's parameters, in place.

    Args:
        module: The module.
        arrays: One for each of its ``named_parameters``, by name.
        place: Its name, for the error.

    Raises:
        StateError: If names, shapes or types differ.
    """
    parameters = dict(module.named_parameters())
    if set(arrays) != set(parameters):
        raise StateError(f"{place} has other parameters than the model: {REMEDY}")
    for name, parameter in parameters.items():
        parameter.copy_(tensor_of(arrays[name], parameter, f"{place}/{name}"))


def optimizer_tree(optimizer: torch.optim.Optimizer) -> Tree:
    """Its memory (moments, steps taken) and its step sizes, one entry a group of parameters."""
    return {
        str(i): {
            "memory": {
                name: array_of(value)
                for name, value in optimizer.state.get(group["params"][0], {}).items()
                if value is not None
            },
            "lr": np.array(float(group["lr"])),
            "initial_lr": None if "initial_lr" not in group else np.array(float(group["initial_lr"])),
        }
        for i, group in enumerate(optimizer.param_groups)
    }


def set_optimizer(optimizer: torch.optim.Optimizer, tree: Tree, place: str) -> None:
    """Give an optimiser the memory of another; each of its groups has one parameter.

    Args:
        optimizer: Of the same kind, over parameters of the same shapes.
        tree: What :func:`optimizer_tree` has returned.
        place: Its name, for errors.

    Raises:
        StateError: If it does not fit.
    """
    if set(tree) != {str(i) for i in range(len(optimizer.param_groups))}:
        raise StateError(f"{place} has other groups of parameters: {REMEDY}")
    for i, group in enumerate(optimizer.param_groups):
        part, (parameter,) = tree[str(i)], group["params"]
        memory: dict[str, Any] = {}
        for name, value in part["memory"].items():
            # All memories are shaped as the parameter, but for the count of steps.
            expected = parameter.detach() if np.ndim(value) else torch.zeros(())
            memory[name] = tensor_of(value, expected, f"{place}/{i}/{name}").to(parameter.device)
        if memory:
            optimizer.state[parameter] = memory
        for name in ("lr", "initial_lr"):
            if part[name] is not None:
                require_array(part[name], (), np.float64, f"{place}/{i}/{name}")
                group[name] = float(part[name])


def generator_bytes(generator: Generator) -> npt.NDArray[np.uint8]:
    """A PyTorch generator's state."""
    return array_of(generator.get_state())


def set_generator_bytes(generator: Generator, state: Any, place: str) -> None:
    """Give a PyTorch generator a state of :func:`generator_bytes`.

    Raises:
        StateError: If it does not fit.
    """
    require_array(state, tuple(generator.get_state().shape), np.uint8, place)
    try:
        generator.set_state(torch.from_numpy(state.copy()))
    except RuntimeError as error:
        raise StateError(f"{place} is not the state of a generator ({error}): {REMEDY}") from None

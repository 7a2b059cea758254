"""The device that PyTorch trains on, and the precision of forward passes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from collapipe_env.ground.errors import ScenarioError


def resolve_device(name: str) -> torch.device:
    """Return the device with a name.

    CUDA is queried only if necessary, since a process that has queried it can no longer be forked.

    Args:
        name: ``"auto"`` (a GPU if PyTorch can use one, otherwise the CPU), ``"cpu"``, ``"cuda"``, or any
            other name that PyTorch knows, such as ``"cuda:1"``.

    Raises:
        ScenarioError: If it names a GPU that PyTorch cannot use.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ScenarioError(
            f"learning.device is {name!r}, but PyTorch {torch.__version__} can use "
            f"{torch.cuda.device_count()} GPUs here; set device: auto (or cpu), or install a driver and a "
            "build of PyTorch for your GPU"
        )
    return device


@contextlib.contextmanager
def mixed_precision(precision: str, device: torch.device) -> Iterator[None]:
    """Let forward passes run in a precision.

    Args:
        precision: ``"float32"`` changes nothing. ``"bfloat16"`` lets matrix products and attention compute in
            bfloat16, as :class:`torch.autocast` chooses; weights, their gradients and the sums along the
            residual stream stay in float32.
    """
    if precision != "bfloat16":
        yield
        return
    try:
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=True):
            yield
    finally:
        # Within a caller's own autocast, copies of the weights would outlive the next step of the optimiser.
        torch.clear_autocast_cache()


def full_precision(tensor: Tensor) -> Tensor:
    """Return bfloat16 numbers in float32, and anything else as it is."""
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor

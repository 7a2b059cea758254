"""Dropout that leaves PyTorch's global random state alone.

PyTorch can draw dropout masks only from a device's global generator. So training with dropout runs within
:func:`private_randomness`, with a seed from its own generator; modules in evaluation mode draw nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def private_randomness(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Let PyTorch's global generators start from a seed, and restore them afterwards.

    The generators belong to the process: no other thread may draw from them meanwhile. Takes some tens of
    microseconds, so it suits a round rather than a micro-batch.

    Args:
        seed: Seed, in [0, 2^63).
        device: A GPU to seed along with the CPU; None or the CPU itself for the CPU alone.
    """
    gpu = None if device is None or device.type == "cpu" else device
    with torch.random.fork_rng([] if gpu is None else [gpu]):
        # Not torch.manual_seed, which would seed all GPUs, even those that are not restored.
        torch.default_generator.manual_seed(seed)
        if gpu is not None:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        yield

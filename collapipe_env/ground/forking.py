"""PyTorch in forked processes."""

from __future__ import annotations

import os
from functools import lru_cache

import torch


@lru_cache(maxsize=1)
def one_thread_after_fork() -> None:
    """Make PyTorch compute in one thread in every process that is forked from this one from now on.

    PyTorch shares its work among OpenMP threads, which a fork does not copy: the child would wait for them
    for ever in its first operation that is large enough to share. With one thread there is nothing to wait
    for. The parent keeps its threads, and so do spawned processes. A child that sets more threads again
    (``torch.set_num_threads``) hangs as before.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_compute_in_one_thread)


def _compute_in_one_thread() -> None:
    torch.set_num_threads(1)

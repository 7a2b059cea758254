"""Settings of PyTorch that other programs put around this package."""

from contextlib import ExitStack, contextmanager
from functools import partial

import torch


@contextmanager
def default_type(real):
    before = torch.get_default_dtype()
    torch.set_default_dtype(real)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def default_device(name):
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def all_at_once():
    """Everything that breaks training or changes its numbers."""
    with ExitStack() as stack:
        for name in ("inference mode", "double precision", "the meta device", "autocast"):
            stack.enter_context(SETTINGS[name]())
        yield


SETTINGS = {
    "no gradients": torch.no_grad,
    "inference mode": torch.inference_mode,
    "gradients switched off": partial(torch.set_grad_enabled, False),
    "double precision": partial(default_type, torch.float64),
    "half precision": partial(default_type, torch.bfloat16),
    "the meta device": partial(default_device, "meta"),
    "a context of the meta device": partial(torch.device, "meta"),
    "the CPU by name": partial(default_device, "cpu"),
    "autocast": partial(torch.autocast, "cpu", torch.bfloat16),
    "deterministic algorithms": deterministic,
    "all at once": all_at_once,
}

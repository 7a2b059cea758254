"""Small tensors train fastest, and reproducibly, in one thread."""

import pytest
import torch

from collapipe_env.ground import torch_settings


@pytest.fixture(autouse=True, scope="module")
def _one_torch_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def float64(monkeypatch):
    """Train in double precision: AdamW blows rounding errors of tiny gradients up to whole steps."""
    monkeypatch.setattr(torch_settings, "REAL", torch.float64)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)

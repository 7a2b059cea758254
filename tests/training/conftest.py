"""Double precision for comparisons to the last digits."""

import pytest
import torch
from settings_support import default_type

from collapipe_env.ground import torch_settings


@pytest.fixture
def float64(monkeypatch):
    """Train in double precision: AdamW blows rounding errors of tiny gradients up to whole steps."""
    monkeypatch.setattr(torch_settings, "REAL", torch.float64)
    with default_type(torch.float64):
        yield

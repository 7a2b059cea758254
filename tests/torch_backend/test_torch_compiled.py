"""Compiled rounds are the same rounds. Compiling takes a minute, hence not by default."""

import pytest
import torch
from torch_support import ROUNDS, make_torch, random_actions, trajectory


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "moving"])
def test_compiled_equals_eager(name):
    one, two = make_torch(name), make_torch(name, compiled=True)
    actions = random_actions(one, 2 * (ROUNDS + 1))
    pairs = zip(trajectory(one, actions, seed=3), trajectory(two, actions, seed=3), strict=True)
    for expected, found in pairs:
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)

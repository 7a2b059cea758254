"""Compiled loops of changes of plan against the array form of the same formulas."""

import numpy as np
import pytest

from collapipe_env.dynamics.migration import _handed_over, holders_of
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.moves import LOST, STAY, TRAVEL, block_holders, handover

E, N, K, L = 40, 3, 4, 7


def plan_of(rng, server=False):
    """Random divisions of the blocks, many with idle devices; some blocks left to the server."""
    cuts = np.sort(rng.integers(0, L + 1, (E, N, K - 1)), axis=-1)
    held = np.diff(cuts, axis=-1, prepend=0, append=L)
    kept = np.zeros((E, N), dtype=np.int64)
    if server:
        kept = np.minimum(held[..., -1], 2)
        held[..., -1] -= kept
    ones = np.ones((E, N))
    return Allocation(
        blocks=held,
        micro_batches=np.ones((E, N), dtype=np.int64),
        bandwidth=ones / N,
        device_power=np.ones((E, N, K)),
        cu_power=ones,
        server_blocks=kept if server else None,
        server_mode=np.zeros(E, dtype=np.int64) if server else None,
    )


def test_holders_of_plain_plans():
    plan = plan_of(np.random.default_rng(0))
    np.testing.assert_array_equal(holders_of(plan, L), block_holders(plan, L))
    fewer = plan[0:1]
    np.testing.assert_array_equal(holders_of(fewer, L), block_holders(fewer, L))


@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("server", [True, False])
def test_handovers(moves, server):
    rng = np.random.default_rng(1)
    before, after = (block_holders(plan_of(rng, server), L) for _ in range(2))
    # Groups hold blocks together, some devices have gone, and some clusters begin.
    before = before | (rng.random(before.shape) < 0.1)
    after = after | (rng.random(after.shape) < 0.1)
    before[:3] = False
    present = rng.random((E, N, K)) < 0.8
    found, expected = (f(before, present, after, moves) for f in (_handed_over, handover))
    for name in expected._fields:
        ours, theirs = getattr(found, name), getattr(expected, name)
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
        assert ours.dtype == theirs.dtype
    several = _handed_over(before[5:6], present[5:6], after, moves)
    np.testing.assert_array_equal(several.moments, handover(before[5:6], present[5:6], after, moves).moments)
    assert set(np.unique(found.moments)) == ({STAY, TRAVEL, LOST} if moves else {STAY, LOST})

"""Gains that are shrunk towards a link's past, against the same mean in scalar Python."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scheduler_support as support

from collapipe_env.agents.dssra.gain_memory import ShrunkGains


def reference_gains(history: list[float], weight: float) -> float:
    """The estimate of one link in scalar Python."""
    levels = [10.0 * np.log10(gain) for gain in history]
    mean = sum(levels) / len(levels)
    return 10.0 ** ((mean + weight * (levels[-1] - mean)) / 10.0)


def test_gains_are_drawn_to_the_mean_of_their_own_row_and_episode() -> None:
    """Rows that begin at different times; a second look in the same round changes nothing."""
    scenario, rows = support.SMALL, 3
    state = support.loaded_state(scenario, rows, 0)
    random, memory = np.random.default_rng(1), ShrunkGains(0.3)
    rounds, history = np.zeros(rows, dtype=np.int64), [[] for _ in range(rows)]
    for step in range(12):
        for row, every in enumerate((5, 7, 100)):
            if step % every == 0:
                rounds[row], history[row] = 0, []
        gain = state.d2d_gain * random.lognormal(0.0, 1.0, state.d2d_gain.shape)
        up = state.uplink_gain * random.lognormal(0.0, 1.0, state.uplink_gain.shape)
        seen = replace(state, d2d_gain=gain, uplink_gain=up, round_index=rounds.copy())
        for row in range(rows):
            history[row].append((up[row, 1], gain[row, 0, 1, 2]))
        estimates = [memory.update(seen) for _ in range(1 + step % 2)]
        for estimate, row in itertools.product(estimates, range(rows)):
            uplinks, hops = zip(*history[row], strict=True)
            assert estimate.uplink_gain[row, 1] == pytest.approx(reference_gains(uplinks, 0.3), rel=1e-12)
            found = estimate.d2d_gain[row, 0, 1, 2]
            assert found == pytest.approx(reference_gains(hops, 0.3), rel=1e-12)
        diagonal = np.diagonal(estimates[0].d2d_gain, axis1=-2, axis2=-1)
        np.testing.assert_array_equal(diagonal, np.diagonal(gain, axis1=-2, axis2=-1))
        rounds += 1

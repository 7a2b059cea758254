"""Delays of a round against hand-computed numbers, plain recursion, and compiled for numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

# Registers the formulas for compiled code.
import collapipe_env.kernels.formulas  # noqa: F401
from collapipe_env.ground.compiled import compiled
from collapipe_env.physics import delay

PAPER = {
    "stage_time": ((16.0, 3, 1e8, 2.4e10), 0.2),  # 16 samples x 3 blocks x 0.1 GFLOP at 24 GFLOP/s
    "hop_time": ((1e-8, 8e6), 0.08),
    "edge_time": ((16.0, 5e5, 4e6), 2.0),
    "gpipe_step": ((1.0, 0.5, 2.0, 0.75, 5), 8.0),  # 1 + 2 + 4 (0.5 + 0.75)
    "collection_time": ((3e6, 1.5e7), 0.2),
    "upload_time": ((2.4e7, 8e6), 3.0),
    "cluster_delay": ((4.0, 8.0, 0.2, 3.0), 35.2),
    "broadcast_time": ((2.4e7, 4.8e7), 0.5),
    "round_delay": ((35.2, 0.5), 35.7),
}
TIMES = st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 10.0)), min_size=1, max_size=8)


@pytest.mark.parametrize("name", PAPER)
def test_numbers_on_paper(name):
    arguments, expected = PAPER[name]
    formula = getattr(delay, name)
    assert formula(*arguments) == pytest.approx(expected, rel=1e-14)
    arrays = formula(*(np.full((2, 3), float(a)) for a in arguments))
    np.testing.assert_allclose(arrays, np.full((2, 3), expected), rtol=1e-14)


@compiled
def together(step: tuple[float, float, float, float, int], sizes: tuple[float, float, float]) -> float:
    """All formulas of a round in compiled code, on numbers."""
    bits, rate, seconds = sizes
    local = delay.gpipe_step(step[0], step[1], step[2], step[3], step[4])
    local += delay.stage_time(bits, 2, seconds, rate) + delay.hop_time(seconds * bits, 3.0)
    local += delay.edge_time(bits, 7.0, rate)
    collect, upload = delay.collection_time(bits, rate), delay.upload_time(2.0 * bits, rate)
    slowest = delay.cluster_delay(3.0, local, collect, upload)
    return delay.round_delay(slowest, delay.broadcast_time(5.0 * bits, rate))


def test_compiled_loops_call_them_on_numbers():
    step, sizes = (0.3, 0.1, 0.7, 0.2, 6), (13.0, 3.0, 0.11)
    bits, rate, seconds = sizes
    local = 0.3 + 0.7 + 5 * (0.1 + 0.2)
    local += bits * 2 * seconds / rate + seconds * bits * 3.0 + bits * 7.0 / rate
    expected = 3.0 * local + bits / rate + 2.0 * bits / rate + 5.0 * bits / rate
    assert together(step, sizes) == pytest.approx(expected, rel=1e-14)


@given(elements=TIMES, micro_batches=st.integers(1, 12))
def test_a_local_step_is_what_a_line_of_servers_takes(elements, micro_batches):
    """All forwards through the elements one after the other, a flush, then all backwards."""

    def passage(times):
        done = [0.0] * len(times)  # when each element has served its latest micro-batch
        for _ in range(micro_batches):
            before = 0.0
            for i, seconds in enumerate(times):
                before = done[i] = max(done[i], before) + seconds
        return done[-1]

    forward, backward = [e[0] for e in elements], [e[1] for e in elements]
    found = delay.gpipe_step(sum(forward), max(forward), sum(backward), max(backward), micro_batches)
    expected = passage(forward) + passage(backward[::-1])
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)

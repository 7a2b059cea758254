"""Orders in plain Python against the compiled ones, for all schedules, caps and micro-batches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.execution.script_orders import ORDERED, stage_orders
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import SCHEDULES
from collapipe_env.physics.schedules.orders import fill_orders


def compiled_orders(schedule, caps, micro_batches, chunks, variant):
    orders = np.zeros((len(caps) + 1, 3 * micro_batches * chunks, 3), dtype=np.int64)
    counts = np.zeros(len(caps) + 1, dtype=np.int64)
    kind = SCHEDULES.index(schedule)
    fill_orders(kind, np.array(caps), micro_batches, chunks, variant, orders, counts)
    return [tuple(map(tuple, row[:n].tolist())) for row, n in zip(orders, counts, strict=True)]


@settings(max_examples=150, deadline=None)
@given(
    schedule=st.sampled_from(ORDERED),
    caps=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    micro_batches=st.integers(1, 9),
    chunks=st.integers(1, 3),
    variant=st.integers(0, 3),
)
def test_orders_are_the_compiled_ones(schedule, caps, micro_batches, chunks, variant):
    if schedule == "interleaved":
        micro_batches *= len(caps)
    else:
        chunks = 1
    found = stage_orders(schedule, caps, micro_batches, chunks, variant)
    assert found == compiled_orders(schedule, caps, micro_batches, chunks, variant)


def test_a_small_order_by_hand():
    # One stage with room for two, then the server: F0 F1 B0 F2 B1 B2 and F0 B0 F1 B1 F2 B2.
    F, B = 0, 1
    stage, server = stage_orders("1f1b", [2], 3)
    assert stage == ((F, 0, 0), (F, 1, 0), (B, 0, 0), (F, 2, 0), (B, 1, 0), (B, 2, 0))
    assert server == ((F, 0, 0), (B, 0, 0), (F, 1, 0), (B, 1, 0), (F, 2, 0), (B, 2, 0))


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("async", [1], 2), "async"),
        (("1f1b", [0], 2), "caps"),
        (("1f1b", [], 2), "caps"),
        (("gpipe", [0], 0), "micro_batches 0"),
        (("interleaved", [2, 2], 3, 2), "multiple"),
    ],
)
def test_what_has_no_order_is_refused(arguments, word):
    with pytest.raises(AllocationError, match=word):
        stage_orders(*arguments)

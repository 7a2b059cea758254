"""Apportionment against an exact implementation in rational numbers, and by its invariants."""

from fractions import Fraction

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from collapipe_env.physics.apportionment import apportion


def exact(total, weights, caps):
    """Water-filled quotas and largest remainders in exact arithmetic, device by device."""
    weights = [Fraction(w) if c > 0 else Fraction(0) for w, c in zip(weights, caps, strict=True)]
    if sum(weights) == 0:
        weights = [Fraction(int(c > 0)) for c in caps]
    held = sum(c for w, c in zip(weights, caps, strict=True) if w > 0)
    if held < total:
        blocks = [c if w > 0 else 0 for w, c in zip(weights, caps, strict=True)]
        room = [c - b for b, c in zip(blocks, caps, strict=True)]
        rest = exact(total - held, [int(r > 0) for r in room], room)
        return [b + r for b, r in zip(blocks, rest, strict=True)]
    full = set()
    while True:
        open_weight = sum(w for k, w in enumerate(weights) if k not in full)
        left = total - sum(caps[k] for k in full)
        level = left / open_weight if open_weight else Fraction(0)
        over = {k for k, w in enumerate(weights) if k not in full and w > 0 and level * w > caps[k]}
        if not over:
            break
        full |= over
    quotas = [Fraction(caps[k]) if k in full else level * w for k, w in enumerate(weights)]
    blocks = [int(q) for q in quotas]
    remainders = [q - b for q, b in zip(quotas, blocks, strict=True)]
    open_ = [k for k in range(len(caps)) if blocks[k] < caps[k] and weights[k] > 0]
    for k in sorted(open_, key=lambda k: (-remainders[k], k))[: total - sum(blocks)]:
        blocks[k] += 1
    return blocks


@st.composite
def problems(draw):
    size = draw(st.integers(1, 8))
    caps = draw(st.lists(st.integers(0, 12), min_size=size, max_size=size))
    weights = draw(st.lists(st.integers(0, 16), min_size=size, max_size=size))
    assume(sum(caps) > 0)
    return draw(st.integers(1, sum(caps))), weights, caps


@given(problems())
def test_equals_exact_arithmetic(problem):
    total, weights, caps = problem
    found = apportion(total, np.array(weights, dtype=np.float64) / 16.0, np.array(caps))
    assert found.dtype == np.int64
    assert found.tolist() == exact(total, weights, caps)


@given(problems(), st.integers(0, 2**32 - 1))
def test_feasible_for_any_weights(problem, seed):
    total, zeros, caps = problem
    rng = np.random.default_rng(seed)
    weights = np.where(np.array(zeros) > 0, 10.0 ** rng.uniform(-12, 0, len(caps)), 0.0)
    found = apportion(total, weights, np.array(caps))
    assert found.sum() == total
    assert (found >= 0).all()
    assert (found <= caps).all()
    held = sum(c for w, c in zip(weights, caps, strict=True) if w > 0)
    if weights.any() and held >= total:
        assert not found[weights == 0.0].any()


@given(st.lists(problems(), min_size=1, max_size=5))
def test_rows_of_a_batch_are_independent(rows):
    size = max(len(caps) for _, _, caps in rows)

    def pad(values):
        return values + [0] * (size - len(values))

    total = 1
    weights = np.array([pad(w) for _, w, _ in rows], dtype=np.float64)
    caps = np.array([pad(c) for _, _, c in rows])
    batch = apportion(total, weights, caps)
    for row in range(len(rows)):
        np.testing.assert_array_equal(batch[row], apportion(total, weights[row], caps[row]))


@pytest.mark.parametrize(
    ("total", "weights", "caps", "expected"),
    [
        (12, [1, 1, 1, 1, 1], [9] * 5, [3, 3, 2, 2, 2]),  # ties go to the lower index
        (6, [1, 0, 1], [9, 9, 9], [3, 0, 3]),  # no weight, no block
        (6, [0, 0, 0], [9, 9, 9], [2, 2, 2]),  # no preference at all is an even split
        (6, [0, 0, 0], [9, 0, 9], [3, 0, 3]),
        (6, [1, 0, 0], [4, 9, 9], [4, 1, 1]),  # what does not fit goes to those without weight
        (6, [5, 1, 1], [2, 9, 9], [2, 2, 2]),  # a full device passes its part on
        (6, [1, 1, 1], [2, 2, 2], [2, 2, 2]),
        (5, [1e-9, 1.0], [9, 9], [0, 5]),
        (1, [0.0], [1], [1]),
    ],
)
def test_cases_by_hand(total, weights, caps, expected):
    assert apportion(total, np.array(weights, dtype=float), np.array(caps)).tolist() == expected


@pytest.mark.parametrize("convert", [array_api_strict.asarray, torch.asarray], ids=["strict", "torch"])
def test_runs_on_other_array_libraries(convert):
    rng = np.random.default_rng(0)
    weights, caps = rng.random((20, 4)) * (rng.random((20, 4)) > 0.3), rng.integers(2, 9, (20, 4))
    found = apportion(8, convert(weights), convert(caps))
    np.testing.assert_array_equal(np.asarray(found), apportion(8, weights, caps))

"""Outcomes that do not fit a learner are refused, with the array, the place and the allowed values."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import COMMON, COPIES, SEQUENTIAL
from collapipe_env.physics.training_memory import FULL_PRECISION
from collapipe_env.simulator.learner import Arrivals, RoundOutcome
from collapipe_env.training.outcome_checks import trained_round

BLOCKS, N, H, B = 4, 3, 2, 8
SETUP = SimpleNamespace(
    clusters=N, architecture=SimpleNamespace(blocks=BLOCKS), local_steps=H, most_local_steps=H, batch_size=B,
    moment_bits=32, memory=FULL_PRECISION,
)  # fmt: skip
COUNTS = np.array([[2, 3, 1]])


def arrivals(steps, micro_batches=COUNTS):
    return Arrivals.of(np.ones((1, N, steps, B), dtype=bool), micro_batches)


FITS = RoundOutcome(np.array([[(2, 2, 0)] * N]), COUNTS, arrivals(H), np.ones((1, N)))


def served(*counts, mode):
    """An outcome whose server runs one block of every cluster, or so it says."""
    server_mode = None if mode is None else np.array([mode])
    blocks = np.array([[(2, 1, 0)] * N])
    return {"blocks": blocks, "server_blocks": np.array([counts]), "server_mode": server_mode}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        served(1, 1, 1, mode=COPIES),
        served(1, 1, 1, mode=SEQUENTIAL),
        {"blocks": np.array([[(2, 2, 0), (4, 0, 0), (0, 0, 0)]]), "participates": np.array([[1, 1, 0]])},
        {"local_steps": np.array([[1, 2, 1]]), "recompute": np.array([[True, False, True]])},
        {"staleness": np.array([[(1, 0, 0)] * N]), "moments": np.full((1, N, BLOCKS), 3)},
    ],
)  # fmt: skip
def test_outcomes_that_fit_leave_nothing_open(changes):
    found = trained_round(replace(FITS, **changes), SETUP, 1)
    plays = changes.get("participates", np.ones((1, N))) > 0
    np.testing.assert_array_equal(found.local_steps, np.where(plays, changes.get("local_steps", H), 0))
    for name in ("server_blocks", "staleness", "moments", "recompute"):
        np.testing.assert_array_equal(getattr(found, name), changes.get(name, 0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blocks": np.full((1, N, 2), 3)}, r"cluster 0: blocks \[3, 3\] must be non-negative and sum to 4$"),
        ({"blocks": np.tile([5, -1], (1, N, 1))}, "must be non-negative"),
        ({"blocks": np.full((1, N + 1, 1), 4)}, r"must begin with \(environments, clusters"),
        ({"micro_batches": np.array([[1, 2, 9]])}, "cluster 2: micro_batches is 9; give 1 to 8"),
        ({"micro_batches": np.array([[1, 0, 1]])}, "cluster 1: micro_batches is 0"),
        ({"micro_batches": np.ones((1, 2), int)}, r"micro_batches has shape .* cluster: \(1, 3\)"),
        ({"arrivals": arrivals(H + 1)}, r"survived has shape .*local steps.* = \(1, 3, 2\)"),
        ({"staleness": np.zeros((1, N, 2), int)}, r"staleness has shape .*stage slot: \(1, 3, 3\)"),
        ({"staleness": np.array([[(0, 0, 0), (0, -1, 0), (0, 0, 0)]])}, r"1: staleness \[0, -1, 0\] must"),
        ({"moments": np.zeros((1, N, 3), int)}, r"moments has shape \(1, 3, 3\); .*each block: \(1, 3, 4\)"),
        ({"moments": np.full((1, N, BLOCKS), 5)}, "moments of 0, 1 or 2"),
        ({"recompute": np.ones((1, 2), bool)}, "recompute has shape"),
        ({"local_steps": np.array([[1, 2, 5]])}, "cluster 2: local_steps is 5; give 1 to 2"),
        ({"local_steps": np.array([[0, 2, 1]])}, "cluster 0: local_steps is 0"),
        ({"participates": np.array([[True, False]])}, "participates has shape"),
        (served(1, 1, 2, mode=SEQUENTIAL), r"one model for all clusters, but .* \[1, 1, 2\] differ"),
        (served(1, 1, 1, mode=None), r"need a server_mode; give one of 0 \(copies\), 1 \(sequential\)"),
        (served(1, 1, 1, mode=COMMON), "need a server_mode"),
        (served(1, 1, 1, mode=2), r"server_mode is 2; the modes are -1 .* 0 \(copies\), 1 \(sequential\)"),
        (served(1, 5, 1, mode=COPIES), "cluster 1: server_blocks is 5; give 0 to 4"),
        (served(1, 2, 1, mode=COPIES), r"1: blocks \[2, 1, 0\] must .* sum to 2 \(2 are on the server\)"),
        (served(1, 1, mode=COPIES), r"server_blocks has shape \(1, 2\)"),
        ({"server_mode": np.array([0, 0])}, r"server_mode has shape \(2,\); .*each environment: \(1,\)"),
    ],
)  # fmt: skip
def test_outcomes_that_do_not_fit(changes, message):
    with pytest.raises(AllocationError, match=message):
        trained_round(replace(FITS, **changes), SETUP, 1)


def test_moments_that_cannot_move():
    moments = np.zeros((1, N, BLOCKS), int)
    setup = SimpleNamespace(**{**vars(SETUP), "moment_bits": None})
    with pytest.raises(AllocationError, match="others take none"):
        trained_round(replace(FITS, moments=moments), setup, 1)

"""Former names of fields: accepted by constructors, readable, and named in a warning at the caller's line."""

import pickle
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from collapipe_env.allocation import Allocation, saved_allocation
from collapipe_env.learners import RoundOutcome
from collapipe_env.learners.base import Arrivals
from collapipe_env.renamed_fields import renamed_fields


@renamed_fields(breadth="width", tall="height")
@dataclass(frozen=True)
class Box:
    width: float
    height: float = 1.0
    labels: list[str] = field(default_factory=list)


def test_present_names_work_without_a_warning() -> None:
    assert Box(2.0) == Box(width=2.0, height=1.0) == replace(Box(5.0), width=2.0)
    assert pickle.loads(pickle.dumps(Box(2.0, 3.0))) == Box(2.0, 3.0)


def test_constructors_take_former_names() -> None:
    with pytest.warns(DeprecationWarning, match=r"^Box\.breadth is now called width$") as caught:
        box = Box(breadth=2.0, height=3.0)  # type: ignore[call-arg]
    assert box == Box(2.0, 3.0)
    assert [warning.filename for warning in caught] == [__file__]


def test_copies_take_former_names() -> None:
    with pytest.warns(DeprecationWarning, match="tall is now called height"):
        assert replace(Box(2.0, 3.0), tall=4.0) == Box(2.0, 4.0)  # type: ignore[call-arg]


def test_former_names_can_be_read() -> None:
    with pytest.warns(DeprecationWarning, match="tall is now called height") as caught:
        assert Box(2.0, 3.0).tall == 3.0  # type: ignore[attr-defined]
    assert [warning.filename for warning in caught] == [__file__]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(TypeError, match="depth"):
        Box(2.0, depth=1.0)  # type: ignore[call-arg]


def test_the_survival_of_a_round_was_called_success() -> None:
    arrivals = Arrivals.of(np.ones((1, 2, 1, 4), dtype=bool), np.full((1, 2), 4))
    survival = np.array([[0.5, 1.0]])
    outcome = RoundOutcome(np.ones((1, 2, 3), dtype=int), np.full((1, 2), 4), arrivals, survival)
    with pytest.warns(DeprecationWarning, match=r"RoundOutcome\.success is now called survival"):
        assert outcome.success is survival


def test_the_sample_share_of_an_allocation_was_called_share() -> None:
    numbers = {"blocks": np.array([[3, 0]]), "micro_batches": np.array([2]), "bandwidth": np.array([1.0])}
    powers = {"device_power": np.full((1, 2), 0.1), "cu_power": np.array([0.2])}
    stage, share = np.array([[0, 0]]), np.array([[0.25, 0.75]])
    with pytest.warns(DeprecationWarning, match=r"Allocation\.share is now called sample_share"):
        plan = Allocation(**numbers, **powers, stage=stage, share=share)  # type: ignore[call-arg]
    assert plan.sample_share is share
    with pytest.warns(DeprecationWarning, match=r"Allocation\.share is now called sample_share"):
        assert plan.share is share  # type: ignore[attr-defined]
    # Files of before hold the former name: reading one is nothing to warn of.
    saved = saved_allocation({**numbers, **powers, "stage": stage, "share": share})
    assert saved.sample_share is share
    with pytest.raises(TypeError, match="depth"):
        saved_allocation({**numbers, **powers, "depth": share})

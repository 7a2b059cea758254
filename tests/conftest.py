"""Settings for all tests: repeatable examples, one numerical thread in each worker."""

import os
from pathlib import Path

import pytest

# Before the libraries are imported, which read them once.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

from hypothesis import settings  # noqa: E402

# The same examples in every run: a failure is the change's, and can be repeated. For fresh ones:
# HYPOTHESIS_PROFILE=explore
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

STRAINED = ("envs", "torch_backend", "physics", "agents", "baselines")
"""Folders whose scenarios are made to move and to fail: in some episodes budgets of theirs cannot be met."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests in these folders, which are about other things, go on after an energy warning."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.path.relative_to(here).parts[0] in STRAINED:
            item.add_marker(
                pytest.mark.filterwarnings("ignore::collapipe_env.simulator.feasibility.EnergyBudgetWarning")
            )

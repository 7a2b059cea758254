"""Settings for all tests: repeatable examples, one numerical thread in each worker."""

import gc
import os

# Before the libraries are imported, which read them once.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

# The same examples in every run: a failure is the change's, and can be repeated. For fresh ones:
# HYPOTHESIS_PROFILE=explore
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_collection_finish() -> None:
    """Take thousands of collected tests out of what every garbage collection walks through."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def played(monkeypatch):
    """Units of evaluations that are played from now on, in this process."""
    from collapipe_env.evaluation import runner

    units, work = [], runner._work

    def counted(unit, on_round) -> None:
        units.append(unit)
        work(unit, on_round)

    monkeypatch.setattr(runner, "_work", counted)
    return units

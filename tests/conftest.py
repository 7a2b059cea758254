"""Settings for all tests: repeatable examples, one numerical thread in each worker."""

import gc
import os
import sys

# Before the libraries are imported, which read them once.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# Reading 400 files of tests anew takes each worker 10 s, and processes that tests start read the package. So
# bytecode is kept whatever the environment says, in the folders where Numba keeps its code anyway.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

# The same examples in every run: a failure is the change's, and can be repeated. For fresh ones:
# HYPOTHESIS_PROFILE=explore
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Let one worker run all tests of a file, unless ``--dist`` says otherwise."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)


def pytest_collection_finish() -> None:
    """Take thousands of collected tests out of what every garbage collection walks through."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def few_rounds(monkeypatch):
    """Budgets are checked by few rounds, and what comes of that is not kept for other tests."""
    from collapipe_env.feasibility import energy_range, feasibility_report, sampled_rounds

    for name in ("EPISODES", "FEWEST_ROUNDS"):
        monkeypatch.setattr(sampled_rounds, name, 4)
    yield
    for kept in (
        energy_range._range_of,
        feasibility_report.energy_feasibility,
        feasibility_report.warn_if_infeasible,
    ):
        kept.cache_clear()


@pytest.fixture
def played(monkeypatch):
    """Units of evaluations that are played from now on, in this process."""
    from collapipe_env.evaluation import runner

    units, work = [], runner._work

    def counted(unit, on_round):
        units.append(unit)
        return work(unit, on_round)

    monkeypatch.setattr(runner, "_work", counted)
    return units

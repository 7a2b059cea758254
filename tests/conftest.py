"""Settings for all tests: repeatable examples, one numerical thread in each worker."""

import gc
import os
import sys
import time

# Before the libraries are imported, which read them once.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# Reading 400 files of tests anew takes each worker 10 s, and processes that tests start read the package. So
# bytecode is kept whatever the environment says, in the folders where Numba keeps its code anyway.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402
from numba.core import event  # noqa: E402

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


CASE_S = 0.5
"""Processor seconds of a case in the default run, of its own and of processes that it starts."""
PROCESS_S = 4.0
"""The same for a case marked ``process``: each Python that it starts imports the package."""
TOLERANCE = 5.0
"""Machines differ, and are busy: a case fails the run beyond so many times its limit, and is told before."""
YARDSTICK_S = 0.022
"""Processor seconds of :func:`yardstick` on an idle core of the machine on which the limits were set."""

_slow_cases: list[tuple[float, float, str]] = []


def used_s() -> float:
    """Processor seconds of this process and of those that it has seen end."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


class Compiling(event.Listener):
    """Processor seconds that this process has spent compiling, which happens once on a machine."""

    def __init__(self):
        self.depth, self.begin_s, self.spent_s = 0, 0.0, 0.0

    def on_start(self, _event):
        self.begin_s = self.begin_s if self.depth else used_s()
        self.depth += 1

    def on_end(self, _event):
        self.depth -= 1
        self.spent_s += 0.0 if self.depth else used_s() - self.begin_s


_compiling = Compiling()
event.register("numba:compile", _compiling)


def yardstick() -> float:
    """How many times slower this machine is now than the one on which the limits were set, at least 1."""
    start = used_s()
    sum(number * number for number in range(500_000))
    return max((used_s() - start) / YARDSTICK_S, 1.0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Measure a case, but for one in which a worker first imports a library: another would do so next."""
    start, known = used_s() - _compiling.spent_s, len(sys.modules)
    try:
        return (yield)
    finally:
        spent, imports = used_s() - _compiling.spent_s - start, len(sys.modules) - known >= 50
        traced = item.config.pluginmanager.hasplugin("_cov") or sys.gettrace() is not None
        traced = traced or not {"NUMBA_DISABLE_JIT", "HYPOTHESIS_PROFILE"}.isdisjoint(os.environ)
        if spent > CASE_S and not (imports or traced or item.get_closest_marker("slow")):
            limit = PROCESS_S if item.get_closest_marker("process") else CASE_S
            item.user_properties.append(("spent_s", (spent, limit * yardstick())))


def pytest_runtest_logreport(report):
    spent, limit = dict(report.user_properties).get("spent_s", (0.0, 1.0))
    if report.when == "call" and spent > limit:
        _slow_cases.append((spent / limit, spent, report.nodeid))


def pytest_terminal_summary(terminalreporter):
    if _slow_cases:
        terminalreporter.section(
            "cases above the limit of processor time: make them cheaper, or mark them slow"
        )
        for times, spent, nodeid in sorted(_slow_cases, reverse=True):
            terminalreporter.write_line(f"{spent:5.2f} s, {times:.1f} times the limit: {nodeid}")
        too_slow = sum(times > TOLERANCE for times, _, _ in _slow_cases)
        if too_slow:
            terminalreporter.write_line(f"the run fails: {too_slow} take more than {TOLERANCE:g} times it")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    if any(times > TOLERANCE for times, _, _ in _slow_cases) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_collection_finish() -> None:
    """Take thousands of collected tests out of what every garbage collection walks through."""
    gc.collect()
    gc.freeze()


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

"""Rounds on Ray: processes that are killed or hang are replaced, and nothing that was trained is lost."""

import contextlib
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from executed_support import Changed, priced_events, quick, sorted_events
from numpy.testing import assert_allclose
from twin_support import Twin, WithSpare, descendants, differing, lost, wait_until_gone

from collapipe_env.execution.cluster_round import ExecutionError
from collapipe_env.execution.driver import Execution, Failures
from collapipe_env.execution.price_comparison import compare_round
from collapipe_env.execution.ray_engine import Ray
from collapipe_env.physics.recovery import RecoveryTerms

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from studies.execution_failures import instant

pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
slow = pytest.mark.slow
USUAL = RecoveryTerms("light", 0.5, 4)
SCALE = 0.5
"""Seconds of wall time per simulated second."""


@contextlib.contextmanager
def started(scheduler=WithSpare, clock="virtual", scale=1.0, **changes):
    """An execution on Ray, and the learner beside it; nothing is left of its processes."""
    scenario = quick(**{"workload.batch_size": 16, **changes})
    others = descendants(os.getpid())
    engine = Ray(object_store_memory=200_000_000)
    execution = Execution(scenario, scheduler(scenario), seed=1, clock=clock, scale=scale, engine=engine)
    with execution:
        execution.start()
        yield execution, Twin(scenario, execution.rounds)
        there = descendants(os.getpid()).keys() - others.keys()
    wait_until_gone(there, 20.0)


def device(execution, n, k):
    """A device's role, and its process."""
    role = execution.crews[n].devices[k]
    return role, execution.engine.get([execution.engine.call(role, "ping")])[0]


def played(execution, twin, failures=None):
    """Play a round, which leaves the learner's weights; returns the plan and the report."""
    planned, result = execution.play(failures or Failures())
    twin.play(planned, result)
    assert differing(execution, twin) == []
    return planned, result


@slow
def test_a_killed_device_is_missed_by_one_round_only():
    with started(clock="wall", scale=0.2, **{"cluster.devices": 2}) as (execution, twin):
        at_s = instant(execution.upcoming.script.clusters[0], "backward")
        _, before = device(execution, 0, 2)
        _, result = played(execution, twin, Failures(kills=[(0, 2, at_s)]))
        assert lost(result) == [[2], []]
        seen_s = result["recoveries"][0][0]["at_s"]
        assert -0.01 <= 0.2 * (seen_s - at_s) < 1.0
        for _ in range(2):
            _, result = played(execution, twin)
            assert lost(result) == [[], []]
        assert device(execution, 0, 2)[1] != before


@slow
def test_by_the_virtual_clock_processes_take_the_priced_times():
    with started(Changed) as (execution, twin):
        for _ in range(2):
            planned, result = played(execution, twin)
            for n in range(2):
                assert_allclose(sorted_events(result, n), priced_events(planned, n), atol=1e-9)
        # Two fail by the virtual clock, in one round; and one is killed while nobody needs it.
        clusters = execution.upcoming.script.clusters
        faults = [(0, 1, instant(clusters[0], "forward")), (0, 3, instant(clusters[0], "backward"))]
        _, result = played(execution, twin, Failures(faults=faults))
        assert lost(result) == [[1, 3], []]
        execution.engine.kill(execution.crews[1].devices[2])
        _, result = played(execution, twin)
        assert lost(result) == [[], []]


@slow
@pytest.mark.timeout(900)
def test_recoveries_by_the_wall_clock_take_what_they_are_priced():
    with started(clock="wall", scale=SCALE) as (execution, twin):
        for failing, expected, hang in [
            ([], [[], []], False),
            ([(0, 2, "forward")], [[2], []], False),
            ([(0, 1, "backward")], [[1], []], False),
            ([(0, 3, "collection")], [[3], []], False),
            ([(0, 2, "forward"), (1, 1, "forward")], [[2], [1]], False),
            ([(0, 1, "forward"), (0, 3, "backward")], [[1, 3], []], False),
            ([(1, 3, "forward")], [[], []], False),  # it has no work
            ([(0, 2, "upload")], [[], []], False),  # its work is done
            ([(0, 2, "forward")], [[2], []], True),
            ([], [[], []], False),
        ]:
            clusters = execution.upcoming.script.clusters
            when = [(n, k, instant(clusters[n], phase)) for n, k, phase in failing]
            planned, result = played(execution, twin, Failures(hangs=when) if hang else Failures(kills=when))
            assert lost(result) == expected, failing
            for n, cluster in enumerate(compare_round(1, planned, result).clusters):
                error = cluster.delay_measured_s / cluster.delay_priced_s - 1.0
                assert abs(error) < 0.02, (failing, n)
            for n, each in enumerate(result["recoveries"]):
                for one in each:
                    at_s = next(at for m, k, at in when if (m, k) == (n, one["device"]))
                    waited = SCALE * (one["at_s"] - at_s)
                    assert waited >= (USUAL.detection_s - USUAL.heartbeat_s if hang else 0.0) - 0.1
                    assert waited <= (USUAL.detection_s + 1.5 if hang else 1.0)


@slow
def test_a_device_that_wakes_after_it_was_given_up_changes_nothing():
    with started(clock="wall", scale=2.0) as (execution, twin):
        at_s = instant(execution.upcoming.script.clusters[0], "forward")
        _, pid = device(execution, 0, 2)
        wakes = threading.Timer(0.5 + 2.0 * at_s + USUAL.detection_s + 1.0, _send, (pid, signal.SIGCONT))
        wakes.start()
        _, result = played(execution, twin, Failures(hangs=[(0, 2, at_s)]))
        wakes.join()
        assert lost(result) == [[2], []]
        played(execution, twin)


def _send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class SlowToImport:
    """A module that takes long to import, in the processes that find it."""

    def __init__(self, folder, seconds):
        self.folder = folder
        (folder / "sitecustomize.py").write_text(
            f"import os, sys, time\nif os.path.exists({str(folder / 'now')!r}):\n"
            f"    class Finder:\n        @staticmethod\n        def find_spec(name, *_):\n"
            f"            if name == 'torch':\n                end = time.monotonic() + {seconds}\n"
            f"                while time.monotonic() < end: pass\n"
            f"    sys.meta_path.insert(0, Finder)\n"
        )


@slow
def test_a_device_that_comes_back_is_awaited_before_it_is_pinged(tmp_path, monkeypatch):
    # Its imports take longer than a device may be silent.
    SlowToImport(tmp_path, USUAL.detection_s + 2.0)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])]))
    with started(clock="wall", scale=0.2, **{"cluster.devices": 2}) as (execution, twin):
        (tmp_path / "now").touch()
        at_s = instant(execution.upcoming.script.clusters[0], "forward")
        played(execution, twin, Failures(kills=[(0, 1, at_s)]))
        begun = time.monotonic()
        _, result = played(execution, twin)
        assert time.monotonic() - begun > USUAL.detection_s + 2.0
        assert lost(result) == [[], []]


@slow
def test_without_a_control_unit_the_execution_ends_and_says_so():
    with started(**{"cluster.devices": 2}) as (execution, twin):
        played(execution, twin)
        role = execution.crews[0].control_unit
        _ = execution.upcoming
        execution.engine.kill(role)
        with pytest.raises(ExecutionError, match="c0 was lost"):
            execution.play()


@slow
@pytest.mark.timeout(3600)
def test_a_hundred_rounds_with_random_losses_lose_nothing(capsys):
    rounds, draw = 100, random.Random(5)
    killed = recovered = 0
    figures = []
    with started(Changed, **{"dynamics.rounds": rounds}) as (execution, twin):
        for number in range(1, rounds + 1):
            clusters = execution.upcoming.script.clusters
            faults, timers = [], []
            if draw.random() < 0.3:  # by the virtual clock
                n, k = draw.randrange(2), draw.randrange(1, 4)
                phase = draw.choice(("forward", "backward", "collection"))
                faults.append((n, k, instant(clusters[n], phase)))
            if draw.random() < 0.3:  # really, at any moment
                n, k = draw.randrange(2), draw.randrange(1, 4)
                if (n, k) not in [fault[:2] for fault in faults]:
                    kill = execution.engine.kill, (execution.crews[n].devices[k],)
                    timers.append(threading.Timer(draw.uniform(0.0, 0.3), *kill))
                    timers[0].start()
            planned, result = execution.play(Failures(faults=faults))
            for timer in timers:
                timer.join()
            killed += len(faults) + len(timers)
            recovered += sum(map(len, result["recoveries"]))
            twin.play(planned, result)
            if number % 10 == 0:
                assert differing(execution, twin) == []
                figures.append(_resources())
                print(f"{number} rounds, {killed} kills, {recovered} recoveries", flush=True)
    assert killed >= 30
    assert recovered >= 20
    # Descriptors and memory of the driver do not grow; the first rounds fill caches.
    (files, memory), (last_files, last_memory) = figures[1], figures[-1]
    assert last_files <= files + 8
    assert last_memory <= 1.1 * memory
    with capsys.disabled():
        print(
            f"\n{rounds} rounds, {killed} kills, {recovered} recoveries; descriptors {files} to "
            f"{last_files}, memory {memory:.0f} to {last_memory:.0f} MiB"
        )


def _resources():
    """Open files of this process, and its memory [MiB]."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE") / 2**20

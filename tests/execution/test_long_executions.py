"""Failures by the wall clock, and a hundred rounds with devices that are killed at random."""

import contextlib
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from executed_support import Changed, quick
from process_support import WithSpare, descendants, differing
from test_process_failures import instant, lost, started

from collapipe_env.execution.heartbeats import PATIENT_S
from collapipe_env.execution.joining import ExecutionError
from collapipe_env.execution.launching import Failures
from collapipe_env.execution.price_comparison import compare_round
from collapipe_env.physics.recovery import RecoveryTerms

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")]
USUAL = RecoveryTerms("light", 0.5, 4)
SCALE = 0.5
"""Seconds of wall time per simulated second."""


@pytest.mark.parametrize(
    ("failing", "expected", "hang"),
    [
        ([(0, 2, "forward")], [[2], []], False),
        ([(0, 1, "backward")], [[1], []], False),
        ([(0, 3, "collection")], [[3], []], False),
        ([(0, 2, "forward"), (1, 1, "forward")], [[2], [1]], False),
        ([(0, 1, "forward"), (0, 3, "backward")], [[1, 3], []], False),
        ([(1, 3, "forward")], [[], []], False),
        ([(0, 2, "upload")], [[], []], False),
        ([(0, 2, "forward")], [[2], []], True),
    ],
    ids=["forward", "backward", "collection", "both clusters", "twice", "idle", "committed", "hang"],
)
def test_recoveries_take_what_they_are_priced(failing, expected, hang):
    scenario = quick(**{"workload.batch_size": 16})
    scheduler = WithSpare(scenario)
    with started(scenario, scheduler, seed=1, clock="wall", scale=SCALE) as (launcher, twin):
        clusters = launcher.upcoming.script.clusters
        when = [(n, k, instant(clusters[n], phase)) for n, k, phase in failing]
        failures = Failures(hangs=when) if hang else Failures(kills=when)
        planned, result = launcher.play(failures)
        twin.play(planned, result)
        assert lost(result) == expected
        assert differing(launcher, twin) == []
        for cluster in compare_round(1, planned, result).clusters:
            assert cluster.delay_measured_s == pytest.approx(cluster.delay_priced_s, rel=0.1)
        seen = {
            (n, one["device"]): one["at_s"] for n, each in enumerate(result["recoveries"]) for one in each
        }
        for n, k, at_s in when:
            if (n, k) in seen:
                waited = SCALE * (seen[n, k] - at_s)
                least = USUAL.detection_s - USUAL.heartbeat_s - 0.1 if hang else -0.01
                assert least <= waited <= (USUAL.detection_s + 1.5 if hang else 1.5)
        # Whoever was lost is there again.
        planned, result = launcher.play()
        twin.play(planned, result)
        assert lost(result) == [[], []]
        assert differing(launcher, twin) == []


def test_a_device_that_wakes_after_it_was_given_up_changes_nothing():
    scenario = quick(**{"workload.batch_size": 16})
    with started(scenario, WithSpare(scenario), seed=1, clock="wall", scale=2.0) as (launcher, twin):
        at_s = instant(launcher.upcoming.script.clusters[0], "forward")
        pid = launcher.processes[launcher.names[0][2]].pid
        wakes = threading.Timer(0.5 + 2.0 * at_s + USUAL.detection_s + 1.0, os.kill, (pid, signal.SIGCONT))
        wakes.start()
        planned, result = launcher.play(Failures(hangs=[(0, 2, at_s)]))
        wakes.join()
        assert lost(result) == [[2], []]
        twin.play(planned, result)
        twin.play(*launcher.play())
        assert differing(launcher, twin) == []


def test_a_device_that_hangs_is_noticed_by_the_virtual_clock_too():
    scenario = quick(**{"cluster.devices": 3, "workload.batch_size": 16})
    with started(scenario, WithSpare(scenario), seed=1) as (launcher, twin):
        for _ in range(3):  # connections that are made anew would notice it sooner
            twin.play(*launcher.play())
        launcher.kill(launcher.names[0][2], signal.SIGSTOP)
        begun = time.monotonic()
        planned, result = launcher.play()
        assert time.monotonic() - begun < PATIENT_S + 20.0
        assert lost(result) == [[2], []]
        twin.play(planned, result)
        assert differing(launcher, twin) == []
        planned, result = launcher.play()
        twin.play(planned, result)
        assert lost(result) == [[], []]
        assert differing(launcher, twin) == []


@pytest.mark.parametrize("who", ["c0", "server"])
def test_a_control_unit_or_server_that_hangs_ends_the_execution(who):
    scenario = quick(**{"cluster.devices": 2, "workload.batch_size": 16})
    with started(scenario, WithSpare(scenario)) as (launcher, _):
        launcher.kill(who, signal.SIGSTOP)
        # Who has to connect with it notices it sooner.
        heard = "nothing was heard of it for 30 s|did not answer in time"
        with pytest.raises(ExecutionError, match=rf"{who} (was lost|is gone).*({heard})"):
            launcher.play()


@pytest.mark.timeout(1800)
def test_a_hundred_rounds_with_random_losses_lose_nothing(capsys):
    rounds, draw = 100, random.Random(5)
    scenario = quick(**{"workload.batch_size": 16, "dynamics.rounds": rounds})
    killed = recovered = given_up = 0
    figures = []
    with started(scenario, Changed(scenario), seed=2) as (launcher, twin):
        for number in range(1, rounds + 1):
            clusters = launcher.upcoming.script.clusters
            faults, timers = [], []
            if draw.random() < 0.3:  # by the virtual clock
                n, k = draw.randrange(2), draw.randrange(1, 4)
                phase = draw.choice(("forward", "backward", "collection"))
                faults.append((n, k, instant(clusters[n], phase)))
            if draw.random() < 0.3:  # really, at any moment
                n, k = draw.randrange(2), draw.randrange(1, 4)
                if (n, k) not in [fault[:2] for fault in faults]:
                    name = launcher.names[n][k]
                    timer = threading.Timer(draw.uniform(0.0, 0.3), _kill, (launcher, name))
                    timers.append(timer)
                    timer.start()
            planned, result = launcher.play(Failures(faults=faults))
            for timer in timers:
                timer.join()
            killed += len(faults) + len(timers)
            recovered += sum(len(each) for each in result["recoveries"])
            given_up += sum(one["dropped"] for each in result["recoveries"] for one in each)
            twin.play(planned, result)
            if number % 10 == 0:
                assert differing(launcher, twin) == []
                assert launcher.committed().rounds == number
                figures.append(_resources())
                print(f"{number} rounds, {killed} kills, {recovered} recoveries", flush=True)
    assert killed >= 30
    assert recovered >= 20
    # Descriptors and memory of the launcher do not grow; the first rounds fill caches.
    (files, memory), (last_files, last_memory) = figures[1], figures[-1]
    assert last_files <= files + 8
    assert last_memory <= 1.1 * memory
    assert not [name for name in descendants(os.getpid()).values() if name.startswith("collapipe ")]
    with capsys.disabled():
        print(
            f"\n{rounds} rounds, {killed} kills, {recovered} recoveries ({given_up} given up); descriptors "
            f"{files} to {last_files}, memory {memory:.0f} to {last_memory:.0f} MiB"
        )


def _kill(launcher, name):
    # It may have been replaced, or have failed, meanwhile.
    with contextlib.suppress(KeyError, ProcessLookupError):
        launcher.kill(name, signal.SIGKILL)


def _resources():
    """Open files of this process, and its memory [MiB]."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE") / 2**20

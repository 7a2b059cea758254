"""Heartbeats: who is missing, and pulses that end."""

import threading
import time

from collapipe_env.execution.heartbeats import Attendance, Pulse


def test_a_device_is_missing_once_it_has_missed_all_its_heartbeats(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    attendance = Attendance(2.0)
    attendance.expect({"c0d1", "c0d2"})
    now = 101.9
    attendance.hear("c0d1")
    attendance.hear("c0d3")  # nobody asked for it
    assert attendance.missing() == []
    now = 102.1
    assert attendance.missing() == ["c0d2"]
    # Who is expected again keeps the time at which it was last heard of.
    attendance.expect({"c0d1", "c0d3"})
    now = 103.8
    assert attendance.missing() == []
    now = 103.95
    assert attendance.missing() == ["c0d1"]
    attendance.expect(set())
    assert attendance.missing() == []


def test_a_pulse_beats_until_it_is_stopped():
    beaten = threading.Semaphore(0)
    pulse = Pulse(0.001, beaten.release, "a pulse")
    assert beaten.acquire(timeout=10.0)
    assert beaten.acquire(timeout=10.0)
    pulse.stop()
    assert "a pulse" not in {thread.name for thread in threading.enumerate()}


def test_a_pulse_may_stop_itself():
    stopped = threading.Event()
    holder = []
    ready = threading.Event()

    def beat():
        ready.wait(10.0)
        holder[0].stop()
        stopped.set()

    holder.append(Pulse(0.001, beat, "another pulse"))
    ready.set()
    assert stopped.wait(10.0)

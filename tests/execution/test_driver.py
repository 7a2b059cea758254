"""Rounds executed by all roles in this process: the simulator's times, and the learner's weights."""

import itertools
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from executed_support import (
    TINY,
    Changed,
    InProcess,
    failing,
    largest_difference,
    priced_events,
    quick,
    same_weights,
    sorted_events,
)
from numpy.testing import assert_allclose
from twin_support import Twin, WithSpare, differing, lost

from collapipe_env.execution.clock_offsets import ClockOffset
from collapipe_env.execution.cluster_round import ExecutionError
from collapipe_env.execution.device import Device
from collapipe_env.execution.driver import LEAD_S, Execution, Failures
from collapipe_env.execution.engine import Inline
from collapipe_env.execution.messages import LOST
from collapipe_env.execution.price_comparison import compare_round
from collapipe_env.execution.scripts import FORWARD
from collapipe_env.execution.setting import device_setting
from collapipe_env.ground.errors import ScenarioError

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from studies.execution_failures import instant

WITHIN = 1e-9
"""Largest difference of times [s]."""
SHORT = {"cluster.devices": 2}
"""Two devices a cluster, where one between two others has nothing to do that these have not."""
slow = pytest.mark.slow


def executed(scenario, rounds=2, seed=3, **plan):
    """Play rounds in both ways; yields what was planned, the report, and both training runs."""
    execution = Execution(scenario, Changed(scenario, **plan), seed=seed)
    twin = InProcess(scenario, Changed(scenario, **plan), seed=seed)
    for _ in range(rounds):
        planned, result = execution.play()
        twin.play()
        yield planned, result, execution.server.federation, twin


def require_the_price(planned, result):
    """Every phase that is compared takes what the simulator says, also after failures that it knows of."""
    assert result["delay_s"] == pytest.approx(planned.record.costs.delay[0], abs=WITHIN)
    plays, delays = planned.record.costs.plays[0], planned.record.costs.cluster_delay[0]
    assert [one is not None for one in result["cluster_s"]] == plays.tolist()
    played = [one for one in result["cluster_s"] if one is not None]
    assert_allclose(played, delays[plays], atol=WITHIN)
    assert [len(each) for each in result["recoveries"]] == [
        sum(cluster == n for cluster, _, _ in planned.failures) for n in range(len(plays))
    ]
    for n, recoveries in enumerate(result["recoveries"]):
        for one in recoveries:
            expected = planned.record.interruption.failed
            assert one["dropped"] == expected.dropped[0, n]
            assert one["credited"] == expected.credited[0, n]
            assert one["move_s"] == pytest.approx(expected.move_s[0, n], abs=WITHIN)
    if planned.failures:
        return
    for n in plays.nonzero()[0].tolist():
        assert_allclose(sorted_events(result, n), priced_events(planned, n), atol=WITHIN)
    one = compare_round(1, planned, result)
    for phase in [one.broadcast, *(phase for cluster in one.clusters for phase in cluster.phases)]:
        assert phase.measured_s == pytest.approx(phase.priced_s, abs=WITHIN), phase.name
    for cluster in one.clusters:
        assert [phase.name for phase in cluster.phases] == ["local steps", "collection", "upload"]


def slowly(*row):
    return pytest.param(*row, marks=slow)


@pytest.mark.parametrize(
    ("plan", "changes", "most"),
    [
        ({}, {}, 0.0),
        slowly({"micro_batches": 1}, {}, 0.0),
        ({"schedule": "1f1b", "micro_batches": 1}, {}, 0.0),
        slowly({"schedule": "1f1b", "micro_batches": 16}, {"workload.batch_size": 16, **SHORT}, 0.0),
        ({"schedule": "zb-h1", "micro_batches": 4}, {}, 0.0),
        ({"schedule": "interleaved", "micro_batches": 4, "chunks": 2}, SHORT, 0.0),
        slowly({}, {"workload.local_steps": 3, **SHORT}, 0.0),
        ({"schedule": "1f1b"}, {"workload.local_steps": 2, "workload.head": "common", **SHORT}, 0.0),
        ({}, {"workload.update_compression": "lora", **SHORT}, 0.0),
        slowly({}, {"workload.weight_bits": 16, "workload.update_compression": "top-k", **SHORT}, 0.0),
        slowly({}, {"learning.proximal": 0.1, "workload.local_steps": 2, **SHORT}, 0.0),
        slowly({}, {"learning.optimizer": "sgd", "learning.momentum": 0.9, **SHORT}, 0.0),
        ({}, {"radio.link_errors": "drop", "radio.waterfall_threshold": 5.0}, 0.0),
        ({}, {"overheads.latency_s": 0.004, "overheads.edge_latency_s": 0.02}, 0.0),
        slowly({}, {"workload.recompute": True, **SHORT}, 0.0),
        slowly({}, {"workload.task": "translation", **SHORT}, 0.0),
        # Sums in another order differ in their last digits.
        ({"name": "asteroid"}, {}, 1e-5),
        ({}, {"learning.gradient_clip": 0.3}, 1e-5),
    ],
    ids=lambda given: (
        ",".join(f"{name}={value}" for name, value in given.items()) or "as-it-is"
        if isinstance(given, dict)
        else None
    ),
)
def test_rounds_take_the_priced_times_and_leave_the_learners_weights(plan, changes, most):
    for planned, result, federation, twin in executed(quick(**{**TINY, **changes}), **plan):
        require_the_price(planned, result)
        assert largest_difference(federation, twin.run) <= most
        assert result["train_loss"] == pytest.approx(twin.train_loss, rel=most, abs=0.0)


RECOVERIES = [
    ("light", "none"),
    ("light", "next_stage"),
    ("light", "cu"),
    ("heavy", "none"),
    ("heavy", "next_stage"),
    ("heavy", "cu"),
    # Replicas have no effect there, and a scenario that asks for them is warned of.
    ("drop-round", "none"),
]


@pytest.mark.parametrize(
    ("recovery", "replication", "head", "steps", "seed", "rounds"),
    [
        ("light", "none", "copies", 2, 0, 2),
        ("drop-round", "none", "copies", 2, 0, 2),
        *(
            slowly(*pair, head, steps, seed, 6)
            for pair, head, steps, seed in itertools.product(
                RECOVERIES, ("copies", "common"), (1, 2), (0, 1, 3)
            )
        ),
    ],
)
def test_rounds_in_which_devices_fail_are_those_of_the_simulator(
    recovery, replication, head, steps, seed, rounds
):
    changes = {**TINY, "workload.local_steps": steps, "workload.head": head}
    if seed == 1:
        changes["workload.update_compression"] = "lora"
    scenario = failing(on_mean_s=5.0, recovery=recovery, replication=replication).with_overrides(changes)
    # With one head for all, moments that were lost reach the others' second local step.
    exact = steps == 1 or head == "copies"
    failures = 0
    for planned, result, federation, twin in executed(scenario, rounds, seed, micro_batches=2):
        failures += len(planned.failures)
        require_the_price(planned, result)
        assert largest_difference(federation, twin.run) <= (0.0 if exact else 1e-3)
    assert failures > 0


def after_a_late_loss(scenario):
    """Play three rounds; in the second one cluster 1 loses a device late in its last local step.

    Returns:
        The recovery, and the largest difference after any round from the learner that knows of it.
    """
    execution = Execution(scenario, Changed(scenario, micro_batches=2))
    twin = Twin(scenario, execution.rounds)
    late, found, most = 0.0, [], 0.0
    for number in range(3):
        planned, result = execution.play(Failures(faults=[(1, 2, late)] if number == 1 else []))
        script = planned.script.clusters[1]
        late = 0.95 * (script.delay_s - script.upload_s - script.collect_s)
        twin.play(planned, result)
        found += result["recoveries"][1]
        most = max(most, largest_difference(execution.server.federation, twin.run))
    (recovery,) = found
    return recovery, most


@pytest.mark.parametrize(
    ("recovery", "head", "replication", "steps", "most"),
    [
        ("light", "copies", "none", 2, 0.0),
        pytest.param("light", "common", "cu", 3, 0.0, marks=slow),
        pytest.param("light", "copies", "cu", 3, 0.0, marks=slow),
        # One head for all is not taken back: the steps that it made with the moments before the loss stay.
        pytest.param("light", "common", "none", 3, 1e-4, marks=slow),
        pytest.param("drop-round", "copies", "none", 2, 0.0, marks=slow),
        ("drop-round", "common", "none", 1, 0.0),
        pytest.param("drop-round", "copies", "none", 1, 0.0, marks=slow),
        # Others have taken their second step from a head that knew the first one of cluster 1.
        pytest.param("drop-round", "common", "none", 2, 1e-4, marks=slow),
    ],
)
def test_heads_forget_steps_that_are_taken_again_or_given_up(recovery, head, replication, steps, most):
    changes = {**TINY, "workload.local_steps": steps, "workload.head": head, "cluster.devices": 3}
    scenario = failing(on_mean_s=1e9, recovery=recovery, replication=replication).with_overrides(changes)
    found, difference = after_a_late_loss(scenario)
    assert found["dropped"] == (recovery == "drop-round")
    assert found["credited"] == (2 if replication == "cu" else 0)
    assert difference <= most


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {
                "workload.train_bits": 16,
                **dict.fromkeys(
                    (f"workload.{n}_bits" for n in ("stored_activation", "activation", "gradient")), 16
                ),
            },
            "workload.train_bits = 16: set 32",
        ),
        ({"workload.moment_bits": 8}, "workload.moment_bits = 8: set 32"),
        ({"radio.d2d_duplex": "half"}, "radio.d2d_duplex = half: set full"),
        ({"decisions": ["segments", "micro_batches", "bandwidth", "powers", "server_blocks"]}, "take it off"),
    ],
)
def test_what_cannot_be_executed_is_refused(changes, words):
    scenario = quick(**changes)
    with pytest.raises(ScenarioError, match=words):
        Execution(scenario, Changed(scenario))


def test_devices_that_fail_at_work_leave_the_learners_weights():
    scenario = quick(**TINY)
    execution = Execution(scenario, WithSpare(scenario), seed=1)
    twin = Twin(scenario, execution.rounds)
    for faults, expected in [
        ([(0, 3, "collection"), (1, 1, "backward")], [[3], [1]]),
        ([(0, 1, "forward"), (0, 3, "backward"), (1, 3, "forward")], [[1, 3], []]),  # the last one is idle
        ([(1, 3, "forward"), (1, 1, "backward"), (0, 2, "upload")], [[], [1]]),  # the last one is done
    ]:
        clusters = execution.upcoming.script.clusters
        when = [(n, k, instant(clusters[n], phase)) for n, k, phase in faults]
        planned, result = execution.play(Failures(faults=when))
        assert lost(result) == expected
        twin.play(planned, result)
        assert differing(execution, twin) == [], faults


class Elsewhere(Inline):
    """Stands for processes on machines with other clocks."""

    side_by_side = True

    def offsets(self, roles, _fine_s):
        return {role.name: ClockOffset(0.0, 1e-4) for role in roles}


@pytest.mark.parametrize(
    ("clock", "scale", "killed_after_s", "bound_s"),
    [("virtual", 1.0, 1.0, None), ("wall", 0.1, LEAD_S + 0.1, 1e-4), ("none", 4.0, 1.0, 1e-4)],
)
def test_what_a_clock_does_not_read_is_left_out(clock, scale, killed_after_s, bound_s, monkeypatch):
    """Without a clock, a factor of slowness is no scale of time; by the virtual one, offsets mean nothing."""
    started = []

    class Timer(threading.Timer):
        def __init__(self, interval, *_):
            started.append(interval)
            super().__init__(interval, print)

    monkeypatch.setattr("collapipe_env.execution.driver.threading.Timer", Timer)
    scenario = quick(**TINY, **{"cluster.clusters": 1, **SHORT})
    execution = Execution(scenario, Changed(scenario), clock=clock, scale=scale, engine=Elsewhere())
    _, result = execution.play(Failures(kills=[(0, 1, 1.0)]))
    assert started == [pytest.approx(killed_after_s)]
    assert result["clock_bound_s"] == (None if bound_s is None else pytest.approx(bound_s))
    if clock == "none":  # only devices are slower than this machine
        assert result["delay_s"] - result["cluster_s"][0] < 1.0


@pytest.mark.parametrize("clock", ["wall", "none"])
def test_real_time_needs_roles_that_work_side_by_side(clock):
    scenario = quick()
    with pytest.raises(ScenarioError, match=f"clock '{clock}' needs processes"):
        Execution(scenario, Changed(scenario), clock=clock)


class LosesOneThatWaits(Inline):
    """Kills a device of a cluster that waits for the common head; keeps which clusters were at work."""

    def __init__(self):
        super().__init__()
        self.device, self.at_work = None, []

    def first(self, waits):
        self.at_work.append({n for n, (refs, _) in waits.items() if refs})
        if self.device is None and waits.keys() - self.at_work[-1]:
            n = min(waits.keys() - self.at_work[-1])
            self.device = next(role for role in waits[n][1] if role.name == f"c{n}d0")
            self.kill(self.device)
        return super().first(waits)


def test_a_cluster_that_waits_for_the_common_head_is_watched():
    scenario = quick(**TINY, **{"workload.local_steps": 2, "workload.head": "common", **SHORT})
    engine = LosesOneThatWaits()
    execution = Execution(scenario, Changed(scenario), engine=engine)
    _, result = execution.play()
    assert lost(result) == [[1], []]
    # It is at work again before the cluster that it waited for has gone on.
    waited = next(i for i, at_work in enumerate(engine.at_work) if at_work == {1})
    assert engine.at_work[waited + 1] == {0, 1}


@pytest.mark.parametrize("who", ["c1", "h0"])
def test_without_a_control_unit_or_a_head_it_goes_on_from_the_last_committed_round(who):
    scenario = quick(**TINY, **SHORT)
    execution, twin = Execution(scenario, Changed(scenario)), InProcess(scenario, Changed(scenario))
    execution.play()
    state = execution.committed()
    (role,) = (role for crew in execution.crews for role in crew.everybody if role.name == who)
    execution.engine.kill(role)
    with pytest.raises(ExecutionError, match=f"{who} was lost before round 2"):
        execution.play()
    again = Execution(scenario, Changed(scenario), committed=state)
    assert len(again.replayed) == 1
    again.play()
    for _ in range(2):
        twin.play()
    assert same_weights(again.server.federation, twin.run)


def test_operations_of_an_attempt_that_was_given_up_are_skipped():
    device = Device(0, 1, "virtual", 1.0, device_setting(quick()))
    device.abort(3)
    assert device.run(2, FORWARD, 0, 0, True) is LOST
    with pytest.raises(AttributeError):  # it has no stage yet
        device.run(3, FORWARD, 0, 0, True)


def test_devices_import_no_more_than_they_need():
    unwanted = "{'pydantic', 'numba', 'scipy', 'yaml', 'collapipe_env.scenario'}"
    checked = f"import collapipe_env.execution.device, sys; print(sorted({unwanted} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", checked], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"

"""Timelines of executed rounds: the priced one again, or that of a recovery."""

import io

import pytest
from executed_support import TINY, Changed, failing, quick
from numpy.testing import assert_allclose
from rich.console import Console

from collapipe_env.execution.comparison_page import comparison_page, phase_page
from collapipe_env.execution.driver import Execution, Failures
from collapipe_env.execution.measured_timeline import both_timelines, measured_timeline
from collapipe_env.execution.pictures import executed_charts
from collapipe_env.execution.predicted import predicted_events
from collapipe_env.execution.price_comparison import compare_round
from collapipe_env.execution.round_reports import remaining_script
from collapipe_env.rendering.chrome_trace import chrome_trace


@pytest.fixture(scope="module")
def rounds():
    """Two rounds by the virtual clock; in the first one a device of the first cluster fails."""
    scenario = quick()
    execution = Execution(scenario, Changed(scenario, schedule="1f1b", micro_batches=8))
    return [execution.play(Failures(faults=[(0, 2, 1.0)])), execution.play()]


def phases(timeline):
    return {phase.label: (phase.start_s, phase.end_s) for phase in timeline.phases}


def test_rounds_without_losses_are_drawn_as_they_were_priced(rounds):
    planned, result = rounds[1]
    for n in range(2):
        priced = predicted_events(planned.record, 0, n)
        found = measured_timeline(planned, result, n)
        assert found.phases == priced.phases
        assert [element.label for element in found.elements] == [e.label for e in priced.elements]
        assert_allclose(
            sorted((e.element, e.micro_batch, e.start_s, e.end_s) for e in found.events),
            sorted((e.element, e.micro_batch, e.start_s, e.end_s) for e in priced.events),
            atol=1e-9,
        )


def test_a_loss_is_drawn_with_its_recovery_and_the_plan_that_was_left(rounds):
    planned, result = rounds[0]
    found = measured_timeline(planned, result, 0)
    (recovery,) = result["recoveries"][0]
    known = phases(found)
    assert known["step"] == (0.0, 1.0)
    assert known["detection"] == (1.0, 3.0)
    assert known["replay"][0] == pytest.approx(recovery["resume_s"])
    assert known["upload"][1] == pytest.approx(result["cluster_s"][0])
    assert found.end_s == pytest.approx(result["delay_s"])
    assert min(event.start_s for event in found.events) == pytest.approx(recovery["resume_s"])
    # The second of three devices is gone: two stages are left, and all blocks are theirs.
    stages = [element for element in found.elements if element.kind == "compute"]
    assert [element.node for element in stages] == [1, 3]
    assert all(event.element < len(found.elements) for event in found.events)


@pytest.mark.parametrize("later_s", [1.0, 2.0, 3.2, 6.0])
def test_overlapping_recoveries_are_drawn_and_counted_once(later_s):
    """The second device fails while the first is missed, while it is replaced, or after that."""
    scenario = quick(**{"cluster.clusters": 1, "cluster.devices": 4})
    execution = Execution(scenario, Changed(scenario, schedule="1f1b", micro_batches=8))
    planned, result = execution.play(Failures(faults=[(0, 2, 1.0), (0, 3, later_s)]))
    first, second = result["recoveries"][0]
    found = measured_timeline(planned, result, 0)
    drawn = {}
    for phase in found.phases:
        drawn[phase.label] = drawn.get(phase.label, 0.0) + phase.end_s - phase.start_s
    assert [phase.start_s for phase in found.phases[1:]] == [phase.end_s for phase in found.phases[:-1]]
    assert phases(found)["upload"][1] == pytest.approx(result["cluster_s"][0])
    (cluster,) = compare_round(1, planned, result).clusters
    until_s = min(later_s, first["resume_s"])
    covered_s = until_s - 1.0 + second["resume_s"] - later_s
    assert cluster.recovery_s == pytest.approx(covered_s)
    recovering_s = sum(drawn[label] for label in ("detection", "planning", "moves") if label in drawn)
    assert recovering_s == pytest.approx(covered_s)
    assert drawn["detection"] == pytest.approx(min(later_s - 1.0, 2.0) + 2.0)


def test_a_round_that_was_given_up_is_said_to_have_trained_nothing():
    scenario = failing(on_mean_s=1e9, recovery="drop-round")
    execution = Execution(scenario, Changed(scenario))
    compared = compare_round(1, *execution.play(Failures(faults=[(1, 2, 1.0)])))
    assert [cluster.given_up for cluster in compared.clusters] == [False, True]
    page = comparison_page("rounds", [compared], "virtual").markdown()
    assert page.count("c1d1; given up: trained nothing") == 1


@pytest.mark.parametrize("at_s", [1.0, 3.0])
def test_nothing_is_kept_of_an_attempt_that_was_given_up(at_s):
    scenario = quick(**{"cluster.clusters": 1})
    execution = Execution(scenario, Changed(scenario, schedule="1f1b", micro_batches=8))
    _, result = execution.play(Failures(faults=[(0, 2, at_s)]))
    (recovery,) = result["recoveries"][0]
    begins = [event[6] for event in result["events"] if event[0] == 0]
    assert min(begins) >= recovery["resume_s"] - 1e-9
    left = remaining_script(recovery)
    each = 2 * left.micro_batches  # the server's, a forward and a backward pass of each
    server = [event for event in result["events"] if event[0] == 0 and event[2] == 2 * len(left.stages) + 2]
    assert len(server) == each


def test_a_cluster_that_has_lost_nobody_waits_for_one_that_has(rounds):
    planned, result = rounds[0]
    found = measured_timeline(planned, result, 1)
    known = phases(found)
    assert known["upload"][1] == pytest.approx(result["cluster_s"][1])
    assert known["wait"] == pytest.approx((result["cluster_s"][1], result["cluster_s"][0]))
    assert found.end_s == pytest.approx(result["delay_s"])


def test_what_is_written_has_both_timelines(rounds):
    events = chrome_trace(both_timelines(rounds))["traceEvents"]
    groups = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert groups == {"c0 priced", "c0 measured", "c1 priced", "c1 measured"}
    last_us = max(e["ts"] + e["dur"] for e in events if e["ph"] == "X")
    assert last_us == pytest.approx(1e6 * sum(result["delay_s"] for _, result in rounds))
    names = [chart.name for chart in executed_charts(*rounds[0])]
    assert names == ["c0 planned", "c0 measured", "c1 priced", "c1 measured"]


def test_the_comparison_prices_losses_that_the_simulator_does_not_know(rounds):
    compared = [compare_round(number, *one) for number, one in enumerate(rounds, 1)]
    lost, usual = compared[0].clusters
    assert lost.lost == ("c0d1",)
    assert lost.delay_priced_s > rounds[0][0].record.costs.cluster_delay[0, 0]
    for cluster in (lost, usual, *compared[1].clusters):
        assert cluster.delay_measured_s == pytest.approx(cluster.delay_priced_s, abs=1e-9)
        assert cluster.late_most_s == 0.0
    assert usual.step_measured_s == pytest.approx(usual.step_priced_s, abs=1e-9)
    for whole, (_, result) in zip(compared, rounds, strict=True):
        assert whole.delay_priced_s == pytest.approx(whole.delay_measured_s, abs=1e-9)
        assert whole.delay_measured_s == result["delay_s"]
    page = comparison_page("rounds", compared, "virtual").markdown()
    assert "| 1 | c0 | 1f1b, M = 8 |" in page
    assert "c0d1" in page


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("lost", [False, True])
def test_tables_fit_the_terminal(rounds, lost, width):
    chosen = rounds if lost else [rounds[1]] * 2
    compared = [compare_round(number, *one) for number, one in enumerate(chosen, 1)]
    for page in (comparison_page("rounds", compared, "virtual"), phase_page(compared)):
        output = io.StringIO()
        page.print(Console(file=output, width=width))
        assert "cluster" in output.getvalue()
        assert max(map(len, output.getvalue().splitlines())) <= width
    shown = comparison_page("rounds", compared, "virtual").markdown()
    assert ("| lost |" in shown) == ("T_step is not measured" in shown) == lost


@pytest.mark.parametrize(("scale", "head"), [(0.5, "copies"), (2.0, "common")])
def test_rounds_are_priced_with_their_losses_as_the_simulator_prices_them(scale, head):
    """Failures that the simulator knows of are in its own price, others come on top."""
    known = failing(on_mean_s=5.0, recovery="light")
    known = known.with_overrides({**TINY, "workload.local_steps": 2, "workload.head": head})
    execution = Execution(known, Changed(known), seed=1)
    played = [execution.play() for _ in range(2)]
    assert any(planned.failures for planned, _ in played)
    for number, (planned, result) in enumerate(played, 1):
        whole = compare_round(number, planned, result)
        assert whole.delay_priced_s == float(planned.record.costs.delay[0])
        # The slower cluster is the one that counts, whichever has lost something.
        slowest = max(cluster.delay_priced_s for cluster in whole.clusters)
        faster = next(c for c in whole.clusters if c.delay_priced_s < slowest)
        script = {"delay_s": scale * slowest}
        lost = {"device": 9, "script": script, "resume_s": 1.0, "at_s": 0.5, "dropped": False}
        recoveries = [[lost] if n == faster.cluster else result["recoveries"][n] for n in range(2)]
        told = compare_round(number, planned, {**result, "recoveries": recoveries})
        expected = max(scale, 1.0) * slowest + planned.script.broadcast_s
        assert told.delay_priced_s == pytest.approx(expected, abs=1e-9)
        # By the wall clock devices do not fail as in the simulator, and the price leaves those failures out.
        unlost = compare_round(number, planned, {**result, "recoveries": [[], []]})
        delays = [cluster.delay_priced_s for cluster in unlost.clusters]
        assert delays == [cluster.delay_s for cluster in planned.script.clusters]


def test_a_loss_in_the_slowest_cluster_may_leave_another_one_the_slowest(rounds):
    planned, result = rounds[1]
    delays = planned.record.costs.cluster_delay[0]
    slowest = int(delays.argmax())
    script = {"delay_s": 0.1 * float(delays.min())}
    lost = {"device": 1, "script": script, "resume_s": 1.0, "at_s": 0.5, "dropped": False}
    recoveries = [[lost] if n == slowest else [] for n in range(2)]
    told = compare_round(1, planned, {**result, "recoveries": recoveries})
    assert told.delay_priced_s == pytest.approx(delays.min() + planned.script.broadcast_s, abs=1e-9)

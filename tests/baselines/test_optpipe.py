"""OptPipe: its plans against the programme's bound, its memory, its cache and its fallback."""

import importlib.util
import warnings
from dataclasses import replace

import numpy as np
import pytest
from baseline_support import PRICED, SMALL, UNEVEN, changed, first_state, loud_costs
from record_support import leaves

from collapipe_env.ground.errors import ScenarioError

pytest.importorskip("ortools", reason="OptPipe needs the extra 'optimize' (ortools), which is not installed")

from collapipe_env.baselines.optpipe import STARTS, OptPipe, OptPipeFallback, storable
from collapipe_env.baselines.planning.chain_problem import chain_problems
from collapipe_env.baselines.planning.plan_search import device_sets, quickest
from collapipe_env.baselines.planning.schedule_space import Space
from collapipe_env.physics.allocation import SCHEDULES
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation

SHORT = {"solver_time": 0.02, "max_micro_batches": 4}
"""Limits with which the result need not be good."""


def arrays_of(allocation):
    return {name: array.tolist() for name, array in leaves(allocation)}


@pytest.mark.parametrize(
    "scenario", [SMALL, load_scenario("medium"), UNEVEN, PRICED], ids=["small", "medium", "uneven", "priced"]
)
def test_decisions_are_feasible_priced_exactly_and_no_better_than_the_bound(scenario) -> None:
    state = first_state(scenario, 1, seed=3)
    parameters = system_parameters(scenario)
    scheduler = OptPipe(scenario, **SHORT)
    allocation = scheduler.act(None, state)
    check_allocation(parameters, state, allocation)
    costs = loud_costs(parameters, state, allocation)
    problems = chain_problems(parameters, state)
    for (e, n), report in scheduler.reports.items():
        assert report.executed_s == pytest.approx((costs.local_step - costs.update)[e, n], rel=1e-9)
        assert report.bound_s <= report.optimum_s <= report.executed_s
        assert report.gap >= 0.0
        assert report.proven == (report.note is None)
        # With overheads all numbers of micro-batches within the limit compete.
        numbers = [1, 2, 4] if scenario is PRICED else [scheduler.micro_batches]
        problem, devices = problems[e, n], np.flatnonzero(state.present[e, n]).tolist()
        drafts = list(Space.of(STARTS, numbers).first(device_sets(problem, devices)))
        for start in quickest(problem, drafts):
            assert report.plan.seconds(problem) <= start.seconds * (1 + 1e-12)


def test_memory_is_counted_as_the_simulator_does() -> None:
    parameters, state = system_parameters(UNEVEN), first_state(UNEVEN, 2, seed=4)
    for problem in chain_problems(parameters, state).values():
        tight = changed(problem, memory_bytes=problem.memory_bytes * 0.3)
        drafts = list(Space.of(STARTS, [16]).first(device_sets(tight, range(3))))
        plans = [found.plan for found in quickest(tight, drafts, keep=20)]
        limits = [storable(tight, plan) for plan in plans]
        for plan, most in zip(plans, limits, strict=True):
            assert (most >= 1).all()
            assert plan.fits(tight)
            for s, limit in enumerate(most):
                caps = most.copy()
                caps[s] = limit + 1
                more = plan._replace(schedule="zb-h1", caps=tuple(caps.tolist()))
                assert limit == 16 or not more.fits(tight)
        assert np.concatenate(limits).min() < 16


@pytest.fixture
def planned(monkeypatch):
    """Counts the clusters planned."""
    calls = []
    real = OptPipe.report
    monkeypatch.setattr(OptPipe, "report", lambda self, problem: (calls.append(1), real(self, problem))[1])
    return calls


def test_plans_are_kept_until_devices_leave_or_the_episode_ends(planned) -> None:
    state = first_state(SMALL, 1)
    later = replace(first_state(SMALL, 1, seed=9), round_index=state.round_index + 1)
    assert not np.array_equal(state.d2d_gain, later.d2d_gain)
    scheduler = OptPipe(SMALL, **SHORT)
    decided = scheduler.act(None, state)
    first = arrays_of(decided)
    assert arrays_of(scheduler.act(None, later)) == first
    assert len(planned) == 2

    present, memory = later.present.copy(), later.memory_bytes.copy()
    present[0, 1, 0], memory[0, 1, 0] = False, 0.0
    fewer = replace(later, present=present, memory_bytes=memory, round_index=later.round_index + 1)
    without = scheduler.act(None, fewer)
    assert without.device_blocks[0, 1, 0] == 0
    assert without.device_blocks[0, 0].tolist() == decided.device_blocks[0, 0].tolist()
    check_allocation(system_parameters(SMALL), fewer, without)
    assert len(planned) == 3
    back = replace(later, round_index=later.round_index + 2)
    assert arrays_of(scheduler.act(None, back)) == first
    assert len(planned) == 3

    other = first_state(SMALL, 1, seed=9)  # a new episode
    assert arrays_of(scheduler.act(None, other)) == arrays_of(OptPipe(SMALL, **SHORT).act(None, other))
    assert len(planned) == 7
    scheduler.reset()
    assert scheduler.reports == {}
    scheduler.act(None, later)
    assert len(planned) == 9


@pytest.mark.parametrize("options", [{"max_devices": 1}, {"max_micro_batches": 0}], ids=str)
def test_what_is_too_large_runs_1f1b_with_one_warning(options) -> None:
    state = first_state(SMALL, 2)
    scheduler = OptPipe(SMALL, **options)
    with pytest.warns(OptPipeFallback, match="the programme is limited to") as caught:
        allocation = scheduler.act(None, state)
    assert len(caught) == 1
    check_allocation(system_parameters(SMALL), state, allocation)
    assert (allocation.schedule == SCHEDULES.index("1f1b")).all()
    for report in scheduler.reports.values():
        assert "limited to" in report.note
        assert report.bound_s is report.optimum_s is report.gap is None
        stages = len(report.plan.devices)
        wanted = [min(2 * (stages - s) + 2, report.plan.micro_batches) for s in range(stages)]
        assert list(report.plan.caps) == wanted
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.act(None, replace(state, speed=state.speed * 0.5))


def test_a_solver_without_time_says_so() -> None:
    scheduler = OptPipe(SMALL, solver_time=0.0)
    scheduler.act(None, first_state(SMALL, 1))
    for report in scheduler.reports.values():
        assert not report.proven
        assert report.note.startswith("the solver's limit came first")


def test_the_largest_allowed_number_of_micro_batches_is_taken() -> None:
    assert OptPipe(SMALL).micro_batches == 16
    assert OptPipe(SMALL, max_micro_batches=12).micro_batches == 8


def test_without_or_tools_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ScenarioError, match=r"pip install 'collapipe-env\[optimize\]'"):
        OptPipe(SMALL)

"""OptPipe: the programme against brute force and the named schedules; plans, cache and fallback."""

import importlib.util
import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from baseline_support import PRICED, SMALL, UNEVEN, changed, first_state
from record_support import leaves

from collapipe_env.ground.errors import ScenarioError

pytest.importorskip("ortools", reason="OptPipe needs the extra 'optimize' (ortools), which is not installed")

from collapipe_env.baselines.optpipe import STARTS, OptPipe, OptPipeFallback, storable
from collapipe_env.baselines.planning.chain_problem import chain_problems
from collapipe_env.baselines.planning.optpipe_model import TICKS, chain_steps, solve_chain
from collapipe_env.baselines.planning.plan_search import device_sets, quickest
from collapipe_env.baselines.planning.schedule_space import Space
from collapipe_env.physics.allocation import SCHEDULES
from collapipe_env.physics.schedules.makespans import run_chain
from collapipe_env.physics.schedules.orders import BACKWARD, FORWARD, WEIGHT
from collapipe_env.physics.schedules.simulation import ChainTimes, simulate_chain
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs

NOTHING = np.zeros((0, 6))
QUICK = 0.02
"""Solver's limit where the result need not be good."""
SHORT = {"solver_time": QUICK, "max_micro_batches": 4}


def random_times(rng, S, mean_link=1.0, mean_latency=0.0) -> ChainTimes:
    forward = rng.uniform(0.5, 2.0, S + 1)
    link_f, link_b = (rng.exponential(mean_link, S + 3) for _ in range(2))
    rest = mean_latency * rng.exponential(1.0, S + 3), np.ones((S + 1, 1))
    return ChainTimes(forward, forward * rng.uniform(0.7, 1.3), forward, link_f, link_b, *rest)


def unsplit(times: ChainTimes) -> ChainTimes:
    return times._replace(backward=times.backward + times.weight, weight=np.zeros_like(times.weight))


def named(times, schedule, caps, M, half, events=NOTHING):
    kind = SCHEDULES.index(schedule)
    chain = times if schedule == "zb-h1" else unsplit(times)
    return run_chain(chain, kind, np.asarray(caps, dtype=np.int64), 1, M, half, events)


def slowest_start(times, S, M, half):
    """Events of 1F1B with one micro-batch at a time: within any limits, and far from the optimum."""
    events = np.full((M * (4 * S + 6), 6), -1.0)
    named(times, "1f1b", np.ones(S), M, half, events)
    return events


def solve(times, limits, M, half, limit=2.0):
    S = len(limits)
    start = slowest_start(times, S, M, half)
    return solve_chain(times, np.asarray(limits), M, half, start, deterministic_time=limit)


def stage_orders(M, limit):
    """All orders of F, B and W of one stage that keep micro-batches in turn and within the limit."""

    def extend(order, f, b, w):
        if w == M:
            yield order
        if f < M and f - w < limit:
            yield from extend([*order, (FORWARD, f, 0)], f + 1, b, w)
        if b < f:
            yield from extend([*order, (BACKWARD, b, 0)], f, b + 1, w)
        if w < b:
            yield from extend([*order, (WEIGHT, w, 0)], f, b, w + 1)

    return list(extend([], 0, 0, 0))


@pytest.mark.parametrize("latency", [0.0, 0.5])
@pytest.mark.parametrize(
    ("S", "M", "limit"), [(2, 2, 2), (2, 2, 1), (1, 3, 3), (1, 3, 2)], ids=lambda value: str(value)
)
def test_optimum_is_that_of_brute_force_over_the_simulator(S: int, M: int, limit: int, latency) -> None:
    times = random_times(np.random.default_rng([S, M, limit]), S, mean_latency=latency)
    limits, counts = np.full(S + 1, M), np.full(S + 1, 3 * M)
    best = np.inf
    for orders in itertools.product(*[stage_orders(M, limit)] * S, stage_orders(M, M)):
        length = simulate_chain(times, np.array(orders), counts, limits, M, 1, False, False, NOTHING)
        best = min(best, length)
    solution = solve(times, [limit] * S, M, False)
    assert solution.proven
    operations = M * (7 * S + 3 + 4)
    assert best <= solution.seconds * (1 + 1e-12)
    assert solution.seconds <= best * (1 + 20 * operations / TICKS)
    assert solution.bound <= best <= solution.bound * (1 + 20 * operations / TICKS)
    assert (solution.stored <= limit).all()


def longest_path(sequences, after, seconds):
    """Makespan of given sequences on machines; infinite if they wait for each other."""
    before = {x: [] for x in seconds}
    for x, y in itertools.chain(after, *(itertools.pairwise(q) for q in sequences)):
        before[y].append(x)
    end = {}
    while len(end) < len(seconds):
        ready = [x for x in seconds if x not in end and all(y in end for y in before[x])]
        if not ready:
            return np.inf
        for x in ready:
            end[x] = seconds[x] + max((end[y] for y in before[x]), default=0.0)
    return max(end.values())


def test_micro_batches_in_turn_lose_nothing_and_half_duplex_hops_are_one_machine() -> None:
    """Brute force over all permutations, also those that let micro-batches overtake each other."""
    M = 2
    times = random_times(np.random.default_rng(3), 1)
    times.link_forward[3], times.link_backward[3] = 0.0, 0.0  # no queue at the base station
    times.forward[1], times.backward[1], times.weight[1] = 0.0, 0.0, 0.0  # nor in the server
    steps = chain_steps(times, True)
    seconds = {(p, m): step.seconds for p, step in enumerate(steps) for m in range(M)}
    after = [((s.after, m), (p, m)) for p, s in enumerate(steps) if s.after >= 0 for m in range(M)]
    machines: dict[int, list] = {}
    for (p, m), length in seconds.items():
        if length > 0:
            machines.setdefault(steps[p].machine, []).append((p, m))
    assert sorted(map(len, machines.values())) == [4, 4, 6]
    mixes = []
    for members in machines.values():
        chains = [[x for x in members if x[1] == m] for m in range(M)]
        size = len(members)
        mixes.append([])
        for first in itertools.combinations(range(size), size // 2):
            queues = [iter(chains[0]), iter(chains[1])]
            mixes[-1].append([next(queues[0] if i in first else queues[1]) for i in range(size)])
    best = min(longest_path(sequences, after, seconds) for sequences in itertools.product(*mixes))
    solution = solve(times, [M], M, True)
    assert solution.proven
    assert solution.seconds == pytest.approx(best, rel=1e-3)
    assert solution.bound <= best


@pytest.mark.parametrize("half", [False, True], ids=["full", "half"])
@pytest.mark.parametrize("seed", range(4))
def test_no_named_schedule_beats_the_optimum(seed: int, half: bool) -> None:
    rng = np.random.default_rng([seed, half])
    S, M = int(rng.integers(1, 4)), 4
    times = random_times(rng, S, float(rng.choice([0.1, 1.0])), mean_latency=float(rng.choice([0.0, 0.5])))
    limits = rng.integers(1, M + 1, S)
    solution = solve(times, limits, M, half, limit=0.3)
    lengths = [
        named(times, schedule, np.minimum(caps, limits), M, half)
        for schedule in ("1f1b", "zb-h1")
        for caps in (np.arange(S, 0, -1) + 1, np.full(S, M), np.ones(S, dtype=np.int64))
    ]
    if (limits == M).all():
        lengths.append(named(times, "gpipe", limits, M, half))
    assert solution.bound <= min(lengths) * (1 + 1e-12)
    assert solution.bound <= solution.seconds
    if solution.proven:
        assert solution.seconds <= min(lengths) * (1 + 20 * M * (7 * S + 7) / TICKS)
    assert_sound(solution, times, limits, M, half)


def assert_sound(solution, times, limits, M, half) -> None:
    """Every operation once, after what it needs, alone on its machine, and memory kept."""
    steps = chain_steps(times, half)
    assert len(steps) == 7 * len(limits) + 7 - 2 * len(limits)
    at = {(op.step, op.micro_batch): op for op in solution.operations}
    assert set(at) == set(itertools.product(range(len(steps)), range(M)))
    machines: dict[int, list] = {}
    for (p, m), op in at.items():
        assert op.end - op.start == pytest.approx(steps[p].seconds)
        if steps[p].after >= 0:
            before = steps[steps[p].after]
            assert op.start >= at[steps[p].after, m].end + before.latency - 1e-9
        machines.setdefault(steps[p].machine, []).append(op)
    for members in machines.values():
        members.sort(key=lambda op: op.start)
        assert all(x.end <= y.start + 1e-9 for x, y in itertools.pairwise(members))
    assert len(machines) == (2 * len(limits) + 4 if half else 3 * len(limits) + 5)
    for s, limit in enumerate(limits):
        mine = [op for op in machines[s] if steps[op.step].kind == FORWARD]
        gone = np.array([op.end for op in machines[s] if steps[op.step].kind == WEIGHT])
        stored = [i + 1 - int((gone <= op.start + 1e-9).sum()) for i, op in enumerate(mine)]
        assert max(stored) == solution.stored[s] <= limit
    assert {step.resource for step in steps if step.latency} <= set(
        range(len(limits) + 1, 3 * len(limits) + 7)
    )
    assert max(op.end + steps[op.step].latency for op in solution.operations) == solution.seconds


def test_a_schedule_is_read_as_it_was_run() -> None:
    """A solver without time returns the warm start, as long as the simulation (1F1B gains by the split)."""
    rng = np.random.default_rng(5)
    for half, schedule in itertools.product((False, True), ("1f1b", "zb-h1")):
        S, M = 3, 5
        times = random_times(rng, S, mean_latency=0.3)
        events = np.full((M * 30, 6), -1.0)
        length = named(times, schedule, [4, 3, 2], M, half, events)
        events = events[events[:, 0] >= 0]
        solution = solve_chain(times, np.full(S, M), M, half, events, deterministic_time=0.0)
        assert not solution.proven
        assert 0.0 < solution.bound <= solution.seconds
        if schedule == "zb-h1":
            assert solution.seconds == pytest.approx(length, rel=1e-12)
        else:
            assert solution.seconds < length
            assert solution.warm_ups.tolist() == solution.in_flight.tolist() == [4, 3, 2]


def test_the_solver_repeats_itself() -> None:
    times = random_times(np.random.default_rng(8), 3)
    one, two = (solve(times, [6, 4, 3], 6, False, limit=QUICK) for _ in range(2))
    assert one.operations == two.operations
    assert one.bound == two.bound


def fields_of(allocation):
    return {name.lstrip("."): array.tolist() for name, array in leaves(allocation)}


@pytest.mark.parametrize(
    "scenario", ["small", "medium", UNEVEN, PRICED], ids=["small", "medium", "uneven", "priced"]
)
def test_decisions_are_feasible_priced_exactly_and_no_better_than_the_bound(scenario) -> None:
    scenario = load_scenario(scenario) if isinstance(scenario, str) else scenario
    state = first_state(scenario, 1, seed=3)
    parameters = system_parameters(scenario)
    scheduler = OptPipe(scenario, **SHORT)
    allocation = scheduler.act(None, state)
    check_allocation(parameters, state, allocation)
    assert (allocation.device_blocks[~state.present] == 0).all()
    assert np.allclose(allocation.bandwidth, 1.0 / scenario.clusters)
    assert (allocation.device_power == parameters.power_max_w).all()
    costs = round_costs(parameters, state, allocation)
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
    again = OptPipe(scenario, **SHORT).act(None, state)
    assert fields_of(again) == fields_of(allocation)


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
    first = fields_of(decided)
    assert fields_of(scheduler.act(None, later)) == first
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
    assert fields_of(scheduler.act(None, back)) == first
    assert len(planned) == 3

    other = first_state(SMALL, 1, seed=9)  # a new episode
    assert fields_of(scheduler.act(None, other)) == fields_of(OptPipe(SMALL, **SHORT).act(None, other))
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

"""OptPipe's programme against brute force and the named schedules."""

import itertools

import numpy as np
import pytest
from oracles.chain_orders import longest_path, stage_orders

pytest.importorskip("ortools", reason="OptPipe needs the extra 'optimize' (ortools), which is not installed")

from collapipe_env.baselines.planning.optpipe_model import TICKS, chain_steps, solve_chain
from collapipe_env.physics.allocation import SCHEDULES
from collapipe_env.physics.schedules.makespans import run_chain
from collapipe_env.physics.schedules.orders import FORWARD, WEIGHT
from collapipe_env.physics.schedules.simulation import ChainTimes, simulate_chain

NOTHING = np.zeros((0, 6))


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
    one, two = (solve(times, [6, 4, 3], 6, False, limit=0.02) for _ in range(2))
    assert one.operations == two.operations
    assert one.bound == two.bound

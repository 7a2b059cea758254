"""Plan search and its users: moves, no quicker neighbour, near the exhaustive optimum, times as charged."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from baseline_support import (
    BASE,
    HALF,
    PRICED,
    RECOMPUTED,
    RELAYED,
    SMALL,
    TIGHT,
    UNEVEN,
    changed,
    decide,
    first_state,
    loud_costs,
    random_plan,
    random_problem,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.planned_chains import simulated
from oracles.splits import positive_splits
from unpriced_support import unpriced

from collapipe_env.baselines.adaptis import AdaPtis, neighbourhood, start_drafts
from collapipe_env.baselines.flexpipe import DEFAULT_SCHEDULES, FlexPipe
from collapipe_env.baselines.optpipe import OptPipe
from collapipe_env.baselines.pipar import PiPar
from collapipe_env.baselines.planning import schedule_space
from collapipe_env.baselines.planning.chain_problem import chain_problems
from collapipe_env.baselines.planning.draft_pricing import lower_bound
from collapipe_env.baselines.planning.plan_search import (
    micro_batch_options,
    quickest,
    rearranged,
    resized_devices,
    shifted_blocks,
    usable_devices,
)
from collapipe_env.baselines.planning.schedule_space import Space
from collapipe_env.baselines.planning.scheduled_plan import ScheduledPlan, allocation_of, caps_of
from collapipe_env.ground.errors import AllocationError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs

OPTIONS = (2, 4, 8)
SPACE = Space.of(DEFAULT_SCHEDULES, OPTIONS)


def adaptis(problem, restarts=0) -> ScheduledPlan:
    """AdaPtis's plan of a cluster of its own."""
    return AdaPtis(SMALL.with_overrides({"workload.micro_batches": OPTIONS}), restarts=restarts).search(
        problem
    )


def flexpipe(problem, width=2) -> ScheduledPlan:
    return schedule_space.search(problem, SPACE, width).plan


def neighbours(name, problem, plan):
    """Drafts of all plans next to one."""
    usable = usable_devices(problem, OPTIONS[-1])
    if name == "flexpipe":
        return list(SPACE.neighbours(plan, usable))
    kinds = neighbourhood(problem, OPTIONS, usable)
    assert [len(kind) for kind in kinds] == [2, 1, 1]  # partition, placement, schedule
    return [draft for kind in kinds for moves in kind for draft in moves(plan)]


def plain_starts(name, options):
    """The plans that a search must not be slower than, as functions of a problem."""
    if name == "adaptis":
        return [lambda problem: start_drafts(usable_devices(problem, options[-1]), options)]
    schedules = SPACE.schedules
    return [lambda problem, s=s: [s.plan(16, usable_devices(problem, 16))] for s in schedules]


@pytest.mark.parametrize("scenario", [SMALL, load_scenario("medium"), UNEVEN, HALF, TIGHT], ids=str)
@pytest.mark.parametrize("kind", [AdaPtis, FlexPipe])
def test_plans_are_feasible_and_never_slower_than_the_plain_ones(kind, scenario) -> None:
    state, parameters, scheduler = (
        first_state(scenario, 2, seed=3),
        system_parameters(scenario),
        kind(scenario),
    )
    allocation = scheduler.act(None, state)
    check_allocation(parameters, state, allocation)
    delay = loud_costs(parameters, state, allocation).cluster_delay
    problems, compared, shorter = chain_problems(parameters, state), 0, False
    for start in plain_starts(scheduler.name.lower(), micro_batch_options(parameters, None)):
        found = {at: quickest(problem, start(problem)) for at, problem in problems.items()}
        if all(found.values()):
            before = allocation_of(parameters, state, {at: each[0].plan for at, each in found.items()})
            check_allocation(parameters, state, before)
            plain = loud_costs(parameters, state, before).cluster_delay
            compared += 1
            assert (delay <= plain * (1 + 1e-9)).all()
            shorter |= bool((delay < plain * 0.999).any())
    assert compared >= (1 if kind is AdaPtis else 3)
    assert shorter


@pytest.mark.parametrize("half_duplex", [False, True])
@pytest.mark.parametrize("search", [adaptis, flexpipe])
def test_no_neighbour_of_a_plan_is_quicker(search, half_duplex: bool) -> None:
    rng = np.random.default_rng(11)
    for _ in range(5):
        problem = random_problem(rng, 4, 7, half_duplex)
        best = search(problem)
        # By the event simulation, not by the searches' own recurrence.
        least = simulated(problem, best)
        assert best.seconds(problem) == pytest.approx(least, rel=1e-12)
        for draft in neighbours(search.__name__, problem, best):
            for found in quickest(problem, [draft]):
                assert simulated(problem, found.plan) >= least * (1 - 1e-8)
        (first,) = quickest(problem, list(SPACE.first([usable_devices(problem, 8)])))
        assert search is adaptis or least <= first.seconds * (1 + 1e-9)


def exhaustive(problem) -> float:
    """The best over device maps, partitions, schedules, uniform and ruled caps and micro-batches."""
    usable, drafts = usable_devices(problem, OPTIONS[-1]), []
    for S in range(1, len(usable) + 1):
        for devices, held, M in itertools.product(
            itertools.permutations(usable, S), positive_splits(problem.numbers.blocks, S), OPTIONS
        ):
            drafts.append(ScheduledPlan(devices, held, "gpipe", (1,) * S, M))
            for schedule in ("1f1b", "zb-h1"):
                wanted = {(cap,) * S for cap in range(1, M + 1)}
                wanted |= {caps_of(rule, schedule, S) for rule in ("ordinary", "link")}
                drafts += [ScheduledPlan(devices, held, schedule, caps, M) for caps in wanted]
    return quickest(problem, drafts)[0].seconds


def test_the_gaps_of_both_searches_to_the_exhaustive_one_are_small_and_effort_does_not_widen_them() -> None:
    rng = np.random.default_rng(13)
    searches = (
        adaptis,
        partial(adaptis, restarts=3),
        partial(flexpipe, width=1),
        partial(flexpipe, width=4),
    )
    gaps = []
    for trial in range(8):
        problem = random_problem(rng, 3, 5, trial % 4 == 3)
        best = exhaustive(problem)
        gaps.append([search(problem).seconds(problem) / best - 1.0 for search in searches])
        assert gaps[-1][1] <= gaps[-1][0]
    mean, worst = np.mean(gaps, axis=0), np.max(gaps, axis=0)
    assert (mean[[0, 2]] < 0.05).all()
    assert (worst < [0.15, 0.05, 0.15, 0.1]).all()


@pytest.mark.parametrize("duplex", ["full", "half"])
@pytest.mark.parametrize(
    "base", [UNEVEN, PRICED, RELAYED, RECOMPUTED], ids=["uneven", "priced", "relayed", "recomputed"]
)
def test_a_plan_lasts_as_long_as_planned(base, duplex: str) -> None:
    """With memory for any schedule."""
    roomy = [{"switched_capacitance": 1e-28, "memory_bytes": [1e12]}]
    scenario = base.with_overrides({"radio.d2d_duplex": duplex, "devices.profiles": roomy})
    parameters, rng, seen = system_parameters(scenario), np.random.default_rng(1), set()
    state = first_state(scenario, 1, seed=2)
    problem = chain_problems(parameters, state)[0, 0]
    others = {at: ScheduledPlan((0,), (6,), "gpipe", (1,), 1) for at in np.ndindex(state.uplink_gain.shape)}
    for _ in range(60):
        plan = random_plan(rng, 3, 6)
        if plan.schedule == "1f1b" and rng.random() < 0.5:
            plan = plan._replace(schedule="async")
        played = allocation_of(parameters, state, {**others, (0, 0): plan})
        costs, charged = loud_costs(parameters, state, played), round_costs(parameters, state, played)
        planned = plan.seconds(problem)
        assert planned == pytest.approx((costs.cluster_delay - costs.upload)[0, 0], rel=1e-9), plan
        assert (charged.cluster_delay <= costs.cluster_delay).all()
        assert lower_bound(problem, plan.arrays()) <= planned * (1 + 1e-12)
        seen.add(plan.schedule)
    assert seen == {"gpipe", "1f1b", "zb-h1", "interleaved", "async"}


def test_devices_without_room_are_not_used_and_too_little_memory_is_refused() -> None:
    room = BASE.numbers.block_state_bytes + BASE.numbers.activation_bytes * BASE.numbers.batch_size / 64
    problem = changed(BASE, memory_bytes=np.array([4.5, 0.5, 2.5]) * room)
    assert usable_devices(problem, 64) == (0, 2)
    with pytest.raises(AllocationError, match=r"can hold only 6 blocks .* encoder has 7"):
        usable_devices(changed(problem, blocks=7), 64)
    speeds = np.array([0.2, 0.3, 0.1])
    crowd = changed(BASE, blocks=2, memory_bytes=np.full(3, 9 * room), block_forward=speeds)
    assert usable_devices(crowd, 64) == (0, 2)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 2))
@settings(max_examples=50)
def test_moves_keep_blocks_and_devices(held: list[int], idle: int) -> None:
    S = len(held)
    devices, usable = tuple(range(S)), tuple(range(S + idle))
    shifted = list(shifted_blocks(tuple(held), range(S)))
    assert len(shifted) == 2 * (S - 1)
    assert all(sum(h) == sum(held) and np.abs(np.subtract(h, held)).sum() == 2 for h in shifted)
    plan = ScheduledPlan(devices, tuple(held), "1f1b", (1,) * S, 4)
    moved = list(rearranged(plan, usable))
    exchanged = list({p.devices: None for p in moved})
    assert len(exchanged) == S * (S - 1) // 2 + S * idle
    assert len(moved) == S * (S - 1) + S * idle
    with_device = dict(zip(devices, held, strict=True))
    for stay, go in itertools.pairwise(moved):
        if stay.devices == go.devices:
            assert stay.held == plan.held
            assert go.held == tuple(with_device[k] for k in go.devices)
    resized = list(resized_devices(devices, usable))
    assert len(set(resized)) == len(resized) == (S if S > 1 else 0) + idle * (S + 1)
    assert all(len(set(d)) == len(d) and set(d) <= set(usable) for d in exchanged + resized)


def test_options_are_all_numbers_where_they_cost_and_the_largest_few_where_not() -> None:
    free, priced = system_parameters(unpriced(SMALL)), system_parameters(PRICED)
    assert micro_batch_options(priced, None) == (1, 2, 4, 8, 16, 64)
    assert micro_batch_options(free, None) == (4, 16, 32, 64)
    assert micro_batch_options(system_parameters(SMALL), None) == free.micro_batch_choices
    assert micro_batch_options(priced, 5) == micro_batch_options(free, 5) == (4,)
    for field in free.overheads._fields:
        costly = replace(free, overheads=free.overheads._replace(**{field: 1e-9}))
        assert micro_batch_options(costly, None) == free.micro_batch_choices


@pytest.mark.parametrize("kind", [AdaPtis, FlexPipe, PiPar])
def test_numbers_of_micro_batches_are_chosen_inside_their_range_and_pay(kind) -> None:
    # PiPar overlaps one device with the server and the uplink, which has to take its part of a round.
    narrow = {
        "radio.uplink_bandwidth_hz": 15e6,
        "radio.downlink_bandwidth_hz": 15e6,
        "overheads.edge_message_s": 0.03,
    }
    base = PRICED.with_overrides(narrow | {"budgets.cu_energy_j": 2000.0}) if kind is PiPar else PRICED
    parameters, state = system_parameters(base), first_state(base, 2, seed=4)

    def planned(options=None, scenario=base):
        plan = decide(kind(scenario, **(options or {})), state)
        costs = round_costs(parameters, state, plan)
        # PiPar plans the clusters together.
        return plan.micro_batches, costs.delay if kind is PiPar else costs.cluster_delay

    numbers, ours = planned()
    assert (numbers > 1).any()
    assert (numbers < 64).all()
    for M in (1, 64):
        one = base.with_overrides({"workload.micro_batches": [M]})
        fixed = planned(scenario=one) if kind is PiPar else planned({"micro_batches": M})
        assert (ours < 0.95 * fixed[1]).all()


def test_optpipe_takes_the_number_with_the_quickest_warm_start() -> None:
    pytest.importorskip("ortools", reason="OptPipe needs the extra 'optimize'")
    parameters, state = system_parameters(PRICED), first_state(PRICED, 1, seed=4)
    before = np.inf
    for most in (1, 2, 4, 8, 16):
        plan = OptPipe(PRICED, solver_time=0.0, max_micro_batches=most).act(None, state)
        delay = round_costs(parameters, state, plan).cluster_delay
        assert (plan.micro_batches <= most).all()
        assert (delay <= before * (1 + 1e-12)).all()
        before = delay
    assert (plan.micro_batches > 1).all()
    assert (plan.micro_batches < 16).any()

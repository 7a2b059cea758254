"""The joint search of open decisions: exact prices, and no single change of a plan that pays."""

import itertools
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scheduler_support as support
from variants_support import mostly_slow

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.dssra.joint_jumps import explicit
from collapipe_env.agents.dssra.joint_prices import JointPrices, Worth
from collapipe_env.agents.dssra.plus import DSSRAPlus
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import GPIPE, stack_allocations
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.memory_choices import SCHEDULE_CHOICES

WAITING = {"workload.head": "common", "workload.local_steps": 4}


def opening(base, *names, **changes):
    return base.with_overrides(
        {"decisions": [*COLLAPIPE, *names], "name": "-".join((*names, "open")), **changes}
    )


CLOCKS = opening(support.SMALL, "clock_cap")
SCHEDULES = opening(support.SMALL, "schedule")
BOTH = opening(support.MEDIUM, "schedule", "clock_cap")
SMALL_BOTH = opening(support.SMALL, "schedule", "clock_cap")
COMMON = opening(support.SMALL, **WAITING)
ALL = opening(support.PRICED, "schedule", "clock_cap", "recompute", "server_blocks", **WAITING)
SECONDS = opening(support.SMALL, "schedule", "clock_cap", **{"budgets.per": "second"})
SERVED = opening(support.SMALL, "clock_cap", **{"server.terms": "contended", "server.energy_budget_j": 4.0})
TINY = opening(
    support.SMALL, "clock_cap", **{"cluster.clusters": 2, "cluster.devices": 2, "budgets.device_energy_j": 12}
)
WARM = load_scenario(
    {
        "base": "small",
        "name": "warm",
        "decisions": [*COLLAPIPE, "clock_cap"],
        "workload": {"local_steps": 4},
        "budgets": {"device_energy_j": 1e4, "cu_energy_j": 1e3},
        "dynamics": {"processes": {"heat": {"capacity_j_per_k": 8.0, "governor": "pause"}}},
    }
)


@pytest.mark.parametrize("drift", ["exact", "bound"])
@pytest.mark.parametrize("scenario", [CLOCKS, BOTH, COMMON, ALL], ids=lambda s: s.name)
def test_plans_are_compared_by_the_objective(scenario, drift):
    """Prices of random plans differ as the objectives of the simulator's costs do."""
    if drift == "exact":
        # With idle radios this drift is no straight line in the delay, which the search prices by the second.
        scenario = scenario.with_overrides({"radio.idle_w": 0.0})
    scheduler = DSSRA(scenario, drift=drift, convergence_weight=0.3, threads=1)
    p, state = scheduler.parameters, support.loaded_state(scenario, 6, 3)
    plans = [support.random_plan(scenario, state, seed) for seed in range(5)]
    worth = Worth(p, scheduler.tradeoff_v, drift == "exact", 0.3, None, None)
    pricing, rows = JointPrices(worth, state, plans[0]), np.arange(6)
    found = [pricing.whole(pricing.of(explicit(p, q), rows), rows, 0.0 * rows) for q in plans]
    expected = [scheduler.objective(state, q) for q in plans]
    np.testing.assert_allclose(np.diff(found, axis=0), np.diff(expected, axis=0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scenario", [CLOCKS, BOTH, COMMON], ids=lambda s: s.name)
def test_a_change_of_one_cluster_alone_is_priced_exactly(scenario):
    """At the others' interference, which the change does not touch."""
    scheduler = DSSRA(scenario, threads=1)
    p, state = scheduler.parameters, support.loaded_state(scenario, 2, 4)
    state = replace(state, cross_gain=np.zeros_like(state.cross_gain))
    base, other = (explicit(p, support.random_plan(scenario, state, seed)) for seed in (1, 2))
    other = replace(other, bandwidth=base.bandwidth)
    worth = Worth(p, scheduler.tradeoff_v, True, 0.0, None, None)
    pricing, rows, t = JointPrices(worth, state, base), np.arange(2), np.full(2, 0.3)
    alone = pricing.alone(pricing.of(base, rows), pricing.of(other, rows), rows, t)
    for n in range(p.clusters):
        own = np.arange(p.clusters) == n
        mixed = base.map(lambda a: a)
        for name in ("blocks", "micro_batches", "device_power", "cu_power", "schedule", "caps", "clock_cap"):
            one, two = base.given(name), other.given(name)
            if one is not None:
                keep = own if np.ndim(one) == 2 else own[:, None]
                mixed = replace(mixed, **{name: np.where(keep, two, one)})
        expected = pricing.whole(pricing.of(mixed, rows), rows, t)
        np.testing.assert_allclose(alone[:, 0, n], expected, rtol=1e-9)


def neighbours(scheduler, state, plan):
    """Playable plans that differ from one of one environment in a single whole number, or a clock."""
    p, K = scheduler.parameters, plan.blocks.shape[2]
    for n in range(p.clusters):
        for giver, taker in itertools.permutations(range(K), 2):
            if plan.blocks[0, n, giver] > 0 and plan.blocks[0, n, taker] > 0:
                blocks = plan.blocks.copy()
                blocks[0, n, giver] -= 1
                blocks[0, n, taker] += 1
                yield replace(plan, blocks=blocks)
        for M in p.micro_batch_choices:
            numbers = plan.micro_batches.copy()
            numbers[0, n] = M
            caps = {} if plan.caps is None else {"caps": np.minimum(plan.caps, numbers[..., None])}
            yield replace(plan, micro_batches=numbers, **caps)
        for kind in SCHEDULE_CHOICES if plan.schedule is not None else ():
            schedule, caps = plan.schedule.copy(), plan.caps.copy()
            schedule[0, n] = kind
            held = (plan.blocks[0, n] > 0) & (kind != GPIPE)
            caps[0, n] = np.where(held, plan.micro_batches[0, n], 0)
            yield replace(plan, schedule=schedule, caps=caps)
        for k, factor in itertools.product(range(K), (0.98, 1.02)) if plan.clock_cap is not None else ():
            clocks = plan.clock_cap.copy()
            clocks[0, n, k] = np.clip(factor * clocks[0, n, k], p.clock_cap_min, 1.0)
            yield replace(plan, clock_cap=clocks)


@pytest.mark.parametrize(
    ("scenario", "seed"),
    [
        *mostly_slow(itertools.product([CLOCKS, SCHEDULES, COMMON], range(2)), (0, 2, 4)),
        *mostly_slow(itertools.product([SMALL_BOTH, BOTH, ALL], range(2))),
    ],
    ids=lambda x: getattr(x, "name", x),
)
def test_no_single_change_pays(scenario, seed):
    scheduler, state = DSSRA(scenario, threads=1), support.loaded_state(scenario, 1, seed)
    plan, playable = scheduler.allocate(state), []
    check_allocation(scheduler.parameters, state, plan)
    for one in neighbours(scheduler, state, plan):
        with suppress(AllocationError):
            check_allocation(scheduler.parameters, state, one)
            playable.append(one)
    assert len(playable) > 8
    many = stack_allocations(playable, np.concatenate)
    rows = state.map(partial(np.repeat, repeats=len(playable), axis=0))
    worth = scheduler.tradeoff_v * round_costs(scheduler.parameters, state, plan).delay[0]
    gain = scheduler.objective(state, plan)[0] - scheduler.objective(rows, many)
    assert gain.max() <= 1e-3 * worth


@pytest.mark.parametrize("scenario", [CLOCKS, SCHEDULES, COMMON, SECONDS, SERVED], ids=lambda s: s.name)
def test_each_environment_is_decided_as_if_alone(scenario):
    state = support.loaded_state(scenario, 2, 5, rounds=1)
    scheduler = DSSRA(scenario, threads=1, turns=1)
    plan = scheduler.allocate(state)
    support.assert_same(scheduler.allocate(state[1:]), plan[1:])
    check_allocation(scheduler.parameters, state, plan)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "scenario", mostly_slow([support.SMALL, CLOCKS, SCHEDULES], (0, 1)), ids=lambda s: s.name
)
def test_a_device_without_links_gets_no_blocks_and_an_empty_batch_no_plans(scenario):
    scheduler, state = DSSRA(scenario, threads=1), support.loaded_state(scenario, 2, 1)
    assert len(scheduler.allocate(state.map(lambda a: a[:0])).blocks) == 0
    gain = state.d2d_gain.copy()
    gain[0, 0, 1, :] = gain[0, 0, :, 1] = 0.0
    plan = scheduler.allocate(replace(state, d2d_gain=gain))
    assert plan.blocks[0, 0, 0] == 0
    support.assert_same(plan[1:], scheduler.allocate(state)[1:])
    # Without any link no round ends, but the plan can be played.
    for dead in ({"uplink_gain": 0.0 * state.uplink_gain}, {"d2d_gain": 0.0 * state.d2d_gain}):
        lost = replace(state, **dead)
        check_allocation(scheduler.parameters, lost, scheduler.allocate(lost))


def test_a_system_needs_a_batch_axis():
    state, scheduler = support.loaded_state(ALL, 1, 1), DSSRA(ALL, threads=1)
    with pytest.raises(AllocationError, match="a batch axis"):
        scheduler.allocate(state.map(lambda a: a[0]))


@pytest.mark.parametrize("scenario", mostly_slow([CLOCKS, SCHEDULES, BOTH], (0, 1)), ids=lambda s: s.name)
@pytest.mark.parametrize("drift", ["exact", "bound"])
def test_open_decisions_never_make_the_objective_worse(scenario, drift):
    closed = DSSRA(scenario.with_overrides({"decisions": list(COLLAPIPE)}), drift=drift, threads=1)
    scheduler, state = DSSRA(scenario, drift=drift, threads=1), support.loaded_state(scenario, 1, 7)
    plan = scheduler.allocate(state)
    one = scheduler.objective(state, plan)
    assert (one <= closed.objective(state, closed.allocate(state)) + 1e-9).all()
    # A plan to begin with is never lost either.
    again = scheduler.objective(state, scheduler.allocate(state, start=plan))
    assert (again <= one + 1e-9).all()


def test_clusters_that_wait_for_each_other_are_planned_together():
    """With a common head, better than plans that ignore the wait."""
    copies = DSSRA(COMMON.with_overrides({"workload.head": "copies"}), threads=1)
    scheduler, state = DSSRA(COMMON, threads=1), support.loaded_state(COMMON, 4, 0)
    ours, theirs = scheduler.allocate(state), copies.allocate(state)
    costs = round_costs(scheduler.parameters, state, ours)
    fall = scheduler.objective(state, theirs) - scheduler.objective(state, ours)
    assert (fall >= 0.0).all()
    assert np.median(fall / (scheduler.tradeoff_v * costs.delay)) > 0.003
    other = round_costs(scheduler.parameters, state, theirs)
    assert costs.barrier.sum() < 0.5 * other.barrier.sum()


@pytest.mark.parametrize("drift", ["exact", "bound"])
@pytest.mark.parametrize("seed", range(2))
def test_clocks_are_as_good_as_the_best_of_a_grid(seed, drift):
    scheduler, state = DSSRA(TINY, drift=drift, threads=1), support.loaded_state(TINY, 1, seed)
    free = DSSRA(TINY.with_overrides({"decisions": list(COLLAPIPE)}), drift=drift, threads=1).allocate(state)
    grid = np.geomspace(scheduler.parameters.clock_cap_min, 1.0, 11)
    caps = np.array(list(itertools.product(grid, repeat=4))).reshape(-1, 2, 2)
    many = free.map(lambda a: np.repeat(a, len(caps), axis=0))
    rows = state.map(lambda a: np.repeat(a, len(caps), axis=0))
    best = scheduler.objective(rows, replace(many, clock_cap=caps)).min()
    assert best < scheduler.objective(state, free)[0] - 1e-3 * abs(best)  # there is something to find
    assert scheduler.objective(state, scheduler.allocate(state))[0] <= best + 1e-6 * abs(best)


@pytest.mark.parametrize("scheduler", [DSSRA, DSSRAPlus])
def test_energy_without_a_price_leaves_clocks_free(scheduler):
    """Empty queues under the bound, and budgets that no round uses up under the exact drift."""
    env = CollaPipeVectorEnv(2, CLOCKS, learner="surrogate")
    env.reset(seed=0)
    assert (env.state.backlog == 0.0).all()
    assert (scheduler(CLOCKS, drift="bound", threads=1).allocate(env.state).clock_cap == 1.0).all()
    rich = replace(env.state, budget=np.full_like(env.state.budget, 1e6))
    assert (scheduler(CLOCKS, threads=1).allocate(rich).clock_cap == 1.0).all()


def test_profiles_with_a_stated_power_run_free():
    """Their energy does not fall with the clock."""
    profile = {"name": "board", "active_power_w": 6.0, "clock_min_hz": 1e9, "clock_max_hz": 2e9}
    scenario = CLOCKS.with_overrides({"devices.profiles": [profile], "budgets.device_energy_j": 200})
    plan = DSSRA(scenario, threads=1).allocate(support.loaded_state(scenario, 2, 0))
    assert (plan.clock_cap > 1.0 - 1e-6).all()


def test_a_price_of_heat_caps_the_clocks_of_hot_devices_only():
    env = CollaPipeVectorEnv(1, WARM, learner="surrogate")
    env.reset(seed=0)
    hot = np.zeros_like(env.state.speed)
    hot[0, 0] = 1.2
    shown = {"heat": {**env.state.processes["heat"], "headroom": hot}}
    state = replace(env.state, processes=shown)
    assert (DSSRAPlus(WARM, heat_price=0.0, threads=1).allocate(state).clock_cap == 1.0).all()
    plan = DSSRAPlus(WARM, heat_price=0.1, heat_start=0.5, threads=1).allocate(state)
    assert (plan.clock_cap[0, 1] == 1.0).all()
    used = plan.blocks[0, 0] > 0
    assert used.any()
    assert (plan.clock_cap[0, 0, used] < 1.0).all()

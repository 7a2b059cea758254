"""DSSRA where plans also decide schedules, orders of devices, recomputation and the server's blocks."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scheduler_support as support

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.dssra.cluster_costs import SUMMARY
from collapipe_env.agents.dssra.device_orders import best_order, order_cost
from collapipe_env.agents.dssra.open_rounds import Openings, allocation_of, open_plan, reordered
from collapipe_env.agents.dssra.options import options_of
from collapipe_env.agents.dssra.parallel_rounds import as_record
from collapipe_env.agents.dssra.round_input import ClusterTerms, environment_row, round_input
from collapipe_env.agents.dssra.round_plan import evaluate
from collapipe_env.agents.dssra.scheduled_chains import schedule_rows
from collapipe_env.agents.dssra.segment_plan import plan_cost
from collapipe_env.agents.dssra.segment_problem import segment_problem
from collapipe_env.allocation import COMMON, COPIES, GPIPE, ONE_F_ONE_B, ZERO_BUBBLE, Allocation
from collapipe_env.compiled import called_from_python
from collapipe_env.physics.queues import update_backlog
from collapipe_env.scenario.decisions import DECISIONS
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs

OWN = DECISIONS[:4]
EVERYTHING = (*OWN, "recompute", "schedule", "order", "server_blocks")
ALL = support.DECIDED.with_overrides({"decisions": EVERYTHING, "name": "everything"})
PRICED = support.PRICED.with_overrides({"decisions": EVERYTHING, "name": "priced"})
ARQ = support.ARQ.with_overrides({"decisions": EVERYTHING, "name": "arq"})
RELAYED = support.RELAYED.with_overrides({"decisions": EVERYTHING, "name": "relayed"})
MEDIUM = support.MEDIUM.with_overrides({"decisions": [*OWN, "schedule", "order", "server_blocks"]})
HALF = ALL.with_overrides({"radio.half_duplex": True, "name": "half"})

cost_of_order = called_from_python(order_cost)
order_of = called_from_python(best_order)
evaluated = called_from_python(evaluate)
problem_of = called_from_python(segment_problem)
price_of_plan = called_from_python(plan_cost)


def openings(scenario):
    return DSSRA(scenario)._openings


def input_of(scenario, state, **options):
    p = system_parameters(scenario)
    opened = openings(scenario)
    return round_input(
        p,
        state,
        exact_drift=True,
        choose_recompute=True,
        most_server=p.costs.blocks - 1 if opened.server_blocks else 0,
        schedules=opened.schedule,
        **options,
    )


def random_plan(scenario, state, seed):
    """Any plan of the open space, of one device a stage and decoded from a random action."""
    return SCHEDULERS.get("random")(scenario, seed=seed).allocate(state)


@pytest.mark.parametrize("scenario", [ALL, PRICED, ARQ, RELAYED, MEDIUM, HALF], ids=lambda s: s.name)
def test_plans_are_feasible_and_better_than_with_the_decisions_closed(scenario):
    closed = DSSRA(scenario.with_overrides({"decisions": OWN}), threads=1)
    opened = DSSRA(scenario, threads=1)
    state = support.loaded_state(scenario, 3, 1)
    plan, before = opened.allocate(state), closed.allocate(state)
    check_allocation(opened.parameters, state, plan)
    value, closed_value = opened.objective(state, plan), closed.objective(state, before)
    least = -0.5 * (state.backlog**2).sum(axis=(-2, -1)) + 0.5 * (
        update_backlog(state.backlog, 0.0, 1.0) ** 2
    ).sum(axis=(-2, -1))
    assert (value - least <= (closed_value - least) * (1.0 + 1e-9)).all()
    assert plan.stage is not None
    assert plan.schedule is not None
    assert plan.server_blocks is not None
    again = opened.allocate(state.map(lambda a: a[1:2]))
    support.assert_same(again, plan[1:2])


def test_closed_decisions_leave_no_trace_in_plans():
    plan = DSSRA(support.SMALL, threads=1).allocate(support.loaded_state(support.SMALL, 2))
    assert plan.is_plain
    assert plan.recompute is None
    only = support.SMALL.with_overrides({"decisions": (*OWN, "order")})
    plan = DSSRA(only, threads=1).allocate(support.loaded_state(only, 2))
    assert plan.stage is not None
    assert plan.schedule is None
    assert plan.server_mode is None


@pytest.mark.parametrize("devices", [3, 5, 7])
def test_orders_are_the_best_of_all_or_at_least_no_worse(devices):
    rng = np.random.default_rng(devices)
    scenario = support.SMALL.with_overrides(
        {"cluster.devices": devices, "decisions": (*OWN, "order"), "name": "orders"}
    )
    best = []
    for seed in range(6):
        state = support.loaded_state(scenario, 1, seed)
        inputs, record = environment_row(input_of(scenario, state), 0), system_parameters(scenario).numbers
        power = 10.0 ** rng.uniform(-2.5, -0.7, devices + 1)
        terms = ClusterTerms(8.0, 1e-13, 0.4, 1.0, 0.0)
        problem = problem_of(0, power, terms, inputs, record)
        segments = rng.multinomial(scenario.blocks, np.full(devices, 1.0 / devices))
        order = np.empty(devices, dtype=np.int64)
        order_of(problem, segments, order)
        assert sorted(order) == list(range(devices))
        used = [k for k in range(devices) if segments[k] > 0]

        def cost(sequence, problem=problem, segments=segments):
            times = problem.times
            forward = max(problem.least_forward, *(segments[k] * times.block_forward[k] for k in sequence))
            backward = max(problem.least_backward, *(segments[k] * times.block_backward[k] for k in sequence))
            return cost_of_order(problem, np.array(sequence), forward, backward)

        found = cost([k for k in order if segments[k] > 0])
        every = min(cost(list(sequence)) for sequence in itertools.permutations(used))
        assert found <= cost(used) * (1.0 + 1e-12)
        best.append(found <= every * (1.0 + 1e-9))
        # Up to what the order leaves alone, this is the objective of the segments.
        one, other = cost(used), price_of_plan(problem, segments)
        turned = Openings(True, False, False, False, False)
        state_turned = reordered(input_of(scenario, state), np.array([[used + idle(devices, used)]] ))if False else None
        assert state_turned is None
        assert turned.further
        assert one <= other
    assert all(best) if devices <= 5 else sum(best) >= 4


def idle(devices, used):
    return [k for k in range(devices) if k not in used]


@pytest.mark.parametrize("scenario", [ALL, PRICED, ARQ, RELAYED], ids=lambda s: s.name)
def test_numbering_the_devices_anew_changes_no_price(scenario):
    p, rng = system_parameters(scenario), np.random.default_rng(3)
    state = support.loaded_state(scenario, 2, 4)
    inputs, record, opened = input_of(scenario, state), as_record(p.numbers), openings(scenario)
    for seed in range(4):
        plan = random_plan(scenario, state, seed)
        given = open_plan(plan, opened)
        support.assert_same(replace(plan, caps=None, schedule=None, chunks=None), replace(
            allocation_of(given, opened), caps=None, schedule=None, chunks=None))
        renamed = reordered(inputs, given.order)
        schedule, caps = np.zeros_like(given.schedule), np.zeros_like(given.caps)
        del record, rng
        break


@pytest.mark.parametrize("scenario", [ALL, PRICED, ARQ, RELAYED, MEDIUM], ids=lambda s: s.name)
def test_the_search_prices_plans_as_the_simulator_does(scenario):
    """Differences of objectives between plans of the open space, best shares aside."""
    p, opened = system_parameters(scenario), openings(scenario)
    state = support.loaded_state(scenario, 1, 5)
    scheduler, record = DSSRA(scenario), p.numbers
    gaps = []
    for seed in range(12):
        plan = open_plan(random_plan(scenario, state, seed), opened)
        order = plan.order
        inputs = reordered(input_of(scenario, state), order)
        back = np.argsort(order, axis=-1)
        segments = np.take_along_axis(plan.segments, order, axis=-1)
        nodes = np.concatenate((np.zeros_like(order[..., :1]), order + 1), axis=-1)
        power = np.ascontiguousarray(np.take_along_axis(plan.power, nodes, axis=-1))
        schedule, caps = np.zeros_like(plan.schedule), np.zeros_like(plan.caps)
        choices = set(inputs.choices[0].tolist())
        if not set((np.abs(plan.option) % 2.0**24 * np.sign(plan.option)).ravel().tolist()) <= choices:
            continue  # fewer numbers of micro-batches are searched where the largest is the best
        share = np.full(plan.share.shape, 1.0 / p.clusters)
        for _ in range(3):  # savings belong to shares
            schedule_rows(inputs, as_record(record), segments, power, share, plan.option, False, schedule, caps)
            row = environment_row(inputs, 0)
            value, found = evaluated(segments[0], power[0], plan.option[0], share[0], row, record)
            share = found.share[None]
        priced = plan._replace(
            share=share, schedule=schedule, caps=np.take_along_axis(caps, back, axis=-1)
        )
        allocation = allocation_of(priced, opened)
        check_allocation(p, state, allocation)
        gaps.append(scheduler.objective(state, allocation)[0] - value)
    assert len(gaps) >= 6
    np.testing.assert_allclose(gaps, gaps[0], atol=2e-5 * abs(np.mean(np.abs(gaps)) + 10.0))


@pytest.mark.parametrize("scenario", [ALL, PRICED, ARQ, MEDIUM], ids=lambda s: s.name)
def test_the_chosen_schedule_has_the_shortest_local_step_that_fits(scenario):
    p, opened = system_parameters(scenario), openings(scenario)
    state = support.loaded_state(scenario, 2, 6)
    seen = set()
    for seed in range(6):
        plan = open_plan(random_plan(scenario, state, seed), opened)
        identity = np.broadcast_to(np.arange(plan.order.shape[-1]), plan.order.shape)
        plan = plan._replace(order=identity)
        inputs = input_of(scenario, state)
        if not np.isin(np.abs(plan.option) % 2.0**24, np.abs(inputs.choices[0])).all():
            continue
        schedule, caps = np.zeros_like(plan.schedule), np.zeros_like(plan.caps)
        schedule_rows(
            inputs, as_record(p.numbers), *plan[:4], False, schedule, caps
        )
        chosen = plan._replace(schedule=schedule, caps=caps)
        costs = round_costs(p, state, allocation_of(chosen, opened))
        M = np.abs(plan.option) % 2.0**24
        for kind in (GPIPE, ONE_F_ONE_B, ZERO_BUBBLE):
            for part in (1.0, 0.5):
                limits = np.where(plan.segments > 0, np.maximum((part * M[..., None]).astype(int), 1), 0)
                limits = np.where(kind == GPIPE, 0, limits)
                other = plan._replace(schedule=np.full_like(schedule, kind), caps=limits)
                allocation = allocation_of(other, opened)
                try:
                    check_allocation(p, state, allocation)
                except Exception:
                    continue
                theirs = round_costs(p, state, allocation)
                if part == 1.0:
                    assert (costs.local_step <= theirs.local_step * (1.0 + 1e-9)).all()
        seen.update(schedule.ravel().tolist())
    assert len(seen) > 1


PUBLISHED = ("pipar", "pipeedge", "optpipe", "titanic", "pipeline", "proportional", "memory", "best_single")


def in_the_open_space(plan: Allocation):
    """Rows whose plans are of one device a stage, a schedule and a server's mode that are open (E,)."""
    rows = np.ones(plan.blocks.shape[0], dtype=bool)
    if plan.stage is not None:
        stage = plan.stage[..., None] == np.arange(plan.blocks.shape[-1])
        rows &= (stage.sum(axis=-2) <= 1).all(axis=(-2, -1))
    if plan.schedule is not None:
        rows &= np.isin(plan.schedule, (GPIPE, ONE_F_ONE_B, ZERO_BUBBLE)).all(axis=-1)
    if plan.server_mode is not None:
        rows &= np.isin(plan.server_mode, (COMMON, COPIES))
    return rows


def test_options_keep_what_plans_decide():
    plan = random_plan(ALL, support.loaded_state(ALL, 3, 2), 5)
    found = open_plan(plan, openings(ALL))
    np.testing.assert_array_equal(found.option, options_of(plan, recompute=False))
    again = allocation_of(found, openings(ALL))
    for name in ("blocks", "micro_batches", "server_blocks", "server_mode", "recompute", "stage", "schedule"):
        np.testing.assert_array_equal(getattr(again, name), getattr(plan, name))
    assert SUMMARY > 0

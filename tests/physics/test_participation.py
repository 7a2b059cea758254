"""Sitting out and local steps of clusters: costs of a round against a scalar program, and what is refused."""

import dataclasses

import numpy as np
import pytest
from physics_support import PRICES, make_case, scalar_round

from collapipe_env.feasibility.sampled_rounds import sample_rounds
from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.physics.allocation import Allocation, own_arrays, stack_allocations, with_schedule
from collapipe_env.physics.schedules.split import paced_steps
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import reference_delay, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.general_costs import general_round_costs

DECISIONS = ["segments", "micro_batches", "bandwidth", "powers"]
CLOSED = load_scenario("medium")
OPEN = CLOSED.with_overrides({"decisions": [*DECISIONS, "participation", "local_steps"]})
STATE = sample_rounds(CLOSED).state[:3]
N = CLOSED.clusters


def row_of(thing, e):
    return thing.map(lambda array: np.asarray(array)[e])


def sub_state(state, chosen):
    """The system without the other clusters."""
    fields = {}
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if field.name == "cross_gain":
            fields[field.name] = value[np.ix_(chosen, chosen)]
        elif isinstance(value, np.ndarray) and value.ndim:
            fields[field.name] = value[chosen]
    return dataclasses.replace(state, **fields)


def expected_round(p, s, a, plays, steps):
    """One round of one environment: every player as in a system of players alone, with its own H."""
    count, chosen = len(plays), np.flatnonzero(plays)
    alike = dataclasses.replace(p, clusters=len(chosen), server_flops=p.server_flops * len(chosen) / count)
    few, plan = sub_state(s, chosen), a.map(lambda array: array[chosen])
    found = {}
    for place, n in enumerate(chosen):
        own = dataclasses.replace(alike, costs=dataclasses.replace(p.costs, local_steps=int(steps[n])))
        one = scalar_round(own, few, plan)
        found[n] = {k: one[k][place] for k in ("step", "collect", "upload", "relay", "energy", "survival")}
        found[n]["memory"] = one["memory"][place]
    several = max(steps[n] for n in chosen) > 1
    for n in chosen:
        working = 0.0
        for h in range(int(steps[n])):
            still = [found[m]["step"] for m in chosen if steps[m] > h]
            working += max(still) if p.head == "common" and several else found[n]["step"]
        found[n]["delay"] = found[n]["relay"] + working + found[n]["collect"] + found[n]["upload"]
    heard_by_all = scalar_round(p, s, a)["broadcast"]
    return found, max(one["delay"] for one in found.values()) + heard_by_all


@pytest.mark.parametrize("errors", ["drop", "arq"])
@pytest.mark.parametrize("name", list(PRICES))
@pytest.mark.parametrize("seed", range(3))
def test_a_round_is_that_of_the_clusters_that_play_each_with_its_own_steps(name, seed, errors):
    parameters, state, plan = make_case(
        seed, clusters=4, link_errors=errors, idle_round_s=7.0, local_steps_choices=(1, 3, 5), **PRICES[name]
    )
    rng = np.random.default_rng(seed)
    plays = rng.random(plan.micro_batches.shape) < 0.6
    plays[:, 0] = True
    steps = rng.choice([1, 3, 5], plays.shape)
    if seed == 2:
        steps[:] = 1
    given = dataclasses.replace(plan, participates=plays.astype(int), local_steps=steps)
    unread = np.where(plays, given.bandwidth, 0.0)  # a share of nothing must not be divided by
    given = dataclasses.replace(given, bandwidth=unread)
    for costs in (round_costs(parameters, state, given), general_round_costs(parameters, state, given)):
        assert all(np.isfinite(getattr(costs, f)).all() for f in ("delay", "energy", "local_step"))
        for e in range(len(plays)):
            found, total = expected_round(parameters, row_of(state, e), row_of(plan, e), plays[e], steps[e])
            np.testing.assert_allclose(costs.delay[e], total, rtol=1e-9)
            for n in range(plays.shape[1]):
                if not plays[e, n]:
                    for field in ("cluster_delay", "energy", "energy_ratio", "memory", "upload", "barrier"):
                        assert not np.any(getattr(costs, field)[e, n]), field
                    continue
                one = found[n]
                np.testing.assert_allclose(costs.cluster_delay[e, n], one["delay"], rtol=1e-9)
                np.testing.assert_allclose(costs.energy[e, n], one["energy"], rtol=1e-9)
                np.testing.assert_allclose(costs.memory[e, n], one["memory"], rtol=1e-9)
                np.testing.assert_allclose(costs.survival[e, n], one["survival"], rtol=1e-9)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "async"])
def test_other_schedules_know_own_steps_too(name):
    plain = even_split(system_parameters(CLOSED), STATE)
    plan = with_schedule(plain, name, np.full(plain.blocks.shape, 9))
    steps = np.array([[1, 4, 2, 1], [2, 2, 4, 1], [4, 1, 1, 1]])
    found = round_costs(system_parameters(OPEN), STATE, dataclasses.replace(plan, local_steps=steps))
    for H in (1, 2, 4):
        fixed = CLOSED.with_overrides({"workload.local_steps": H})
        expected = round_costs(system_parameters(fixed), STATE, plan)
        for field in ("cluster_delay", "local_step", "energy", "memory"):
            np.testing.assert_allclose(
                getattr(found, field)[steps == H], getattr(expected, field)[steps == H], rtol=1e-12
            )


def test_nobody_plays_and_who_cannot_counts_the_usual_round():
    parameters = system_parameters(OPEN)
    usual = reference_delay(CLOSED)
    assert parameters.idle_round_s == usual
    assert system_parameters(OPEN.with_overrides({"workload.local_steps": 4})).idle_round_s == usual
    assert system_parameters(OPEN.with_overrides({"budgets.per": "second"})).budget_period_s == usual
    plan = even_split(parameters, STATE)
    nobody = dataclasses.replace(plan, participates=np.zeros_like(plan.micro_batches))
    cap, memory = STATE.memory_cap.copy(), STATE.memory_bytes.copy()
    cap[1, 2] = memory[1, 2] = 0  # one cluster that holds nothing
    state = dataclasses.replace(STATE, memory_cap=cap, memory_bytes=memory)
    some = nobody.participates.copy()
    some[:, 0] = 1
    for price in (round_costs, general_round_costs):
        idle = price(parameters, STATE, nobody)
        np.testing.assert_array_equal(idle.delay, usual)
        assert not idle.energy.any()
        assert not idle.broadcast.any()
        counted = price(parameters, state, dataclasses.replace(plan, participates=some))
        np.testing.assert_array_equal(counted.cluster_delay[1, 1:], [0.0, usual, 0.0])
        longest = max(counted.cluster_delay[1, 0], usual)
        assert counted.delay[1] == pytest.approx(longest + counted.broadcast[1])
        assert counted.delay[0] == pytest.approx(counted.cluster_delay[0, 0] + counted.broadcast[0])


def test_what_a_scenario_leaves_open_is_checked():
    opened, closed = system_parameters(OPEN), system_parameters(CLOSED)
    plan = even_split(opened, STATE)
    ones = np.ones(plan.micro_batches.shape, dtype=np.int64)
    first = ones.copy()
    first[:, 1:] = 0
    check_allocation(opened, STATE, dataclasses.replace(plan, participates=first, local_steps=4 * ones))
    check_allocation(closed, STATE, dataclasses.replace(plan, participates=ones, local_steps=-ones))
    for parameters, changes, message in (
        (closed, {"participates": first}, "participates.*do not list participation"),
        (closed, {"local_steps": ones}, "local_steps.*do not list local_steps"),
        (opened, {"participates": 2 * ones}, "participates.*cluster 0 is 2, expected 0 or 1"),
        (opened, {"participates": 0 * ones}, "participates.*at least 1"),
        (opened, {"participates": ones[:, :1]}, "participates has shape"),
        (opened, {"local_steps": 3 * ones}, r"local_steps.*is 3, expected one of \[1, 2, 4, 8, 16\]"),
        (opened, {"local_steps": ones[:, :1]}, "local_steps has shape"),
    ):
        with pytest.raises(AllocationError, match=message):
            check_allocation(parameters, STATE, dataclasses.replace(plan, **changes))


def test_only_players_need_room_and_bandwidth():
    parameters = system_parameters(OPEN)
    plan = even_split(parameters, STATE)
    blocks, share = plan.blocks.copy(), np.full(plan.bandwidth.shape, 1.0)
    blocks[:, 1:] = 0
    plays = np.zeros(share.shape, dtype=np.int64)
    plays[:, 0] = 1
    alone = dataclasses.replace(plan, blocks=blocks, bandwidth=share, participates=plays)
    check_allocation(parameters, STATE, alone)
    memory = STATE.memory_bytes.copy()
    memory[:, 1:] = 0.0
    caps = np.where(memory > 0.0, STATE.memory_cap, 0)
    poor = dataclasses.replace(STATE, memory_bytes=memory, memory_cap=caps)
    check_allocation(parameters, poor, dataclasses.replace(alone, blocks=plan.blocks))
    # Where nobody can hold the encoder, nobody has to play.
    none = dataclasses.replace(STATE, memory_bytes=0.0 * memory, memory_cap=0 * caps)
    check_allocation(parameters, none, dataclasses.replace(alone, participates=0 * plays))
    crowded = dataclasses.replace(alone, blocks=plan.blocks, participates=np.ones_like(plays))
    with pytest.raises(AllocationError, match="at most 1"):
        check_allocation(parameters, STATE, crowded)


def test_sequential_servers_serve_all_alike():
    parameters = system_parameters(OPEN)
    plan = even_split(parameters, STATE)
    shape = plan.micro_batches.shape
    plan = dataclasses.replace(
        plan,
        micro_batches=np.ones(shape, dtype=np.int64),
        server_blocks=np.zeros(shape, dtype=np.int64),
        server_mode=np.ones(shape[0], dtype=np.int64),
    )
    check_allocation(parameters, STATE, plan)
    plays = np.ones(shape, dtype=np.int64)
    plays[0, 0] = 0
    alone = dataclasses.replace(plan, participates=plays)
    check_allocation(parameters, STATE, alone)
    # Those that sit out are not waited for: each step of the others is as in a system without the first.
    fewer = [round_costs(parameters, STATE, p).local_step for p in (plan, alone)]
    assert fewer[1][0, 0] == 0.0
    assert (fewer[1][0, 1:] <= fewer[0][0, 1:]).all()
    assert (fewer[1][0, 1:] < fewer[0][0, 1:]).any()
    np.testing.assert_array_equal(fewer[0][1:], fewer[1][1:])
    with pytest.raises(AllocationError, match=r"local_steps.*sequential"):
        check_allocation(parameters, STATE, dataclasses.replace(plan, local_steps=4 * np.ones_like(plays)))


def test_plans_with_and_without_are_stacked_and_owned():
    plan = even_split(system_parameters(OPEN), STATE)
    said = dataclasses.replace(plan[1], participates=np.array([1, 0, 1, 0]), local_steps=np.full(N, 4))
    slow = np.full_like(said.device_power, 0.5)
    both = stack_allocations([plan[0], dataclasses.replace(said, clock_cap=slow)])
    np.testing.assert_array_equal(both.participates, [[1] * N, [1, 0, 1, 0]])
    np.testing.assert_array_equal(both.local_steps, [[-1] * N, [4] * N])
    np.testing.assert_array_equal(both.clock_cap, [np.ones_like(slow), slow])
    assert both.is_plain
    owned = own_arrays(dataclasses.replace(plan, participates=np.ones((3, N), dtype=bool)))
    assert owned.participates.dtype == np.int64
    halves = dataclasses.replace(plan, local_steps=np.full((3, N), 1.5))
    with pytest.raises(AllocationError, match=r"local_steps.*whole number"):
        check_allocation(system_parameters(OPEN), STATE, halves)
    assert isinstance(both[0], Allocation)


def test_scenarios_name_what_is_open():
    other = OPEN.with_overrides({"workload.local_steps_choices": [1, 3], "budgets.participation_min": 0.25})
    assert system_parameters(other).local_steps_choices == (1, 3)
    assert system_parameters(other).participation_min == 0.25
    for overrides, message in (
        ({"workload.local_steps": 3}, r"local_steps = 3 is not among .*choices = \[1, 2, 4, 8, 16\]"),
        ({"workload.local_steps_choices": [2, 1]}, "local_steps_choices"),
        ({"workload.local_steps_choices": []}, "at least one number"),
        ({"workload.local_steps_choices": [0, 1]}, "local_steps_choices"),
        ({"budgets.participation_min": 1.5}, "participation_min"),
    ):
        with pytest.raises(ScenarioError, match=message):
            OPEN.with_overrides(overrides)


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_nobody_waits_less_than_no_time(steps):
    """However sums round: a negative wait is no phase of a round."""
    _, _, plan = make_case(3, lead=(400,), clusters=3)
    times = np.random.default_rng(steps).uniform(0.1, 30.0, (400, 3))
    paced = paced_steps(plan, times, np.full((400, 3), float(steps)))
    assert (paced >= times).all()
    np.testing.assert_allclose(paced, times if steps == 1 else times.max(axis=-1, keepdims=True) + 0 * times)

"""DSSRA's decisions: feasible, deterministic, close to the best that random search finds, within budgets."""

import itertools
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import scheduler_support as support
from unpriced_support import unpriced
from variants_support import mostly_slow

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.dssra.option_table import option_table, options_with
from collapipe_env.agents.dssra.parallel_rounds import default_threads, solve_batch
from collapipe_env.agents.dssra.round_input import round_input
from collapipe_env.agents.dssra.target import DSSRATarget
from collapipe_env.baselines.even_split import PipeLine
from collapipe_env.baselines.random_feasible import RandomFeasible
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.queues import idle_drift
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split

TARGET = ("participation", "local_steps")
SCENARIOS = {
    "small": support.SMALL,
    "medium": support.MEDIUM,
    "moving": support.MOVING,
    "arq": support.ARQ,
    "priced": support.PRICED,
    "relayed": support.RELAYED,
    "recomputed": support.RECOMPUTED,
    "decided": support.DECIDED,
}


@pytest.mark.parametrize("drift", ["bound", "exact"])
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("mean", [0.0, 0.3, 5.0, 1000.0])
def test_decisions_are_feasible_and_no_worse_than_the_even_split(name, mean, drift):
    scenario = SCENARIOS[name]
    scheduler = DSSRA(scenario, drift=drift, tradeoff_v=0.4 if mean > 1.0 else None)
    parameters = system_parameters(scenario)
    for seed in range(3):
        state = support.loaded_state(scenario, 2, seed, mean, silent=0.3)
        allocation = scheduler.act(None, state)
        check_allocation(parameters, state, allocation)
        assert not allocation.blocks[~state.present].any()
        # The box can express its plans, too.
        memory = state.memory_cap, state.memory_bytes
        decoded = action_codec(scenario).decode(action_codec(scenario).encode(allocation), *memory)
        np.testing.assert_array_equal(decoded.blocks, allocation.blocks)
        np.testing.assert_allclose(decoded.cu_power, allocation.cu_power, rtol=1e-6)
        even = scheduler.objective(state, even_split(parameters, state))
        assert (scheduler.objective(state, allocation) <= even + 1e-6 * np.abs(even)).all()


@pytest.mark.parametrize(
    ("kind", "scenario"),
    [
        (DSSRA, support.MEDIUM),
        (DSSRA, support.MOVING),
        (DSSRA, support.MEDIUM.with_overrides({"decisions": [*COLLAPIPE, "clock_cap"]})),
        (DSSRA, load_scenario("boards")),  # moments have moved
        (DSSRATarget, support.SMALL.with_overrides({"decisions": [*COLLAPIPE, *TARGET]})),
    ],
)
def test_a_row_of_a_batch_is_decided_as_if_alone(kind, scenario):
    state = support.loaded_state(scenario, 4, seed=1, rounds=2)
    scheduler = kind(scenario)
    together = support.assert_rows_alone(scheduler, state)
    for threads in (1, 3):
        support.assert_same(kind(scenario, threads=threads).act(None, state), together)
    scheduler.reset(5)
    support.assert_same(scheduler.act(None, state), together)


def test_threads_follow_the_environment_variable_and_the_processors(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert 1 <= default_threads() <= os.cpu_count()
    monkeypatch.setenv("OMP_NUM_THREADS", "1,4")
    assert DSSRA(support.SMALL).threads == 1
    for bad in ("0", "many", "-2"):
        monkeypatch.setenv("OMP_NUM_THREADS", bad)
        with pytest.raises(AllocationError, match=f"OMP_NUM_THREADS.*{bad}"):
            default_threads()


def test_a_worker_process_decides_with_one_thread():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(default_threads).result(timeout=60) == 1


def cross_entropy(scheduler, state, rng, population=300, rounds=25):
    """Best objective that a cross-entropy search over the action box finds for one environment."""
    codec = action_codec(scheduler.scenario)
    mean, spread, best = np.zeros(codec.action_size), np.full(codec.action_size, 0.6), np.inf
    caps = np.broadcast_to(state.memory_cap, (population, *state.memory_cap.shape))
    for _ in range(rounds):
        actions = np.clip(mean + spread * rng.standard_normal((population, codec.action_size)), -1.0, 1.0)
        values = scheduler.objective(state.map(lambda a: a[None]), codec.decode(actions, caps))
        elite = actions[np.argsort(values)[: population // 10]]
        mean, spread = elite.mean(axis=0), elite.std(axis=0) + 0.02
        best = min(best, values.min())
    return best


@pytest.mark.parametrize("drift", mostly_slow(["bound", "exact"], [1]))
@pytest.mark.parametrize(("mean", "silent"), [(0.0, 0.0), (0.5, 0.0), (4.0, 0.0), (4.0, 0.6)])
def test_no_random_search_does_better(mean, silent, drift):
    rng = np.random.default_rng(0)
    for name in ("medium", "arq"):
        state = support.loaded_state(SCENARIOS[name], 2, 2, mean, silent)
        scheduler = DSSRA(SCENARIOS[name], drift=drift)
        ours = scheduler.objective(state, support.decide(scheduler, state))
        found = np.array([cross_entropy(scheduler, state[row], rng) for row in range(2)])
        least = idle_drift(state.backlog) if drift == "exact" else 0.0
        assert (ours - least <= 1.01 * (found - least)).all()


def test_without_overheads_the_largest_number_of_micro_batches_is_never_beaten():
    for scenario in map(unpriced, SCENARIOS.values()):
        parameters = system_parameters(scenario)
        state = support.loaded_state(scenario, 3, 4)
        scheduler = DSSRA(scenario)
        allocation = support.decide(scheduler, state)
        values = [
            scheduler.objective(
                state, replace(allocation, micro_batches=np.full_like(allocation.micro_batches, M))
            )
            for M in parameters.micro_batch_choices
        ]
        assert (np.diff(values, axis=0) < 0.0).all()


def test_medium_is_much_faster_than_the_even_split_which_breaks_budgets():
    delays, ratios = support.play(DSSRA(support.MEDIUM), rows=2, rounds=60)
    even_delays, even_ratios = support.play(PipeLine(support.MEDIUM), rows=2, rounds=60)
    random_delays, _ = support.play(RandomFeasible(support.MEDIUM), rows=2, rounds=20)
    assert delays.mean() < 0.7 * even_delays.mean() < 0.7 * random_delays.mean()
    assert ratios.mean(axis=0).max() <= 1.06 < 1.2 < even_ratios.mean(axis=0).max()


def test_a_larger_v_buys_delay_with_backlog():
    state = support.loaded_state(support.MEDIUM, 2, seed=3)
    costs = [
        round_costs(
            system_parameters(support.MEDIUM), state, DSSRA(support.MEDIUM, tradeoff_v=v).allocate(state)
        )
        for v in (0.2, 1.4, 20.0)
    ]
    delay = np.array([c.delay for c in costs])
    energy = np.array([(state.backlog * c.energy_ratio).sum(axis=(-2, -1)) for c in costs])
    assert (np.diff(delay, axis=0) < 0.0).all()
    assert (np.diff(energy, axis=0) > 0.0).all()


def test_the_convergence_term_raises_the_survival():
    state = support.loaded_state(support.MEDIUM, 2, seed=5)
    parameters = system_parameters(support.MEDIUM)
    survival = [
        round_costs(
            parameters, state, DSSRA(support.MEDIUM, convergence_weight=weight).allocate(state)
        ).survival.prod(axis=-1)
        for weight in (0.0, 1000.0)
    ]
    assert (survival[1] > survival[0]).all()


def test_bad_arguments_and_impossible_systems_are_refused():
    for argument in (
        "tradeoff_v",
        "tolerance",
        "convergence_weight",
        "sweeps",
        "exploring_sweeps",
        "turns",
        "threads",
    ):
        with pytest.raises(AllocationError, match=f"{argument}.*-1"):
            DSSRA(support.SMALL, **{argument: -1})
    for argument, value, message in (
        ("turns", "x", "a whole number .* got 'x'"),
        ("turns", 1.5, "a whole number .* got 1.5"),
        ("drift", ["exact"], "'bound' or 'exact', got "),
        ("tradeoff_v", float("nan"), ".* got nan"),
    ):
        with pytest.raises(AllocationError, match=rf"DSSRA\({argument}: expected {message}"):
            DSSRA(support.SMALL, **{argument: value})
    state = support.loaded_state(support.SMALL, 2)
    cap = state.memory_cap.copy()
    cap[1, 0] = 1
    with pytest.raises(AllocationError, match=r"environment 1, cluster 0: .* \d+ blocks"):
        DSSRA(support.SMALL).act(None, replace(state, memory_cap=cap))
    with pytest.raises(AllocationError, match=r"DSSRA\('small'\): expected a Scenario"):
        DSSRA("small")
    with pytest.raises(AllocationError, match=r"DSSRA schedules 4 clusters of up to .* shape \(2, 2, 3\)"):
        DSSRA(support.MEDIUM).act(None, state)
    with pytest.raises(AllocationError, match=r"DSSRA decides from the state, which is None: give env\."):
        DSSRA(support.MEDIUM).act(None, None)


def test_simple_baselines():
    state = support.loaded_state(support.MEDIUM, 3)
    even = support.decide(PipeLine(support.MEDIUM), state)
    wanted = even_split(system_parameters(support.MEDIUM), state)
    np.testing.assert_array_equal(even.blocks, wanted.blocks)
    np.testing.assert_array_equal(even.micro_batches, 4)
    np.testing.assert_allclose(even.device_power, 0.2, rtol=1e-6)
    np.testing.assert_allclose(even.bandwidth, 0.25, rtol=1e-6)
    assert (support.decide(PipeLine(support.MEDIUM, micro_batches=60), state).micro_batches == 64).all()
    random = RandomFeasible(support.MEDIUM, seed=4)
    first, second = random.act(None, state), random.act(None, state)
    assert not np.array_equal(first, second)
    random.reset()
    np.testing.assert_array_equal(random.act(None, state), first)
    random.reset(9)
    assert not np.array_equal(random.act(None, state), first)
    random.reset()
    np.testing.assert_array_equal(random.act(None, state), RandomFeasible(support.MEDIUM, 9).act(None, state))


@pytest.mark.parametrize("drift", ["bound", "exact"])
def test_no_other_numbers_of_micro_batches_are_better(drift):
    """Where every micro-batch has its price, against the search with each combination given."""
    scenario, rows = support.PRICED, 3
    scheduler = DSSRA(scenario, drift=drift, threads=1)
    chosen = set()
    for seed in range(3):
        state = support.loaded_state(scenario, rows, seed)
        found = scheduler.allocate(state)
        best = np.full(rows, np.inf)
        for M in itertools.product(scenario.workload.micro_batch_choices, repeat=scenario.clusters):
            inputs = round_input(
                scheduler.parameters,
                state,
                options_with(option_table(scheduler.parameters, 0), M),
                exact_drift=drift == "exact",
            )
            blocks, power, share, _ = solve_batch(inputs, scheduler._numbers, scheduler.budget, 1)
            plan = replace(
                found,
                blocks=blocks,
                micro_batches=np.broadcast_to(M, (rows, scenario.clusters)).copy(),
                bandwidth=share,
                device_power=power[..., 1:],
                cu_power=power[..., 0],
            )
            best = np.minimum(best, scheduler.objective(state, plan))
        least = idle_drift(state.backlog) if drift == "exact" else 0.0
        assert (scheduler.objective(state, found) - least <= (best - least) * (1.0 + 2e-3)).all()
        chosen.update(found.micro_batches.ravel().tolist())
    assert chosen - {scenario.workload.micro_batch_choices[0], scenario.workload.micro_batch_choices[-1]}

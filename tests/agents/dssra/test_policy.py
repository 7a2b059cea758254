"""DSSRA's decisions: no worse than what they are compared with, whatever the drift, budgets and threads."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scheduler_support as support
from baseline_support import decide
from unpriced_support import unpriced
from variants_support import mostly_slow

from collapipe_env.agents.dssra import DSSRA, DSSRABound, parallel_rounds
from collapipe_env.agents.dssra.option_table import option_table, options_with
from collapipe_env.agents.dssra.parallel_rounds import default_threads, solve_batch
from collapipe_env.agents.dssra.round_input import round_input
from collapipe_env.baselines.even_split import PipeLine
from collapipe_env.baselines.random_feasible import RandomFeasible
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.scheduler_loading import make_scheduler, package_title
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.queues import idle_drift
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec, budget_period, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split

SCENARIOS = support.SCENARIOS
PER_SECOND = {
    f"{name} per second": support.per_second(s) for name, s in SCENARIOS.items() if name != "priced"
}
EVERY = {**SCENARIOS, **PER_SECOND}


@pytest.mark.parametrize("drift", ["bound", "exact"])
@pytest.mark.parametrize(
    "scenario", [*SCENARIOS.values(), support.RECOMPUTED, support.DECIDED], ids=lambda s: s.name
)
def test_decisions_are_feasible_and_no_worse_than_the_even_split(scenario, drift):
    parameters, codec = system_parameters(scenario), action_codec(scenario)
    for seed, mean in enumerate((0.0, 0.3, 5.0, 1000.0)):
        scheduler = DSSRA(scenario, drift=drift, tradeoff_v=0.4 if mean > 1.0 else None)
        state = support.loaded_state(scenario, 3, seed, mean, silent=0.3)
        allocation = scheduler.act(None, state)
        check_allocation(parameters, state, allocation)
        # The box can express its plans, too.
        decoded = codec.decode(codec.encode(allocation), state.memory_cap, state.memory_bytes)
        np.testing.assert_array_equal(decoded.blocks, allocation.blocks)
        np.testing.assert_allclose(decoded.cu_power, allocation.cu_power, rtol=1e-6)
        even = scheduler.objective(state, even_split(parameters, state))
        assert (scheduler.objective(state, allocation) <= even + 1e-6 * np.abs(even)).all()


@pytest.mark.parametrize("scenario", [support.MEDIUM, load_scenario("boards")], ids=lambda s: s.name)
def test_threads_change_no_decision(scenario):
    state = support.loaded_state(scenario, 4, seed=1, rounds=2)  # moments have moved
    together = DSSRA(scenario).allocate(state)
    for threads in (1, 3):
        support.assert_same(DSSRA(scenario, threads=threads).act(None, state), together)


def test_threads_follow_the_environment_variable_the_processors_and_the_process(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(parallel_rounds.numba.config, "NUMBA_NUM_THREADS", 6)
    assert default_threads() == 6
    monkeypatch.setenv("OMP_NUM_THREADS", "2,4")
    assert DSSRA(support.SMALL).threads == 2
    for bad in ("0", "many", "-2"):
        monkeypatch.setenv("OMP_NUM_THREADS", bad)
        with pytest.raises(AllocationError, match=f"OMP_NUM_THREADS.*{bad}"):
            default_threads()
    monkeypatch.setattr(parallel_rounds.multiprocessing, "parent_process", lambda: "the one that started it")
    assert default_threads() == 1


def cross_entropy(scheduler, state, rng, population=300, rounds=20):
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
        state = support.loaded_state(SCENARIOS[name], 1, 2, mean, silent)
        scheduler = DSSRA(SCENARIOS[name], drift=drift)
        ours = scheduler.objective(state, decide(scheduler, state))[0]
        found = cross_entropy(scheduler, state[0], rng)
        least = idle_drift(state.backlog)[0] if drift == "exact" else 0.0
        assert ours - least <= 1.01 * (found - least)


def test_without_overheads_the_largest_number_of_micro_batches_is_never_beaten():
    for scenario in map(unpriced, SCENARIOS.values()):
        state, scheduler = support.loaded_state(scenario, 3, 4), DSSRA(scenario)
        plan = scheduler.allocate(state)
        values = [
            scheduler.objective(state, replace(plan, micro_batches=np.full_like(plan.micro_batches, M)))
            for M in scheduler.parameters.micro_batch_choices
        ]
        assert (np.diff(values, axis=0) < 0.0).all()


@pytest.mark.parametrize("drift", ["bound", "exact"])
def test_no_other_numbers_of_micro_batches_are_better(drift):
    """Where every micro-batch has its price, against the search with each combination given."""
    scenario, rows, chosen = support.PRICED, 3, set()
    scheduler = DSSRA(scenario, drift=drift, threads=1)
    table = option_table(scheduler.parameters, 0)
    for seed in range(2):
        state = support.loaded_state(scenario, rows, seed)
        found, best = scheduler.allocate(state), np.full(rows, np.inf)
        for M in itertools.product(scenario.workload.micro_batch_choices, repeat=scenario.clusters):
            inputs = round_input(
                scheduler.parameters, state, options_with(table, M), exact_drift=drift == "exact"
            )
            blocks, power, share, _ = solve_batch(inputs, scheduler.parameters.numbers, scheduler.budget, 1)
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
        # At the ceiling of rates many plans are alike: one of these states ends 0.6 % above the best.
        assert (scheduler.objective(state, found) - least <= (best - least) * (1.0 + 1e-2)).all()
        chosen.update(found.micro_batches.ravel().tolist())
    assert chosen - {scenario.workload.micro_batch_choices[0], scenario.workload.micro_batch_choices[-1]}


def test_medium_is_much_faster_than_the_even_split_which_breaks_budgets():
    delays, ratios = support.play(DSSRA(support.MEDIUM), rows=1, rounds=50)
    even_delays, even_ratios = support.play(PipeLine(support.MEDIUM), rows=1, rounds=50)
    random_delays, _ = support.play(RandomFeasible(support.MEDIUM), rows=1, rounds=20)
    assert delays.mean() < 0.7 * even_delays.mean() < 0.7 * random_delays.mean()
    assert ratios.mean(axis=0).max() <= 1.06 < 1.15 < even_ratios.mean(axis=0).max()


def test_a_larger_v_buys_delay_with_backlog_and_the_convergence_term_survival():
    scenario = support.MEDIUM
    state, p = support.loaded_state(scenario, 2, seed=3), system_parameters(scenario)
    costs = [round_costs(p, state, DSSRA(scenario, tradeoff_v=v).allocate(state)) for v in (0.2, 1.4, 20.0)]
    energy = [(state.backlog * c.energy_ratio).sum(axis=(-2, -1)) for c in costs]
    assert (np.diff([c.delay for c in costs], axis=0) < 0.0).all()
    assert (np.diff(energy, axis=0) > 0.0).all()
    # Links that adapt lose as many packets at any power.
    scenario = scenario.with_overrides({"radio.link_errors": "drop"})
    p = system_parameters(scenario)
    plans = [DSSRA(scenario, convergence_weight=weight).allocate(state) for weight in (0.0, 1000.0)]
    lossy, safe = (round_costs(p, state, plan).survival.prod(axis=-1) for plan in plans)
    assert (safe > lossy).all()


@pytest.mark.parametrize("name", EVERY)
def test_objective_is_what_the_reward_pays_for(name):
    scenario = EVERY[name]
    env = CollaPipeVectorEnv(3, scenario, "surrogate", reward="lyapunov", autoreset_mode="Disabled")
    env.reset(seed=2)
    scheduler = DSSRA(scenario)
    scale = system_parameters(scenario).tradeoff_v * env.reference_delay
    for _ in range(4):
        plan, state = scheduler.allocate(env.state), env.state
        reward = env.step_allocation(plan)[1]
        np.testing.assert_allclose(-reward * scale, scheduler.objective(state, plan), rtol=1e-5)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("mean", [0.0, 0.5, 5.0])
def test_plans_are_better_than_those_of_the_bound(name, mean):
    exact, bound, gains = DSSRA(SCENARIOS[name]), DSSRABound(SCENARIOS[name]), []
    for seed in range(3):
        state = support.loaded_state(SCENARIOS[name], 4, seed, mean, silent=0.2)
        values = [exact.objective(state, s.allocate(state)) for s in (exact, bound)]
        gains.append((values[1] - values[0]) / np.abs(values[1]))
    assert np.min(gains) > -3e-2  # near the floor of the SNR, searches end in other minima
    assert np.mean(gains) > -1e-3
    assert np.median(gains) > -1e-6


@pytest.mark.parametrize("name", ["small", "small per second"])
def test_no_block_elsewhere_and_no_other_power_or_share_is_better(name):
    scheduler = DSSRA(EVERY[name], tolerance=0.0)
    for seed in range(4):
        state = support.loaded_state(EVERY[name], 1, seed, 0.7, silent=0.3)
        plan = scheduler.allocate(state)
        best, tried = scheduler.objective(state, plan)[0], support.neighbours(plan, state)
        shares = np.linspace(0.1, 0.9, 33)
        tried += [replace(plan, bandwidth=np.array([[share, 1.0 - share]])) for share in shares]
        least = min(scheduler.objective(state, other)[0] for other in tried)
        size = best + 0.5 * (state.backlog**2).sum() if name in PER_SECOND else least
        assert best <= least + 2e-3 * size


def test_schedulers_of_both_forms_go_by_name():
    state = support.loaded_state(support.MEDIUM, 2, 1, 0.5)
    for name, drift in (("dssra", "exact"), ("dssra-bound", "bound")):
        decision = make_scheduler(name, support.MEDIUM).act(None, state)
        support.assert_same(decision, DSSRA(support.MEDIUM, drift=drift).allocate(state))
    assert package_title("dssra-bound") != package_title("dssra")
    assert DSSRABound(support.SMALL, tradeoff_v=3.0, turns=2).budget.turns == 2


@pytest.mark.parametrize("name", ["small", "medium", "moving", "relayed"])
@pytest.mark.parametrize("mean", [0.0, 0.3, 1.0])
def test_no_price_of_time_that_is_given_is_better(name, mean):
    """The price of a second is found: DSSRA per round at any other ``V`` plans no better rounds."""
    per_round = SCENARIOS[name]
    if name == "moving":  # its own budgets bind nobody
        per_round = per_round.with_overrides({"budgets.device_energy_j": 7.5, "budgets.cu_energy_j": 3.5})
    scenario = support.per_second(per_round)
    scheduler, gains = DSSRA(scenario), []
    for seed in range(2):
        state = support.loaded_state(scenario, 3, seed, mean, silent=0.3)
        value = scheduler.objective(state, scheduler.allocate(state))
        size = value + 0.5 * (state.backlog**2).sum(axis=(-2, -1))
        for factor in (0.02, 0.1, 0.3, 0.6, 1.0):
            fixed = DSSRA(per_round, tradeoff_v=factor * system_parameters(scenario).tradeoff_v)
            gains.append((scheduler.objective(state, fixed.allocate(state)) - value) / size)
    assert np.min(gains) > -3e-3
    assert np.mean(gains) > 5e-5


def test_long_queues_do_not_make_rounds_endless():
    """Where waiting alone would pay, plans cease to hurry; they are not spoilt to last longer.

    Radios draw what they emit: with circuits, a plan that lasts longer may pay although it spends more.
    """
    quiet = ("d2d_circuit_w", "edge_circuit_w", "receive_w", "edge_receive_w", "idle_w")
    medium = support.MEDIUM.with_overrides({f"radio.{name}": 0.0 for name in quiet})
    scenario = support.per_second(medium)
    state, period = support.loaded_state(scenario, 3, 0, 20.0), budget_period(scenario)
    saving = DSSRA(medium, tradeoff_v=1e-3).allocate(state)
    for scheduler in (DSSRA(scenario), DSSRABound(scenario)):
        costs = round_costs(scheduler.parameters, state, scheduler.allocate(state))
        assert (state.backlog.sum(axis=(-2, -1)) > scheduler.tradeoff_v * period).all()
        assert (costs.delay < 6.0 * period).all()
        # What is spent at least: about as little as plans that only save energy.
        least = (state.backlog * round_costs(scheduler.parameters, state, saving).energy_ratio).sum()
        assert (state.backlog * costs.energy_ratio).sum() < 1.2 * least


def test_moves_of_moments_that_start_afresh_are_free_and_change_no_decision():
    processes = {"migration": {"route": "direct", "moments": "reset"}}
    free = load_scenario("small")
    reset = load_scenario({"base": "small", "dynamics": {"processes": processes}})
    state = support.loaded_state(reset, 3, rounds=2)
    support.assert_same(DSSRA(reset).allocate(state), DSSRA(free).allocate(replace(state, processes={})))

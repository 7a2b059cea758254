"""The energy feasibility report against exact programmes, sampling and play, and its warning."""

import itertools
import math
import warnings

import numpy as np
import pytest
from feasibility_support import README_EXAMPLE, tiny
from scenario_fuzz import drawn_scenario
from scipy.optimize import linprog
from unpriced_support import PAPER_RADIO
from variants_support import mostly_slow

import collapipe_env  # noqa: F401 - registers the environments
from collapipe_env.agents.dssra import DSSRA
from collapipe_env.feasibility import (
    FeasibilityReport,
    energy_feasibility,
    warn_if_infeasible,
)
from collapipe_env.feasibility.energy_search import EnergySearch
from collapipe_env.feasibility.sampled_rounds import sample_rounds
from collapipe_env.feasibility.shortest_round import shortest_round
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import budget_period, reference_delay, system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.general_costs import general_round_costs
from collapipe_env.simulator.world import World

REDRAWN = {"layout": "per_episode"}
SHADOWED = {"d2e_shadowing_db": 8.0, "d2d_shadowing_db": 4.0}
PLAYED = {
    "shadowed": {"base": "medium", "radio": {"d2e_shadowing_db": 8.0}},
    "small shadowed": {"base": "small", "radio": SHADOWED},
    "redrawn": {"base": "medium", "cluster": REDRAWN},
    "both": {"base": "medium", "cluster": REDRAWN, "radio": SHADOWED},
    "tight": {"base": "medium", "cluster": REDRAWN, "budgets": {"device_energy_j": 6.5}},
    "hard radio": {
        "base": "medium",
        "cluster": {**REDRAWN, "area_side_m": 300.0},
        "radio": {"d2d_shadowing_db": 6.0, "noise_dbm_per_hz": -160.0},
        "budgets": {"cu_energy_j": 30.0},
    },
    "readme": README_EXAMPLE,
}


def exact_least_use(scenario, powers, first_node=1):
    """Least worst node's average over the sampled rounds, mixing all splits in each: a linear programme.

    Idle radios have to draw nothing: the search counts them for the shortest round, these plans for theirs.
    """
    parameters, sample = system_parameters(scenario), sample_rounds(scenario)
    L, K, F = scenario.blocks, scenario.max_devices, sample.rounds
    splits = [s for s in itertools.product(range(L + 1), repeat=K) if sum(s) == L]
    cap = sample.state.memory_cap[0, 0]
    splits = np.array([s for s in splits if (np.array(s) <= cap).all()])
    blocks = np.broadcast_to(splits[:, None, None], (len(splits), F, 1, K))
    clusters = blocks.shape[:-1]
    use = np.concatenate(
        [
            general_round_costs(
                parameters,
                sample.state,
                Allocation(
                    blocks=blocks,
                    micro_batches=np.full(clusters, parameters.micro_batch_choices[0]),
                    bandwidth=np.ones(clusters),
                    device_power=np.full(blocks.shape, power),
                    cu_power=np.full(clusters, power),
                ),
            ).energy_ratio[:, :, 0, first_node:]
            for power in powers
        ]
    )
    # No plan of the best mixture takes so much; the solver refuses numbers beyond 10^15.
    use = np.minimum(use, 1e5)
    plans = len(use)
    solution = linprog(
        np.r_[np.zeros(F * plans), 1.0],
        A_ub=np.c_[use.transpose(2, 1, 0).reshape(use.shape[2], -1) / F, -np.ones(use.shape[2])],
        b_ub=np.zeros(use.shape[2]),
        A_eq=np.c_[np.kron(np.eye(F), np.ones(plans)), np.zeros(F)],
        b_eq=np.ones(F),
        bounds=[(0.0, 1.0)] * (F * plans) + [(None, None)],
        method="highs",
    )
    assert solution.success
    assert solution.fun < 1e5 / F
    return solution.fun


@pytest.mark.parametrize("seed", range(8))
def test_least_use_is_that_of_the_best_mixture_of_splits(seed):
    scenario = tiny(seed, device_energy_j=2.0, cu_energy_j=1e4)
    found = energy_feasibility(scenario)
    assert found.least_use[0, 0] == pytest.approx(exact_least_use(scenario, [0.002]), rel=0.04)
    np.testing.assert_array_equal(found.energy_ratio[:, 0].max(axis=-1), found.least_use[:, 0])
    np.testing.assert_array_equal(found.energy_ratio[:, 0].argmax(axis=-1), found.worst_node[:, 0])


@pytest.mark.parametrize("seed", range(4))
def test_plans_follow_the_channels_where_devices_spend_most_on_their_radio(seed):
    """The devices' radio takes more than the budget, their computing next to nothing."""
    radio = {**PAPER_RADIO, "noise_dbm_per_hz": -155.0}
    scenario = tiny(seed, area=400.0, radio=radio, device_energy_j=0.5, cu_energy_j=1e6)
    best = exact_least_use(scenario, [0.002])
    assert best > 1.0
    assert best <= energy_feasibility(scenario).least_use[0, 0] <= 1.1 * best


@pytest.mark.parametrize("seed", mostly_slow(range(3)))
def test_launches_updates_and_circuits_count_with_the_fewest_micro_batches(seed):
    radio = {"d2d_circuit_w": 1.0, "idle_w": 0.0}
    overheads = {"block_s": 0.05, "update_s": 0.5, "message_s": 0.02, "header_bits": 1e5}
    options = {"overheads": overheads, "device_energy_j": 2.0, "cu_energy_j": 1e4}
    scenario = tiny(seed, radio=radio, **options)
    found = energy_feasibility(scenario).least_use[0, 0]
    parameters = system_parameters(scenario)
    powers = np.geomspace(parameters.power_min_w, parameters.power_max_w, 8)
    best = exact_least_use(scenario, powers)
    assert best <= found * (1.0 + 1e-9)
    assert found <= 1.1 * best
    free = energy_feasibility(
        tiny(seed, radio={"idle_w": 0.0}, device_energy_j=2.0, cu_energy_j=1e4)
    ).least_use[0, 0]
    assert found > 1.05 * free


@pytest.mark.parametrize("seed", mostly_slow(range(3)))
def test_relay_counts_and_plans_follow_it(seed):
    """The CU's circuits take most of what it has; its uplink, whose rounds are others, next to nothing."""
    radio = {"d2d_circuit_w": 5.0, "receive_w": 0.5, "idle_w": 0.0}
    options = {"radio": radio, "device_energy_j": 50.0, "cu_energy_j": 4.0, "area": 120.0}
    scenario = tiny(seed, workload={"distribution": "relay", "weight_bits": 32}, **options)
    parameters = system_parameters(scenario)
    powers = np.geomspace(parameters.power_min_w, parameters.power_max_w, 6)
    best = exact_least_use(scenario, powers, first_node=0)
    found = energy_feasibility(scenario).least_use[0, 0]
    # Here all nodes have one power, there each its own.
    assert 0.9 * best <= found <= 1.1 * best
    free = tiny(seed, workload={"weight_bits": 32}, **options)
    assert found > 1.1 * energy_feasibility(free).least_use[0, 0]


@pytest.mark.parametrize("seed", mostly_slow(range(3)))
def test_under_arq_powers_are_chosen_too(seed):
    radio = {"noise_dbm_per_hz": -158.0, "link_errors": "arq", "waterfall_threshold": 1.0, "idle_w": 0.0}
    scenario = tiny(seed, area=200.0, radio=radio, device_energy_j=0.5, cu_energy_j=1e6)
    found = energy_feasibility(scenario).least_use[0, 0]
    least, most = system_parameters(scenario).power_min_w, system_parameters(scenario).power_max_w
    assert found <= 1.1 * exact_least_use(scenario, np.geomspace(least, most, 6))


@pytest.mark.parametrize("seed", range(2))
def test_receivers_count_as_long_as_the_base_station_sends_and_idle_radios_for_the_shortest_round(seed):
    options = {"device_energy_j": 2.0, "cu_energy_j": 5.0, "workload": {"local_steps": 3}}
    scenario = tiny(seed, **options)
    free, priced = (
        energy_feasibility(tiny(seed, radio={**PAPER_RADIO, **radio}, **options)).energy_ratio
        for radio in ({}, {"edge_receive_w": 0.7, "idle_w": 0.4})
    )
    p, sample = system_parameters(scenario), sample_rounds(scenario)
    idle = 0.4 * shortest_round(p, sample.state).mean() / sample.state.budget[0]
    noise = p.noise_density * p.downlink_bandwidth_hz + p.external_interference_w
    rate = p.downlink_bandwidth_hz * np.log2(1.0 + p.bs_power_w * sample.uplink_gain[..., 0] / noise)
    bits = 3.0 * p.costs.batch_size * p.costs.gradient_bits + p.numbers.broadcast_bits
    heard = np.zeros_like(free)
    heard[:, 0, 0] = 0.7 * (bits / rate).mean(axis=1) / 5.0
    np.testing.assert_allclose(priced[..., 0], (free + heard + idle)[..., 0], rtol=1e-4)
    np.testing.assert_allclose(priced[..., 1:].max(), (free + idle)[..., 1:].max(), rtol=0.02)


@pytest.mark.parametrize("name", ["small", "medium", "boards"])
def test_no_round_is_shorter_than_the_bound(name):
    scenario = load_scenario(name)
    p, state = system_parameters(scenario), sample_rounds(scenario).state[:6]
    scheduler, bound = DSSRA(scenario, tradeoff_v=100.0), shortest_round(p, state)
    delay = round_costs(p, state, scheduler.allocate(state)).delay
    assert (bound <= delay).all()
    assert (bound > 0.25 * delay).all()  # hops, which count for nothing, take most of a round of boards


def test_plans_are_mixed_over_time_where_one_plan_does_not_do():
    """One block on two equal devices: either one alone is over budget, each half of the time is not."""
    scenario = load_scenario(
        {
            "base": "medium",
            "name": "mixed",
            "workload": {"blocks": 1},
            "cluster": {"clusters": 1, "devices": 2},
            "radio": PAPER_RADIO,
            "devices": {
                "profiles": [{"clock_min_hz": 1e9, "clock_max_hz": 1e9, "switched_capacitance": 1e-27}]
            },
            "budgets": {"device_energy_j": 1.0},
        }
    )
    # One block's 64 samples, forward and twice that backward, at kappa f^2 a cycle and 16 FLOP in each.
    alone = 3 * 64 * system_parameters(scenario).costs.block_forward_flops * 1e-27 * 1e18 / 16
    assert alone > 1.0
    report = energy_feasibility(scenario)
    assert report.least_use.max() == pytest.approx(alone / 2.0, rel=0.02)
    assert report.feasible


def test_the_share_is_that_of_shadowing_too_deep_for_the_budget():
    """One CU at 300 m with 8 dB: its uplink's energy by hand, over 20,000 episodes of another sample."""
    scenario = load_scenario(
        {
            "base": "medium",
            "name": "one uplink",
            "cluster": {"clusters": 1, "devices": 5, "cu_distance_min_m": 300, "cu_distance_max_m": 300},
            "radio": {**PAPER_RADIO, "d2e_shadowing_db": 8.0},
            "devices": {"power_min_w": 0.002},
            "budgets": {"cu_energy_j": 0.25, "device_energy_j": 12.0},
        }
    )
    bits = 64 * 64 * 256 * 32 + 16 * (12 * 789_760 + 8000 * 256)
    assert bits == pytest.approx(
        64 * system_parameters(scenario).costs.activation_bits
        + system_parameters(scenario).costs.update_payload_bits,
        rel=1e-3,
    )
    rng = np.random.default_rng(5)
    gain = 10 ** (-(128.1 + 37.6 * math.log10(0.3)) / 10 + 0.8 * rng.standard_normal((20_000, 1)))
    gain = gain * rng.gamma(4.0, 0.25, size=(20_000, 100))
    noise = 10 ** (-204 / 10) * 20e6
    joules = (0.002 * bits / (20e6 * np.log2(1.0 + 0.002 * gain / noise))).mean(axis=1)
    share = (joules > 0.25).mean()
    assert 0.2 < share < 0.8
    report = energy_feasibility(scenario)
    assert report.episodes == 64
    assert report.share == pytest.approx(share, abs=2.6 * math.sqrt(share * (1.0 - share) / 64))
    middle = np.median(report.energy_ratio[:, 0, 0]) * 0.25
    assert np.quantile(joules, 0.35) < middle < np.quantile(joules, 0.65)


def test_the_node_that_is_over_budget_stands_for_a_clusters_devices():
    ratio = np.full((4, 2, 3), 0.5)
    ratio[:, 0, 2] = 0.9
    ratio[0, 1, 1], ratio[:, 1, 2] = 1.2, 0.7  # device 1 mostly uses most, but device 0 is over budget
    assert FeasibilityReport(ratio).of_kinds() == [
        (0, 0, 0.5, 0.5, 0),
        (0, 2, 0.9, 0.9, 0),
        (1, 0, 0.5, 0.5, 0),
        (1, 1, 0.7, 1.2, 1),
    ]


def look_at(seed):
    scenario, _ = drawn_scenario(seed)
    least = np.log([1.0, 0.1])
    device, cu = np.exp(np.random.default_rng([seed, 8]).uniform(least, np.log(1e4)))
    scenario = scenario.with_overrides({"budgets.device_energy_j": device, "budgets.cu_energy_j": cu})
    report = energy_feasibility(scenario)
    assert np.isfinite(report.energy_ratio).all(), scenario
    assert (report.energy_ratio >= 0.0).all(), scenario
    assert len(report.of_kinds()) == 2 * scenario.clusters
    bound = EnergySearch(scenario).bound()
    assert (bound <= report.least_use * (1.0 + 1e-9)).all(), scenario
    return report.share


@pytest.mark.parametrize(("seed", "hard"), [(1, False), (5, False), (6, False), (8, True), (9, True)])
def test_random_scenarios_are_judged(seed, hard):
    assert (look_at(seed) > 0.0) == hard


@pytest.mark.slow
def test_many_random_scenarios_are_judged():
    for seed in range(400):
        look_at(seed)


def test_the_report_is_repeatable_and_leaves_generators_alone():
    scenario = load_scenario({"base": "small", "radio": {"d2e_shadowing_db": 8.0}})
    first = energy_feasibility(scenario)
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - the global generator, which users may rely on
    energy_feasibility.cache_clear()
    again = energy_feasibility(scenario)
    assert again is not first
    np.testing.assert_array_equal(again.energy_ratio, first.energy_ratio)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAYED)
@pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
def test_budgets_are_broken_about_as_often_in_play(name):
    """DSSRA with next to no weight on delay, in 64 episodes of its own that have 100 rounds."""
    episodes, rounds = 64, 100
    scenario = load_scenario({**PLAYED[name], "dynamics": {"rounds": rounds}})
    scheduler = DSSRA(scenario, drift="bound", tradeoff_v=1e-4)
    simulator = World(scenario, IdleLearner(episodes), episodes)
    simulator.reset([np.random.default_rng(900 + i) for i in range(episodes)])
    used = np.zeros(simulator.state.budget.shape)
    for _ in range(rounds):
        used += simulator.step(scheduler.allocate(simulator.state)).costs.energy_ratio
    overrun = (used.max(axis=(1, 2)) > 1.05 * rounds).mean()
    # Two samples of 64; a queue policy also pays for its first rounds.
    assert energy_feasibility(scenario).share == pytest.approx(overrun, abs=0.2)


def test_period_is_the_reference_delay_of_one_local_step():
    steps = load_scenario({"base": "small", "budgets": {"per": "second"}, "workload": {"local_steps": 4}})
    one = load_scenario("small")
    assert budget_period(steps) == reference_delay(one)
    assert reference_delay(steps) > 2.0 * reference_delay(one)
    assert system_parameters(steps).numbers.budget_period_s == reference_delay(one)


def test_report_says_how_long_rounds_of_least_energy_must_last():
    """Budgets that are far too small for a round are met in longer ones: nothing is warned of."""
    tight = {"base": "small", "budgets": {"device_energy_j": 1.5}}
    scenario = load_scenario(tight).with_overrides({"budgets.per": "second"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_infeasible(scenario)
    per_round, report = energy_feasibility(load_scenario(tight)), energy_feasibility(scenario)
    assert not per_round.feasible
    assert report.feasible
    assert (report.energy_ratio == per_round.energy_ratio).all()
    assert "per second" in report.verdict
    assert "per second" not in per_round.verdict

"""Committed rates: messages by hand, against rounds on lowered gains, and in all forms of the physics."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_ways_support import assert_same

from collapipe_env.agents.dssra.pricing import price_plan
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.radio import committed_rate
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import SCHEDULERS
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import general_round_costs, round_costs

COSTS = ("delay", "cluster_delay", "local_step", "collect", "upload", "broadcast", "energy", "relay")


def scenario_of(knowledge, base="small", processes=None, **sections):
    on = {} if knowledge is None else {"channel_knowledge": knowledge}
    dynamics = {"rounds": 8, "processes": {**on, **(processes or {})}}
    return load_scenario({"base": base, "dynamics": dynamics, **sections})


def started(scenario, num_envs=3):
    env = CollaPipeVectorEnv(num_envs, scenario, "surrogate")
    env.reset(seed=2)
    return env


def played(env, rounds=3):
    scheduler = SCHEDULERS.get("random")(env.scenario)
    scheduler.reset(0)
    for _ in range(rounds):
        decision = scheduler.act(None, env.state)
        step = env.step(decision) if isinstance(decision, np.ndarray) else env.step_allocation(decision)
    return step


positive = st.floats(1e-3, 1e12)


@given(rate=positive, chosen=positive)
def test_a_message_that_fails_costs_both_times(rate, chosen):
    seconds = 1.0 / chosen + (1.0 / rate if chosen > rate else 0.0)
    assert 1.0 / committed_rate(np.array([rate]), np.array([chosen]))[0] == pytest.approx(seconds, rel=1e-12)


def test_links_that_do_not_exist_keep_their_rates():
    for rate in (0.0, math.inf):
        assert committed_rate(np.array([rate]), np.array([rate]))[0] == rate


def test_without_margin_and_error_all_is_bit_for_bit_as_without():
    perfect = {"modes": ["perfect"], "rates": "committed", "margin_db": 0.0}
    on, off = started(scenario_of(perfect)), started(scenario_of(None))
    assert system_parameters(on.scenario).committed
    for _ in range(3):
        assert_same(played(on, 1), played(off, 1))


@pytest.mark.parametrize("processes", [{}, {"migration": {}}], ids=["", "migration"])
def test_a_margin_alone_lowers_the_gains_that_rates_see(processes):
    """Known gains are 3 dB below the true ones: no message fails, and all take as long as on lower gains."""
    errors = {"radio": {"link_errors": "none"}}
    perfect = {"modes": ["perfect"], "rates": "committed", "margin_db": 3.0}
    env = started(scenario_of(perfect, processes=processes, **errors))
    played(env)
    record, lower = env.last_round, 10.0**-0.3
    ideal = system_parameters(scenario_of(None, processes=processes, **errors))
    state = replace(
        record.state,
        uplink_gain=record.state.uplink_gain * lower,
        d2d_gain=record.state.d2d_gain * lower,
        known_uplink_gain=None,
        known_d2d_gain=None,
    )
    expected = round_costs(ideal, state, record.allocation)
    for name in (*COSTS, *(("migration",) if processes else ())):
        np.testing.assert_allclose(getattr(record.costs, name), getattr(expected, name), rtol=1e-12)
    if processes:
        assert (record.costs.migration > 0.0).any()


def test_the_uplink_by_hand():
    noisy = {"modes": ["noisy"], "noise_db": 4.0, "rates": "committed", "margin_db": 1.0}
    env = started(scenario_of(noisy), 20)
    seen = env.state.uplink_gain
    played(env, 1)
    plan, costs, true = env.last_round.allocation, env.last_round.costs, env.last_round.state.uplink_gain
    bits = system_parameters(env.scenario).costs.update_payload_bits
    radio = env.scenario.radio
    width, density = radio.uplink_bandwidth_hz, 10.0 ** (radio.noise_dbm_per_hz / 10.0 - 3.0)
    failed = 0
    for e, n in np.ndindex(seen.shape):
        share, power = float(plan.bandwidth[e, n]), float(plan.cu_power[e, n])
        chosen, carried = (
            share * width * math.log2(1.0 + power * float(g[e, n]) / (share * density * width))
            for g in (seen, true)
        )
        fails = chosen > carried
        failed += fails
        seconds = bits / chosen + (bits / carried if fails else 0.0)
        assert costs.upload[e, n] == pytest.approx(seconds, rel=1e-9)
    # Errors of 4 dB are above the margin of 1 dB with probability 0.4013.
    assert failed / seen.size == pytest.approx(0.4013, abs=4.0 * math.sqrt(0.24 / seen.size))


@pytest.mark.parametrize("distribution", ["cu", "relay", "devices"])
@pytest.mark.parametrize("link_errors", ["drop", "arq"])
def test_the_compiled_loop_and_the_general_form_agree(distribution, link_errors):
    scenario = scenario_of(
        {"noise_db": 5.0, "rates": "committed"},
        workload={"distribution": distribution, "local_steps": 2},
        radio={"link_errors": link_errors},
        budgets={"device_energy_j": 1e4, "cu_energy_j": 1e4},
    )
    env = started(scenario, 4)
    played(env)
    record, parameters = env.last_round, system_parameters(scenario)
    general = general_round_costs(parameters, record.state, record.allocation)
    for name in (*COSTS, "survival"):
        np.testing.assert_allclose(getattr(record.costs, name), getattr(general, name), rtol=1e-11)


def test_survival_follows_the_truth():
    spec = {"modes": ["noisy"], "noise_db": 6.0}
    ideal, committed = (started(scenario_of({**spec, "rates": r})) for r in ("ideal", "committed"))
    played(ideal, 1)
    plan = ideal.last_round.allocation
    committed.step_allocation(plan)
    assert_same(committed.last_round.costs.survival, ideal.last_round.costs.survival)
    assert (committed.last_round.costs.upload > ideal.last_round.costs.upload).any()
    assert (committed.last_round.costs.upload != ideal.last_round.costs.upload).all()


def test_schedulers_price_what_they_see_without_failures():
    scenario = scenario_of({"noise_db": 5.0, "rates": "committed"})
    env = started(scenario)
    state = env.state
    plan = SCHEDULERS.get("dssra")(scenario).allocate(state)
    ideal = system_parameters(scenario_of(None))
    assert_same(
        round_costs(system_parameters(scenario), state, plan).delay, round_costs(ideal, state, plan).delay
    )
    assert price_plan(scenario, state, plan).objective.shape == (3,)


def test_a_margin_is_worth_its_price_where_errors_are_large():
    """Delay over margins has its least value inside: too little fails often, too much sends slowly."""
    delays = []
    for margin in (0.0, 6.0, 30.0):
        spec = {"modes": ["noisy"], "noise_db": 3.0, "rates": "committed", "margin_db": margin}
        env = started(scenario_of(spec, "medium"), 100)
        plan = SCHEDULERS.get("pipeline")(env.scenario).allocate(env.state)
        env.step_allocation(plan)
        delays.append(env.last_round.costs.upload.mean())
    assert delays[1] < min(delays[0], delays[2])

"""Presence: laws of stays and absences, clusters that sit out, and environments where devices come and go."""

import dataclasses
import math

import numpy as np
import process_support
import pytest
from process_support import actions_of, process_of, seeds

from collapipe_env.dynamics.sojourns import LognormalStay, WeibullStay
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import AllocationError
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.schedulers import SCHEDULERS, scheduler_names
from collapipe_env.simulator.build import action_codec, system_parameters, usual_round
from collapipe_env.simulator.state import able_clusters

BUSY = {"on_mean_s": 60.0, "off_mean_s": 40.0, "off_deviation": 0.5}
"""So short that clusters sit out now and then."""


def going(fields=None, **sections):
    """A scenario of two clusters of unlike sizes whose devices come and go."""
    return {
        "base": "small",
        "cluster": {"devices": [3, 2]},
        "budgets": {"device_energy_j": 40, "cu_energy_j": 40},
        **sections,
        "dynamics": {"rounds": 8, "processes": {"presence": {**BUSY, **(fields or {})}}},
    }


def presence(fields=None):
    """The process of a single device."""
    scenario = {
        "base": "small",
        "cluster": {"clusters": 1, "devices": 1},
        "budgets": {"device_energy_j": 100, "cu_energy_j": 100},
        "workload": {"blocks": 1},
        "dynamics": {"processes": {"presence": fields or {}}},
    }
    return process_of(load_scenario(scenario), "presence")


def numbers(process, rows, t):
    return process_support.numbers(process, seeds(rows, 11), t)


@pytest.mark.parametrize("shape", [0.6, 1.0, 2.5])
def test_stays_have_their_law(shape):
    """Against the distribution function of the Weibull law, and of what is left in the stationary law."""
    law, n = WeibullStay(100.0, shape), 200_000
    u = np.random.default_rng(0).random(n)
    stays = law.drawn(u)
    assert stays.mean() == pytest.approx(100.0, abs=4.0 * stays.std() / math.sqrt(n))
    # Density S(t) / m: cut a long row of stays at uniform moments.
    ends = np.cumsum(stays)
    cuts = np.sort(np.random.default_rng(1).uniform(0.0, ends[-1], n))
    measured = ends[np.searchsorted(ends, cuts)] - cuts
    drawn = law.left(np.random.default_rng(2).random(n))
    levels = np.linspace(0.05, 0.95, 10)
    np.testing.assert_allclose(np.quantile(drawn, levels), np.quantile(measured, levels), rtol=0.03)


def test_absences_have_their_law():
    law, n = LognormalStay(600.0, 0.8), 300_000
    rng = np.random.default_rng(0)
    absences = law.drawn(rng.standard_normal(n))
    assert absences.mean() == pytest.approx(600.0, rel=0.01)
    assert np.log(absences).std() == pytest.approx(0.8, rel=0.01)
    ends = np.cumsum(absences)
    cuts = np.sort(rng.uniform(0.0, ends[-1], n))
    measured = ends[np.searchsorted(ends, cuts)] - cuts
    left = law.left(rng.random(n), rng.standard_normal(n))
    levels = np.linspace(0.05, 0.95, 10)
    np.testing.assert_allclose(np.quantile(left, levels), np.quantile(measured, levels), rtol=0.03)


@pytest.mark.parametrize("delta_s", [7.0, 30.0])
def test_ends_come_at_the_hazard_of_the_class(delta_s):
    """1 - exp(-lambda T) of the devices that are on, whatever their class; half of them announced."""
    rows, factors = 60_000, (0.2, 1.0, 5.0)
    process = presence({"on_mean_s": 300.0, "hazard_factors": factors})
    carried = process.begin(None, numbers(process, rows, 0))
    on, factor = carried["present"][:, 0, 0], carried["factor"][:, 0, 0]
    for one in factors:
        mine = factor == one
        assert mine.mean() == pytest.approx(1.0 / 3.0, abs=0.008)
        stay = 300.0 / one
        expected = stay / (stay + 600.0)
        assert on[mine].mean() == pytest.approx(expected, abs=4.0 / math.sqrt(mine.sum()))
    for t in (1, 2):
        before = carried
        carried = process.advance(before, None, None, numbers(process, rows, t), np.full(rows, delta_s))
        on = before["present"][:, 0, 0]
        ended = before["residual_s"][:, 0, 0] <= delta_s
        for one in factors:
            mine = on & (factor == one)
            p = 1.0 - math.exp(-delta_s * one / 300.0)
            slack = 4.0 * math.sqrt(p * (1.0 - p) / mine.sum())
            assert ended[mine].mean() == pytest.approx(p, abs=slack)
        kind = before["graceful"][:, 0, 0][on & ended]
        assert kind.mean() == pytest.approx(0.5, abs=2.5 / math.sqrt(len(kind)))
        # The share that is on stays: the start is stationary.
        now = carried["present"][:, 0, 0]
        assert now.mean() == pytest.approx(on.mean(), abs=0.008)


def test_times_add_up():
    """Two rounds of 20 s leave what one of 40 s does, where nothing ends on the way."""
    process = presence({"on_mean_s": 300.0})
    first = process.begin(None, numbers(process, 500, 0))
    u = numbers(process, 500, 1)
    half = process.advance(first, None, None, u.copy(), np.full(500, 20.0))
    twice = process.advance(half, None, None, numbers(process, 500, 2), np.full(500, 20.0))
    once = process.advance(first, None, None, u.copy(), np.full(500, 40.0))
    through = first["residual_s"] > 40.0
    for name in ("residual_s", "since_s"):
        np.testing.assert_allclose(once[name][through], twice[name][through], rtol=1e-12)
    np.testing.assert_array_equal(once["present"][through], first["present"][through])
    ended = (first["residual_s"] <= 20.0)[:, 0, 0]
    single = half["residual_s"] > 0.0
    assert (half["present"] != first["present"])[ended].mean() > 0.9
    assert single.all()
    assert (half["since_s"][ended] <= 20.0).all()
    once = ended & (half["present"] != first["present"])[:, 0, 0]
    np.testing.assert_allclose(half["since_s"][once], 20.0 - first["residual_s"][once], rtol=1e-9)


def test_announced_devices_leave_after_the_round_and_failing_ones_say_nothing():
    process = presence({"on_mean_s": 100.0})
    horizon = usual_round(process.scenario)
    carried = process.begin(None, numbers(process, 5_000, 0))
    after = process.advance(carried, None, None, numbers(process, 5_000, 1), np.full(5_000, horizon))
    ends = carried["present"] & (carried["residual_s"] <= horizon)
    np.testing.assert_array_equal(carried["announced"], ends & carried["graceful"])
    failing = process.events(carried, None).fails_s <= horizon
    np.testing.assert_array_equal(failing, ends & ~carried["graceful"])
    assert carried["announced"].any()
    assert failing.any()
    stayed = ~ends & carried["present"]
    assert after["present"][stayed].all()
    assert after["present"][ends].mean() < 0.02  # back within the same seconds


def test_clusters_that_cannot_hold_the_encoder_sit_out_and_count_the_reference_delay():
    env = CollaPipeVectorEnv(6, going(), "surrogate")
    env.reset(seed=0)
    parameters, alone = system_parameters(env.scenario), 0
    usual = usual_round(load_scenario({"base": "small", "cluster": {"devices": [3, 2]}}))
    assert parameters.idle_round_s == usual
    for action in actions_of(env, 8):
        state = env.state
        able = able_clusters(parameters, state)
        assert (state.memory_cap[~state.present] == 0).all()
        assert (state.memory_bytes[~state.present] == 0.0).all()
        env.step(action)
        record = env.last_round
        np.testing.assert_array_equal(record.allocation.participates, able.astype(int))
        costs, out = record.costs, ~able
        assert (costs.cluster_delay[out] == usual).all()
        assert (costs.energy[out] == 0.0).all()
        assert (costs.energy[..., 1:][~state.present] == 0.0).all()
        assert (record.allocation.device_blocks[able][~state.present[able]] == 0).all()
        assert (record.arrivals.counts[out] == 0).all()
        np.testing.assert_array_equal(record.backlog[out], state.backlog[out])
        # Those that play share the whole uplink.
        shares = np.where(able, record.allocation.bandwidth, 0.0).sum(axis=-1)
        np.testing.assert_allclose(shares[able.any(axis=-1)], 1.0, rtol=1e-12)
        alone += int((out.any(axis=-1) & able.any(axis=-1)).sum())
        nobody = ~able.any(axis=-1)
        np.testing.assert_array_equal(costs.delay[nobody], usual)
    assert alone > 3


def test_no_cluster_is_charged_for_an_absence_that_nobody_chose():
    scenario = load_scenario(going(decisions=[*COLLAPIPE, "participation"]))
    env, parameters, unable = CollaPipeVectorEnv(6, scenario, "surrogate"), system_parameters(scenario), 0
    env.reset(seed=0)
    for action in actions_of(env, 8):
        before, able = env.state.absence, able_clusters(parameters, env.state)
        env.step(action)
        plays = env.last_round.allocation.participates > 0
        charged = np.maximum(before + parameters.participation_min - plays, 0.0)
        np.testing.assert_allclose(env.state.absence, np.where(able, charged, before), rtol=1e-12)
        unable += (~able & (charged != before)).sum()
    assert unable > 0


@pytest.mark.parametrize("name", [n for n in scheduler_names() if n not in ("dssra-target", "optpipe")])
def test_every_scheduler_plays_where_devices_come_and_go(name):
    scenario = load_scenario(going({"off_mean_s": 30.0}))
    env = CollaPipeVectorEnv(3, scenario, "surrogate", reward="delay")
    observation, _ = env.reset(seed=1)
    scheduler = SCHEDULERS.get(name)(scenario)
    scheduler.reset(seed=0)
    out = 0
    for _ in range(8):
        decided = scheduler.act(observation, env.state)
        step = env.step if isinstance(decided, np.ndarray) else env.step_allocation
        observation, *_ = step(decided)
        out += int((~env.last_round.costs.plays).sum()) if env.last_round.costs.plays is not None else 0
    assert out > 0


def test_actions_of_plans_with_forced_absence_decode_to_them():
    scenario = load_scenario(going())
    codec = action_codec(scenario)
    env = CollaPipeVectorEnv(6, scenario, "surrogate")
    env.reset(seed=3)
    for action in actions_of(env, 4):
        env.step(action)
        plan, state = env.last_round.allocation, env.last_round.state
        again = codec.decode(codec.encode(plan), state.memory_cap, state.memory_bytes)
        np.testing.assert_array_equal(again.participates, plan.participates)
        plays = plan.participates > 0
        np.testing.assert_array_equal(again.blocks[plays], plan.blocks[plays])
        np.testing.assert_allclose(again.bandwidth[plays], plan.bandwidth[plays], atol=1e-6)


def test_who_plays_is_not_a_decision():
    env = CollaPipeVectorEnv(6, going(), "surrogate")
    env.reset(seed=0)
    while able_clusters(system_parameters(env.scenario), env.state).all():
        env.step(np.zeros((6, env.single_action_space.shape[0]), np.float32))
    plan = SCHEDULERS.get("pipeline")(env.scenario).act(None, env.state)
    for wrong in (1 - plan.participates, np.ones_like(plan.participates)):
        with pytest.raises(AllocationError, match=r"participates.*cannot hold the encoder"):
            env.step_allocation(dataclasses.replace(plan, participates=wrong))
    env.step_allocation(plan)

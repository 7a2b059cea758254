"""Tiers Churn and Wild: how often clusters sit out, what is on, and that schedulers can play them."""

from math import comb

import numpy as np
import pytest

from collapipe_env import CollaPipeVectorEnv
from collapipe_env.envs.registration import WHOLE_TIERS as REGISTERED
from collapipe_env.evaluation.declared_sight import seen_by, sees_truth
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.feasibility import energy_feasibility
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.names import LADDER, TIER_SIZES, TIERS, WHOLE_TIERS, is_tier, sizes_of
from collapipe_env.schedulers import also_playing

CHURN = [f"{size}-churn" for size in sizes_of("churn")]
SCHEDULERS = ("dssra", "dssra-plus", "dssra-truth", "pipeline", "random", "zoo:graph")
"""Those of the tables."""
WILD = [f"{size}-wild" for size in sizes_of("wild")]


def test_stale_and_wild_come_in_the_largest_size() -> None:
    assert WHOLE_TIERS == REGISTERED == ("stale", "wild")
    assert sizes_of("wild") == sizes_of("stale") == LADDER
    assert {sizes_of(tier) for tier in TIERS if tier not in WHOLE_TIERS} == {TIER_SIZES}
    assert is_tier("xlarge-wild")
    assert is_tier("small-churn-ner")
    assert not is_tier("xlarge-churn")


@pytest.mark.parametrize("name", CHURN)
def test_clusters_sit_out_as_often_as_the_stationary_law_says(name: str) -> None:
    """Devices are there independently; a cluster plays with as many of them as its encoder takes."""
    scenario = load_scenario(name)
    spec = dict(scenario.dynamics.processes)["presence"]
    stays = spec.on_mean_s / np.asarray(spec.hazard_factors)
    p, K = float((stays / (stays + spec.off_mean_s)).mean()), scenario.max_devices
    episodes = 4000 // scenario.clusters
    env = CollaPipeVectorEnv(episodes, scenario, "surrogate")
    env.reset(seed=5)
    caps = env.state.memory_cap
    needed = -(-scenario.blocks // int(caps.max()))
    assert needed == (1 if name.startswith("small") else 2)
    expected = sum(comb(K, i) * p**i * (1.0 - p) ** (K - i) for i in range(needed))
    found = (caps.sum(axis=-1) < scenario.blocks).mean()
    deviation = np.sqrt(expected * (1.0 - expected) / (episodes * scenario.clusters))
    assert found == pytest.approx(expected, abs=4.0 * deviation)
    # Seldom, but not never.
    assert 0.001 < expected < 0.06
    assert env.state.present.mean() == pytest.approx(p, abs=0.02)


def test_a_fair_share_of_rounds_fails_in_churn() -> None:
    """Within some 5 % of all rounds of clusters; were it rare, there would be nothing to schedule for."""
    scenario = load_scenario("medium-churn")
    env = CollaPipeVectorEnv(32, scenario, "surrogate")
    scheduler = make_scheduler("pipeline", scenario)
    observation, _ = env.reset(seed=0)
    struck = 0
    for _ in range(20):
        observation = env.step_allocation(scheduler.act(observation, env.state))[0]
        record = env.last_round
        assert record is not None
        if record.interruption is not None and record.interruption.failed is not None:
            struck += int((record.interruption.failed.device >= 0).sum())
    assert 0.03 < struck / (32 * 20 * scenario.clusters) < 0.12


@pytest.mark.parametrize("name", WILD)
def test_wild_has_all_of_it(name: str) -> None:
    scenario = load_scenario(name)
    processes = dict(scenario.dynamics.processes)
    assert set(processes) == {"mobility", "channel_knowledge", "heat", "migration", "presence"}
    assert (processes["heat"].governor, processes["mobility"].area) == ("step", "open")
    assert (scenario.cluster.layout, scenario.dynamics.visibility) == ("per_episode", "realistic")
    assert scenario.server.terms == "contended"
    assert scenario.server.energy_budget_j == 20.0 * scenario.clusters
    assert set(also_playing(scenario)) == {"dssra-plus", "dssra-truth"}


@pytest.mark.parametrize("name", WILD[:3])
def test_energy_budgets_of_wild_leave_room_for_devices_that_are_away(name: str) -> None:
    report = energy_feasibility(load_scenario(name))
    assert report.feasible
    assert np.median(report.least_use) < 0.5


@pytest.mark.parametrize("name", ["small-churn", "medium-churn", "small-wild", "medium-wild"])
@pytest.mark.parametrize("scheduler_name", SCHEDULERS)
def test_schedulers_play_them(name: str, scheduler_name: str) -> None:
    scenario = load_scenario(name)
    scheduler = make_scheduler(scheduler_name, scenario)
    form = getattr(scheduler, "observation", "flat")
    env = CollaPipeVectorEnv(3, scenario, "surrogate", observation=form)
    observation, _ = env.reset(seed=1)
    scheduler.reset(1)
    for _ in range(4):
        state = env.state
        decision = scheduler.act(observation, seen_by(env, oracle=sees_truth(scheduler)))
        step = env.step_allocation if isinstance(decision, Allocation) else env.step
        observation = step(decision)[0]  # type: ignore[operator]
        record = env.last_round
        assert record is not None
        held = record.allocation.blocks.sum(axis=-1)
        able = state.memory_cap.sum(axis=-1) >= scenario.blocks
        np.testing.assert_array_equal(held[able], scenario.blocks)
        assert np.isfinite(record.costs.delay).all()

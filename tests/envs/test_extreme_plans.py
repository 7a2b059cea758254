"""Plans of extreme numbers: played as what they say, or refused with one clear error and without a trace."""

import dataclasses

import numpy as np
import pytest
from env_support import make_actions, make_env, play
from state_ways_support import assert_same

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.ground.errors import AllocationError, ScenarioError
from collapipe_env.physics.allocation import SCHEDULES, with_schedule
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.even_split import even_split


def ready():
    env = make_env("small", 5)
    env.reset(seed=0)
    plan = even_split(env._mdp.world.parameters, env.state)[0].map(np.copy)
    return env, plan


def assert_refused(env, plan, message):
    before = env.get_state()
    for way in (env.step_allocation, env.simulate):
        with pytest.raises(AllocationError, match=message):
            way(plan)
    assert_same(env.get_state(), before)


@pytest.mark.parametrize("name", ["caps", "chunks", "schedule", "blocks", "micro_batches"])
def test_integers_that_would_wrap_are_refused(name):
    env, plan = ready()
    plan = with_schedule(plan, "zb-h1", 4)
    wrong = np.full(getattr(plan, name).shape, 2**64 - 1, np.uint64)
    assert_refused(env, dataclasses.replace(plan, **{name: wrong}), rf"{name}\[0.*18446744073709551615")


def test_sums_that_would_wrap_are_refused():
    env, plan = ready()
    N, K = plan.blocks.shape
    shares = dataclasses.replace(plan, bandwidth=np.full(N, 2**62))
    assert shares.bandwidth.sum() < 0  # wrapped around
    assert_refused(env, shares, "bandwidth.*at most 1")
    L = env.scenario.workload.blocks
    blocks = np.zeros((N, K), dtype=np.int64)
    blocks[:, 0], blocks[:, 1] = 2**63 - 1, 2**63 - 1
    blocks[:, 2] = L + 2
    assert (blocks.sum(axis=-1) == L).all()  # wrapped around
    assert_refused(env, dataclasses.replace(plan, blocks=blocks), "blocks.*non-negative")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_huge_caps_are_no_caps(schedule):
    """Any integer type may say that there is no limit but the number of micro-batches."""
    env, plan = ready()
    plan.blocks[:] = (3, 3, 0)  # two stages, into which "interleaved" can divide the micro-batches
    M = int(plan.micro_batches.max())
    expected = env.simulate(with_schedule(plan, schedule, M))
    for huge in (np.uint64(2**63 - 1), np.int64(2**63 - 1), np.int32(2**31 - 1)):
        same = dataclasses.replace(
            with_schedule(plan, schedule, M),
            caps=np.full(plan.blocks.shape, huge),
            chunks=np.ones(2, np.uint8),
        )
        assert_same(env.simulate(same), expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble])
def test_shares_of_other_types_are_played_as_the_same_numbers(dtype):
    env, plan = ready()
    plan = dataclasses.replace(plan, bandwidth=np.array([0.25, 0.5]))
    same = dataclasses.replace(plan, bandwidth=plan.bandwidth.astype(dtype))
    assert_same(env.simulate(same), env.simulate(plan))


@pytest.mark.parametrize("share", [5e-324, 1e-300, 1e-150, 9e-10, 0.0, -1.0, np.nan])
def test_shares_below_the_least_are_refused(share):
    env, plan = ready()
    plan.bandwidth[1] = share
    assert_refused(env, plan, "bandwidth of environment 0, cluster 1.*at least 1e-09")


def test_the_least_share_is_played_and_gives_finite_numbers():
    env, plan = ready()
    plan.bandwidth[1] = 1e-9
    observation, reward, _, _, info = env.step_allocation(plan)
    assert np.isfinite(observation).all()
    assert np.isfinite([reward, *info.values()]).all()
    # A thousandth of the share takes a thousand times as long, for all but the rounds' other parts.
    slow = env.last_round.costs.upload[0, 1]
    plan.bandwidth[1] = 1e-6
    env.reset(seed=0)
    env.step_allocation(plan)
    assert slow > 10.0 * env.last_round.costs.upload[0, 1]


def test_no_scenario_promises_less_than_the_least_share():
    load_scenario({"base": "small", "budgets": {"bandwidth_floor": 1e-9}})
    with pytest.raises(ScenarioError, match="bandwidth_floor"):
        load_scenario({"base": "small", "budgets": {"bandwidth_floor": 1e-300}})


def test_every_action_at_the_least_floor_is_an_accepted_plan():
    env = make_env("small", 5)
    scenario = load_scenario({"base": "small", "budgets": {"bandwidth_floor": 1e-9}})
    env = type(env)(scenario, "surrogate")
    env.reset(seed=0)
    action = np.ones(env.action_space.shape)
    action[-1] = -1.0  # the last cluster's share
    plan = env.codec.decode(action[None], env.state.memory_cap)
    assert plan.bandwidth[0, -1] == pytest.approx(1e-9, rel=1e-6)
    assert_same(env.simulate(plan), env.simulate(action))


def test_a_round_without_end_is_refused_before_anything_changes():
    env, plan = ready()
    env.state.uplink_gain[0, 1] = 0.0  # nothing ever arrives
    with np.errstate(divide="ignore"):
        assert_refused(env, plan, "delay of the round of environment 0 is inf")


@pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
@pytest.mark.parametrize(("base", "shadowing_db"), [("small", 8.0), ("medium", 12.0)])
def test_repeats_cost_at_most_as_many_rounds_as_they_are(base, shadowing_db):
    """Rayleigh fading and strong shadowing under random actions, beside links that never fail."""
    radio = {"diversity": 1, "d2e_shadowing_db": shadowing_db, "d2d_shadowing_db": shadowing_db}
    played = {}
    for mode in ("none", "arq"):
        scenario = {"base": base, "radio": {**radio, "link_errors": mode, "waterfall_threshold": 1.0}}
        env = CollaPipeEnv(load_scenario(scenario), "surrogate")
        played[mode] = play(env, make_actions(env, 20), seed=3)
    (_, rewards, _, infos), (seen, repeated, _, longer) = played.values()
    assert np.isfinite(seen).all()
    delays, least = (np.array([info["delay"] for info in each]) for each in (longer, infos))
    assert (delays > least).all()
    assert (delays <= 16.0 * least * (1.0 + 1e-12)).all()
    assert np.abs(repeated).max() < 16.0**2 * np.abs(rewards).max()


@pytest.mark.parametrize("name", ["blocks", "micro_batches", "bandwidth", "device_power", "cu_power"])
def test_fields_that_every_plan_needs_cannot_be_missing(name):
    env, plan = ready()
    assert_refused(env, dataclasses.replace(plan, **{name: None}), f"{name} is None")


def test_masked_arrays_are_refused():
    env, plan = ready()
    shares = np.ma.masked_array(plan.bandwidth, mask=[True, False])
    assert_refused(env, dataclasses.replace(plan, bandwidth=shares), "bandwidth: a masked array")
    action = np.ma.masked_array(np.zeros(env.action_space.shape), mask=True)
    with pytest.raises(AllocationError, match="action: a masked array"):
        env.step(action)


def test_arrays_that_cannot_be_made_are_refused():
    class Broken:
        def __array__(self, *args, **kwargs):
            raise KeyError("data")

    env, plan = ready()
    assert_refused(env, dataclasses.replace(plan, cu_power=Broken()), "cu_power: a Broken.*KeyError")
    with pytest.raises(AllocationError, match=r"action: a Broken.*KeyError"):
        env.step(Broken())

"""Opened decisions: feasible and invertible in the action box, neutral by default, priced alike twice."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from stable_baselines3.common.env_checker import check_env as stable_baselines_check

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.envs.wrappers import MultiDiscreteActions
from collapipe_env.feasibility.sampled_rounds import sample_rounds
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import (
    ASYNC,
    COPIES,
    ONE_F_ONE_B,
    SEQUENTIAL,
    ZERO_BUBBLE,
    with_schedule,
)
from collapipe_env.physics.memory import memory_caps
from collapipe_env.scenario.decision_names import OPENED, ROWS
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.general_costs import general_round_costs
from collapipe_env.simulator.state import able_clusters
from tests.opened_support import PLACED, SITTING_OUT, STATE, WARM, opened, same, small

OPENINGS = [
    *(chosen for count in range(4) for chosen in combinations(PLACED, count)),
    ("clock_cap",),
    ("recompute", "schedule", "clock_cap"),
    *(SITTING_OUT[:1], SITTING_OUT[1:], SITTING_OUT),
    ("recompute", "participation"),
    ("schedule", "participation"),
    ("server_blocks", *SITTING_OUT),
    OPENED,
]
SCENARIOS = {
    "placed": small(*PLACED),
    "clocks": opened("clock_cap", **WARM),
    "sitting out": small(*SITTING_OUT),
    "all": small(*OPENED),
}
MANY = sample_rounds(opened("clock_cap")).state[:24]
FACTORS = {False: [0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 3.0], True: [0.0, 0.01, 0.05, 0.2, 0.5, 1.0]}


def test_every_decision_is_opened_by_itself_and_with_others():
    assert set(OPENED) == set(ROWS.shipped()) == {name for names in OPENINGS for name in names}


def with_other_memory(scenario, rng, may_sit_out):
    """Many states with more or less memory, in which clusters fit the encoder unless they may sit out."""
    costs = system_parameters(scenario).costs
    shape = (len(MANY.budget), scenario.clusters if may_sit_out else 1, 1)
    memory = MANY.memory_bytes * rng.choice(FACTORS[may_sit_out], shape)
    while True:
        cap = memory_caps(costs, memory)
        short = (cap.sum(axis=-1) < scenario.blocks).any(axis=-1)
        if may_sit_out or not short.any():
            return replace(MANY, memory_bytes=memory, memory_cap=cap)
        memory[short] *= 1.1


def random_actions(rng, rows, size):
    """Numbers in and beyond the box, of which some stand at its ends and in its middle."""
    action = rng.uniform(-1.5, 1.5, (rows, size))
    ends = rng.choice([-1.0, 0.0, 1.0], action.shape)
    return np.where(rng.random(action.shape) < rng.choice([0.0, 0.3, 1.0], (rows, 1)), ends, action)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("names", OPENINGS, ids=["+".join(names) for names in OPENINGS])
def test_every_action_decodes_to_a_plan_that_the_simulator_accepts(names, own):
    rng = np.random.default_rng([len(names), own])
    least = 0.2 if "clock_cap" not in names else 1.0 if own else 0.01
    scenario = opened(*names, **{"workload.recompute": own, "devices.clock_cap_min": least})
    parameters, codec = system_parameters(scenario), action_codec(scenario)
    state = with_other_memory(scenario, rng, "participation" in names)
    action = random_actions(rng, len(state.budget), codec.action_size)
    plan = codec.decode(action, state.memory_cap, state.memory_bytes)
    check_allocation(parameters, state, plan)
    costs, general = (price(parameters, state, plan) for price in (round_costs, general_round_costs))
    assert np.isfinite(costs.delay).all()
    for field in ("delay", "energy", "memory", "survival"):
        one, two = getattr(costs, field), getattr(general, field)
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12, err_msg=field)
    # What is decoded comes back from its action, and a plan's action stands for itself.
    encoded = codec.encode(plan)
    assert encoded.dtype == np.float32
    assert (np.abs(encoded) <= 1.0).all()
    same(codec.decode(encoded, state.memory_cap, state.memory_bytes), plan)
    np.testing.assert_array_equal(codec.join(codec.split(action)), action)
    # The form for any array library says the same.
    same(codec.decode_finite(action, state.memory_cap, state.memory_bytes), plan, 1e-12)
    if "clock_cap" in names:
        # Geometric by hand, and not rounded at the ends.
        entries = np.clip(codec.split(action)["clock_cap"], -1.0, 1.0)
        np.testing.assert_allclose(plan.clock_cap, least ** (0.5 * (1.0 - entries)), rtol=1e-12)
        assert (plan.clock_cap[entries == 1.0] == 1.0).all()
        assert (plan.clock_cap >= least).all()
    if "local_steps" in names:
        assert np.isin(plan.local_steps, scenario.workload.local_steps_choices).all()
    if "participation" in names:
        require_who_plays(codec.split(action)["participation"] >= 0.0, parameters, state, plan)


def require_who_plays(asked, parameters, state, plan):
    """Whom memory lets play does as asked, and where none of those asked to, one of them does."""
    able = np.asarray(able_clusters(parameters, state))
    for e, plays in enumerate(plan.participates > 0):
        if (asked[e] & able[e]).any():
            np.testing.assert_array_equal(plays[able[e]], asked[e][able[e]])
        elif able[e].any():
            assert plays.sum() >= 1
        assert not plays[(state.memory_bytes[e] == 0.0).all(axis=-1)].any()
        assert plan.bandwidth[e][plays].sum() == pytest.approx(1.0 if plays.any() else 0.0)
        assert (plan.bandwidth[e][~plays] == 0.0).all()


@pytest.mark.parametrize("names", [*((name,) for name in OPENED), PLACED, SITTING_OUT, OPENED])
@pytest.mark.parametrize("own", [False, True])
def test_neutral_decisions_cost_what_the_plain_plan_costs(names, own):
    scenario, closed = (opened(*which, **{"workload.recompute": own}) for which in (names, ()))
    codec, plan = action_codec(scenario), even_split(system_parameters(scenario), STATE)
    plan = replace(plan, micro_batches=np.full_like(plan.micro_batches, 4))
    decoded = codec.decode(codec.encode(plan), STATE.memory_cap, STATE.memory_bytes)
    assert decoded.is_plain == (not {"schedule", "server_blocks"} & set(names))
    if "participation" in names:
        assert (decoded.participates == 1).all()
    if "local_steps" in names:
        assert (decoded.local_steps == scenario.workload.local_steps).all()
    # Powers and shares have gone through single precision: compare with those.
    through = {name: getattr(decoded, name) for name in ("bandwidth", "device_power", "cu_power")}
    silent = replace(plan, **through)
    expected = round_costs(system_parameters(closed), STATE, silent)
    for said in (decoded, silent):  # what a plan does not say is neutral, too
        found = round_costs(system_parameters(scenario), STATE, said)
        for field in ("delay", "cluster_delay", "energy", "memory", "survival", "local_step", "upload"):
            one, two = getattr(found, field), getattr(expected, field)
            np.testing.assert_allclose(one, two, rtol=1e-12, err_msg=field)


def refused_plans():
    plain = even_split(system_parameters(opened()), STATE)[0]
    grouped = replace(plain, **plain.groups._asdict())
    scheduled = with_schedule(plain, "1f1b", 1)
    split = replace(plain, **plain.server._asdict())
    ones = np.ones_like(plain.micro_batches)

    def capped(cap):
        return replace(plain, clock_cap=np.full_like(plain.device_power, cap))

    stages = "cannot express stages of several devices, and orders of devices: play"
    yield (), grouped, stages
    yield PLACED, grouped, stages
    yield (), scheduled, "do not list schedule"
    yield (), split, "do not list server_blocks"
    yield (), replace(plain, recompute=ones), "do not list recompute"
    yield (), replace(plain, participates=0 * ones), "do not list participation"
    yield (), replace(plain, local_steps=ones), "do not list local_steps"
    yield (), capped(0.5), "do not list clock_cap"
    yield "recompute", replace(plain, recompute=2 * ones), "recompute of .* is 2, expected 0 or 1"
    yield "schedule", with_schedule(plain, "async", 1), rf"schedule = \[{ASYNC}\].*zb-h1"
    yield "schedule", replace(scheduled, chunks=2 * scheduled.chunks), r"chunks = \[2\]"
    yield "schedule", with_schedule(plain, "1f1b", 99), r"caps = \[99\].*number of micro-batches"
    yield "schedule", with_schedule(plain, "zb-h1", 0), r"caps = \[0\]"
    copies = replace(split, server_blocks=np.ones_like(split.server_blocks), server_mode=np.asarray(COPIES))
    more = replace(split, server_blocks=split.server_blocks + 12)
    yield "server_blocks", copies, r"blocks of environment 0, cluster 0 is.* L = 12, with the server's"
    yield "server_blocks", more, "0 to L - 1 = 11"
    sequential = replace(split, server_mode=np.asarray(SEQUENTIAL))
    yield "server_blocks", sequential, rf"server_mode = \[?{SEQUENTIAL}\]?.*copies"
    twice = replace(plain, participates=2 * ones)
    yield "participation", twice, "participates of .* is 2, expected 0 or 1"
    half = replace(plain, participates=np.array([1, 0, 0, 0]))
    yield "participation", half, "bandwidth shares sum to 0.25"
    yield "local_steps", replace(plain, local_steps=3 * ones), r"local_steps of .* is 3, .*\[1, 2, 4, 8, 16\]"
    yield "clock_cap", capped(0.1), r"clock_cap of .* is 0\.1, .*\[0\.2, 1\]"
    yield "clock_cap", capped(1.5), r"clock_cap of .* is 1\.5"


@pytest.mark.parametrize(
    ("names", "plan", "message"),
    [pytest.param(*case, id=str(number)) for number, case in enumerate(refused_plans())],
)
def test_what_the_entries_cannot_say_is_refused(names, plan, message):
    names = (names,) if isinstance(names, str) else names
    with pytest.raises(AllocationError, match=message):
        action_codec(opened(*names)).encode(plan)


def test_memory_is_asked_for_where_decisions_are_open():
    codec = action_codec(opened("schedule"))
    with pytest.raises(AllocationError, match="decisions list schedule: give memory_bytes"):
        codec.decode(np.zeros(codec.action_size), STATE.memory_cap[0])
    with pytest.raises(AllocationError, match=r"2K \+ 3 \+ 6"):
        codec.decode(np.zeros(52), STATE.memory_cap[0], STATE.memory_bytes[0])


@pytest.mark.parametrize("name", OPENED)
def test_dssra_plans_with_it(name):
    scenario = small(name)
    env = CollaPipeVectorEnv(2, scenario, "surrogate")
    env.reset(seed=0)
    plan = DSSRA(scenario, threads=1).allocate(env.state)
    decided = [plan.given(field) is not None for field in ROWS.get(name).fields]
    assert all(decided) or name in SITTING_OUT  # which it leaves at their neutral values
    check_allocation(system_parameters(scenario), env.state, plan)
    env.step_allocation(plan)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_environments_pass_the_checkers(scenario):
    stable_baselines_check(CollaPipeEnv(scenario=scenario, learner="surrogate"))
    for observation in ("flat", "graph"):
        env = CollaPipeEnv(scenario=scenario, learner="surrogate", observation=observation)
        gymnasium_check(env, skip_render_check=True)


def test_levels_of_the_discrete_view_name_every_choice():
    scenario = small(*OPENED)
    env = MultiDiscreteActions(CollaPipeEnv(scenario=scenario, learner="surrogate"), clock_levels=5)
    env.reset(seed=0)
    L, M, codec = scenario.blocks, scenario.workload.micro_batch_choices, env.unwrapped.codec
    counts = {name: set(part.ravel().tolist()) for name, part in codec.split(env.action_space.nvec).items()}
    assert counts == {
        "segments": {L + 1}, "device_power": {9}, "cu_power": {9}, "micro_batches": {len(M)},
        "bandwidth": {11}, "recompute": {2}, "schedule": {3}, "caps": {M[-1]}, "server_blocks": {L},
        "clock_cap": {5}, "participation": {2}, "local_steps": {3},
    }  # fmt: skip
    levels = codec.split(np.zeros(env.action_space.shape))
    levels["segments"][:] = 1
    levels["micro_batches"][:] = M.index(4)
    levels["recompute"][:], levels["schedule"][:], levels["server_blocks"][:] = [1, 0], [1, 2], [2, 0]
    levels["caps"][0] = M[-1] // 2
    levels["participation"][:], levels["local_steps"][:] = [1, 0], [2, 1]
    levels["clock_cap"][:] = [4, 2, 0]

    def played():
        env.step(codec.join(levels))
        return env.unwrapped.last_round.allocation[0]

    plan = played()
    assert (plan.participates.tolist(), plan.local_steps.tolist()) == ([1, 0], [4, 2])
    np.testing.assert_allclose(plan.clock_cap, 2 * [[1.0, 0.2**0.5, 0.2]], rtol=1e-6)  # geometric
    levels["participation"][:] = 1
    plan = played()
    assert plan.recompute.tolist() == [1, 0]
    assert plan.schedule.tolist() == [ONE_F_ONE_B, ZERO_BUBBLE]
    assert plan.server_blocks.tolist() == [2, 0]
    assert plan.caps.tolist() == [[3, 3, 3], [1, 1, 1]]

"""Participation and local steps in the action box: feasible, invertible, and somebody who can takes part."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from stable_baselines3.common.env_checker import check_env as stable_baselines_check

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.envs.wrappers import MultiDiscreteActions
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import COMMON, COPIES, with_explicit_server
from collapipe_env.physics.memory import memory_caps
from collapipe_env.scenario.decision_names import DECISIONS, OPENED
from collapipe_env.simulator.build import action_codec, system_parameters
from collapipe_env.simulator.check import check_allocation
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.state import able_clusters
from tests.test_opened_decisions import STATE, opened, same

OPENINGS = [
    ("participation",),
    ("local_steps",),
    ("participation", "local_steps"),
    ("recompute", "participation"),
    ("schedule", "participation"),
    ("server_blocks", "participation", "local_steps"),
    OPENED,
]
UNREAD = ("blocks", "bandwidth", "server_blocks", "stage", "sample_share", "caps")


def with_cluster_memory(scenario, state, factors):
    """State whose clusters have so many times their memory (E, N), too little for the encoder or not."""
    memory = state.memory_bytes * np.asarray(factors)[..., None]
    return replace(
        state, memory_bytes=memory, memory_cap=memory_caps(system_parameters(scenario).costs, memory)
    )


@settings(max_examples=150, deadline=None)
@given(names=st.sampled_from(OPENINGS), own=st.booleans(), data=st.data())
def test_every_action_decodes_to_a_plan_that_the_simulator_accepts(names, own, data):
    scenario = opened(*names, **{"workload.recompute": own})
    parameters, codec = system_parameters(scenario), action_codec(scenario)
    sizes = [0.0, 0.01, 0.05, 0.2, 0.5, 1.0] if "participation" in names else [1.0, 2.0]
    factors = data.draw(hnp.arrays(np.float64, (3, scenario.clusters), elements=st.sampled_from(sizes)))
    state = with_cluster_memory(scenario, STATE, factors)
    elements = st.floats(-1.5, 1.5, width=32) | st.sampled_from([-1.0, 1.0, 0.0])
    seed = data.draw(st.integers(0, 2**31))
    action = np.random.default_rng(seed).uniform(-1.2, 1.2, (3, codec.action_size))
    action[0] = data.draw(hnp.arrays(np.float32, codec.action_size, elements=elements))
    plan = codec.decode(action, state.memory_cap, state.memory_bytes)
    check_allocation(parameters, state, plan)
    assert np.isfinite(round_costs(parameters, state, plan).delay).all()
    # What is decoded comes back from its action, and a plan's action stands for itself.
    encoded = codec.encode(plan)
    assert (np.abs(encoded) <= 1.0).all()
    same(codec.decode(encoded, state.memory_cap, state.memory_bytes), plan)
    np.testing.assert_array_equal(codec.join(codec.split(action)), action)
    # The form for any array library says the same.
    same(codec.decode_finite(action, state.memory_cap, state.memory_bytes), plan, 1e-12)
    if "participation" not in names:
        return
    asked = codec.split(action)["participation"] >= 0.0
    able = np.asarray(able_clusters(parameters, state))
    for e in range(3):
        plays = plan.participates[e] > 0
        # Whom memory lets play does as asked, and where none of those asked to, one of them does.
        if (asked[e] & able[e]).any():
            np.testing.assert_array_equal(plays[able[e]], asked[e][able[e]])
        elif able[e].any():
            assert plays.sum() >= 1
        total = plan.bandwidth[e][plays].sum()
        assert total == pytest.approx(1.0) if plays.any() else total == 0.0
        assert (plan.bandwidth[e][~plays] == 0.0).all()


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**31), everything=st.booleans())
def test_plans_that_were_not_decoded_come_back_from_their_actions(seed, everything):
    rng = np.random.default_rng(seed)
    scenario = opened(*(OPENED if everything else ("participation", "local_steps")))
    parameters, codec = system_parameters(scenario), action_codec(scenario)
    E, N, _ = STATE.present.shape
    plan = even_split(parameters, STATE)
    plays = rng.random((E, N)) < 0.6
    plays[np.arange(E), rng.integers(0, N, E)] = True
    share = np.where(plays, rng.uniform(0.2, 1.0, (E, N)), 0.0)
    share = share / share.sum(axis=-1, keepdims=True)
    given_steps = rng.choice([-1, *scenario.workload.local_steps_choices], (E, N))
    # What those who sit out say of blocks and shares is not read.
    idle = np.where(plays[..., None], plan.blocks, rng.integers(0, 2) * plan.blocks)
    plan = replace(
        plan,
        blocks=idle,
        bandwidth=np.where(plays, share, rng.uniform(0.0, 1.0, (E, N))),
        participates=plays.astype(np.int64),
        local_steps=given_steps,
    )
    check_allocation(parameters, STATE, plan)
    found = codec.decode(codec.encode(plan), STATE.memory_cap, STATE.memory_bytes)
    np.testing.assert_array_equal(found.participates, plan.participates)
    np.testing.assert_array_equal(
        found.local_steps, np.where(given_steps < 0, scenario.workload.local_steps, given_steps)
    )
    np.testing.assert_array_equal(found.device_blocks[plays], plan.blocks[plays])
    np.testing.assert_allclose(found.bandwidth, np.where(plays, share, 0.0), atol=1e-6)
    one, two = round_costs(parameters, STATE, plan), round_costs(parameters, STATE, found)
    for field in ("delay", "cluster_delay", "energy"):
        np.testing.assert_allclose(getattr(two, field), getattr(one, field), rtol=2e-5, atol=1e-12)


def test_what_each_entry_says():
    scenario = opened("participation", "local_steps", **{"workload.local_steps_choices": [1, 2, 4]})
    codec, N, K = action_codec(scenario), scenario.clusters, scenario.max_devices
    parts = codec.split(np.zeros(codec.action_size))
    assert list(parts)[-2:] == ["participation", "local_steps"]
    assert parts["participation"].shape == parts["local_steps"].shape == (N,)
    assert "1, 2, 4" in codec.parts["local_steps"].description
    cap, memory = np.full((N, K), scenario.blocks), np.full((N, K), 1e15)
    parts["bandwidth"][:] = [0.0, 1.0, -1.0, 1.0]
    parts["participation"][:] = [0.0, -0.001, -1.0, 1.0]
    parts["local_steps"][:] = [-0.51, -0.5, 0.49, 0.5]
    plan = codec.decode(codec.join(parts), cap, memory)
    assert plan.participates.tolist() == [1, 0, 0, 1]
    assert plan.local_steps.tolist() == [1, 2, 2, 4]
    # Weights of one half and one share what two floors leave.
    floor = scenario.budgets.bandwidth_floor
    rest = 1.0 - 2.0 * floor
    np.testing.assert_allclose(plan.bandwidth, [floor + rest / 3.0, 0.0, 0.0, floor + rest * 2.0 / 3.0])
    # Nobody wants to: the one that is least unwilling does, the first of equal ones, and it has all.
    parts["participation"][:] = [-0.9, -0.2, -0.2, -0.3]
    plan = codec.decode(codec.join(parts), cap, memory)
    assert plan.participates.tolist() == [0, 1, 0, 0]
    assert plan.bandwidth.tolist() == pytest.approx([0.0, 1.0, 0.0, 0.0])
    # Whose memory is too small sits out, also where it is the only one that wants to play.
    memory[1], cap[1] = 1.0, 0
    parts["participation"][1] = 1.0
    plan = codec.decode(codec.join(parts), cap, memory)
    assert plan.participates.tolist() == [0, 0, 1, 0]
    memory[:], cap[:] = 0.0, 0
    assert codec.decode(codec.join(parts), cap, memory).participates.tolist() == [0, 0, 0, 0]


def test_clusters_that_sit_out_take_no_room_on_the_server():
    scenario = opened("server_blocks", "participation")
    parameters = system_parameters(scenario)
    codec = replace(action_codec(scenario), server_room=12)
    parts = codec.split(np.zeros((3, codec.action_size)))
    parts["server_blocks"][:] = 1.0
    parts["participation"][:] = [1.0, -1.0, -1.0, -1.0]
    plan = codec.decode(codec.join(parts), STATE.memory_cap, STATE.memory_bytes)
    assert plan.server_blocks.tolist() == 3 * [[scenario.blocks - 1, 0, 0, 0]]
    assert (plan.server_mode == COPIES).all()
    # The others' blocks are not read: nobody broadcasts what no cluster that takes part has trained.
    costs = round_costs(parameters, STATE, plan)
    more = replace(plan, server_blocks=np.full_like(plan.server_blocks, scenario.blocks - 1))
    np.testing.assert_array_equal(round_costs(parameters, STATE, more).delay, costs.delay)
    parts["participation"][:, 1] = 1.0
    both = codec.decode(codec.join(parts), STATE.memory_cap, STATE.memory_bytes)
    assert both.server_blocks.tolist() == 3 * [[6, 6, 0, 0]]
    # Split training in which only clusters that sit out have blocks on the server has copied heads still.
    idle = replace(plan, server_blocks=np.array(3 * [[0, 1, 0, 0]]), blocks=both.blocks)
    with pytest.raises(AllocationError, match="server_mode"):
        codec.encode(replace(idle, blocks=even_split(parameters, STATE).blocks))
    assert (
        codec.decode(-np.abs(codec.join(parts)), STATE.memory_cap, STATE.memory_bytes).server_mode == COMMON
    ).all()


def refused_plans():
    plain = even_split(system_parameters(opened()), STATE)[0]
    ones = np.ones_like(plain.micro_batches)
    yield (), replace(plain, participates=0 * ones), "do not list participation"
    yield (), replace(plain, local_steps=ones), "do not list local_steps"
    yield ("participation",), replace(plain, participates=2 * ones), r"participates = \[2\].*0 or 1"
    yield ("local_steps",), replace(plain, local_steps=3 * ones), r"local_steps = \[3\].*\[1, 2, 4, 8, 16\]"
    half = replace(plain, participates=np.array([1, 0, 0, 0]))
    yield ("participation",), half, "bandwidth shares sum to 0.25"


@pytest.mark.parametrize(
    ("names", "plan", "message"),
    [pytest.param(*case, id=str(number)) for number, case in enumerate(refused_plans())],
)
def test_what_the_entries_cannot_say_is_refused(names, plan, message):
    with pytest.raises(AllocationError, match=message):
        action_codec(opened(*names)).encode(plan)


def test_neutral_decisions_cost_what_the_plain_plan_costs():
    scenario = opened("participation", "local_steps")
    parameters, codec = system_parameters(scenario), action_codec(scenario)
    plan = even_split(parameters, STATE)
    decoded = codec.decode(codec.encode(plan), STATE.memory_cap, STATE.memory_bytes)
    assert (decoded.participates == 1).all()
    assert (decoded.local_steps == scenario.workload.local_steps).all()
    plain = replace(decoded, participates=None, local_steps=None)
    found, expected = (round_costs(parameters, STATE, p) for p in (decoded, plain))
    for field in ("delay", "cluster_delay", "energy", "memory", "survival", "local_step", "upload"):
        np.testing.assert_allclose(getattr(found, field), getattr(expected, field), rtol=1e-12, err_msg=field)


def small(*names):
    changes = {"budgets.device_energy_j": 20, "dynamics.rounds": 4, "workload.local_steps_choices": [1, 2, 4]}
    return opened(*names, base="small", **changes)


def test_levels_of_the_discrete_view_name_every_choice():
    scenario = small("participation", "local_steps")
    env = MultiDiscreteActions(CollaPipeEnv(scenario=scenario, learner="surrogate"))
    env.reset(seed=0)
    levels = np.zeros_like(env.action_space.nvec).reshape(scenario.clusters, -1)
    assert env.action_space.nvec.reshape(levels.shape)[0, -2:].tolist() == [2, 3]
    levels[:, -2:] = [[1, 2], [0, 1]]
    env.step(levels.ravel())
    plan = env.unwrapped.last_round.allocation[0]
    assert plan.participates.tolist() == [1, 0]
    assert plan.local_steps.tolist() == [4, 2]


@pytest.mark.parametrize("names", [("participation", "local_steps"), OPENED], ids=["two", "all"])
def test_environments_pass_the_checkers_and_go_on_from_their_state(names):
    scenario = small(*names)
    stable_baselines_check(CollaPipeEnv(scenario=scenario, learner="surrogate"))
    for observation in ("flat", "graph"):
        env = CollaPipeEnv(scenario=scenario, learner="surrogate", observation=observation)
        gymnasium_check(env, skip_render_check=True)
    env.reset(seed=4)
    other = CollaPipeEnv(scenario=scenario, learner="surrogate", observation="graph")
    rng = np.random.default_rng(0)
    for _ in range(3):
        other.set_state(env.get_state())
        action = rng.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32)
        one, two = env.step(action), other.step(action)
        assert one[1] == two[1]
        np.testing.assert_array_equal(one[0]["absence"], two[0]["absence"])


@pytest.mark.parametrize("names", [("participation", "local_steps"), OPENED], ids=["two", "all"])
def test_rows_of_a_vector_are_single_environments(names):
    scenario = small(*names)
    vector = CollaPipeVectorEnv(2, scenario, learner="surrogate")
    singles = [CollaPipeEnv(scenario=scenario, learner="surrogate") for _ in range(2)]
    vector.reset(seed=3)
    for row, env in enumerate(singles):
        env.reset(seed=3 + row)
    rng = np.random.default_rng(1)
    for _ in range(3):
        actions = rng.uniform(-1.0, 1.0, vector.action_space.shape).astype(np.float32)
        seen, rewards, *_ = vector.step(actions)
        for row, env in enumerate(singles):
            observation, reward, *_ = env.step(actions[row])
            np.testing.assert_array_equal(observation, seen[row])
            assert reward == rewards[row]


def test_dssra_plays_everybody_with_the_workloads_steps():
    scenario = small(*OPENED)
    env = CollaPipeVectorEnv(2, scenario, learner="surrogate")
    env.reset(seed=0)
    scheduler = DSSRA(scenario, threads=1)
    assert scenario.decisions == DECISIONS
    for _ in range(3):
        plan = scheduler.allocate(env.state)
        assert plan.participates is None
        assert plan.local_steps is None
        env.step(env.codec.encode(plan))
        played = env.last_round.allocation
        assert (played.participates == 1).all()
        assert (played.local_steps == scenario.workload.local_steps).all()
        np.testing.assert_array_equal(played.device_blocks, plan.device_blocks)


def test_the_server_works_for_those_that_take_part_as_long_as_they_do():
    scenario = opened("server_blocks", "participation", "local_steps", **{"server.terms": "metered"})
    parameters = system_parameters(scenario)
    plan = with_explicit_server(even_split(parameters, STATE))
    kept = np.full_like(plan.server_blocks, 1)
    plan = replace(
        plan,
        blocks=np.where(plan.blocks.argmax(axis=-1)[..., None] == np.arange(5), plan.blocks - 1, plan.blocks),
        server_blocks=kept,
        server_mode=np.full(3, COPIES),
        participates=np.array(3 * [[1, 0, 1, 1]]),
        local_steps=np.array(3 * [[1, 4, 8, -1]]),
    )
    check_allocation(parameters, STATE, plan)
    c, terms = parameters.costs, parameters.server
    own = scenario.workload.local_steps
    each = terms.pue * terms.joules_per_flop * 3.0 * c.batch_size * c.block_forward_flops
    expected = each * np.array([1.0, 0.0, 8.0, own])
    found = round_costs(parameters, STATE, plan)
    np.testing.assert_allclose(found.server_energy, np.broadcast_to(expected, (3, 4)), rtol=1e-12)
    np.testing.assert_allclose(found.server_ratio, expected.sum() / terms.budget_j, rtol=1e-12)


def test_the_loss_is_smoothed_over_local_steps_where_these_are_chosen() -> None:
    scenario = opened("participation", "local_steps", base="small")
    env = CollaPipeVectorEnv(scenario=scenario, num_envs=2, learner="surrogate", reward="delay")
    env.reset(seed=0)
    plan = DSSRA(scenario).allocate(env.state)
    steps, plays = np.array([[4, 2], [1, 16]]), np.array([[1, 1], [1, 0]])
    before = env.state.loss
    env.step_allocation(replace(plan, local_steps=steps, participates=plays))
    latest = env.last_round.learning.loss
    past = 0.8 ** np.array([4.0, 1.0])  # the cluster that sits out takes none of its 16
    np.testing.assert_allclose(env.state.loss, past * before + (1.0 - past) * latest, rtol=1e-12)

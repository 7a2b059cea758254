"""States of environments: taken, set, saved, pickled, simulated; each beside the one that plays on."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from env_support import ConstantLearner, make_actions, make_env, shortened
from state_damage_support import changed
from state_ways_support import WAYS, assert_same, go_on

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.backends import NUMPY
from collapipe_env.ground.errors import AllocationError, NotResetError, RewardError, StateError
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.simulator.even_split import even_split

ROUNDS = 4
MODES = ("NextStep", "SameStep", "Disabled")


def single(name="moving", **kwargs):
    return make_env(name, ROUNDS, **kwargs)


def vector(name="moving", mode="NextStep", num_envs=3, rounds=ROUNDS, **kwargs):
    arguments = {"learner": "surrogate", "autoreset_mode": mode, **kwargs}
    return CollaPipeVectorEnv(num_envs, shortened(name, rounds), **arguments)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "observation"), [("moving", "graph"), ("medium", "flat"), ("arq", "flat")])
def test_single_environment_goes_on_bit_for_bit(way, name, observation, tmp_path):
    env = single(name, observation=observation)
    actions = make_actions(env, 8)
    env.reset(seed=5)
    go_on(env, actions[:2])
    other = way(env, lambda: single(name, observation=observation), tmp_path / "state.safetensors")
    np.testing.assert_array_equal(other.last_round.costs.delay, env.last_round.costs.delay)
    np.testing.assert_array_equal(other.last_round.arrivals.survived, env.last_round.arrivals.survived)
    assert other.np_random_seed == env.np_random_seed == 5
    assert_same(go_on(other, actions[2:]), go_on(env, actions[2:]))
    assert_same(other.np_random.integers(2**60, size=4), env.np_random.integers(2**60, size=4))


def on_tensors(**kwargs):
    return CollaPipeTorchVectorEnv(3, shortened("moving", ROUNDS), **kwargs)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", MODES)
def test_vector_environment_goes_on_bit_for_bit(way, mode, tmp_path):
    env = vector(mode=mode)
    actions = make_actions(env, 10, lead=(3,))
    env.reset(seed=5)
    go_on(env, actions[:1])
    env.reset(options={"reset_mask": np.array([False, True, False])})  # rows are not in step
    go_on(env, actions[1:4])  # NextStep: rows wait for their reset
    other = way(env, lambda: vector(mode=mode), tmp_path / "state.safetensors")
    np.testing.assert_array_equal(other.last_round.costs.delay, env.last_round.costs.delay)
    assert_same(go_on(other, actions[4:]), go_on(env, actions[4:]))


@pytest.mark.parametrize("way", WAYS)
def test_summaries_of_ended_episodes_are_part_of_the_state(way, tmp_path):
    env = vector(mode="SameStep")
    actions = make_actions(env, ROUNDS + 3, lead=(3,))
    env.reset(seed=5)
    go_on(env, actions[:2])
    env.reset(options={"reset_mask": np.array([False, True, False])})
    go_on(env, actions[2:ROUNDS])  # two rows have ended
    assert env.ended_summaries["_return"].tolist() == [True, False, True]
    before = copy.deepcopy(env.ended_summaries)
    other = way(env, lambda: vector(mode="SameStep"), tmp_path / "state.safetensors")
    assert_same(other.ended_summaries, before)
    for action in actions[ROUNDS : ROUNDS + 2]:
        env.simulate(action)  # also of the step that ends the other row's episode
        assert_same(env.ended_summaries, other.ended_summaries)
        assert_same(other.step(action), env.step(action))
    assert other.ended_summaries["_return"].all()
    assert_same(other.ended_summaries, env.ended_summaries)


@pytest.mark.parametrize(
    "change",
    [
        lambda columns: columns.pop("_return"),
        lambda columns: columns.update({"return": columns["return"][:1]}),
        lambda columns: columns.update({"_return": columns["return"]}),
        lambda columns: columns.update({"return": "much"}),
    ],
)
def test_a_state_with_damaged_summaries_is_refused(change):
    env = vector(rounds=1)
    env.reset(seed=0)
    go_on(env, make_actions(env, 1, lead=(3,)))
    state = env.get_state()
    change(state["mdp"]["ended"])
    with pytest.raises(StateError, match=r"mdp/ended/_?return"):
        env.set_state(state)


def test_whole_environment_of_gymnasium_can_be_pickled():
    env = gym.make("CollaPipeSurrogate-v0", scenario="small", max_episode_steps=5)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    other = pickle.loads(pickle.dumps(env))
    assert_same(other.action_space.sample(), action := env.action_space.sample())
    assert_same(other.step(action), env.step(action))


def test_learning_schedule_can_be_pickled():
    scenario = {"base": "small", "learning": {"schedule": "cosine", "warmup_steps": 2}}
    env = CollaPipeVectorEnv(2, scenario, "surrogate")
    env.reset(seed=0)
    actions = make_actions(env, 4, lead=(2,))
    other = pickle.loads(pickle.dumps(env))
    assert_same(go_on(other, actions), go_on(env, actions))


def test_a_state_shares_nothing_with_its_environment():
    env, untouched = single(), single()
    actions = make_actions(env, 4)
    for one in (env, untouched):
        one.reset(seed=1)
        one.step(actions[0])

    def spoil(tree):
        for part in tree.values():
            if isinstance(part, dict):
                spoil(part)
            elif isinstance(part, np.ndarray) and part.size:
                part.fill(1)

    spoil(env.get_state())
    other, state = single(), env.get_state()
    other.set_state(state)
    spoil(state)
    expected = go_on(untouched, actions[1:])
    assert_same(go_on(env, actions[1:]), expected)
    assert_same(go_on(other, actions[1:]), expected)


@pytest.mark.parametrize("name", ["moving", "medium"])
def test_simulation_is_the_step_and_leaves_no_trace(name):
    env = single(name, render_mode="rgb_array")
    env.reset(seed=2)
    for action in make_actions(env, ROUNDS):
        before, record, rng = env.get_state(), env.last_round, env.np_random
        plan = even_split(env._mdp.world.parameters, env.state).map(np.copy)
        simulated, planned = env.simulate(action), env.simulate(plan)
        assert_same(env.get_state(), before)
        assert env.last_round is record
        assert env.np_random is rng
        twin = single(name, render_mode="rgb_array")
        twin.set_state(before)
        assert_same(twin.step_allocation(plan), planned)
        assert planned[1] != simulated[1]
        assert_same(env.step(action), simulated)


@pytest.mark.parametrize("observation", ["flat", "graph"])
@pytest.mark.parametrize("mode", MODES)
def test_vector_simulation_is_the_step_and_leaves_no_trace(mode, observation):
    env = vector(mode=mode, observation=observation)
    env.reset(seed=2)
    for action in make_actions(env, 2 * ROUNDS, lead=(3,)):
        before = env.get_state()
        simulated = env.simulate(action)
        assert_same(env.get_state(), before)
        step = env.step(action)
        assert_same(step, simulated)
        if mode == "Disabled" and step[3].any():
            env.reset(options={"reset_mask": step[3]})


@pytest.mark.parametrize("build", [single, on_tensors])
def test_failed_simulation_leaves_no_trace(build):
    def fails(*_):
        raise KeyError("broken")

    env = build(reward=fails)
    env.reset(seed=0)
    before, action = env.get_state(), np.zeros(env.action_space.shape)
    for play in (env.simulate, env.step):
        with pytest.raises(RewardError, match="broken"):
            play(action)
        assert_same(env.get_state(), before)
    spoilt = action.copy()
    spoilt[..., 4] = np.inf
    for wrong, message in (
        (action[..., :3], r"has shape \(.*3,?\), expected"),
        (spoilt, r"\[(0, )?4\] is inf"),
    ):
        with pytest.raises(AllocationError, match=message):
            env.simulate(wrong)
        assert_same(env.get_state(), before)


def test_state_before_the_first_reset_is_one_too():
    env, other = single(), single()
    other.reset(seed=0)
    other.set_state(env.get_state())
    with pytest.raises(NotResetError, match="before its first reset") as caught:
        other.step(make_actions(env, 1)[0])
    assert other.last_round is None
    assert isinstance(caught.value, RuntimeError)


def test_own_learner_without_states_is_refused_clearly():
    env = single(learner=ConstantLearner())
    env.reset(seed=0)
    action = make_actions(env, 1)[0]
    for ask in (env.get_state, lambda: env.simulate(action)):
        with pytest.raises(StateError, match="ConstantLearner has no get_state"):
            ask()
    assert env.step(action)[4]["loss"] == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("mine", "build", "message"),
    [
        (single, lambda: single("medium"), "scenario = 'custom .*, this environment 'custom"),
        (single, lambda: make_env("moving", ROUNDS + 1), "rounds = 4, this environment 5"),
        (
            single,
            lambda: single(learner=IdleLearner(1)),
            "'SurrogateLearner', this environment 'IdleLearner'",
        ),
        (single, lambda: vector(num_envs=1), "kind = 'CollaPipeEnv', this environment 'CollaPipeVectorEnv'"),
        (vector, lambda: vector(num_envs=2), "num_envs = 3, this environment 2"),
        (vector, lambda: vector(mode="SameStep"), "autoreset_mode = 'NextStep', this environment 'SameStep'"),
        (on_tensors, vector, "kind = 'CollaPipeTorchVectorEnv', this environment 'Colla"),
        (on_tensors, lambda: on_tensors(dtype="float32"), "is float64 .*expected an array float32"),
    ],
)
def test_state_of_another_environment_is_refused(mine, build, message):
    env, other = mine(), build()
    env.reset(seed=0)
    other.reset(seed=0)
    before = other.get_state()
    with pytest.raises(StateError, match=message):
        other.set_state(env.get_state())
    assert_same(other.get_state(), before)


def test_impossible_last_round_is_refused_before_it_is_computed_with():
    env = single()
    env.reset(seed=0)
    env.step(make_actions(env, 1)[0])
    state = env.get_state()
    blocks = state["mdp"]["simulator"]["last_round"]["allocation"]["blocks"] + 1000
    env.set_state(changed(state, "mdp/simulator/last_round/allocation/blocks", blocks))
    with pytest.raises(StateError, match="cannot have been played"):
        _ = env.last_round


def test_copies_go_on_with_the_compiled_loops():
    env = vector()
    env.reset(seed=0)
    for other in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        assert other._mdp.backend is NUMPY
        assert other._mdp.world.learner._backend is NUMPY

"""Actions, allocations and rewards that are no real numbers: one clear error in every environment."""

# ruff: noqa: ARG002, ARG005 - every reward takes the same three

import copy
import dataclasses
import re

import numpy as np
import pytest
import torch
from env_support import make_actions, make_env, shortened
from stable_baselines3.common.vec_env import VecEnv

from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.envs.wrappers import MultiDiscreteActions
from collapipe_env.ground.errors import AllocationError, RewardError, ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.even_split import even_split

E = 2


def single(**kwargs):
    return make_env("small", 5, **kwargs)


def vector(kind=CollaPipeVectorEnv, **kwargs):
    return kind(E, shortened("small", 5), **{"learner": "surrogate", **kwargs})


def on_tensors(**kwargs):
    return vector(CollaPipeTorchVectorEnv, **kwargs)


def adapted(**kwargs):
    return make_sb3_vec_env(shortened("small", 5), E, 0, learner="surrogate", **kwargs)


def levels(**kwargs):
    return MultiDiscreteActions(single(**kwargs))


KINDS = [single, vector, on_tensors, adapted, levels]
ARRAYS = {
    "text": ("<U1", lambda a: a.astype("<U1")),
    "objects": ("object", lambda a: a.astype(object)),
    "complex": ("complex128", lambda a: a + 1j),
    "dates": (r"datetime64\[D\]", lambda a: a.astype(np.int64).astype("datetime64[D]")),
    "durations": (r"timedelta64\[s\]", lambda a: a.astype(np.int64).astype("timedelta64[s]")),
    "a mask": ("bool", lambda a: a > 0),
    "one word": ("<U4", lambda a: "even"),
    "nothing": (r"is None: give an array of shape \(", lambda a: None),
    "ragged": ("not an array", lambda a: [[0.0], [0.0, 1.0], *a[2:].tolist()]),
}


def action_of(env):
    space = env.action_space
    rows = (E,) if isinstance(env, VecEnv) else ()
    return np.zeros(rows + space.shape)


def ready(build, **kwargs):
    env = build(**kwargs)
    env.reset()
    return env


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("build", KINDS)
def test_actions_of_another_type_are_refused_by_it(build, name):
    word, spoil = ARRAYS[name]
    env = ready(build)
    action = action_of(env)
    before = env.unwrapped.state.round_index if build is not adapted else env.env.state.round_index
    with pytest.raises(AllocationError, match=f"action.*{word}"):
        env.step(spoil(action))
    after = env.unwrapped.state.round_index if build is not adapted else env.env.state.round_index
    assert (np.asarray(before) == np.asarray(after)).all()
    env.step(action)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bool])
def test_tensors_of_another_type_are_refused_by_it(dtype):
    env = ready(on_tensors)
    with pytest.raises(AllocationError, match=str(dtype)):
        env.step(torch.zeros(env.action_space.shape, dtype=dtype))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.float16, np.longdouble, ">f8"])
@pytest.mark.parametrize("build", [single, vector, on_tensors, adapted])
def test_every_type_of_real_numbers_is_played(build, dtype):
    actions = np.ones_like(action_of(build()))
    first, second = ready(build, reward="delay"), ready(build, reward="delay")
    for env in (first, second):
        if build is adapted:
            env.seed(3)
            env.reset()
        else:
            env.reset(seed=3)
    mine, its = first.step(actions), second.step(actions.astype(dtype))
    np.testing.assert_array_equal(np.asarray(mine[1]), np.asarray(its[1]))


SEEDS = {
    "negative": (-1, r"-1"),
    "a fraction": (3.5, r"3\.5"),
    "a whole float": (3.0, r"3\.0"),
    "NumPy's float": (np.float64(3.0), r"3\.0"),
    "a bool": (True, "True"),
    "NumPy's bool": (np.True_, "True"),
    "text": ("12", "'12'"),
    "bytes": (b"12", "b'12'"),
    "an array of one": (np.array(3), r"array\(3\)"),
    "a tensor": (torch.tensor(3), r"tensor\(3\)"),
    "a set": ({3, 4}, r"\{3, 4\}"),
    "not a number": (float("nan"), "nan"),
    "endless": (2**2000, "bits"),
}


def where_rows_stand(env):
    """The next number of every row's generator, none of which is moved."""
    generators = env.unwrapped._rngs if getattr(env, "num_envs", 1) == E else [env.unwrapped.np_random]
    return [copy.deepcopy(generator).random() for generator in generators]


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("name", SEEDS)
@pytest.mark.parametrize("build", [single, vector, on_tensors])
def test_seeds_are_refused_alike_everywhere_and_change_nothing(build, name, listed):
    seed, word = SEEDS[name]
    env = ready(build)
    before, rows = where_rows_stand(env), build is not single
    given, place = ([5, seed], r"seed\[1\]") if listed and rows else (seed, "seed")
    with pytest.raises(ScenarioError, match=f"^{place} = .*{word}.*: use a whole number of at least 0"):
        env.reset(seed=given)
    assert where_rows_stand(env) == before


@pytest.mark.parametrize("seed", [0, np.int64(7), np.uint8(7), 2**31, 2**128])
@pytest.mark.parametrize("build", [vector, on_tensors])
def test_seeds_that_the_single_environment_takes_seed_every_row(build, seed):
    first, second = (single().reset(seed=int(seed) + row)[0] for row in range(E))
    for given in (seed, [seed, int(seed) + 1], (seed, int(seed) + 1), np.array([seed, int(seed) + 1])):
        observation = np.asarray(build().reset(seed=given)[0])
        np.testing.assert_allclose(observation, [first, second], atol=1e-5)
    np.testing.assert_array_equal(single().reset(seed=seed)[0], first)


def test_rows_that_wait_for_their_reset_do_not_hide_a_wrong_type():
    env = vector(max_episode_steps=1)
    env.reset(seed=0)
    actions = make_actions(env, 1, lead=(E,))[0]
    env.step(actions)
    with pytest.raises(AllocationError, match="complex64"):
        env.step(actions.astype(np.complex64))


@pytest.mark.parametrize("name", ["complex", "dates", "text", "objects", "a mask"])
@pytest.mark.parametrize("field", ["blocks", "micro_batches", "bandwidth", "device_power"])
@pytest.mark.parametrize("build", [single, vector, on_tensors, adapted])
def test_allocations_of_another_type_are_refused_by_field(build, field, name):
    env = ready(build)
    inner = env.env if build is adapted else env
    if build is on_tensors:
        zeros = torch.zeros(env.action_space.shape, dtype=torch.float64)
        plan = env.codec.decode(zeros, env.state.memory_cap).map(lambda a: a.numpy())
    else:
        plan = even_split(inner._mdp.world.parameters, inner.state).map(np.copy)
    word, spoil = ARRAYS[name]
    if build is single:
        plan = plan[0]
    with pytest.raises(AllocationError, match=f"{field}.*{word}"):
        env.step_allocation(dataclasses.replace(plan, **{field: spoil(getattr(plan, field))}))
    env.step_allocation(plan)


@pytest.mark.parametrize("build", [single, vector])
def test_step_takes_actions_only(build):
    env = ready(build)
    plan = even_split(env._mdp.world.parameters, env.state)
    for given in (plan, plan[0]):
        with pytest.raises(AllocationError, match=r"an Allocation was given.*step_allocation\(allocation\)"):
            env.step(given)


def test_what_is_no_allocation_is_refused():
    env = ready(single)
    for wrong in (None, {"blocks": 1}, make_actions(env, 1)[0]):
        with pytest.raises(
            AllocationError, match=f"a {type(wrong).__name__} was given, expected an Allocation"
        ):
            env.step_allocation(wrong)
    plan = even_split(env._mdp.world.parameters, env.state)
    with pytest.raises(AllocationError, match=r"micro_batches.*not an array"):
        env.step_allocation(dataclasses.replace(plan, micro_batches=[[1, 2], [3]]))


def per_cluster(before, costs, after):
    return -after.backlog.sum(axis=-1)


def one_number(before, costs, after):
    return -1.0


def nothing(before, costs, after):
    return None


def words(before, costs, after):
    return ["good"] * len(costs.delay)


def ragged(before, costs, after):
    return [[0.0] * row for row in range(1, len(costs.delay) + 1)]


def raising(before, costs, after):
    return costs.latency


class TooLong:
    def __call__(self, before, costs, after):
        return after.loss.repeat(2)


@pytest.mark.parametrize("build", [single, vector, on_tensors, adapted])
@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (per_cluster, r"per_cluster returned.*shape \((1|2), 2\).*expected real numbers of shape \((1|2),\)"),
        (one_number, "one_number returned a float"),
        (nothing, "nothing returned a NoneType"),
        (words, "words returned a list"),
        (ragged, "ragged returned a list"),
        (raising, "raising failed with AttributeError.*latency"),
        (TooLong(), r"TooLong returned.*shape \((2|4),\)"),
    ],
)
def test_reward_that_is_no_number_a_row_is_refused_by_name(build, reward, message):
    env = ready(build, reward=reward)
    with pytest.raises(RewardError, match=f"reward .*{message}"):
        env.step(np.zeros_like(action_of(env)))


@pytest.mark.parametrize("build", [single, vector, adapted])
def test_reward_that_is_not_finite_is_refused_with_its_row(build):
    def broken(before, costs, after):
        rewards = -costs.delay
        rewards[-1] = np.nan
        return rewards

    env = ready(build, reward=broken)
    with pytest.raises(RewardError, match=rf"broken is nan in environment {0 if build is single else E - 1}"):
        env.step(np.zeros_like(action_of(env)))


@pytest.mark.parametrize("build", [single, vector, on_tensors])
def test_what_cannot_be_called_is_no_reward(build):
    with pytest.raises(ScenarioError, match="reward = 5 is neither a name"):
        build(reward=5)


def test_rewards_in_other_real_types_count():
    env = ready(vector, reward=lambda _, costs, after: -np.ones(len(costs.delay), dtype=np.int32))
    rewards = env.step(np.zeros_like(action_of(env)))[1]
    assert rewards.dtype == np.float64
    assert rewards.tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_messages_of_the_single_environment_show_no_batch(value):
    env = ready(single)
    action = action_of(env)
    action[7] = value
    for play in (env.step, env.simulate):
        with pytest.raises(AllocationError, match=rf"action\[7\] is {value}: .*finite.*are clipped"):
            play(action)
    size = len(action)
    for wrong in (np.float64(0.0), np.zeros(3), np.zeros((2, size)), np.zeros((1, size))):
        with pytest.raises(
            AllocationError, match=re.escape(f"action has shape {wrong.shape}, expected ({size},)")
        ):
            env.step(wrong)
    env.step(3.0 * np.ones(size))


@pytest.mark.parametrize("kind", ["meta", "sparse_coo"])
def test_tensors_without_dense_numbers_are_refused(kind):
    env = ready(on_tensors)
    zeros = torch.zeros(env.action_space.shape)
    with pytest.raises(AllocationError, match=f"actions: a {kind} tensor"):
        env.step(zeros.to("meta") if kind == "meta" else zeros.to_sparse())


def test_tensors_without_numbers_are_refused_by_numpy_environments():
    env = ready(single)
    with pytest.raises(AllocationError, match="action: a Tensor that is not an array"):
        env.step(torch.zeros(env.action_space.shape, device="meta"))


@pytest.mark.parametrize("value", [None, 0, -1, 2.0, True, "4", load_scenario("small")])
def test_numbers_of_environments_are_whole(value):
    with pytest.raises(ScenarioError, match=r"num_envs = .*: use a whole number of at least 1"):
        CollaPipeVectorEnv(value, "small", "surrogate")

"""What vector environments of arrays and of tensors refuse and ignore; others compare what they play."""

import dataclasses

import numpy as np
import pytest
import torch
from env_support import make_actions, shortened

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import AllocationError, ScenarioError

ROUNDS = 3
every_kind = pytest.mark.parametrize("kind", [CollaPipeVectorEnv, CollaPipeTorchVectorEnv])


def make_vector(kind=CollaPipeVectorEnv, mode="NextStep"):
    return kind(3, shortened("small", ROUNDS), learner="surrogate", autoreset_mode=mode)


@every_kind
def test_rows_that_are_reset_ignore_their_action(kind):
    vector = make_vector(kind)
    actions = make_actions(vector, ROUNDS, lead=(3,))
    vector.reset(seed=0)
    for action in actions:
        vector.step(action)
    observation, reward, _, truncated, info = vector.step(np.full_like(actions[0], np.nan))
    assert vector.observation_space.contains(np.asarray(observation))
    assert not reward.any()
    assert not truncated.any()
    # As reset does, they say that no round has been played.
    assert info["_delay"].all()
    assert not info["delay"].any()


@every_kind
def test_order_of_calls_is_checked(kind):
    env = make_vector(kind, "Disabled")
    actions = make_actions(env, ROUNDS + 1, lead=(3,))
    with pytest.raises(ScenarioError, match="environment 0 was stepped before its first reset"):
        env.step(actions[0])
    with pytest.raises(ScenarioError, match=r"\[0, 2\] were never reset"):
        env.reset(options={"reset_mask": np.array([False, True, False])})
    env.reset(seed=0)
    for action in actions[:-1]:
        env.step(action)
    with pytest.raises(ScenarioError, match=r"environments \[0, 1, 2\] are done.*reset_mask"):
        env.step(actions[-1])
    env.reset(options={"reset_mask": np.array([True, True, False])})
    with pytest.raises(ScenarioError, match=r"\[2\] are done"):
        env.step(actions[-1])


@pytest.mark.parametrize(
    ("reset", "message"),
    [
        ({"options": {"reset_maks": None}}, "did you mean 'reset_mask'"),
        ({"options": {"reset_mask": [True]}}, "3 booleans"),
        ({"options": {"reset_mask": torch.zeros(3, dtype=torch.bool)}}, "at least one True"),
        ({"seed": [1, 2]}, r"seed = \[1, 2\] lists 2 entries for 3 .* give one for each"),
    ],
    ids=["option", "length", "empty", "seeds"],
)
@every_kind
def test_bad_resets_are_refused(kind, reset, message):
    env = make_vector(kind)
    env.reset(seed=0)
    with pytest.raises(ScenarioError, match=message):
        env.reset(**reset)


def test_infeasible_allocation_leaves_the_rows_as_they_were():
    vector = make_vector()
    vector.reset(seed=0)
    allocation = vector.codec.decode(np.zeros((3, vector.codec.action_size)), vector.state.memory_cap)
    power = allocation.cu_power.copy()
    power[2, 1] = 9.0
    state = vector.state
    with pytest.raises(AllocationError, match=r"cu_power of environment 2, cluster 1 is 9\.0"):
        vector.step_allocation(dataclasses.replace(allocation, cu_power=power))
    assert vector.state is state

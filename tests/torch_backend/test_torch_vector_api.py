"""The torch vector environment as Gymnasium and its users meet it."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from torch_support import ROUNDS, make_torch, random_actions

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import ScenarioError

ID = "CollaPipeSurrogate-Small-Classification-v0"
MODES = ["NextStep", "SameStep"]


def test_make_vec_chooses_the_backend():
    one = gym.make_vec(ID, num_envs=3)
    two = gym.make_vec(ID, num_envs=3, backend="torch", device="cpu", dtype="float32", max_episode_steps=2)
    assert type(one) is CollaPipeVectorEnv
    assert type(two) is CollaPipeTorchVectorEnv
    assert two.single_observation_space == one.single_observation_space
    assert two.observation_space == one.observation_space
    assert two.action_space == one.action_space
    assert two.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert EnvSpec.from_json(two.spec.to_json()).kwargs["device"] == "cpu"
    two.reset(seed=0)
    assert [bool(two.step(a)[3].all()) for a in random_actions(two, 2)] == [False, True]


@pytest.mark.slow
def test_pytorch_is_imported_only_for_this_backend():
    code = (
        "import sys\n"
        "from collapipe_env.envs.registration import make_vector\n"
        "make_vector(scenario='small', learner='surrogate')\n"
        "assert 'torch' not in sys.modules\n"
        "make_vector(scenario='small', backend='torch')\n"
        "assert 'torch' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "tork"}, "backend = 'tork'.*did you mean 'torch'"),
        ({"bakend": "torch"}, "bakend.*did you mean 'backend'"),
        ({"device": "cuda"}, "device = 'cuda'.*add backend='torch'"),
        ({"backend": "torch", "devise": "cpu"}, "devise.*did you mean 'device'"),
        ({"backend": "torch", "device": "gpu0"}, "gpu0.*'cuda:1'"),
        ({"backend": "torch", "device": "cuda:99"}, "cuda:99.*can use"),
        ({"backend": "torch", "dtype": "float16"}, "float16.*did you mean 'float"),
        ({"backend": "torch", "learner": "torch"}, "learner = 'torch'.*only the surrogate learner"),
        ({"backend": "torch", "render_mode": "rgb_array"}, "no pictures"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ScenarioError, match=f"(?s){message}"):
        gym.make_vec(ID, **{"num_envs": 2, **arguments})
    given = {k: v for k, v in arguments.items() if k != "backend"}
    if arguments.get("backend") == "torch":
        with pytest.raises(ScenarioError, match=f"(?s){message}"):
            CollaPipeTorchVectorEnv(**{"num_envs": 2, "scenario": "small", **given})


@pytest.mark.parametrize("dtype", ["float64", torch.float32])
@pytest.mark.parametrize("mode", MODES)
def test_shapes_types_and_masks(mode, dtype):
    E = 4
    env = make_torch("moving", E, dtype=dtype, autoreset_mode=mode)
    real = torch.float64 if dtype == "float64" else torch.float32
    space = env.observation_space

    def check(observation):
        assert observation.shape == space.shape
        assert observation.dtype == torch.float32
        assert space.contains(observation.numpy())

    def check_info(info):
        for name, value in info.items():
            if isinstance(value, dict):
                check_info(value)
            elif name.startswith("_"):
                assert value.dtype == torch.bool
                assert value.shape == (E,)
            else:
                assert f"_{name}" in info
                kind = {"rounds": torch.int64, "final_obs": torch.float32}.get(name, real)
                assert (value.dtype, len(value)) == (kind, E), name
                assert torch.isfinite(value).all()

    observation, info = env.reset(seed=0)
    check(observation)
    check_info(info)
    for t, action in enumerate(random_actions(env, 2 * (ROUNDS + 1)), 1):
        # Tensors and NumPy arrays alike.
        result = env.step(torch.from_numpy(action) if t % 2 else action)
        check(result[0])
        check_info(result[4])
        assert result[1].dtype == torch.float32
        assert all(end.dtype == torch.bool and end.shape == (E,) for end in result[2:4])
        assert not any(value.requires_grad for value in result[:4])
        ended = bool(result[3].any())
        assert ("final_info" in result[4]) == (ended and mode == "SameStep")
        assert set(info) == {name for name in result[4] if "final" not in name}
        check_info(env.ended_summaries)
        assert bool(env.ended_summaries) == (t >= ROUNDS)
        if ended and mode == "SameStep":
            check(result[4]["final_obs"])
            assert not torch.equal(result[4]["final_obs"], result[0])


def test_gradients_are_not_tracked():
    env = make_torch()
    env.reset(seed=0)
    actions = torch.zeros(env.action_space.shape, requires_grad=True)
    assert not env.step(actions)[1].requires_grad


def test_unchecked_actions_spoil_their_own_row_only():
    checked, free = make_torch(), make_torch(check_actions=False)
    actions = random_actions(free, 1)[0]
    for env in (checked, free):
        env.reset(seed=0)
    expected = checked.step(actions)[1]
    spoilt = actions.copy()
    spoilt[1] = np.nan
    found = free.step(spoilt)[1]
    assert torch.isnan(found).tolist() == [False, True, False]
    assert torch.equal(found[[0, 2]], expected[[0, 2]])

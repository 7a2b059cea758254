"""The torch vector environment as Gymnasium and its users meet it."""

import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from torch_support import ROUNDS, arrays_of, make_torch, random_actions, scenario_of

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.errors import AllocationError, ScenarioError

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
        "from collapipe_env.envs.registration import _vector_class\n"
        "_vector_class('numpy')\n"
        "assert 'torch' not in sys.modules\n"
        "_vector_class('torch')\n"
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
        ({"backend": "torch", "num_envs": 0}, "num_envs = 0"),
        ({"backend": "torch", "max_episode_steps": 0}, "max_episode_steps = 0"),
        ({"backend": "torch", "autoreset_mode": "same"}, "same.*'SameStep'"),
        ({"backend": "torch", "scenario": "smal"}, "smal.*did you mean 'small'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ScenarioError, match=f"(?s){message}"):
        gym.make_vec(ID, **{"num_envs": 2, **arguments})
    given = {k: v for k, v in arguments.items() if k != "backend"}
    if arguments.get("backend") == "torch" and "scenario" not in given:
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


@pytest.mark.parametrize("mode", MODES)
def test_returned_tensors_are_never_written_again(mode):
    env = make_torch("moving", autoreset_mode=mode)
    kept = []

    def keep(*values):
        kept.extend((value, pickle.dumps(value)) for value in values)

    keep(*env.reset(seed=0))
    for action in random_actions(env, 2 * (ROUNDS + 1)):
        keep(torch.from_numpy(action))
        keep(*env.step(kept[-1][0]), dict(arrays_of(env.state)))
    keep(*env.reset(options={"reset_mask": np.array([True, False, True])}))
    env.step(random_actions(env, 1)[0])
    for value, before in kept:
        assert pickle.dumps(value) == before


def flattened(info):
    for name, value in info.items():
        if isinstance(value, dict):
            yield from flattened(value)
        else:
            yield name, value


@pytest.mark.parametrize("mode", MODES)
def test_infos_may_be_written_to(mode):
    one, two = make_torch(autoreset_mode=mode), make_torch(autoreset_mode=mode)
    expected, found = one.reset(seed=0), two.reset(seed=0)
    for action in (*random_actions(one, 2 * (ROUNDS + 1)), None):
        pairs = list(zip(flattened(expected[-1]), flattened(found[-1]), strict=True))
        assert all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in pairs)
        assert all(map(torch.equal, expected[:-1], found[:-1]))
        places = [value.data_ptr() for _, (name, value) in pairs if name.startswith("_")]
        assert len(set(places)) == len(places)
        for _, (_, value) in pairs:
            value.fill_(1)
        if action is not None:
            expected, found = one.step(action), two.step(action)


def test_rows_that_are_reset_ignore_their_action():
    env = make_torch()
    actions = random_actions(env, ROUNDS)
    env.reset(seed=0)
    for action in actions:
        env.step(action)
    observation, reward, _, truncated, info = env.step(np.full_like(actions[0], np.nan))
    assert env.observation_space.contains(observation.numpy())
    assert not reward.any()
    assert not truncated.any()
    assert info["_delay"].all()
    assert not info["delay"].any()


def test_bad_actions_are_refused():
    env = make_torch()
    env.reset(seed=0)
    actions = random_actions(env, 1)[0]
    with pytest.raises(AllocationError, match=r"shape \(2, \d+\), expected \(3, "):
        env.step(actions[:2])
    actions[1, 4] = np.inf
    state = env.state
    with pytest.raises(AllocationError, match=r"action\[1, 4\] is inf"):
        env.step(actions)
    assert env.state is state


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


def test_order_of_calls_is_checked():
    env = make_torch(autoreset_mode="Disabled")
    actions = random_actions(env, ROUNDS + 1)
    with pytest.raises(ScenarioError, match="environment 0 was stepped before its first reset"):
        env.step(actions[0])
    with pytest.raises(ScenarioError, match=r"\[0, 2\] were never reset"):
        env.reset(options={"reset_mask": np.array([False, True, False])})
    env.reset(seed=0)
    for action in actions[:-1]:
        env.step(action)
    with pytest.raises(ScenarioError, match=r"\[0, 1, 2\] are done"):
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
def test_bad_resets_are_refused(reset, message):
    env = make_torch()
    env.reset(seed=0)
    with pytest.raises(ScenarioError, match=message):
        env.reset(**reset)


def test_own_rewards_compute_with_tensors():
    env = CollaPipeTorchVectorEnv(
        3, scenario_of("small"), reward=lambda _, costs, __: -torch.sqrt(costs.delay)
    )
    env.reset(seed=0)
    _, reward, _, _, info = env.step(random_actions(env, 1)[0])
    torch.testing.assert_close(reward, -torch.sqrt(info["delay"]).float())

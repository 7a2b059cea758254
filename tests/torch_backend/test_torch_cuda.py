"""On a GPU: the episodes of the CPU, reproducible draws, and steps that do not wait for the device."""

import numpy as np
import pytest
import torch
from torch_support import NAMES, ROUNDS, make_torch, random_actions, scenario_of, trajectory

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch can use")


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("name", NAMES)
def test_gpu_plays_the_episodes_of_the_cpu(name, mode):
    one = make_torch(name, autoreset_mode=mode)
    two = make_torch(name, autoreset_mode=mode, device="cuda")
    actions = random_actions(one, 2 * (ROUNDS + 1))
    pairs = zip(trajectory(one, actions, seed=3), trajectory(two, actions, seed=3), strict=True)
    for expected, found in pairs:
        assert found.device.type == "cuda"
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-6, atol=1e-6)


def test_draws_are_reproducible():
    one, two = make_torch("moving", device="cuda"), make_torch("moving", device="cuda")
    actions = random_actions(one, 2 * (ROUNDS + 1))
    first, again = trajectory(one, actions, seed=5), trajectory(two, actions, seed=5)
    assert all(map(torch.equal, first, again))


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_steps_do_not_wait_for_the_device(mode):
    scenario = scenario_of("small")
    env = CollaPipeTorchVectorEnv(64, scenario, device="cuda", check_actions=False, autoreset_mode=mode)
    env.reset(seed=0)
    actions = torch.zeros(env.action_space.shape, device="cuda")
    env.step(actions)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(2 * (ROUNDS + 1)):
            env.step(actions)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_actions_may_come_from_the_host():
    env = make_torch(device="cuda")
    env.reset(seed=0)
    reward = env.step(np.zeros(env.action_space.shape, dtype=np.float32))[1]
    assert reward.device.type == "cuda"

"""Environments on tensors can be pickled and copied between steps, and go on bit for bit."""

import copy
import pickle

import pytest
import torch

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv

SCENARIO = {
    "base": "small",
    "cluster": {"layout": "per_episode"},
    "radio": {"fading_correlation": 0.7, "d2e_shadowing_db": 8.0},
    "dynamics": {"rounds": 3, "load_levels": [0.5, 0.75, 1.0], "load_stay_probability": 0.6},
    "learning": {"schedule": "cosine", "warmup_steps": 1},
    "budgets": {"device_energy_j": 6, "cu_energy_j": 1.5},
}


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copy_goes_on_bit_for_bit(duplicate, mode):
    env = CollaPipeTorchVectorEnv(3, SCENARIO, autoreset_mode=mode)
    env.reset(seed=4)
    env.action_space.seed(0)
    actions = [torch.from_numpy(env.action_space.sample()) for _ in range(8)]
    for action in actions[:2]:
        env.step(action)
    other = duplicate(env)
    for action in actions[2:]:
        mine, its = env.step(action), other.step(action)
        for one, two in zip(mine[:4], its[:4], strict=True):
            assert torch.equal(one, two)
        assert torch.equal(mine[4]["loss"], its[4]["loss"])

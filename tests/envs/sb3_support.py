"""What the tests of the adapter to Stable-Baselines3 share: it, and its own DummyVecEnv beside it."""

import numpy as np
from env_support import shortened
from stable_baselines3.common.vec_env import DummyVecEnv

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.sb3 import CollaPipeVecEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv

TARGET = {"base": "small", "dynamics": {"rounds": 12, "target_loss": 0.69}}
TINY = {
    "base": "small",
    "workload": {"blocks": 2, "batch_size": 4},
    "learning": {
        "proxy": {
            "width": 8,
            "feedforward": 8,
            "heads": 2,
            "sequence_length": 6,
            "vocabulary": 100,
        },
        "evaluation_samples": 8,
        "evaluate_every": 2,
        "metric_every": 2,
    },
    "dynamics": {"rounds": 3},
}


def make_adapter(scenario="small", num_envs=3, info="sparse", learner="surrogate", **kwargs):
    vector = CollaPipeVectorEnv(num_envs, scenario, learner, autoreset_mode="SameStep", **kwargs)
    return CollaPipeVecEnv(vector, info)


def make_dummy(scenario="small", num_envs=3, learner="surrogate", **kwargs):
    return DummyVecEnv([lambda: CollaPipeEnv(scenario, learner, **kwargs)] * num_envs)


def make_pair(rounds=3, num_envs=3, seed=0, observation="flat", **kwargs):
    """The adapter and a DummyVecEnv on the small scenario, seeded alike."""
    scenario = shortened("small", rounds)
    kwargs["observation"] = observation
    pair = make_adapter(scenario, num_envs, **kwargs), make_dummy(scenario, num_envs, observation=observation)
    for env in pair:
        env.seed(seed)
    return pair


def assert_same_step(mine, other):
    """Observations, flat or graph, rewards and ends of two steps are equal in value and type."""
    for one, two in zip(mine[:3], other[:3], strict=True):
        np.testing.assert_equal(one, two)
        if isinstance(one, np.ndarray):
            assert one.dtype == two.dtype


def assert_same_info(mine, other, without=()):
    """Two rows' information is equal; arrays are compared by value."""
    mine = {name: value for name, value in mine.items() if name not in without}
    other = {name: value for name, value in other.items() if name not in without}
    assert set(mine) == set(other)
    for name, value in mine.items():
        # A number of NumPy's is a float, too.
        assert type(value) is type(other[name]) or (
            isinstance(value, float) and isinstance(other[name], float)
        )
        np.testing.assert_equal(value, other[name])

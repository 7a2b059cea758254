"""What policies and stored results rely on stays as it is under every id: names, spaces, bounds and horizons.

Trajectories are held by ``test_golden``; here also those of vector rewards, which it does not play.
"""

import json

import gymnasium as gym
import pytest
from make_interfaces import FILE, interface, named, registered, surrogates

STORED = json.loads(FILE.read_text(encoding="utf-8"))
REMEDY = "interface changed: if intended, raise the ids' version and run tests/golden/make_interfaces.py"


def test_ids_are_those_stored():
    assert registered() == STORED["ids"], REMEDY
    assert named() == set(STORED["ids"])
    assert set(STORED["interfaces"]) == set(surrogates())


@pytest.mark.parametrize("name", surrogates())
def test_interface(name):
    now, then = interface(name), dict(STORED["interfaces"][name])
    reward = then.pop("reward")
    assert now.pop("reward") == (
        pytest.approx(reward, rel=1e-6, abs=2e-6) if isinstance(reward, list) else reward
    )
    assert now == then, REMEDY


@pytest.mark.slow
def test_the_real_learner_differs_in_a_metric_alone():
    env = gym.make("CollaPipe-Small-v0").unwrapped
    then = STORED["interfaces"]["CollaPipeSurrogate-Small-v0"]
    assert list(env.observation_space.shape) == then["observation"]["shape"]
    assert list(env.action_space.shape) == then["action"]["shape"]
    _, info = env.reset(seed=0)
    assert set(info) == {*then["info"]["reset"], "metric"}

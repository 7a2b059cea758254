"""The process of docs/processes.md: its one file, in every environment."""

import importlib
import math
import re
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from process_support import actions_of, registered

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv

PAGE = Path(__file__).parents[2] / "docs" / "processes.md"
SCENARIO = {"base": "small", "dynamics": {"rounds": 8, "processes": {"enclosure": {"ambient_c": 25.5}}}}


@pytest.fixture
def enclosure(tmp_path, monkeypatch):
    """The module that the page shows, in a file of its own."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "enclosure.py").write_text(blocks[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    with registered():
        yield importlib.import_module("enclosure"), blocks[1]
    del sys.modules["enclosure"]


def test_the_page_runs(enclosure, capsys):
    exec(compile(enclosure[1], str(PAGE), "exec"), {})
    assert "[" in capsys.readouterr().out


def test_it_works_in_every_environment(enclosure):
    vector, tensors = CollaPipeVectorEnv(2, SCENARIO, "surrogate"), CollaPipeTorchVectorEnv(2, SCENARIO)
    check_env(gym.make("CollaPipeSurrogate-v0", scenario=SCENARIO).unwrapped, skip_render_check=True)
    for env in (vector, tensors):
        env.reset(seed=3)
    for action in actions_of(vector, 6):
        a, b = vector.step(action), tensors.step(action)
        np.testing.assert_allclose(b[0].numpy(), a[0], rtol=1e-5, atol=1e-6)
    warm = vector.state.processes["enclosure"]["temperature"]
    assert (warm >= 25.5).all()
    assert (warm > 25.6).any()


def test_temperatures_follow_the_closed_form(enclosure):
    env = CollaPipeVectorEnv(1, SCENARIO, "surrogate")
    env.reset(seed=0)
    temperature, full = 25.5, None
    for action in np.random.default_rng(1).uniform(-1, 1, (5, 1, env.action_space.shape[1])):
        at_start = float(env.state.processes["enclosure"]["temperature"][0, 0, 0])
        assert at_start == pytest.approx(temperature, rel=1e-12)
        clock = float(env.state.speed[0, 0, 0])
        full = clock if full is None else full
        hot = min(max((at_start - 26.0) / 4.0, 0.0), 1.0)
        assert clock == pytest.approx(full * (1.0 - 0.6 * hot), rel=1e-12)
        env.step(action)
        costs = env.last_round.costs
        seconds, joules = float(costs.delay[0]), float(costs.energy[0, 0, 1])
        steady = 25.5 + 6.0 * joules / seconds
        temperature = steady + (temperature - steady) * math.exp(-seconds / 360.0)

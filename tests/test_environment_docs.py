"""The examples of docs/environment.md about actions, observations and rewards, and of docs/churn.md, run."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

import collapipe_env
from collapipe_env.envs.registration import environment_ids, short_ids
from collapipe_env.envs.rewards import REWARDS
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.names import PRESETS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "environment.md"


def example(*sections: str) -> str:
    """The Python code of some sections, one after the other."""
    text = DOCS.read_text()
    code = []
    for section in sections:
        body = re.search(rf"^### {section}[^\n]*\n(.*?)^### ", text, re.DOTALL | re.MULTILINE)
        assert body is not None, section
        code += re.findall(r"^```python\n(.*?)^```", body[1], re.DOTALL | re.MULTILINE)
    assert len(code) == len(sections)
    return "\n".join(code)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Nothing stays registered."""
    monkeypatch.setattr(REWARDS, "_added", {})


def test_parts_of_actions_and_physical_units(capsys):
    names: dict = {}
    exec(example("Action", "Observation"), names)
    env, action = names["env"].unwrapped, names["action"]
    env.step(action)
    played = env.last_round.allocation
    assert (played.cu_power == played.cu_power.min()).all()
    assert played.cu_power[0, 0] == pytest.approx(env.codec.power_min_w)
    assert (played.blocks.max(axis=-1) - played.blocks.min(axis=-1) <= 1).all()
    speed = names["physical"]["device_speed"]
    assert speed.shape == (2, 3)
    assert 1e9 < np.nanmin(speed) <= np.nanmax(speed) < 1e14
    assert (names["physical"]["uplink_gain"] < -50.0).all()
    printed = capsys.readouterr().out
    for name in (*env.codec.parts, *env.observation_layout):
        assert f"{name} (" in printed


def test_a_graph_observation(capsys):
    names: dict = {}
    exec("import gymnasium as gym\n" + example("Graph observation"), names)
    state = names["env"].unwrapped.state
    ratio = names["seconds"] * state.speed[0]  # operations, the same for all devices
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-5)
    assert names["queues"].shape == state.present[0].shape
    assert "log_block_s" in capsys.readouterr().out


def test_a_reward_of_ones_own():
    names: dict = {}
    exec(example("Reward"), names)
    env = names["env"]
    env.reset(seed=0)
    before = env.unwrapped.state.loss[0]
    _, reward, _, _, info = env.step(env.action_space.sample())
    assert reward == pytest.approx((before - env.unwrapped.state.loss[0]) / info["delay"])
    assert REWARDS.added() == ("loss_per_second",)


def test_the_page_of_churn_finds_a_failure_and_draws_it(capsys):
    text = (ROOT / "docs" / "churn.md").read_text()
    (example,), (laws,) = (
        re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "yaml")
    )
    names: dict = {}
    exec(example, names)
    failed = names["failed"]
    assert failed.device.shape == (1, 2)
    assert (failed.device >= 0).any()
    assert names["picture"].shape == (800, 1200, 3)
    assert capsys.readouterr().out
    spec = dict(load_scenario(yaml.safe_load(laws)).dynamics.processes)["presence"]
    assert spec == type(spec)()  # the page shows the defaults


def test_the_docs_name_every_registration():
    text = DOCS.read_text()
    for name in collapipe_env.__all__:
        if name.startswith("register_"):
            assert f"`collapipe_env.{name}" in text or f"`{name}`" in text


def test_the_docs_name_every_shipped_scenario_and_every_id():
    text = (ROOT / "docs" / "environments.md").read_text()
    for name in PRESETS:
        assert f"`{name}`" in text
    told = set()
    for pattern in re.findall(r"`(CollaPipe[^`]*-v0)`", text):
        options = [part.strip("<>").split(",") for part in re.findall(r"<[^>]*>|[^<>]+", pattern)]
        told |= {"".join(parts) for parts in itertools.product(*options)}
    registered = {name for name, _ in (*environment_ids(), *short_ids())}
    # "<...>" stands for the sizes of the id before it.
    sizes = {name for name, _ in short_ids() if name.startswith("CollaPipeSurrogate")}
    assert registered - sizes <= told

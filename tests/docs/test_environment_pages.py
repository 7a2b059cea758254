"""Code of the pages about the environment means what they say, and they name what is registered."""

import itertools
import re

import numpy as np
import pages_support as support
import pytest
import yaml

import collapipe_env
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.registration import environment_ids, multi_objective_ids
from collapipe_env.envs.rewards import REWARDS
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.names import PRESETS


def test_the_code_of_the_page_means_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(REWARDS, "_added", {})
    monkeypatch.chdir(tmp_path)
    names = support.run_page(support.DOCS / "environment.md", tmp_path)
    env = CollaPipeEnv("small", "surrogate")
    env.reset(seed=0)
    ratio = names["seconds"] * env.state.speed[0]  # operations, the same for all devices
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-5)
    assert names["queues"].shape == env.state.present[0].shape
    speed = names["physical"]["device_speed"]
    assert speed.shape == (2, 3)
    assert 1e9 < np.nanmin(speed) <= np.nanmax(speed) < 1e14
    assert (names["physical"]["uplink_gain"] < -50.0).all()
    action = names["codec"].join(names["parts"])
    env.step(action)
    played = env.last_round.allocation
    assert (played.cu_power == played.cu_power.min()).all()
    assert played.cu_power[0, 0] == pytest.approx(env.codec.power_min_w)
    assert (played.blocks.max(axis=-1) - played.blocks.min(axis=-1) <= 1).all()
    printed = capsys.readouterr().out
    for name in (*env.codec.parts, *env.observation_layout):
        assert f"{name} (" in printed
    assert "log_block_s" in printed
    assert REWARDS.added() == ("loss_per_second",)
    own = CollaPipeEnv("small", "surrogate", reward="loss_per_second")
    own.reset(seed=0)
    before = own.state.loss[0]
    _, reward, _, _, info = own.step(action)
    assert reward == pytest.approx((before - own.state.loss[0]) / info["delay"])
    # A random plan may send below the floor of the SNR, where a wider band takes longer.
    assert names["plan"].bandwidth.grad.abs().max() > 0.0


def test_the_page_of_churn_finds_a_failure_and_draws_it(tmp_path):
    page = support.DOCS / "churn.md"
    names = support.run_page(page, tmp_path)
    assert names["failed"].device.shape == (1, 2)
    assert (names["failed"].device >= 0).any()
    assert names["picture"].shape == (800, 1200, 3)
    (laws,) = (text for language, text in support.code(page) if language == "yaml")
    spec = dict(load_scenario(yaml.safe_load(laws)).dynamics.processes)["presence"]
    assert spec == type(spec)()  # the page shows the defaults


def test_the_pages_name_every_registration_shipped_scenario_and_id():
    text = support.text_of("environment")
    for name in collapipe_env.__all__:
        assert not name.startswith("register_") or f"`collapipe_env.{name}" in text or f"`{name}`" in text
    text, told = support.text_of("environments"), set()
    assert all(f"`{name}`" in text for name in PRESETS)
    for pattern in re.findall(r"`(CollaPipe[^`]*-v0)`", text):
        options = [part.strip("<>").split(",") for part in re.findall(r"<[^>]*>|[^<>]+", pattern)]
        told |= {"".join(parts) for parts in itertools.product(*options)}
    assert {name for name, _ in (*environment_ids(), *multi_objective_ids())} == told

"""Observations as a policy saw them in training: a model brings its statistics, or they must be given."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.wrappers import NormalizeObservation, TransformObservation
from gymnasium.wrappers import vector as vector_wrappers
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from collapipe_env import PolicyScheduler
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.envs.wrappers import MagnifiedBacklog
from collapipe_env.ground.errors import SchedulerError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec

SCENARIO = load_scenario({"base": "small", "dynamics": {"rounds": 3}})
SIZE = action_codec(SCENARIO).action_size


def trained(env) -> PPO:
    options = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "seed": 0, "device": "cpu"}
    return PPO("MlpPolicy", env, **options).learn(48)


def trained_off_policy(env) -> SAC:
    options = {"buffer_size": 100, "learning_starts": 30, "seed": 0, "device": "cpu"}
    return SAC("MlpPolicy", env, **options).learn(48)


@pytest.fixture(scope="module", params=[trained, trained_off_policy])
def in_vec_normalize(request) -> PPO | SAC:
    env = make_sb3_vec_env(SCENARIO, num_envs=2, seed=0, learner="surrogate")
    return request.param(VecMonitor(VecNormalize(env, clip_obs=1.5)))


def test_a_model_brings_the_statistics_of_its_vec_normalize(in_vec_normalize: PPO) -> None:
    env = in_vec_normalize.get_vec_normalize_env()
    scheduler = PolicyScheduler(in_vec_normalize, "normalised")
    env.training, seen = False, env.reset()
    for _ in range(4):
        actions = in_vec_normalize.predict(seen, deterministic=True)[0]
        found = scheduler.act(env.get_original_obs(), None)
        np.testing.assert_array_equal(found, np.clip(actions, -1.0, 1.0))
        assert not np.allclose(seen, env.get_original_obs(), atol=0.1)
        seen = env.step(actions)[0]
    before = scheduler.fingerprint()
    env.obs_rms.mean[0] += 0.5
    assert scheduler.fingerprint() != before


def test_a_file_of_a_model_without_its_statistics_is_refused(in_vec_normalize: PPO, tmp_path: Path) -> None:
    env = in_vec_normalize.get_vec_normalize_env()
    env.save(tmp_path / "statistics.pkl")
    in_vec_normalize.save(tmp_path / "ppo.zip")
    model = type(in_vec_normalize).load(tmp_path / "ppo.zip", device="cpu")
    with pytest.raises(SchedulerError, match=r"as under VecNormalize.*give normalise="):
        PolicyScheduler(model)
    plain = make_sb3_vec_env(SCENARIO, num_envs=1, seed=5, learner="surrogate")
    loaded = VecNormalize.load(tmp_path / "statistics.pkl", plain)
    raw = plain.reset()
    expected = model.predict(env.normalize_obs(raw), deterministic=True)[0]
    for policy in (model, model.policy):
        found = PolicyScheduler(policy, normalise=loaded).act(raw, None)
        np.testing.assert_array_equal(found, np.clip(expected, -1.0, 1.0))
    raws = PolicyScheduler(model, normalise=False).act(raw, None)
    np.testing.assert_array_equal(raws, np.clip(model.predict(raw, deterministic=True)[0], -1.0, 1.0))
    assert not np.array_equal(raws, found)


@pytest.mark.parametrize("train", [trained, trained_off_policy])
@pytest.mark.parametrize("rewards", [False, True])
def test_plain_observations_stay_plain(train, rewards, tmp_path: Path) -> None:
    env = make_sb3_vec_env(SCENARIO, num_envs=2, seed=0, learner="surrogate")
    model = train(VecNormalize(env, norm_obs=False) if rewards else env)
    model.save(tmp_path / "model.zip")
    raw = env.reset()
    expected = np.clip(model.predict(raw, deterministic=True)[0], -1.0, 1.0)
    for one in (model, type(model).load(tmp_path / "model.zip", device="cpu")):
        np.testing.assert_array_equal(PolicyScheduler(one).act(raw, None), expected)


def wrapped_env():
    env = MagnifiedBacklog(CollaPipeEnv(SCENARIO, "surrogate"))
    return TransformObservation(NormalizeObservation(env), lambda seen: np.clip(seen, -1.5, 1.5), None)


def test_wrappers_of_gymnasium_do_what_they_did_in_training(tmp_path: Path) -> None:
    env, plain = wrapped_env(), CollaPipeEnv(SCENARIO, "surrogate")
    model = trained(env)
    model.save(tmp_path / "ppo.zip")
    env.env.update_running_mean = False
    loaded = PPO.load(tmp_path / "ppo.zip", device="cpu")
    with pytest.raises(SchedulerError, match=r"no bounds, as under .*NormalizeObservation.*normalise="):
        PolicyScheduler(loaded)
    schedulers = [PolicyScheduler(model), PolicyScheduler(loaded, normalise=env)]
    seen, raw = env.reset(seed=3)[0], plain.reset(seed=3)[0]
    for _ in range(3):
        actions = np.clip(model.predict(seen, deterministic=True)[0], -1.0, 1.0)
        for scheduler in schedulers:
            np.testing.assert_allclose(scheduler.act(raw[None], None), [actions], atol=1e-6)
        seen, raw = env.step(actions)[0], plain.step(actions)[0]


def test_magnified_queues_are_magnified_or_refused(tmp_path: Path) -> None:
    env, plain = MagnifiedBacklog(CollaPipeEnv(SCENARIO, "surrogate")), CollaPipeEnv(SCENARIO, "surrogate")
    model = trained(env)
    model.save(tmp_path / "ppo.zip")
    loaded = PPO.load(tmp_path / "ppo.zip", device="cpu")
    with pytest.raises(SchedulerError, match=r"as under MagnifiedBacklog.*give normalise= the wrapped"):
        PolicyScheduler(loaded)
    raw = plain.reset(seed=3)[0]
    for _ in range(3):
        raw = plain.step(plain.action_space.sample())[0]
    expected = np.clip(model.predict(env.observation(raw), deterministic=True)[0], -1.0, 1.0)
    assert not np.array_equal(env.observation(raw), raw)
    for scheduler in (PolicyScheduler(model), PolicyScheduler(loaded, normalise=env)):
        np.testing.assert_allclose(scheduler.act(raw[None], None), [expected], atol=1e-6)


def test_a_vector_environment_normalises_for_a_module() -> None:
    envs = CollaPipeVectorEnv(3, SCENARIO, "surrogate")
    normalising = vector_wrappers.NormalizeObservation(envs)
    normalising.reset(seed=0)
    for _ in range(3):
        normalising.step(envs.action_space.sample())
    normalising.update_running_mean = False
    seen, plain = normalising.reset(seed=7)[0], CollaPipeVectorEnv(3, SCENARIO, "surrogate")
    module = torch.nn.Sequential(torch.nn.Linear(seen.shape[1], SIZE), torch.nn.Tanh())
    found = PolicyScheduler(module, normalise=normalising).act(plain.reset(seed=7)[0], None)
    np.testing.assert_allclose(found, module(torch.from_numpy(seen)).detach(), atol=1e-6)
    halved = PolicyScheduler(module, normalise=lambda rows: 0.5 * rows).act(seen, None)
    np.testing.assert_allclose(halved, module(torch.from_numpy(0.5 * seen)).detach(), atol=1e-6)


def test_statistics_that_are_none_or_many_are_refused() -> None:
    plain = CollaPipeEnv(SCENARIO, "surrogate")
    for wrong in ("statistics.pkl", plain, True):
        with pytest.raises(SchedulerError, match=r"normalise = .* has no statistics.*VecNormalize\.load"):
            PolicyScheduler(np.tanh, normalise=wrong)
    several = DummyVecEnv([wrapped_env, wrapped_env])
    with pytest.raises(SchedulerError, match=r"each of the 2 environments has a NormalizeObservation"):
        PolicyScheduler(np.tanh, normalise=several)

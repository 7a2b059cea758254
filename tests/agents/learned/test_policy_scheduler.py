"""Policies from elsewhere as schedulers: Stable-Baselines3, PyTorch and plain functions."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.wrappers import NormalizeObservation, TransformObservation
from gymnasium.wrappers import vector as vector_wrappers
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from collapipe_env import PolicyScheduler, evaluate
from collapipe_env.agents.learned.sb3_models import LearnedScheduler
from collapipe_env.cli.main import main
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.envs.wrappers import MagnifiedBacklog
from collapipe_env.ground.errors import SchedulerError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec

SMALL = {"base": "small", "dynamics": {"rounds": 3}}
SCENARIO = load_scenario(SMALL)
SIZE = action_codec(SCENARIO).action_size
FILE = """
from stable_baselines3 import PPO
from collapipe_env import PolicyScheduler

def trained(scenario):
    return PolicyScheduler(PPO.load({path!r}, device="cpu"), name="my PPO")
"""


@pytest.fixture(scope="module")
def model() -> PPO:
    env = make_sb3_vec_env(SCENARIO, num_envs=2, seed=0, learner="surrogate")
    model = PPO("MlpPolicy", env, n_steps=4, batch_size=8, n_epochs=1, seed=0, device="cpu")
    return model.learn(8)


def test_a_model_saved_by_stable_baselines_is_played_from_the_users_file(
    model: PPO, tmp_path: Path, capsys
) -> None:
    archive, file = tmp_path / "ppo.zip", tmp_path / "mine.py"
    model.save(archive)
    file.write_text(FILE.format(path=str(archive)))
    scenario = tmp_path / "custom.yaml"
    scenario.write_text("name: custom\nbase: small\ndynamics: {rounds: 3}\n")
    quick = ["--scenario", str(scenario), "--episodes", "1", "--processes", "1", "--no-figures"]
    quick += ["--out", str(tmp_path / "out")]
    assert main(["evaluate", "--agent", str(archive), *quick]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "as Stable-Baselines3 writes it: its pickled part could run any code" in line
    assert "collapipe_env.PolicyScheduler: --schedulers file.py:Name" in line
    assert main(["evaluate", "--schedulers", "pipeline", f"{file}:trained", *quick]) == 0
    assert "my PPO" in capsys.readouterr().out
    # The same as what the model itself decides.
    found = evaluate([f"{file}:trained", lambda _: LearnedScheduler(model.policy, "PPO")], SMALL, seeds=1)
    (one,), (other,) = found.episodes.values()
    assert one.delay == other.delay
    assert one.title == "my PPO"


def test_other_weights_have_another_fingerprint(model: PPO, tmp_path: Path) -> None:
    model.save(tmp_path / "ppo.zip")
    again = PPO.load(tmp_path / "ppo.zip", device="cpu")
    before = PolicyScheduler(again).fingerprint()
    assert len(before) == 64
    assert before == PolicyScheduler(model).fingerprint()
    with torch.no_grad():
        again.policy.action_net.bias[0] += 1e-6
    assert PolicyScheduler(again).fingerprint() != before
    assert PolicyScheduler(np.tanh).fingerprint() == ""


class Recurrent:
    """Counts its rounds in its state, as Stable-Baselines3's recurrent policies keep theirs."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, list[bool], bool]] = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.calls.append((state, episode_start.tolist(), deterministic))
        return np.full((len(observation), SIZE), 2.0), 1 if state is None else state + 1


def test_recurrent_policies_keep_their_state_until_reset() -> None:
    policy = Recurrent()
    scheduler = PolicyScheduler(policy, deterministic=False)
    assert scheduler.name == "Recurrent"
    observation = np.zeros((3, 5), dtype=np.float32)
    for _ in range(2):
        scheduler.reset(1)
        for _ in range(2):
            actions = scheduler.act(observation, None)
    assert [state for state, *_ in policy.calls] == [None, 1, None, 1]
    assert [starts for _, starts, _ in policy.calls] == [[True] * 3, [False] * 3] * 2
    assert not any(deterministic for *_, deterministic in policy.calls)
    assert actions.shape == (3, SIZE)
    assert actions.dtype == np.float32
    assert (actions == 1.0).all()  # clipped


class Wrapped:
    """Hands whatever it is asked to another policy."""

    def __init__(self, policy) -> None:
        self.policy = policy

    def predict(self, observation, **options):
        return self.policy.predict(observation, **options)


def test_a_wrapper_that_hands_options_on_is_given_all_of_them() -> None:
    policy = Recurrent()
    scheduler = PolicyScheduler(Wrapped(policy))
    scheduler.reset(1)
    for _ in range(2):
        scheduler.act(np.zeros((1, 5), dtype=np.float32), None)
    assert policy.calls == [(None, [True], True), (1, [False], True)]


class Bare:
    """A ``predict`` without any options, as scikit-learn has it."""

    def predict(self, rows):
        return rows[:, :2] * 3.0


def test_predict_without_options_and_plain_functions() -> None:
    observation = np.array([[0.1, -0.9, 5.0]], dtype=np.float32)
    for policy in (Bare(), lambda rows: rows[:, :2] * 3.0, lambda rows: (rows[:, :2] * 3.0).tolist()):
        scheduler = PolicyScheduler(policy, name="x")
        scheduler.reset()
        np.testing.assert_allclose(scheduler.act(observation, None), [[0.3, -1.0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "apart"), [(torch.float32, 1e-5), (torch.float64, 1e-5), (torch.bfloat16, 0.03)]
)
def test_torch_modules_answer_in_evaluation_mode_in_their_own_type_without_gradients(kind, apart) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Dropout(0.5), torch.nn.Tanh()).to(kind)
    observation = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    scheduler = PolicyScheduler(module)
    actions = scheduler.act(observation, None)
    weight, bias = (p.detach().double().numpy() for p in module.parameters())
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions, np.tanh(observation @ weight.T + bias), rtol=1e-5, atol=apart - 1e-5)
    assert len(scheduler.fingerprint()) == 64
    assert PolicyScheduler(lambda rows: module(torch.from_numpy(rows).to(kind))).act(
        observation, None
    ).shape == (2, 6)


def test_observations_that_may_not_be_written_to_are_read() -> None:
    observation = np.full((1, 2), 0.5, dtype=np.float32)
    observation.flags.writeable = False
    actions = PolicyScheduler(torch.nn.Identity()).act(observation, None)
    np.testing.assert_array_equal(actions, observation)


def test_a_policy_that_draws_is_repeatable() -> None:
    def draws(rows):
        return torch.rand(len(rows), SIZE) * 2.0 - 1.0

    once, again, other = (
        evaluate(PolicyScheduler(draws, "draws", deterministic=deterministic), SMALL, seeds=1)
        .episodes["draws"][0]
        .delay
        for deterministic in (False, False, True)
    )
    assert once == again != other


def test_wrong_policies_and_answers_are_described() -> None:
    with pytest.raises(SchedulerError, match="policy 3 is not callable and has no method predict"):
        PolicyScheduler(3)
    with pytest.raises(SchedulerError, match=r"policy 'x' returned shape \(42,\) for 1 observations"):
        evaluate(PolicyScheduler(lambda rows: rows[0], "x"), SMALL, seeds=1)
    with pytest.raises(SchedulerError, match=r"ndarray of shape \(1, 42\), which cannot be played"):
        evaluate(PolicyScheduler(lambda rows: rows, "x"), SMALL, seeds=1)
    with pytest.raises(SchedulerError, match="failed in act: RuntimeError: mat1 and mat2"):
        evaluate(PolicyScheduler(torch.nn.Linear(3, 2), "narrow"), SMALL, seeds=1)


def test_a_policy_of_another_scenario_is_told_by_its_size(model: PPO) -> None:
    trained = model.observation_space.shape[0]
    message = rf"trained on flat observations of shape \({trained},\), those of this scenario have \(\d+,\)"
    with pytest.raises(SchedulerError, match=message):
        evaluate(lambda _: PolicyScheduler(model, "my PPO"), "medium", seeds=1, rounds=1)


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

"""Libraries that read or record information: TorchRL and Minari, where they are installed."""

import gymnasium as gym
import numpy as np
import pytest
import torch

import collapipe_env  # noqa: F401 - registers the ids

ID = "CollaPipeSurrogate-Small-v0"
SHORT = {"base": "small", "dynamics": {"rounds": 4}}
NAMES = ["delay", "cost", "backlog", "loss"]

# What other projects warn of is not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def torchrl():
    pytest.importorskip("torchrl", reason="TorchRL is not installed")
    from torchrl import envs

    return envs


@pytest.mark.parametrize("register", ["auto", "reader", "keys"])
def test_torchrl_reads_the_information_of_a_single_environment(torchrl, register):
    env = torchrl.GymWrapper(gym.make(ID, scenario=SHORT))
    if register == "auto":
        env = env.auto_register_info_dict()
    elif register == "reader":
        env = env.set_info_dict_reader(torchrl.default_info_dict_reader())
    else:
        from torchrl.data import Unbounded

        spec = {name: Unbounded((), dtype=torch.float64) for name in NAMES}
        env = env.set_info_dict_reader(torchrl.default_info_dict_reader(NAMES, spec))
    torchrl.check_env_specs(env)
    env.set_seed(0)
    played = env.rollout(4)
    twin = gym.make(ID, scenario=SHORT)
    twin.reset(seed=0)
    twin.reset()  # set_seed has reset once, too
    for action, recorded in zip(played["action"], played["next"], strict=True):
        info = twin.step(action.numpy())[4]
        assert {name: recorded[name].item() for name in NAMES} == info
    assert played["next", "truncated"].flatten().tolist() == [False, False, False, True]
    assert not played["delay"][0].any()


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
@pytest.mark.parametrize(
    "backend", [{}, {"backend": "torch"}, {"backend": "torch", "dtype": "float32"}], ids=["numpy", "64", "32"]
)
def test_torchrl_takes_the_vector_environments(torchrl, backend, mode):
    vector = gym.make_vec(ID, num_envs=3, scenario=SHORT, autoreset_mode=mode, **backend)
    env = torchrl.GymWrapper(vector)
    if mode == "Disabled":  # with automatic resets TorchRL reads all information unasked
        env = env.auto_register_info_dict()
    torchrl.check_env_specs(env)
    played = env.rollout(10, break_when_any_done=False)
    assert played["next", "reward"].dtype == torch.float32
    ends = played["next", "truncated"].squeeze(-1)
    assert ends.sum(dim=1).tolist() == [2, 2, 2]
    assert (played["next", "delay"] > 0.0).all()
    # A step that follows an end shows what the reset says.
    assert (played["delay"][:, 1:][ends[:, :-1]] == 0.0).all()
    assert (played["delay"][:, 1:][~ends[:, :-1]] > 0.0).all()


def test_minari_records_the_information(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari", reason="Minari is not installed")
    pytest.importorskip("jax", reason="Minari needs JAX to record")
    pytest.importorskip("h5py", reason="Minari needs h5py to store")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(gym.make(ID, scenario=SHORT), record_infos=True)
    env.action_space.seed(0)
    sent = []
    for seed in range(2):
        sent.append([env.reset(seed=seed)[1]])
        ended = False
        while not ended:
            _, _, terminated, truncated, info = env.step(env.action_space.sample())
            sent[-1].append(info)
            ended = terminated or truncated
    about = {
        "author": "nobody",
        "author_email": "nobody@example.org",
        "code_permalink": "https://example.org",
    }
    dataset = env.create_dataset("collapipe/recorded-v0", ref_min_score=0.0, ref_max_score=1.0, **about)
    stored = list(dataset.iterate_episodes())
    assert [len(episode.rewards) for episode in stored] == [4, 4]
    for episode, infos in zip(stored, sent, strict=True):
        assert set(episode.infos) == set(NAMES)
        for name in NAMES:
            np.testing.assert_array_equal(episode.infos[name], [info[name] for info in infos])

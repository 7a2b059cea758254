"""The benchmarks under Stable-Baselines3 run, compare like with like, and store what they print."""

import json
import multiprocessing
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import ppo_ceiling
import sb3_adapters

from collapipe_env.agents.learned.hyperparameters import PPOParameters
from collapipe_env.envs.sb3 import make_sb3_vec_env
from collapipe_env.scenario import load_scenario

QUICK = ["--slice-seconds", "0.005", "--repeats", "2"]


def make_do_nothing(num_envs=3, **kwargs):
    vector = make_sb3_vec_env("small", num_envs, learner="surrogate").env
    return ppo_ceiling.DoNothing(vector, **kwargs)


def stored(path):
    return {figure["name"]: figure for figure in json.loads(path.read_text())["figures"]}


def test_adapters_run_and_store_their_table(tmp_path, capsys):
    path = tmp_path / "new" / "rates.json"
    arguments = ["--scenarios", "small", "--adapter", "4", "--dummy", "2", "--subproc"]
    sb3_adapters.main([*arguments, *QUICK, "--output", str(path)])
    printed = capsys.readouterr().out
    found = stored(path)
    assert set(found) == {
        "small, native x 4",
        "small, adapter x 4",
        "small, adapter with full info x 4",
        "small, rollouts through the adapter x 4",
        "small, DummyVecEnv x 2",
        "small, adapter over the steps alone x 4",
        "small, rollouts over the steps alone x 4",
    }
    for name, figure in found.items():
        assert name in printed
        assert figure["low"] <= figure["value"] <= figure["high"]
    assert found["small, adapter x 4"]["unit"] == "x CartPole-v1"
    assert found["small, adapter x 4"]["note"].endswith("steps/s")
    assert found["small, rollouts over the steps alone x 4"]["unit"] == "x adapter x 4"


@pytest.mark.slow
def test_subprocesses_are_closed():
    found = sb3_adapters.figures(["small"], [], [], [2], slice_seconds=0.01, repeats=1)
    assert [figure.name for figure in found] == ["small, SubprocVecEnv x 2"]
    assert not [child for child in multiprocessing.active_children() if child.is_alive()]


def test_training_runs_beside_its_ceiling(tmp_path, capsys):
    path = tmp_path / "ceiling.json"
    threads = torch.get_num_threads()
    arguments = ["--scenario", "small", "--num-envs", "2", "--minibatch", "16", "64"]
    ppo_ceiling.main([*arguments, *QUICK, "--output", str(path)])
    assert torch.get_num_threads() == threads
    found = stored(path)
    assert len(found) == 14
    printed = capsys.readouterr().out
    assert all(name in printed for name in found)
    goals = {name: figure["goal"] for name, figure in found.items() if figure["goal"] is not None}
    titles = [f"PPO on small x 2, minibatch {size}" for size in (16, 64)]
    assert goals == {f"{title}, training": 1.15 for title in titles}
    for title in titles:
        shares = [found[f"{title}, share of the {part}"]["value"] for part in ("update", "collection")]
        assert sum(shares) == pytest.approx(1.0)  # two slices: medians are means
        assert found[f"{title}, share of the environment"]["value"] < shares[1]


@pytest.mark.parametrize("truncated", [False, True])
def test_the_ceiling_keeps_to_the_spaces_and_the_episode_length(truncated):
    env = make_do_nothing(truncated=truncated)
    rounds = load_scenario("small").dynamics.rounds
    observations = [env.reset()]
    for step in range(1, 2 * rounds + 1):
        observation, reward, done, infos = env.step(np.zeros((3, 18), dtype=np.float32))
        observations.append(observation)
        assert reward.dtype == np.float32
        assert done.tolist() == [step % rounds == 0] * 3
        for info in infos:
            assert bool(info) == (truncated and done.all())
            assert not info or info["TimeLimit.truncated"]
    for observation in observations[:20]:
        assert env.env.observation_space.contains(observation)


def test_both_train_with_the_same_hyper_parameters():
    parameters = PPOParameters(rollout_steps=4, minibatch=8, epochs=1, hidden_units=(8,))
    vector = make_sb3_vec_env("small", 3, learner="surrogate").env
    runs = [
        ppo_ceiling.Training("a", parameters, kind(vector))
        for kind in (ppo_ceiling.TimedEnv, ppo_ceiling.DoNothing)
    ]
    for run in runs:
        run.play(2)
        run.play(1)
        assert [s.transitions for s in run.slices] == [24, 12]
        for s in run.slices:
            assert 0.0 < s.environment < s.collection < s.training
            assert s.update == s.training - s.collection
        assert len(run.timing("update", repeats=1).seconds) == 1
    models = [run._model for run in runs]
    assert models[0].num_timesteps == models[1].num_timesteps == 36
    for name in ("n_steps", "batch_size", "n_epochs", "gamma", "target_kl"):
        assert getattr(models[0], name) == getattr(models[1], name)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        (sb3_adapters, ["--scenarios", "smal"]),
        (sb3_adapters, ["--adapter", "0"]),
        (sb3_adapters, ["--dummy", "-1"]),
        (sb3_adapters, ["--subproc", "2", "0"]),
        (sb3_adapters, ["--slice-seconds", "nan"]),
        (sb3_adapters, ["--repeats", "0"]),
        (sb3_adapters, ["--output", "."]),
        (ppo_ceiling, ["--scenario", "smal"]),
        (ppo_ceiling, ["--num-envs", "0"]),
        (ppo_ceiling, ["--minibatch", "1"]),
        (ppo_ceiling, ["--slice-seconds", "0"]),
        (ppo_ceiling, ["--repeats", "0"]),
        (ppo_ceiling, ["--output", "."]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value.__name__,
)
def test_bad_options_are_refused(script, arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        script.parse_arguments(arguments)
    assert stop.value.code == 2
    assert arguments[0] in capsys.readouterr().err

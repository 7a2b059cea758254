"""RLlib's PPO on several env runners: its table says what its weights do."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import example_support
import numpy as np
import pytest
import torch
from rllib_ppo import NAME, UNIT, Args, Decisions, create, main

from collapipe_env.envs.wrappers import MagnifiedBacklog

needs_rllib = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("ray", "tree", "lz4")),
    reason="ray[rllib] is not installed",
)


def test_decisions_are_the_means_for_magnified_queues() -> None:
    env = create({"scenario": "small"})
    assert isinstance(env, MagnifiedBacklog)
    assert env.unwrapped.last_round is None
    seen = []

    class Module:
        def forward_inference(self, batch):
            seen.append(batch["obs"])
            mean = torch.arange(6.0).reshape(2, 3)
            return {"action_dist_inputs": torch.cat([mean, torch.full((2, 3), -1.0)], dim=-1)}

    rng = np.random.default_rng(0)
    plain = rng.random((2, *env.observation_space.shape)).astype(np.float32)
    assert (Decisions(Module(), env).predict(plain) == np.arange(6.0).reshape(2, 3)).all()
    layout = env.unwrapped.observation_layout
    factor = np.ones(plain.shape[1], dtype=np.float32)
    for name in ("device_backlog", "cu_backlog"):
        factor[layout[name].slice] = env.unwrapped.scenario.budgets.backlog_cap / UNIT
    assert seen[0].numpy() == pytest.approx(plain * factor)


@pytest.mark.slow
@needs_rllib
# What RLlib and Ray say to each other, and leave open when they end.
@pytest.mark.filterwarnings("ignore")
def test_two_env_runners_train_and_the_table_is_of_their_weights(tmp_path: Path, capsys, monkeypatch) -> None:
    paths = [str(example_support.EXAMPLES), *filter(None, sys.path)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))  # for the env runners
    args = Args(
        iterations=3, envs=2, batch=400, minibatch=100, episodes=1, against=("random",), out=tmp_path / "run"
    )
    result = main(args)
    printed = capsys.readouterr().out
    assert list(result) == ["random", NAME]
    assert "1,200 rounds" in printed
    assert str(tmp_path / "run" / "checkpoint") in printed.splitlines()[-1]

    from ray.rllib.core.rl_module import RLModule

    (folder,) = (tmp_path / "run" / "checkpoint").rglob("learner/rl_module/default_policy")
    module = RLModule.from_checkpoint(str(folder))
    env = create({"scenario": "small"})
    assert isinstance(env, MagnifiedBacklog)
    decisions = Decisions(module, env)
    delay, worst = example_support.played_by_hand(lambda one: decisions.predict(one[None])[0])
    assert result[NAME].delay_mean.mean == pytest.approx(delay)
    assert result[NAME].energy_excess.mean == pytest.approx(worst - 1.0)

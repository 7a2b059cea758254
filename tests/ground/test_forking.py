"""Processes forked from one that has trained or computed with several of PyTorch's threads."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys
import gymnasium as gym
import torch
import collapipe_env
from gymnasium.vector import AsyncVectorEnv

torch.set_num_threads(2)
scenario = {"base": "small", "learning": {"evaluation_samples": 10, "metric_samples": 10}}
make = lambda: gym.make("CollaPipe-v0", scenario=scenario)
env = make()
env.reset(seed=0)
env.action_space.seed(0)
action = env.action_space.sample()
env.step(action)
tensors = gym.make_vec("CollaPipeSurrogate-v0", num_envs=512, scenario="small", backend="torch")
tensors.reset(seed=0)
actions = torch.zeros(tensors.action_space.shape)
tensors.step(actions)
assert torch.ones(1000, 1000).matmul(torch.ones(1000, 1000))[0, 0] == 1000  # all threads are at work

def in_fork(work):
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        work()
        os._exit(7 if torch.get_num_threads() == 1 else 8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, work.__name__

def go_on():
    env.step(action)
    tensors.step(actions)

in_fork(go_on)
workers = AsyncVectorEnv([make], context="fork")
workers.reset(seed=0)
workers.step_async(workers.action_space.sample())
info = workers.step_wait(timeout=30)[4]
assert (info["loss"] > 0).all()
workers.close()
assert torch.get_num_threads() == 2
print("all went on")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_processes_go_on_after_training_with_several_threads():
    environ = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    environ["OMP_WAIT_POLICY"] = "passive"  # threads that wait leave the processors to other tests
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        start_new_session=True,
    )
    assert done.stdout.strip() == "all went on", done.stderr[-2000:]

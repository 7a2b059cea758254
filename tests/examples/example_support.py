"""Examples as modules, and a policy played by hand on held-out episodes."""

import sys
from pathlib import Path

import gymnasium as gym
import numpy as np

import collapipe_env
from collapipe_env.evaluation.episode import HELD_OUT_SEED

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
if str(EXAMPLES) not in sys.path:
    sys.path.insert(0, str(EXAMPLES))

ENVIRONMENT = "CollaPipeSurrogate-Small-v0"
assert collapipe_env.__all__  # the ids are registered


def played_by_hand(decide, episode=0, **options):
    """Mean delay [s] and worst node's mean energy over budget of one held-out episode, round by round."""
    env = gym.make(ENVIRONMENT, **options)
    observation, _ = env.reset(seed=HELD_OUT_SEED + episode)
    delays, ratios, done = [], [], False
    while not done:
        action = np.clip(decide(observation), -1.0, 1.0)
        observation, _, _, done, info = env.step(action)
        delays.append(info["delay"])
        ratios.append(env.unwrapped.last_round.costs.energy_ratio[0])
    return np.mean(delays), np.mean(ratios, axis=0).max()

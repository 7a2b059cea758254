"""Golden trajectories: what every id did when its version was last raised.

Run this file (or ``make golden``) after an intended change of what is shipped, and raise the ids' version.
"""

import json
import os
from pathlib import Path

import gymnasium as gym
import numpy as np

from collapipe_env.envs.registration import environment_ids

FOLDER = Path(__file__).parent
ROUNDS = 3
SEED = 2024
OBSERVATION_SAMPLE = 64


def golden_ids():
    """Ids with a file; their twins with the real learner share the system's part."""
    return [name for name, _ in environment_ids() if "Surrogate" in name]


def play_golden(name):
    """Play a few rounds with fixed random actions; returns plain numbers."""
    env = gym.make(name)
    rng = np.random.default_rng(SEED)
    observation, info = env.reset(seed=SEED)
    stride = -(-observation.size // OBSERVATION_SAMPLE)
    initial_loss, loss = info["loss"], env.unwrapped.observation_layout["loss"].slice
    played = []
    for _ in range(ROUNDS):
        action = rng.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32)
        following, reward, terminated, truncated, info = env.step(action)
        record = env.unwrapped.last_round
        played.append(
            {
                "system": {
                    "delay": info["delay"],
                    "cost": info["cost"],
                    "backlog": info["backlog"],
                    "reward": reward,
                    "cluster_delay": record.costs.cluster_delay[0].tolist(),
                    "cluster_energy_ratio": record.costs.energy_ratio[0].sum(axis=-1).tolist(),
                    "survival": record.costs.survival[0].tolist(),
                    "surviving_fraction": record.surviving_fraction()[0].tolist(),
                    "blocks_moment": float((record.allocation.blocks[0] * _ramp(record)).sum()),
                    "micro_batches": record.allocation.micro_batches[0].tolist(),
                    "ended": [terminated, truncated],
                },
                "loss": info["loss"],
                # All but one entry, the loss, is the system's.
                "observation": np.delete(observation, loss)[::stride].tolist(),
            }
        )
        observation = following
    return {"id": name, "seed": SEED, "initial_loss": initial_loss, "rounds": played}


def _ramp(record):
    return 1.0 + np.arange(record.allocation.blocks.shape[-1])


def write_golden(name):
    """Write the file of an id, under another name first so that no half-written file is left behind."""
    path = FOLDER / f"{name}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(play_golden(name), indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)
    return path


if __name__ == "__main__":
    for one in golden_ids():
        print(write_golden(one))

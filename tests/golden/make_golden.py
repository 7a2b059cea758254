"""Golden trajectories: what every id did when its version was last raised.

Run this file (or ``make golden``) after an intended change of what is shipped, and raise the ids' version.
The folder ``unpriced`` holds longer trajectories in the same scenarios without overheads, so that a change of
formulas is told from one of prices. They are older than the prices, and only ``--unpriced`` writes them anew.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np

from collapipe_env.envs.registration import TIERS, environment_ids

FOLDER = Path(__file__).parent
UNPRICED = FOLDER / "unpriced"
ROUNDS = {FOLDER: 3, UNPRICED: 5}
SEED = 2024
OBSERVATION_SAMPLE = 64
YOUNGER = (
    *("-Boards-v0", "-Phones-v0", "-LM-v0", "-TraceLike-v0"),
    *(f"-{tier.capitalize()}-v0" for tier in TIERS),
)
"""Ids that are younger than the prices."""
FORMER_LAYOUT = 13
"""Layout of the scenario medium before it had prices."""

sys.path.insert(0, str(FOLDER.parent))

from unpriced_support import unpriced  # noqa: E402


def golden_ids(folder=FOLDER):
    """Ids with a file in the folder; their twins with the real learner share the system's part."""
    ids = [name for name, _ in environment_ids() if "Surrogate" in name]
    return [name for name in ids if folder == FOLDER or not name.endswith(YOUNGER)]


def play_golden(name, folder=FOLDER):
    """Play a few rounds with fixed random actions; returns plain numbers."""
    env = gym.make(name)
    if folder == UNPRICED:
        scenario = unpriced(env.unwrapped.scenario)
        if scenario.cluster.clusters == 4:
            scenario = scenario.with_overrides({"cluster.layout_seed": FORMER_LAYOUT})
        env = gym.make(name, scenario=scenario)
    rng = np.random.default_rng(SEED)
    observation, info = env.reset(seed=SEED)
    stride = -(-observation.size // OBSERVATION_SAMPLE)
    initial_loss, loss = info["loss"], env.unwrapped.observation_layout["loss"].slice
    played = []
    for _ in range(ROUNDS[folder]):
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


def write_golden(name, folder=FOLDER):
    """Write the file of an id, under another name first so that no half-written file is left behind."""
    path = folder / f"{name}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(play_golden(name, folder), indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--unpriced", action="store_true", help="write the folder `unpriced` instead")
    where = UNPRICED if parser.parse_args().unpriced else FOLDER
    for one in golden_ids(where):
        print(write_golden(one, where))

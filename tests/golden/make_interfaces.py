"""The interface of every id: spaces, names in observations and infos, scenario and horizon.

Run this file only after a change that raises the ids' version: what is stored is what trained policies and
stored results rely on. Bounds are short hashes of their different values.
"""

import hashlib
import json
import os
from itertools import chain
from pathlib import Path

import gymnasium as gym
import numpy as np

from collapipe_env.envs.registration import environment_ids, multi_objective_ids
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.loading import scenario_digest

FILE = Path(__file__).parent / "interfaces" / "interfaces.json"
SEED = 2024


def registered():
    """Every id, with the scenario and the learner that it stands for."""
    ids = sorted(name for name in gym.registry if name.startswith("CollaPipe"))
    return {
        name: {
            "scenario": digest(scenario_digest(load_scenario(gym.spec(name).kwargs["scenario"])).encode()),
            "learner": gym.spec(name).kwargs["learner"],
            "class": gym.spec(name).entry_point.rpartition(":")[2],
        }
        for name in ids
    }


def named():
    """Every id that the package says it has."""
    return {name for name, _ in chain(environment_ids(), multi_objective_ids())}


def surrogates():
    """One id for each system; the twins with real training have the same interface but for a metric."""
    return [name for name in sorted(named()) if "Surrogate" in name]


def digest(content):
    return hashlib.sha256(content).hexdigest()[:16]


def box(space):
    # Four digits: the last ones differ between processors.
    bounds = " ".join(f"{bound:.4g}" for end in (space.low, space.high) for bound in np.unique(end))
    return {"shape": list(space.shape), "dtype": str(space.dtype), "bounds": digest(bounds.encode())}


def interface(name):
    """What a policy meets under an id."""
    env = gym.make(name).unwrapped
    graph = gym.make(name, observation="graph").observation_space
    _, begun = env.reset(seed=SEED)
    _, reward, _, _, info = env.step(np.zeros(env.action_space.shape, np.float32))
    layout = env.observation_layout
    return {
        "action": box(env.action_space),
        "observation": box(env.observation_space),
        "entries": {part: [feature.slice.start, feature.slice.stop] for part, feature in layout.items()},
        "graph": {key: box(space) for key, space in graph.items()},
        "info": {"reset": sorted(begun), "step": sorted(info)},
        "rounds": env.rounds,
        "reward": [round(float(part), 6) for part in np.atleast_1d(reward)] if "MO" in name else "one number",
    }


def write():
    content = {"ids": registered(), "interfaces": {name: interface(name) for name in surrogates()}}
    FILE.parent.mkdir(exist_ok=True)
    part = FILE.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(part, FILE)


if __name__ == "__main__":
    write()
    print(FILE)

"""Golden trajectories: what every id did when its version was last raised, and what no id reaches.

Run this file (or ``make golden``) after an intended change of what is shipped, and raise the ids' version.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np

from collapipe_env.envs.registration import environment_ids
from collapipe_env.physics.allocation import with_schedule
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE, DECISIONS

FOLDER = Path(__file__).parent
ROUNDS = 3
SEED = 2024
OBSERVATION_SAMPLE = 64
_UNPRICED = [name for name in DECISIONS if name not in ("schedule", "server_blocks")]
_OFTEN = {"on_mean_s": 60, "off_mean_s": 10, "graceful": 0.2}
UNSHIPPED = {
    "all-decisions": {"base": "small", "decisions": [*DECISIONS]},
    "all-decisions-wild": {
        "base": "small-wild",
        "decisions": [*DECISIONS],
        "budgets": {"per": "second"},
        "dynamics": {"processes": {"presence": {**_OFTEN, "replication": "next_stage"}}},
    },
    "cluster-decisions": {"base": "small", "decisions": _UNPRICED, "workload": {"head": "common"}},
    "relay": {
        "base": "medium",
        "workload": {"distribution": "relay", "head": "common", "local_steps": 3},
        "radio": {"link_errors": "arq"},
        "budgets": {"device_energy_j": 40},
    },
    "groups": {"base": "medium", "decisions": [*COLLAPIPE, "participation"]},
    "groups-wild": {"base": "small-wild", "dynamics": {"processes": {"presence": _OFTEN}}},
    "per-second": {"base": "medium", "budgets": {"per": "second"}, "server": {"terms": "metered"}},
}
"""Scenarios of what no id opens, by name; those called groups play plans that the box cannot say."""
GROUP_SCHEDULES = ("gpipe", "1f1b", "zb-h1")
"""Their schedule in each round."""


def golden_ids():
    """Ids and scenarios with a file; ids with the real learner share the system's part of the surrogate's."""
    return [name for name, _ in environment_ids() if "Surrogate" in name] + [*UNSHIPPED]


def grouped(env, action, schedule):
    """The plan of an action with a second device in one stage of each cluster where one has the memory."""
    codec, state = env.codec, env.state
    parts = codec.split(action[None])
    parts["segments"][..., -1] = -1.0
    plan = codec.decode(codec.join(parts), state.memory_cap, state.memory_bytes)
    plan = replace(plan, **plan.groups._asdict())
    for e, n in np.ndindex(plan.micro_batches.shape):
        held, cap = plan.blocks[e, n], state.memory_cap[e, n]
        room = (held[:, None] > 0) & (held == 0) & (cap >= held[:, None])
        if room.any():
            first, second = np.argwhere(room)[0]
            plan.stage[e, n, second] = first
            plan.sample_share[e, n, [first, second]] = 0.6, 0.4
    return with_schedule(plan, schedule, 2)


def play_golden(name, **kwargs):
    """Play a few rounds with fixed random actions; returns plain numbers."""
    own = UNSHIPPED.get(name)
    env = gym.make("CollaPipeSurrogate-v0", scenario=load_scenario(own)) if own else gym.make(name, **kwargs)
    rng = np.random.default_rng(SEED)
    observation, info = env.reset(seed=SEED)
    stride = -(-observation.size // OBSERVATION_SAMPLE)
    initial_loss, loss = info["loss"], env.unwrapped.observation_layout["loss"].slice
    played = []
    for _ in range(ROUNDS):
        action = rng.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32)
        if name.startswith("groups"):
            plan = grouped(env.unwrapped, action, GROUP_SCHEDULES[len(played)])
            following, reward, terminated, truncated, info = env.unwrapped.step_allocation(plan)
        else:
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

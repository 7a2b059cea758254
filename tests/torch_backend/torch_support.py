"""What the tests of the torch backend share: scenarios, pairs of environments, and played trajectories."""

import numpy as np
import pytest
from unpriced_support import NO_OVERHEADS

from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.scenario.decision_names import COLLAPIPE

ROUNDS = 3

VARIANTS = {
    "small": {"base": "small"},
    "medium": {"base": "medium"},
    "none": {"base": "small", "radio": {"link_errors": "none"}, "overheads": NO_OVERHEADS},
    "arq": {
        "base": "small",
        "radio": {"link_errors": "arq", "diversity": 1},
        "workload": {"local_steps": 3},
        "overheads": NO_OVERHEADS,
        "budgets": {"device_energy_j": 24, "cu_energy_j": 3},
    },
    "moving": {  # everything that is drawn anew or remembered
        "base": "small",
        "cluster": {"layout": "per_episode"},
        "radio": {"fading_correlation": 0.7, "d2e_shadowing_db": 8.0, "d2d_shadowing_db": 4.0},
        "dynamics": {"load_levels": [0.5, 0.75, 1.0], "load_stay_probability": 0.6},
        "budgets": {"device_energy_j": 6, "cu_energy_j": 1.5},
    },
    "uneven": {
        "base": "medium",
        "cluster": {"devices": [5, 3, 4, 5]},
        "workload": {"local_steps": 2},
        "budgets": {"device_energy_j": 40, "cu_energy_j": 4},
    },
    "decided": {  # plans say where activations are recomputed
        "base": "small",
        "decisions": ["segments", "micro_batches", "bandwidth", "powers", "recompute"],
        "cluster": {"layout": "per_episode"},
    },
    "opened": {  # plans also say how micro-batches run and what the server runs
        "base": "small",
        "decisions": [*COLLAPIPE, "recompute", "schedule", "server_blocks"],
        "cluster": {"devices": [3, 2], "layout": "per_episode"},
        "budgets": {"device_energy_j": 20},
    },
    "moments": {"base": "small", "dynamics": {"processes": {"migration": {}}}},
    "priced": {  # overheads of passes and messages, radios that draw more than they emit
        "base": "small",
        "devices": {
            "profiles": [
                {"name": "phone", "switched_capacitance": 1e-27},
                {"name": "board", "flops_per_cycle": 32, "active_power_w": 6.0},
            ]
        },
        "radio": {
            "snr_cap_db": 30,
            "d2d_circuit_w": 1.0,
            "edge_circuit_w": 1.8,
            "amplifier_efficiency": 0.35,
            "receive_w": 1.0,
        },
        "overheads": {
            "block_s": 0.003,
            "update_s": 0.005,
            "message_s": 0.001,
            "header_bits": 1000,
            "latency_s": 0.003,
            "edge_message_s": 0.001,
            "edge_latency_s": 0.015,
            "server_s": 0.0005,
        },
        "budgets": {"device_energy_j": 40, "cu_energy_j": 20},
    },
    "relayed": {  # CUs send new weights on, local steps wait for each other
        "base": "small",
        "workload": {"local_steps": 3, "distribution": "relay", "head": "common"},
        "radio": {"d2d_circuit_w": 0.5, "receive_w": 0.5},
        "budgets": {"device_energy_j": 60, "cu_energy_j": 20},
    },
    "walking": {  # devices move, and what depends on where they are
        "base": "small",
        "cluster": {"devices": [3, 2], "layout": "per_episode"},
        "radio": {"d2d_shadowing_db": 4.0},
        "dynamics": {"processes": {"mobility": {}}},
        "budgets": {"device_energy_j": 20},
    },
    "contended": {  # other tenants come and go on the server, whose energy has a budget
        "base": "small",
        "cluster": {"server_flops": 1e10},
        "server": {"terms": "contended"},
    },
    "skewed": {  # the parts of the surrogate that other variants leave out
        "base": "small",
        "learning": {"partition": "dirichlet", "schedule": "cosine", "warmup_steps": 1},
    },
}

HOPELESS = pytest.mark.filterwarnings("ignore::collapipe_env.feasibility.EnergyBudgetWarning")
"""For tests of ``arq``: without diversity some uplinks hardly ever deliver, and no budget covers that."""
NAMES = [pytest.param(name, marks=HOPELESS) if name == "arq" else name for name in VARIANTS]


def scenario_of(name, rounds=ROUNDS, **dynamics):
    """A variant with shorter episodes."""
    variant = VARIANTS[name]
    return {**variant, "dynamics": {**variant.get("dynamics", {}), "rounds": rounds, **dynamics}}


def make_torch(name="small", num_envs=3, rounds=ROUNDS, **kwargs):
    return CollaPipeTorchVectorEnv(num_envs, scenario_of(name, rounds), **kwargs)


def make_pair(scenario, num_envs=3, **kwargs):
    """The NumPy environment and its twin on tensors."""
    return (
        CollaPipeVectorEnv(num_envs, scenario, "surrogate", **kwargs),
        CollaPipeTorchVectorEnv(num_envs, scenario, **kwargs),
    )


def random_actions(env, count, seed=0):
    """Random actions (count, E, A), of which some entries are at the bounds."""
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-1.2, 1.2, (count, *env.action_space.shape))
    return np.clip(actions, -1.0, 1.0).astype(np.float32)


def trajectory(env, actions, **reset):
    """All tensors that a run hands out: observations, rewards, ends and delays."""
    out = [env.reset(**reset)[0]]
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        out += [observation, reward, terminated, truncated, info["delay"]]
    return out


def arrays_of(state):
    """Arrays of a state by name, those that processes show included."""
    for name, value in state.__getstate__().items():
        if name == "processes":
            for process, carried in value.items():
                yield from ((f"{process}/{key}", array) for key, array in carried.items())
        elif value is not None:
            yield name, value

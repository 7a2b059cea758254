"""What the tests of the environments share: scenario variants, actions, and played episodes."""

import numpy as np

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.scenario.decision_names import COLLAPIPE

VARIANTS = {
    "small": "small",
    "medium": "medium",
    "moving": {  # everything that is drawn anew or remembered
        "base": "small",
        "cluster": {"layout": "per_episode"},
        "radio": {"fading_correlation": 0.7, "d2e_shadowing_db": 8.0, "d2d_shadowing_db": 4.0},
        "dynamics": {"load_levels": [0.5, 0.75, 1.0], "load_stay_probability": 0.6},
        "budgets": {"device_energy_j": 6, "cu_energy_j": 1.5},
    },
    "uneven": {
        "base": "medium",
        "cluster": {"devices": [5, 3, 4, 5], "layout": "per_episode"},
        "budgets": {"device_energy_j": 20},
    },
    "decided": {  # plans say where activations are recomputed
        "base": "small",
        "decisions": ["segments", "micro_batches", "bandwidth", "powers", "recompute"],
    },
    "opened": {  # plans also say how micro-batches run and what the server runs
        "base": "small",
        "decisions": [*COLLAPIPE, "recompute", "schedule", "server_blocks"],
        "cluster": {"devices": [3, 2], "layout": "per_episode"},
        "budgets": {"device_energy_j": 20},
    },
    "walking": {  # devices move, and shadowing with them
        "base": "small",
        "cluster": {"devices": [3, 2], "layout": "per_episode"},
        "radio": {"d2d_shadowing_db": 4.0},
        "dynamics": {"processes": {"mobility": {}}},
        "budgets": {"device_energy_j": 20},
    },
    "arq": {
        "base": "small",
        "radio": {"link_errors": "arq"},
        "workload": {"local_steps": 3},
        "budgets": {"device_energy_j": 24, "cu_energy_j": 3},
    },
}


def shortened(name, rounds):
    """A variant with shorter episodes."""
    variant = VARIANTS[name]
    base = {"base": variant} if isinstance(variant, str) else variant
    return {**base, "dynamics": {**base.get("dynamics", {}), "rounds": rounds}}


def make_env(name="small", rounds=5, **kwargs):
    return CollaPipeEnv(scenario=shortened(name, rounds), **{"learner": "surrogate", **kwargs})


def make_actions(env, count, seed=0, lead=()):
    """Random actions (count, *lead, A), of which some entries are at the bounds."""
    space = getattr(env, "single_action_space", env.action_space)
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-1.2, 1.2, (count, *lead, *space.shape))
    return np.clip(actions, -1.0, 1.0).astype(np.float32)


def play(env, actions, seed):
    """One episode, or as far as the actions go: lists of observations, rewards, ends and infos."""
    observation, _ = env.reset(seed=seed)
    observations, rewards, ends, infos = [observation], [], [], []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        observations.append(observation)
        rewards.append(reward)
        ends.append((terminated, truncated))
        infos.append(info)
        if terminated or truncated:
            break
    return np.array(observations), rewards, ends, infos


class ConstantLearner:
    """Counts down from a first loss by a fixed amount a round: makes targets predictable."""

    def __init__(self, first=1.0, step=0.1):
        self.first, self.step = np.atleast_1d(first), step

    def reset(self, rngs, mask=None):  # noqa: ARG002
        self.loss = self.first
        return self._report()

    def train_round(self, outcome):  # noqa: ARG002
        self.loss = self.loss - self.step
        return self._report()

    def _report(self):
        from collapipe_env.simulator.learner import LearningReport

        return LearningReport(loss=self.loss, metric=np.full_like(self.loss, 0.5), train_loss=self.loss)

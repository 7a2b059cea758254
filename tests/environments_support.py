"""What tests of the environments share: scenarios, every way to be an environment, and results row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import DictInfoToList
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from unpriced_support import NO_OVERHEADS

from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.sb3 import CollaPipeVecEnv
from collapipe_env.envs.torch_vector import CollaPipeTorchVectorEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.envs.views.cost_apart import CostApart, VectorCostApart
from collapipe_env.envs.views.objectives import MultiObjectiveEnv, MultiObjectiveVectorEnv
from collapipe_env.envs.wrappers import MultiDiscreteActions
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.simulator.learner import LearningReport

ROWS = 3
MODES = ("NextStep", "SameStep", "Disabled")

MOVING: dict[str, Any] = {  # everything that is drawn anew or remembered
    "base": "small",
    "cluster": {"layout": "per_episode"},
    "radio": {"fading_correlation": 0.7, "d2e_shadowing_db": 8.0, "d2d_shadowing_db": 4.0},
    "dynamics": {"load_levels": [0.5, 0.75, 1.0], "load_stay_probability": 0.6},
    "budgets": {"device_energy_j": 20, "cu_energy_j": 200},
}
FEWER = {"devices": [3, 2], "layout": "per_episode"}
ABSENT = [*COLLAPIPE, "participation", "local_steps"]
WAITS = {"local_steps": 3, "distribution": "relay", "head": "common"}
"""New weights go through the CUs, and local steps wait for each other."""
VARIANTS: dict[str, dict[str, Any]] = {
    "small": {"base": "small"},
    "medium": {"base": "medium"},
    "moving": MOVING,
    "migrating": {**MOVING, "dynamics": {**MOVING["dynamics"], "processes": {"migration": {}}}},
    "uneven": {
        "base": "medium",
        "cluster": {"devices": [5, 3, 4, 5], "layout": "per_episode"},
        "budgets": {"device_energy_j": 20, "cu_energy_j": 13},
    },
    "decided": {
        "base": "small",
        "decisions": [*COLLAPIPE, "recompute"],
        "cluster": {"layout": "per_episode"},
        "budgets": {"device_energy_j": 12, "cu_energy_j": 14},
    },
    "opened": {
        "base": "small",
        "decisions": [*COLLAPIPE, "recompute", "schedule", "server_blocks"],
        "cluster": FEWER,
        "budgets": {"device_energy_j": 25, "cu_energy_j": 14},
    },
    "walking": {
        "base": "small",
        "cluster": FEWER,
        "radio": {"d2d_shadowing_db": 4.0},
        "dynamics": {"processes": {"mobility": {}}},
        "budgets": {"device_energy_j": 25, "cu_energy_j": 14},
    },
    "arq": {
        "base": "small",
        "radio": {"link_errors": "arq"},
        "workload": {"local_steps": 3},
        "budgets": {"device_energy_j": 24, "cu_energy_j": 9},
    },
    "none": {"base": "small", "radio": {"link_errors": "none"}, "overheads": NO_OVERHEADS},
    "relayed": {
        "base": "small",
        "workload": WAITS,
        "radio": {"d2d_circuit_w": 0.5, "receive_w": 0.5},
        "overheads": {"header_bits": 1000},
        "budgets": {"device_energy_j": 60, "cu_energy_j": 20},
    },
    "priced": {  # overheads and radios of every kind
        "base": "small",
        "devices": {
            "profiles": [
                {"name": "phone", "switched_capacitance": 1e-27},
                {"name": "board", "flops_per_cycle": 32, "active_power_w": 6.0},
            ]
        },
        "radio": {
            **{"rate_ceiling": 6.7, "link_errors": "arq", "d2d_circuit_w": 1.0, "edge_circuit_w": 1.8},
            **{"amplifier_efficiency": 0.35, "receive_w": 0.7},
        },
        "workload": WAITS,
        "overheads": {
            **{"block_s": 0.004, "update_s": 0.005, "message_s": 0.002, "latency_s": 0.003},
            **{"edge_message_s": 0.006, "edge_latency_s": 0.015, "server_s": 0.0007},
        },
        "dynamics": {"processes": {"migration": {"route": "cu"}}},
        "budgets": {"device_energy_j": 200, "cu_energy_j": 50},
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
    "absent": {  # clusters may sit out, and take as many local steps as they like
        "base": "small",
        "decisions": ABSENT,
        "radio": {"link_errors": "drop", "waterfall_threshold": 5.0},
        "learning": {"partition": "dirichlet", "schedule": "linear", "warmup_steps": 3},
    },
    "absent_common": {
        "base": "small",
        "decisions": ABSENT,
        "workload": {"head": "common"},
        "budgets": {"per": "second"},
        "dynamics": {"processes": {"migration": {}}},
    },
}
TINY: dict[str, Any] = {  # trains a model in milliseconds
    "base": "small",
    "workload": {"blocks": 2, "batch_size": 4},
    "learning": {
        "proxy": {"width": 8, "feedforward": 8, "heads": 2, "sequence_length": 6, "vocabulary": 100},
        **{"evaluation_samples": 8, "evaluate_every": 2, "metric_every": 2},
    },
    "dynamics": {"rounds": 3},
}


def shortened(name: str, rounds: int = 4, **dynamics: Any) -> dict[str, Any]:
    """A variant with shorter episodes."""
    variant = VARIANTS[name]
    return {**variant, "dynamics": {**variant.get("dynamics", {}), "rounds": rounds, **dynamics}}


def single(scenario: Any = "moving", rounds: int = 4, *first: Any, **given: Any) -> Any:
    """An environment of a variant, or of another scenario."""
    scenario = shortened(scenario, rounds) if isinstance(scenario, str) else scenario
    return given.pop("kind", CollaPipeEnv)(*first, scenario, **{"learner": "surrogate", **given})


def levels(*args: Any, **given: Any) -> Any:
    return MultiDiscreteActions(single(*args, **given))


def cost_apart(*args: Any, **given: Any) -> Any:
    return CostApart(single(*args, **given))


def objectives(*args: Any, **given: Any) -> Any:
    return single(*args, kind=MultiObjectiveEnv, **given)


def agents(*args: Any, credit: str = "round", **given: Any) -> Any:
    from collapipe_env.envs.views.cluster_agents import ClusterAgents  # needs PettingZoo

    return ClusterAgents(single(*args, **given), credit)


def vector(scenario: Any = "moving", rounds: int = 4, num_envs: int = ROWS, **given: Any) -> Any:
    return single(scenario, rounds, num_envs, **{"kind": CollaPipeVectorEnv, **given})


def on_tensors(*args: Any, **given: Any) -> Any:
    return vector(*args, kind=CollaPipeTorchVectorEnv, **given)


def vector_objectives(*args: Any, **given: Any) -> Any:
    return vector(*args, kind=MultiObjectiveVectorEnv, **given)


def vector_cost_apart(*args: Any, **given: Any) -> Any:
    return VectorCostApart(vector(*args, **given))


def adapted(*args: Any, info: str = "full", **given: Any) -> Any:
    return CollaPipeVecEnv(vector(*args, **{"autoreset_mode": "SameStep", **given}), info)


KINDS = {
    kind.__name__: kind
    for kind in (
        *(single, levels, cost_apart, objectives, agents),
        *(vector, on_tensors, vector_objectives, vector_cost_apart, adapted),
    )
}
"""Every way to be an environment, of one row or of several."""
BATCHED = ("vector", "on_tensors", "vector_objectives", "vector_cost_apart", "adapted")


def sync(
    *args: Any, autoreset_mode: str = "NextStep", num_envs: int = ROWS, learners: Any = None, **given: Any
) -> Any:
    """Gymnasium's vector environment over our single ones."""
    each = learners or [given.pop("learner", "surrogate")] * num_envs
    singles = [lambda one=one: single(*args, learner=one, **given) for one in each]
    return SyncVectorEnv(singles, autoreset_mode=autoreset_mode)


def dummy(*args: Any, num_envs: int = ROWS, **given: Any) -> Any:
    """Stable-Baselines3's vector environment over our single ones."""
    return DummyVecEnv([lambda: single(*args, **given)] * num_envs)


def adapter_and_dummy(rounds: int = 3, seed: int = 0, info: str = "full", **given: Any) -> tuple[Any, Any]:
    """Ours and theirs for Stable-Baselines3 on the small scenario, seeded alike."""
    both = adapted("small", rounds, info=info, **given), dummy("small", rounds, **given)
    for env in both:
        env.seed(seed)
    return both


def make_actions(env: Any, count: int, seed: int = 0) -> np.ndarray:
    """Random actions of all rows (count, ...), of which some entries are at the bounds."""
    if hasattr(env, "possible_agents"):
        return make_actions(env.env, count, seed)
    rng = np.random.default_rng(seed)
    if hasattr(env.action_space, "nvec"):
        return rng.integers(env.action_space.nvec, size=(count, *env.action_space.shape))
    rows = (env.num_envs,) if isinstance(env, VecEnv) else ()
    actions = rng.uniform(-1.2, 1.2, (count, *rows, *env.action_space.shape))
    return np.clip(actions, -1.0, 1.0).astype(np.float32)


class Player:
    """Resets and steps an environment of any kind; what it says becomes one dictionary a row."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.batched = isinstance(env, VectorEnv | VecEnv)
        self.mode = AutoresetMode.DISABLED if not self.batched else AutoresetMode.SAME_STEP
        if isinstance(env, VectorEnv):
            self.mode = env.metadata["autoreset_mode"]

    @property
    def inner(self) -> Any:
        """The environment that holds the state."""
        if isinstance(self.env, CollaPipeVecEnv):
            return self.env.env
        return (self.env.env if hasattr(self.env, "possible_agents") else self.env).unwrapped

    @property
    def space(self) -> Any:
        """Space of one row's observations."""
        if hasattr(self.env, "state_space"):
            return self.env.state_space
        return getattr(self.env, "single_observation_space", self.env.observation_space)

    def reset(self, seed: Any = None, mask: Any = None) -> list[dict[str, Any]]:
        if isinstance(self.env, VecEnv):
            if seed is not None:
                self.env.seed(seed)
            return self._rows(self.env.reset(), infos=self.env.reset_infos)
        options = {} if mask is None or not self.batched else {"options": {"reset_mask": np.array(mask)}}
        observation, info = self.env.reset(seed=seed, **options)
        if hasattr(self.env, "possible_agents"):
            return [{"observation": self.env.state(), "agents": observation, "info": info}]
        return self._rows(observation, infos=info)

    def step(self, action: Any, play: Any = None) -> list[dict[str, Any]]:
        """Play an action, or what another method than ``step`` takes."""
        if hasattr(self.env, "possible_agents"):
            names = self.env.possible_agents
            parts = zip(names, np.split(action, len(names)), strict=True)
            seen, reward, terminated, truncated, info = self.env.step(dict(parts))
            ends = {"terminated": terminated[names[0]], "truncated": truncated[names[0]]}
            return [{"observation": self.env.state(), "agents": seen, "reward": reward, **ends, "info": info}]
        observation, *numbers, info = (play or self.env.step)(action)
        names = ("reward", "done")
        if not isinstance(self.env, VecEnv):
            names = ("reward", *(["cost"] if len(numbers) == 4 else []), "terminated", "truncated")
        return self._rows(observation, infos=info, **dict(zip(names, numbers, strict=True)))

    def go_on(self, actions: Any) -> list[list[dict[str, Any]]]:
        """Everything that is said from here on, over ends of episodes."""
        said = []
        for action in actions:
            said.append(self.step(action))
            if self.mode is AutoresetMode.DISABLED and any(done := self.done(said[-1])):
                said.append(self.reset(mask=done))
        return said

    @staticmethod
    def done(rows: list[dict[str, Any]]) -> list[bool]:
        return [bool(row.get("done", False) or row.get("terminated") or row.get("truncated")) for row in rows]

    def summaries(self) -> list[dict[str, Any]]:
        """Of the running and of the last ended episode of each row."""
        env, found = self.env, []
        for name in ("summary", "ended_summary"):
            if isinstance(env, VecEnv):
                found.append(env.env_method(name))
            elif isinstance(env, SyncVectorEnv):
                found.append([getattr(one, name)() for one in env.envs])
            else:
                rows = [(row,) for row in range(env.num_envs)] if self.batched else [()]
                found.append([getattr(self.inner, name)(*row) for row in rows])
        return [{"now": now, "ended": ended} for now, ended in zip(*found, strict=True)]

    def _rows(self, observation: Any, *, infos: Any, **numbers: Any) -> list[dict[str, Any]]:
        if not self.batched:
            return [{"observation": observation, **numbers, "info": infos}]
        observation, numbers, infos = on_host((observation, numbers, infos))
        if isinstance(infos, dict):
            check_masks(infos, self.env.num_envs)
            infos = DictInfoToList(self.env)._convert_info_to_list(infos)
        rows = []
        for row, info in enumerate(infos):
            info.get("episode", {}).pop("t", None)  # seconds that have passed
            own = {name: values[row] for name, values in numbers.items()}
            rows.append({"observation": row_of(observation, row), **own, "info": info})
        return rows


def row_of(observation: Any, row: int) -> Any:
    if isinstance(observation, dict):
        return {name: part[row] for name, part in observation.items()}
    return observation[row]


def on_host(value: Any) -> Any:
    """The same with arrays of NumPy's in place of tensors."""
    if isinstance(value, dict):
        return {name: on_host(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(on_host(part) for part in value)
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def check_masks(info: dict[str, Any], envs: int) -> None:
    """Every entry has its mask, of the right type and shape; a value where the mask is False is no matter."""
    for key, value in info.items():
        if key.startswith("_"):
            assert key[1:] in info, f"{key} masks nothing"
            continue
        mask = info[f"_{key}"]
        assert (mask.shape, mask.dtype) == ((envs,), np.bool_), key
        if isinstance(value, dict):
            check_masks(value, envs)
        else:
            assert len(value) == envs, key


SINGLE = {"rtol": 1e-6, "atol": 1e-6}
EXACT = {"rtol": 1e-9, "atol": 1e-12}
"""Closeness of what is rounded to single precision, and of the rest."""


def assert_close(found: Any, expected: Any, exact: bool = True, place: str = "") -> None:
    """What was said is the same: bit for bit, or but for the order of operations."""
    if isinstance(expected, dict):
        assert set(found) == set(expected), place
        for name, part in expected.items():
            assert_close(found[name], part, exact, f"{place}/{name}")
    elif isinstance(expected, tuple | list):
        for row, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_close(one, other, exact, f"{place}/{row}")
    elif exact:
        assert np.asarray(found).dtype == np.asarray(expected).dtype, place
        np.testing.assert_array_equal(found, expected, err_msg=place)
    else:
        rounded = any(name in place for name in ("observation", "final_obs", "reward"))
        np.testing.assert_allclose(found, expected, err_msg=place, **(SINGLE if rounded else EXACT))


class SteadyLearner:
    """Loses a fixed amount a round, each row by itself, so that rows reach a target at different times."""

    def __init__(self, first: Any = 1.0, step: float = 0.1) -> None:
        self.first, self.step = np.atleast_1d(np.asarray(first, dtype=np.float64)), step
        self.loss = self.first

    def reset(self, rngs: Any, mask: Any = None) -> LearningReport:  # noqa: ARG002
        rows = slice(None) if mask is None else mask
        self.loss = self.loss.copy()
        self.loss[rows] = self.first[rows]
        return self._report()

    def train_round(self, outcome: Any) -> LearningReport:  # noqa: ARG002
        self.loss = self.loss - self.step
        return self._report()

    def _report(self) -> LearningReport:
        return LearningReport(self.loss, metric=np.full_like(self.loss, 0.5), train_loss=self.loss)

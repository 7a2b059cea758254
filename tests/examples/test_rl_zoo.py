"""RL Zoo's files hold the settings measured for one network on the whole observation, in the Zoo's form."""

import importlib
from typing import Any

import example_support
import gymnasium as gym
import numpy as np
import pytest
import yaml
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env

from collapipe_env.agents.learned.hyperparameters import (
    PPOParameters,
    SACParameters,
    fitting_minibatch,
    initial_learning_rate,
    usual,
)
from collapipe_env.agents.learned.sb3_models import policy_options
from collapipe_env.cli.train_options import DEFAULT_ENVS, DEFAULT_STEPS
from collapipe_env.envs.wrappers import MagnifiedBacklog
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec

MLP = {
    "ppo": usual(
        PPOParameters,
        policy="mlp", credit="round", rollout_steps=32, minibatch=512, epochs=4,
        hidden_units=(256, 256),
    ),
    "sac": usual(SACParameters, policy="mlp", hidden_units=(256, 256)),
}  # fmt: skip
FOLDER = example_support.EXAMPLES / "rl_zoo" / "hyperparams"


def entries(algorithm: str) -> dict[str, dict[str, Any]]:
    """Hyper-parameters of every id, read as the Zoo reads them."""
    content = yaml.safe_load((FOLDER / f"{algorithm}.yml").read_text(encoding="utf-8"))
    content.pop("default")  # the Zoo never looks for an id of that name
    return content


CASES = [(algorithm, name) for algorithm in ("ppo", "sac") for name in entries(algorithm)]


def scenario_of(name: str):
    """The scenario of an id."""
    return load_scenario(gym.spec(name).kwargs.get("scenario", "medium"))


def in_common(algorithm: str, parameters: PPOParameters | SACParameters, name: str) -> dict[str, Any]:
    """What the Zoo is to be told for an id, in the code's terms."""
    size = action_codec(scenario_of(name)).action_size
    wanted = {
        "n_envs": DEFAULT_ENVS["surrogate"],
        "n_timesteps": DEFAULT_STEPS[algorithm, "surrogate"],
        "policy": "MlpPolicy",
        "env_wrapper": [{"collapipe_env.envs.wrappers.MagnifiedBacklog": {"unit": parameters.backlog_unit}}],
        "gamma": parameters.gamma,
    }
    if isinstance(parameters, PPOParameters):
        transitions = DEFAULT_ENVS["surrogate"] * parameters.rollout_steps
        return wanted | {
            "learning_rate": initial_learning_rate(parameters, size, scenario_of(name).clusters),
            "n_steps": parameters.rollout_steps,
            "batch_size": fitting_minibatch(parameters.minibatch, transitions),
            "n_epochs": parameters.epochs,
            "gae_lambda": parameters.gae_lambda,
            "clip_range": parameters.clip_range,
            "ent_coef": parameters.entropy_coefficient,
            "vf_coef": parameters.value_coefficient,
            "max_grad_norm": parameters.max_gradient_norm,
            "policy_kwargs": {
                "log_std_init": parameters.initial_log_std,
                "net_arch": list(parameters.hidden_units),
            },
        }
    return wanted | {
        "learning_rate": parameters.learning_rate,
        "buffer_size": parameters.buffer_size,
        "learning_starts": parameters.learning_starts,
        "batch_size": parameters.minibatch,
        "train_freq": 1,
        "gradient_steps": parameters.gradient_steps,
        "tau": parameters.tau,
        "ent_coef": f"auto_{parameters.initial_entropy_coefficient}",
        "target_entropy": "auto",
        "policy_kwargs": {"net_arch": list(parameters.hidden_units)},
    }


@pytest.mark.parametrize(("algorithm", "name"), CASES)
def test_the_files_hold_the_measured_settings(algorithm: str, name: str) -> None:
    found, wanted = entries(algorithm)[name], in_common(algorithm, MLP[algorithm], name)
    schedule, start = found.pop("learning_rate").split("_")
    assert schedule == "lin"
    assert float(start) == pytest.approx(wanted.pop("learning_rate"), rel=2e-3)
    assert found == wanted


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_the_zoo_can_build_and_train_from_them(algorithm: str) -> None:
    name = "CollaPipeSurrogate-Small-v0"
    options = entries(algorithm)[name]
    (wrapper,) = options.pop("env_wrapper")
    ((path, arguments),) = wrapper.items()
    module, _, kind = path.rpartition(".")
    env = make_vec_env(
        name,
        n_envs=2,
        wrapper_class=getattr(importlib.import_module(module), kind),
        wrapper_kwargs=arguments,
    )
    start = float(options.pop("learning_rate").removeprefix("lin_"))
    for told in ("n_envs", "n_timesteps"):
        options.pop(told)
    quick = {"batch_size": 8, "n_steps": 4, "learning_starts": 4}
    options |= {key: value for key, value in quick.items() if key in options}
    model = {"ppo": PPO, "sac": SAC}[algorithm](
        env=env, learning_rate=lambda remaining: start * remaining, device="cpu", **options
    )
    before = [weight.detach().clone() for weight in model.policy.parameters()]
    model.learn(16)
    assert any((weight != old).any() for weight, old in zip(model.policy.parameters(), before, strict=True))


def test_queues_are_magnified_as_in_the_agents_own_networks() -> None:
    name = "CollaPipeSurrogate-Small-v0"
    plain, wrapped = gym.make(name), MagnifiedBacklog(gym.make(name), unit=4.0)
    factor = policy_options(MLP["ppo"], scenario_of(name))["features_extractor_kwargs"]["factor"]
    assert (factor > 1.0).sum() == 2 * (3 + 1)
    wrapped.action_space.seed(0)
    seen, shown = plain.reset(seed=1)[0], wrapped.reset(seed=1)[0]
    for _ in range(3):
        action = wrapped.action_space.sample()
        seen, shown = plain.step(action)[0], wrapped.step(action)[0]
        assert (shown == seen * factor).all()
        assert shown in wrapped.observation_space
    assert (shown != seen).any()
    assert wrapped.observation_space.high == pytest.approx(plain.observation_space.high * factor)
    assert wrapped.observation_space.dtype == np.float32


@pytest.mark.parametrize("unit", [0.0, float("inf")])
def test_a_unit_that_is_none_is_refused(unit: float) -> None:
    with pytest.raises(ScenarioError, match=r"unit = .*: a number above 0"):
        MagnifiedBacklog(gym.make("CollaPipeSurrogate-Small-v0"), unit=unit)


def test_another_environment_is_refused() -> None:
    with pytest.raises(ScenarioError, match="wraps a CollaPipeEnv, not PendulumEnv"):
        MagnifiedBacklog(gym.make("Pendulum-v1"))

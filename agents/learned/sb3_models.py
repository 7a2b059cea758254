"""Models of PPO and SAC: built from hyper-parameters, kept in files, played as schedulers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.sac.policies import SACPolicy

from collapipe_env.envs.observation import FlatObserver
from collapipe_env.envs.sb3 import CollaPipeVecEnv
from collapipe_env.ground.errors import CheckpointError, shown
from collapipe_env.ground.torch_settings import own_settings, under_own_settings
from collapipe_env.ground.version import __version__
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import action_codec

from .agent_file import TRAINING, AgentFile, AgentRecord, Tensors, require_tensors
from .agent_layout import decisions_of, features_of, require_same_layout
from .cluster_net import BACKLOGS, ClusterFeatures
from .cluster_ppo import ClusterActorCritic, ClusterPPO
from .cluster_sac import BoundedRewards, ClusterSACPolicy
from .hyperparameters import (
    PARAMETERS,
    HyperParameters,
    PPOParameters,
    fitting_minibatch,
    initial_learning_rate,
    linear_schedule,
    parameters_from_dict,
)
from .policy_scheduler import PolicyScheduler

Model = PPO | SAC
TRAINING_ONLY = ("mlp_extractor.value_net.", "value_net.", "critic.", "critic_target.")
"""Prefixes of the names of weights that only training reads."""


@under_own_settings
class LearnedScheduler(PolicyScheduler):
    """Plays the most likely action of a policy, under this package's own settings of PyTorch."""


def sb3_agent(agent: AgentFile, scenario: Scenario, place: str) -> LearnedScheduler:
    """Build the scheduler of an agent that PPO or SAC trained.

    Args:
        agent: Content of its file.
        scenario: The scenario to schedule, of the sizes that it was trained for.
        place: The file, for errors.

    Raises:
        CheckpointError: If record and weights do not fit each other, or the agent does not fit the scenario.
    """
    record, tensors = agent.playing
    require_same_layout(record, scenario, place)
    try:
        parameters = parameters_from_dict(PARAMETERS[record.algorithm], record.hyperparameters)
    except CheckpointError as error:
        raise CheckpointError(f"{place}: {error}: train again with --fresh") from None
    widths, held = parameters.hidden_units, sum(value.size for value in tensors.values())
    least = sum(before * after for before, after in itertools.pairwise(widths))
    if held < least:  # before a net of that size is made
        raise CheckpointError(
            f"{place} holds {held:,} weights, but hidden_units of {shown(list(widths))} need {least:,} at "
            "least: this is not a saved agent"
        )
    with own_settings():
        action = spaces.Box(-1.0, 1.0, (action_codec(scenario).action_size,), np.float32)
        options = policy_options(parameters, scenario)
        policy = policy_class(parameters)(FlatObserver(scenario).space(), action, lambda _: 0.0, **options)
        weights = {n: v for n, v in policy.state_dict().items() if not n.startswith(TRAINING_ONLY)}
        restore(weights, tensors, place)
        return LearnedScheduler(policy, record.algorithm.upper())


def restore(weights: Mapping[str, torch.Tensor], tensors: Tensors, place: str) -> None:
    """Write the tensors of a file into those of a net.

    Args:
        weights: Tensors of the net by their names; all others stay as they are.
        tensors: Tensors of the file.
        place: The file, for errors.

    Raises:
        CheckpointError: If names, types or shapes differ.
    """
    require_tensors(tensors, {name: tuple(value.shape) for name, value in weights.items()}, place)
    for name, value in weights.items():
        value.copy_(torch.from_numpy(tensors[name].copy()))


class BacklogLens(BaseFeaturesExtractor):
    """Passes observations on with the energy queues magnified.

    The observation spreads queues up to their cap over [0, 1], but good schedulers keep them at a small
    part of that; without magnification a network learns late to heed them.

    Args:
        space: The observation space.
        factor: One for each entry of the observation.
    """

    factor: torch.Tensor

    def __init__(self, space: spaces.Box, factor: npt.NDArray[np.float32]) -> None:
        super().__init__(space, int(space.shape[0]))
        self.register_buffer("factor", torch.from_numpy(factor.copy()))  # actor and critics have their own

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Magnified observations (E, D)."""
        return observations * self.factor


def policy_class(parameters: HyperParameters) -> type[ActorCriticPolicy] | type[SACPolicy]:
    """Class of the Stable-Baselines3 policy."""
    by_cluster = parameters.policy == "clusters"
    if isinstance(parameters, PPOParameters):
        return ClusterActorCritic if by_cluster else ActorCriticPolicy
    return ClusterSACPolicy if by_cluster else SACPolicy


def policy_options(parameters: HyperParameters, scenario: Scenario) -> dict[str, Any]:
    """Keyword arguments of the Stable-Baselines3 policy."""
    options: dict[str, Any] = {"net_arch": list(parameters.hidden_units)}
    layout, codec = FlatObserver(scenario).layout, action_codec(scenario)
    by_cluster, unit = parameters.policy == "clusters", parameters.backlog_unit
    if by_cluster:
        features = {"layout": layout, "scenario": scenario, "backlog_unit": unit}
        options |= {
            "cluster_actions": codec.cluster_entries,
            "features_extractor_class": ClusterFeatures,
            "features_extractor_kwargs": features,
        }
    else:
        factor = np.ones(layout.size, dtype=np.float32)
        for name in BACKLOGS:
            factor[layout[name].slice] = scenario.budgets.backlog_cap / unit
        options |= {"features_extractor_class": BacklogLens, "features_extractor_kwargs": {"factor": factor}}
    if isinstance(parameters, PPOParameters):
        options["log_std_init"] = parameters.initial_log_std
        if by_cluster and codec.opened:
            options["bandwidth_entry"] = codec.own_entries - 1
    return options


def build_model(parameters: HyperParameters, env: CollaPipeVecEnv, seed: int) -> Model:
    """A fresh Stable-Baselines3 model on the CPU.

    Args:
        parameters: Hyper-parameters of PPO or SAC.
        env: The training environment.
        seed: Governs weights, exploration and the environments' episodes.
    """
    size = int(np.prod(env.action_space.shape or ()))
    rate = initial_learning_rate(parameters, size, env.env.scenario.clusters)
    common: dict[str, Any] = {
        "policy": policy_class(parameters),
        "learning_rate": linear_schedule(rate, parameters.final_learning_rate),
        "gamma": parameters.gamma,
        "policy_kwargs": policy_options(parameters, env.env.scenario),
        "seed": seed,
        "device": "cpu",
    }
    if isinstance(parameters, PPOParameters):
        by_cluster = parameters.policy == "clusters"
        algorithm = partial(ClusterPPO, credit=parameters.credit) if by_cluster else PPO
        return algorithm(
            **common,
            env=env,
            n_steps=parameters.rollout_steps,
            batch_size=fitting_minibatch(parameters.minibatch, parameters.rollout_steps * env.num_envs),
            n_epochs=parameters.epochs,
            gae_lambda=parameters.gae_lambda,
            clip_range=parameters.clip_range,
            ent_coef=parameters.entropy_coefficient,
            vf_coef=parameters.value_coefficient,
            max_grad_norm=parameters.max_gradient_norm,
            target_kl=parameters.target_kl,
        )
    return SAC(
        **common,
        env=BoundedRewards(env, parameters.lowest_reward),
        buffer_size=parameters.buffer_size,
        learning_starts=parameters.learning_starts,
        batch_size=parameters.minibatch,
        tau=parameters.tau,
        train_freq=1,
        gradient_steps=parameters.gradient_steps,
        ent_coef=f"auto_{parameters.initial_entropy_coefficient}",
        target_entropy=parameters.target_entropy_per_action * size,
    )


def live_tensors(model: Model) -> dict[str, torch.Tensor]:
    """The tensors of a model by the names that they have in its file: weights, and moments of optimisers.

    Moments that are not there yet are made, as Adam makes them at its first step.
    """
    found: dict[str, torch.Tensor] = {}
    for name, value in model.policy.state_dict().items():
        found[f"{TRAINING}{name}" if name.startswith(TRAINING_ONLY) else name] = value
    for title in model.get_parameters().keys() - {"policy"}:
        optimiser: Any = reduce(getattr, title.split("."), model)
        for index, parameter in enumerate(optimiser.param_groups[0]["params"]):
            if not optimiser.state[parameter]:
                moments = {part: torch.zeros_like(parameter.data) for part in ("exp_avg", "exp_avg_sq")}
                optimiser.state[parameter] = {"step": torch.zeros(()), **moments}
            for part, value in optimiser.state[parameter].items():
                found[f"{TRAINING}{title}.{index}.{part}"] = value
    if isinstance(model, SAC) and model.log_ent_coef is not None:
        found[f"{TRAINING}log_ent_coef"] = model.log_ent_coef.data
    return found


def saved_model(
    model: Model,
    algorithm: str,
    parameters: HyperParameters,
    scenario: Scenario,
    training: dict[str, Any],
    history: list[dict[str, Any]],
) -> AgentFile:
    """A model as the content of a file from which training continues.

    SAC's memory of transitions is left out: a resumed run fills it again.

    Args:
        model: The model; the tensors are its own.
        algorithm: ``"ppo"`` or ``"sac"``.
        scenario: The training scenario.
        training: Further plain data on the training.
        history: Validations so far.
    """
    record = AgentRecord(
        algorithm=algorithm,
        hyperparameters=asdict(parameters),
        scenario=scenario.to_dict(),
        systems={},
        features=features_of(scenario),
        decisions=decisions_of(scenario),
        steps=int(model.num_timesteps),
        training=training,
        history=history,
        package_version=__version__,
    )
    return AgentFile(record, {name: value.numpy() for name, value in live_tensors(model).items()})


def restore_model(model: Model, saved: AgentFile, scenario: Scenario, place: str) -> None:
    """Put weights, optimiser states and step count of a file into a freshly built model.

    Raises:
        CheckpointError: If they do not fit.
    """
    require_same_layout(saved.record, scenario, place)
    restore(live_tensors(model), saved.tensors, place)
    model.num_timesteps = saved.record.steps
    if isinstance(model, SAC):
        # The memory is empty again; learning must wait until it holds varied transitions.
        model.learning_starts += saved.record.steps

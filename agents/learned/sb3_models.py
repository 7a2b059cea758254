"""A trained policy as a scheduler, which maps the observation to an action."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.sac.policies import SACPolicy

from collapipe_env.envs.observation import FlatObserver, ObservationLayout
from collapipe_env.envs.sb3 import CollaPipeVecEnv
from collapipe_env.ground.errors import CheckpointError, reason
from collapipe_env.ground.torch_settings import under_own_settings
from collapipe_env.ground.version import __version__
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import action_codec

from .agent_layout import decisions_of, features_of, require_same_layout
from .checkpoint import SavedAgent, read_checkpoint, write_checkpoint
from .cluster_net import ClusterFeatures
from .cluster_policies import ClusterActorCritic, ClusterSACPolicy
from .cluster_ppo import ClusterPPO
from .hyperparameters import (
    HyperParameters,
    PPOParameters,
    fitting_minibatch,
    initial_learning_rate,
    linear_schedule,
)
from .policy_scheduler import PolicyScheduler

Model = PPO | SAC
TRAINING_ONLY = ("mlp_extractor.value_net.", "value_net.", "critic.", "critic_target.")
"""Prefixes of the names of weights that only training reads."""


@under_own_settings
class LearnedScheduler(PolicyScheduler):
    """Plays the most likely action of a policy that ``collapipe train`` saved."""

    @classmethod
    def load(cls, path: Path | str, scenario: Scenario) -> LearnedScheduler:
        """Read a saved agent for a scenario.

        Args:
            path: A file written by :func:`save_model`.
            scenario: The scenario to schedule, of the sizes that it was trained for.

        Raises:
            CheckpointError: If the file is missing, damaged or foreign, or made for other sizes.
        """
        saved = read_checkpoint(Path(path))
        return cls.restore(saved, scenario, str(path))

    @classmethod
    def restore(cls, saved: SavedAgent, scenario: Scenario, place: str) -> LearnedScheduler:
        """Like :meth:`load`, for a checkpoint that was read already; ``place`` is for errors."""
        require_same_layout(saved.scenario.get("name"), saved.features, saved.decisions, scenario, place)
        observation, action = observation_and_action(scenario)
        parameters = saved.parameters
        options = policy_options(parameters, scenario)
        policy = policy_class(parameters)(observation, action, lambda _: 0.0, **options)
        # Files of agents that only play leave out the weights that only training reads.
        weights = {
            name: torch.zeros_like(value)
            for name, value in policy.state_dict().items()
            if name.startswith(TRAINING_ONLY)
        }
        try:
            policy.load_state_dict(weights | saved.policy)
        except (RuntimeError, TypeError) as error:
            raise _wrong_weights(place, error) from None
        return cls(policy, saved.algorithm.upper())


def observation_and_action(scenario: Scenario) -> tuple[spaces.Box, spaces.Box]:
    """The spaces of a scenario's environment, without building one."""
    size = action_codec(scenario).action_size
    return FlatObserver(scenario).space(), spaces.Box(-1.0, 1.0, (size,), np.float32)


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
    layout = FlatObserver(scenario).layout
    by_cluster, codec = parameters.policy == "clusters", action_codec(scenario)
    if by_cluster:
        options |= {
            "cluster_actions": codec.cluster_entries,
            "features_extractor_class": ClusterFeatures,
            "features_extractor_kwargs": {
                "layout": layout,
                "scenario": scenario,
                "backlog_unit": parameters.backlog_unit,
            },
        }
    else:
        options |= {
            "features_extractor_class": BacklogLens,
            "features_extractor_kwargs": {"factor": _magnified(parameters, scenario, layout)},
        }
    if isinstance(parameters, PPOParameters):
        options["log_std_init"] = parameters.initial_log_std
        if by_cluster and codec.opened:
            options["bandwidth_entry"] = codec.own_entries - 1
    return options


def _magnified(
    parameters: HyperParameters, scenario: Scenario, layout: ObservationLayout
) -> npt.NDArray[np.float32]:
    """Factors of :class:`BacklogLens`, one for each entry of the observation."""
    factor = np.ones(layout.size, dtype=np.float32)
    for name in ("device_backlog", "cu_backlog"):
        factor[layout[name].slice] = scenario.budgets.backlog_cap / parameters.backlog_unit
    return factor


def build_model(parameters: HyperParameters, env: CollaPipeVecEnv, seed: int) -> Model:
    """A fresh Stable-Baselines3 model on the CPU.

    Args:
        parameters: Hyper-parameters of PPO or SAC.
        env: The training environment.
        seed: Governs weights, exploration and the environments' episodes.
    """
    options = policy_options(parameters, env.env.scenario)
    size = int(np.prod(env.action_space.shape or ()))
    rate = initial_learning_rate(parameters, size, env.env.scenario.clusters)
    schedule = linear_schedule(rate, parameters.final_learning_rate)
    kind: Any = policy_class(parameters)
    if isinstance(parameters, PPOParameters):
        by_cluster = parameters.policy == "clusters"
        algorithm = partial(ClusterPPO, credit=parameters.credit) if by_cluster else PPO
        return algorithm(
            kind,
            env,
            learning_rate=schedule,
            n_steps=parameters.rollout_steps,
            batch_size=fitting_minibatch(parameters.minibatch, parameters.rollout_steps * env.num_envs),
            n_epochs=parameters.epochs,
            gamma=parameters.gamma,
            gae_lambda=parameters.gae_lambda,
            clip_range=parameters.clip_range,
            ent_coef=parameters.entropy_coefficient,
            vf_coef=parameters.value_coefficient,
            max_grad_norm=parameters.max_gradient_norm,
            target_kl=parameters.target_kl,
            policy_kwargs=options,
            seed=seed,
            device="cpu",
        )
    return SAC(
        kind,
        env,
        learning_rate=schedule,
        buffer_size=parameters.buffer_size,
        learning_starts=parameters.learning_starts,
        batch_size=parameters.minibatch,
        tau=parameters.tau,
        gamma=parameters.gamma,
        train_freq=1,
        gradient_steps=parameters.gradient_steps,
        ent_coef=f"auto_{parameters.initial_entropy_coefficient}",
        target_entropy=parameters.target_entropy_per_action * float(np.prod(env.action_space.shape or ())),
        policy_kwargs=options,
        seed=seed,
        device="cpu",
    )


def save_model(
    path: Path,
    model: Model,
    algorithm: str,
    parameters: HyperParameters,
    scenario: Scenario,
    training: dict[str, Any],
    history: list[dict[str, Any]],
) -> None:
    """Write a model as a checkpoint.

    SAC's memory of transitions is left out: a resumed run fills it again.

    Args:
        path: Where to write it.
        algorithm: ``"ppo"`` or ``"sac"``.
        scenario: The training scenario.
        training: Further plain data on the training.
        history: Validations so far.

    Raises:
        DataError: If the place cannot be written to.
    """
    states: dict[str, Any] = dict(model.get_parameters())
    policy = states.pop("policy")
    if isinstance(model, SAC) and model.log_ent_coef is not None:
        states["log_ent_coef"] = model.log_ent_coef.detach()
    metadata = {
        "package_version": __version__,
        "algorithm": algorithm,
        "hyperparameters": asdict(parameters),
        "scenario": scenario.to_dict(),
        "features": features_of(scenario),
        "decisions": decisions_of(scenario),
        "steps": int(model.num_timesteps),
        "training": training,
        "history": history,
    }
    write_checkpoint(path, metadata, policy, states)


def restore_model(model: Model, saved: SavedAgent, scenario: Scenario, place: str) -> None:
    """Put a checkpoint's weights, optimiser states and step count into a freshly built model.

    Raises:
        CheckpointError: If they do not fit.
    """
    require_same_layout(saved.scenario.get("name"), saved.features, saved.decisions, scenario, place)
    states: dict[str, Any] = dict(saved.optimisers)
    log_ent_coef = states.pop("log_ent_coef", None)
    try:
        optimisers: dict[str, Any] = {name: reduce(getattr, name.split("."), model) for name in states}
        options = {name: [dict(group) for group in found.param_groups] for name, found in optimisers.items()}
        states["policy"] = saved.policy
        model.set_parameters(states, exact_match=True, device="cpu")
        for name, optimiser in optimisers.items():
            _require_moments(name, optimiser)
            # The file must not decide how steps are computed.
            for group, own in zip(optimiser.param_groups, options[name], strict=True):
                group.update({key: value for key, value in own.items() if key != "params"})
        if isinstance(model, SAC) and model.log_ent_coef is not None:
            if log_ent_coef is None:
                raise ValueError("log_ent_coef is missing")
            model.log_ent_coef.data.copy_(log_ent_coef)
    except Exception as error:  # the libraries may raise anything for states that are none
        raise _wrong_weights(place, error) from None
    model.num_timesteps = saved.steps
    if isinstance(model, SAC):
        # The memory is empty again; learning must wait until it holds varied transitions.
        model.learning_starts += saved.steps


def _require_moments(name: str, optimiser: torch.optim.Optimizer) -> None:
    """Refuse an optimiser's state with which its first step would fail."""
    for parameter, state in optimiser.state.items():
        for key, wanted in (("step", ()), ("exp_avg", parameter.shape), ("exp_avg_sq", parameter.shape)):
            found = state[key]
            if found.shape != wanted or not bool(found.isfinite().all()):
                raise ValueError(f"{key} in {name} has another shape than its weights, or is not finite")


def _wrong_weights(place: str, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{place}: its weights do not fit its own description ({reason(error, lines=2)}): "
        "the file is damaged; train again with --fresh"
    )

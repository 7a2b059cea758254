"""Reward, observation and episode totals of environments on tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from collapipe_env.envs.observation import ObservationBuilder
from collapipe_env.envs.rewards import OwnReward, Reward, make_reward
from collapipe_env.envs.summaries import merge_rows
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.build import reference_delay
from collapipe_env.simulator.costs import RoundCosts
from collapipe_env.simulator.state import SystemState
from collapipe_env.torch_backend.draws import Draws
from collapipe_env.torch_backend.fusing import fused
from collapipe_env.torch_backend.placement import Placement
from collapipe_env.torch_backend.rows import Rows
from collapipe_env.torch_backend.simulator import TorchSimulator


@dataclass(frozen=True)
class TorchStep:
    """One step of ``E`` environments.

    Attributes:
        observation: (E, D), float32.
        reward: (E,).
        reached: The target loss is reached (E,), bool; ``None`` where there is no target.
        info: Tensors (E,) by name.
    """

    observation: Tensor
    reward: Tensor
    reached: Tensor | None
    info: dict[str, Tensor]


class TorchMDP:
    """What :class:`collapipe_env.envs.core.BatchMDP` is for NumPy.

    Args:
        scenario: The scenario.
        reward: A reward's name or object.
        num_envs: ``E``.
        draws: Supplies the random numbers.
        placement: Device and type.
        compiled: Compile what a round computes.

    Attributes:
        ended_summaries: Of each row's last episode that ended, as :meth:`summaries` gives them; empty before
            the first.
    """

    def __init__(
        self,
        scenario: Scenario,
        reward: str | Reward,
        num_envs: int,
        draws: Draws,
        placement: Placement,
        *,
        compiled: bool = False,
    ) -> None:
        self.scenario = scenario
        self.reference_delay = reference_delay(scenario)
        self.reward = make_reward(reward, scenario, self.reference_delay)
        self._own_reward = self.reward if isinstance(self.reward, OwnReward) else None
        if self._own_reward is not None and compiled:
            # What is compiled holds no checks: its result is looked at afterwards.
            self.reward = self._own_reward.on_copies
        self.observer = ObservationBuilder(scenario)
        self.simulator = TorchSimulator(scenario, num_envs, draws, placement, compiled=compiled)
        self._report = fused(self._reported, compiled)
        self._total_delay = placement.zeros(num_envs)
        self._total_reward = placement.zeros(num_envs)
        self._total_energy_ratio = torch.zeros_like(self.simulator.state.backlog)
        self._time_to_target = torch.full_like(self._total_delay, torch.nan)
        self.ended_summaries: dict[str, Tensor] = {}

    def reset(self, rows: Rows) -> Tensor:
        """Start new episodes in some rows; returns all rows' observations (E, D)."""
        self.simulator.reset(rows)
        self._total_delay = rows.fill(self._total_delay, 0.0)
        self._total_reward = rows.fill(self._total_reward, 0.0)
        self._total_energy_ratio = rows.fill(self._total_energy_ratio, 0.0)
        self._time_to_target = rows.fill(self._time_to_target, torch.nan)
        observation: Tensor = self.observer.build_generic(self.simulator.state)
        return observation

    def step(self, actions: Tensor) -> TorchStep:
        """Decode actions (E, N (2K + 3)), finite, of the real type, and play them.

        Raises:
            RewardError: If a reward of the user's own is at fault; the round is not taken then.
        """
        before, put_back = self.simulator.state, self.simulator.remember()
        costs = self.simulator.step(actions)
        after = self.simulator.state
        try:
            observation, reward, info = self._report(before, after, costs)
            if self._own_reward is not None:
                self._own_reward.check_shape(reward, costs.delay)
        except BaseException:  # a reward of the user's may raise anything while it is compiled
            put_back()
            raise
        self._total_delay = self._total_delay + costs.delay
        self._total_energy_ratio = self._total_energy_ratio + costs.energy_ratio
        target = self.scenario.dynamics.target_loss
        reached = None if target is None else after.loss <= target
        if reached is not None:
            first = reached & torch.isnan(self._time_to_target)
            self._time_to_target = torch.where(first, self._total_delay, self._time_to_target)
        self._total_reward = self._total_reward + reward
        return TorchStep(observation, reward, reached, {**info, **self.learning_info()})

    def reset_info(self) -> dict[str, Tensor]:
        """Information of rows that begin an episode (E,): the names of a step's, 0 for what a round costs."""
        zeros = {name: torch.zeros_like(self._total_delay) for name in ("delay", "cost", "backlog")}
        return {**zeros, **self.learning_info()}

    def learning_info(self) -> dict[str, Tensor]:
        """Loss of the last evaluation (E,), a fresh tensor."""
        return {"loss": self.simulator.loss.clone()}

    def _reported(
        self, before: SystemState, after: SystemState, costs: RoundCosts
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Observation, reward and infos of a round."""
        reward: Tensor = self.reward(before, costs, after)
        info = {
            "delay": costs.delay,
            "cost": torch.clamp(costs.energy_ratio - 1.0, min=0.0).sum(dim=(-2, -1)),
            "backlog": after.backlog.sum(dim=(-2, -1)),
        }
        return self.observer.build_generic(after), reward, info

    def summaries(self, done: Tensor, *, reached: bool) -> dict[str, Tensor]:
        """Episode summaries of the rows that are done, as tensors (E,) by name, each with a mask ``_name``.

        The names are those of :meth:`collapipe_env.envs.core.BatchMDP.summaries`.

        Args:
            done: (E,), bool.
            reached: Whether any of them has reached its target.
        """
        state = self.simulator.state
        rounds = torch.clamp(state.round_index, min=1).to(self._total_delay.dtype)
        columns = {
            "rounds": state.round_index,
            "total_delay": self._total_delay,
            "mean_delay": self._total_delay / rounds,
            "energy_ratio_max": self._total_energy_ratio.amax(dim=(-2, -1)) / rounds,
            "final_backlog": state.backlog.sum(dim=(-2, -1)),
            "return": self._total_reward,
            **self.learning_info(),
        }
        masks = dict.fromkeys(columns, done)
        if reached:
            columns["time_to_target"] = self._time_to_target
            masks["time_to_target"] = done & ~torch.isnan(self._time_to_target)
        summary: dict[str, Tensor] = {}
        for name, values in columns.items():
            summary[name] = torch.where(masks[name], values, torch.zeros_like(values))
            summary[f"_{name}"] = masks[name].clone()
        return summary

    def keep_summaries(self, ended: Tensor, *, reached: bool) -> None:
        """Take the rows whose episodes just ended into :attr:`ended_summaries`; as for :meth:`summaries`."""
        fresh = self.summaries(ended, reached=reached)
        self.ended_summaries = merge_rows(self.ended_summaries, fresh, ended, torch.where)

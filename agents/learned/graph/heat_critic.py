"""Heat critic: the cost of the temperatures of a cluster's devices in later rounds.

Each cluster has a value that depends only on its own devices; the system's value is the sum. The heat that a
plan leaves in one cluster therefore costs the same whatever the others do. Only training needs the critic.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from collapipe_env.envs.graph_observation import DEVICE_FEATURES
from collapipe_env.simulator.state import SystemState

from .process_inputs import HEAT_INPUTS, heat_columns
from .training_groups import Group

STEADY_INPUTS = 3
"""Inputs of a device that its heat does not change: its presence, its time for a block, and its memory."""
UNITS = 48
_CAPACITY = [feature.name for feature in DEVICE_FEATURES].index("capacity")


class CriticInputs(NamedTuple):
    """Inputs of the critic; leading batch axes ``...``.

    Attributes:
        steady: (..., N, K, STEADY_INPUTS).
        heat: (..., N, K, HEAT_INPUTS).
        present: (..., N, K), 0 or 1.
    """

    steady: torch.Tensor
    heat: torch.Tensor
    present: torch.Tensor


class HeatCritic(nn.Module):
    """Value of every cluster's heat, in mean rounds: each device alone, then their mean and maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.device = nn.Sequential(
            nn.Linear(STEADY_INPUTS + HEAT_INPUTS, UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS), nn.ReLU()
        )
        last = nn.Linear(UNITS, 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.cluster = nn.Sequential(nn.Linear(2 * UNITS, UNITS), nn.ReLU(), last)

    def forward(self, inputs: CriticInputs) -> torch.Tensor:
        """Values (..., N): discounted delay to come beyond the mean, over the mean delay of a round."""
        here = inputs.present[..., None]
        devices = self.device(torch.cat((inputs.steady, inputs.heat), dim=-1)) * here
        mean = devices.sum(dim=-2) / here.sum(dim=-2).clamp(min=1.0)
        values: torch.Tensor = self.cluster(torch.cat((mean, devices.amax(dim=-2)), dim=-1))
        return values[..., 0]


def critic_inputs(group: Group) -> CriticInputs:
    """Inputs of the critic for the present states of a group (E, ...)."""
    state: SystemState = group.env.state
    features = torch.from_numpy(group.observer.build(state).device)
    heat, present = state.processes["heat"], torch.from_numpy(state.present).float()
    # The time of a block at the full clock: the cap is among the inputs for heat.
    share = torch.from_numpy(heat["share"]).float().clamp(min=1e-3)
    full = features[..., 0] + torch.log(share)
    capacity = features[..., _CAPACITY] / group.parameters.costs.blocks
    steady = torch.stack((torch.ones_like(full), full, capacity), dim=-1) * present[..., None]
    return CriticInputs(steady, heat_tensor(heat["headroom"], heat["share"], state.present), present)


def heat_tensor(headroom: object, share: object, present: object) -> torch.Tensor:
    """Inputs for heat (..., HEAT_INPUTS) from arrays (...); see :func:`~.process_inputs.heat_columns`."""
    return torch.as_tensor(heat_columns(headroom, share, present)).float()

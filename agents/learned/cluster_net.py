"""Networks that treat all clusters alike: shared weights for the clusters' rows, and pools over clusters.

A network's answer for a cluster does not depend on the cluster's place in the observation, and every
transition teaches the network once for each cluster. Devices of a cluster keep their order, which is the
order of the pipeline.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from collapipe_env.envs.cluster_columns import feature_columns
from collapipe_env.envs.observation import ObservationLayout
from collapipe_env.scenario import Scenario

BACKLOGS = ("device_backlog", "cu_backlog")


class ClusterFeatures(BaseFeaturesExtractor):
    """Splits flat observations (E, D) into one row of features for each cluster, (E, N, F).

    A row holds, in the order of the layout, the features of the cluster's devices in their order, those of
    its control unit, and those of the system, which are the same in all rows. Energy queues appear twice:
    magnified, since good schedulers keep them at a small part of the observation's cap, and as
    ``log(1 + z N / V)``, the queue relative to the price of one cluster's second.

    Args:
        space: The observation space.
        scenario: Gives the number of clusters, the cap of queues and ``V``.
        backlog_unit: Energy queue (in budgets) that the network sees as 1.
    """

    columns: torch.Tensor
    factor: torch.Tensor
    backlogs: torch.Tensor

    def __init__(
        self, space: spaces.Box, layout: ObservationLayout, scenario: Scenario, backlog_unit: float
    ) -> None:
        N, budgets = scenario.clusters, scenario.budgets
        columns: list[torch.Tensor] = []
        factor: list[float] = []
        backlogs: list[int] = []
        for name, feature in layout.items():
            rows = torch.from_numpy(feature_columns(feature, N).copy())
            width = rows.shape[1]
            if name in BACKLOGS:
                backlogs.extend(range(len(factor), len(factor) + width))
            columns.append(rows)
            factor.extend([budgets.backlog_cap / backlog_unit if name in BACKLOGS else 1.0] * width)
        super().__init__(space, len(factor) + len(backlogs))
        self.register_buffer("columns", torch.cat(columns, dim=1), persistent=False)
        self.register_buffer("factor", torch.tensor(factor), persistent=False)
        self.register_buffer("backlogs", torch.tensor(backlogs), persistent=False)
        self._pressure = budgets.backlog_cap * N / (budgets.tradeoff or 1.0)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Rows of features (E, N, F) of observations (E, D)."""
        rows = observations[:, self.columns]
        pressure = torch.log1p(self._pressure * rows[..., self.backlogs])
        return torch.cat((rows * self.factor, pressure), dim=-1)


class ClusterNet(nn.Module):
    """A perceptron on each cluster's row; from the second layer on it sees mean and maximum over clusters.

    Args:
        inputs: Features of a row.
        widths: Widths of the hidden layers.
        outputs: Numbers for each cluster.
        activation: Class of the activation.
    """

    def __init__(
        self, inputs: int, widths: Sequence[int], outputs: int, activation: type[nn.Module] = nn.Tanh
    ) -> None:
        super().__init__()
        self._activation = activation()
        sizes = tuple(itertools.pairwise((inputs, *widths, outputs)))
        self.own = nn.ModuleList(nn.Linear(before, after) for before, after in sizes)
        self.others = nn.ModuleList(nn.Linear(2 * before, after, bias=False) for before, after in sizes[1:])

    def initialise(self, last_gain: float) -> None:
        """Set orthogonal weights and no biases, as Stable-Baselines3 does.

        Args:
            last_gain: Size of the last layer's weights; with a small one all answers begin near 0.
        """
        *_, last = self.own
        for layer in self.own.children():
            assert isinstance(layer, nn.Linear)
            nn.init.orthogonal_(layer.weight, last_gain if layer is last else math.sqrt(2.0))
            nn.init.zeros_(layer.bias)
        for position, layer in enumerate(self.others.children(), start=2):
            assert isinstance(layer, nn.Linear)
            nn.init.orthogonal_(layer.weight, last_gain if position == len(self.own) else 0.5)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Numbers for each cluster (E, N, outputs) of rows (E, N, inputs)."""
        first, *rest = self.own
        hidden: torch.Tensor = first(rows)
        for own, others in zip(rest, self.others, strict=True):
            hidden = self._activation(hidden)
            pools = torch.cat((hidden.mean(dim=-2), hidden.amax(dim=-2)), dim=-1)
            hidden = own(hidden) + others(pools).unsqueeze(-2)
        return hidden

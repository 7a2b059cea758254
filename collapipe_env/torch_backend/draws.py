"""Every random number of the environments, those of the NumPy environment with the same seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from collapipe_env.envs.vector import seed_rows
from collapipe_env.scenario import Layout, Scenario, draw_layout
from collapipe_env.simulator.simulator import COMPONENTS
from collapipe_env.simulator.streams import MOST_FACTORS, episode_seeds
from collapipe_env.torch_backend.fusing import fused
from collapipe_env.torch_backend.placement import Placement
from collapipe_env.torch_backend.rows import BoolArray, Rows
from collapipe_env.torch_backend.streams import normal, uniform

Seeds = int | Sequence[int | None] | None


@dataclass(frozen=True)
class EpisodeStart:
    """What is drawn at the beginning of ``R`` episodes.

    Attributes:
        layouts: Their layouts; ``None`` where all have the scenario's own.
        shadowing: Standard normal numbers of the links (R, links).
        fading: Small-scale gains of the first round (R, links).
        load: Speed factors of the first round (R, N, K).
    """

    layouts: list[Layout] | None
    shadowing: Tensor
    fading: Tensor
    load: Tensor


class Draws:
    """Channels, loads and losses of :mod:`collapipe_env.simulator.channels` and ``losses`` on tensors.

    The seeds of an episode come from the host when it begins, one child of the row's seed sequence; the
    numbers are hashes of seed and round, worked out on the device. So a row depends on its own seed alone,
    and has the numbers of the NumPy environment on every device.

    Args:
        scenario: The scenario.
        num_envs: ``E``.
        placement: Device and type.
        compiled: Compile what is drawn in every round.
    """

    def __init__(
        self, scenario: Scenario, num_envs: int, placement: Placement, *, compiled: bool = False
    ) -> None:
        N, K = scenario.clusters, scenario.max_devices
        radio, dynamics, work = scenario.radio, scenario.dynamics, scenario.workload
        self._scenario = scenario
        self._place = placement
        self._links = N * (1 + K * (K + 1) // 2)
        self._devices = (N, K)
        self._rngs: list[np.random.Generator | None] = [None] * num_envs
        # Seeds of the components that draw in every round.
        self._fades, self._loads, self._losses = torch.zeros(
            (3, num_envs), dtype=torch.int64, device=placement.device
        )
        self._rho, self._diversity = radio.fading_correlation, radio.diversity
        remembered = self._links if self._rho > 0.0 else 0
        self._branches = self._doubles(np.zeros((num_envs, remembered, 2 * radio.diversity)))
        self._fresh = fused(self._independent if self._rho == 0.0 else self._fresh_branches, compiled)
        self._count = fused(self._counted, compiled)
        self._levels = placement.reals(dynamics.load_levels)
        self._stay = dynamics.load_stay_probability
        # Inner levels have two neighbours to come from, the ends one: the stationary law is 1, 2, ..., 2, 1.
        weights = np.full(len(dynamics.load_levels), 2.0)
        weights[[0, -1]] = 1.0
        self._edges = self._doubles(np.cumsum(weights / weights.sum())[:-1])
        self._level = torch.zeros((num_envs, N, K), dtype=torch.int64, device=placement.device)
        self._steps = work.local_steps
        self._lossy = radio.link_errors == "drop"
        self._counts = self._doubles(np.arange(work.micro_batch_choices[-1]))

    def seed(self, seed: Seeds, mask: BoolArray | None) -> None:
        """Seed the rows' generators as the NumPy environment does.

        Args:
            seed: One number for row 0, the next ones for the other rows; or a list, one entry a row.
            mask: Rows that are to be reset.

        Raises:
            ScenarioError: For a list of the wrong length.
        """
        seed_rows(self._rngs, seed, mask)

    def start(self, rows: Rows) -> EpisodeStart:
        """Begin episodes in some rows, all of which have been seeded."""
        rngs = [rng for rng in self._rngs if rng is not None]
        words = episode_seeds(rows.host, rngs, COMPONENTS).T
        layouts = None
        if self._scenario.cluster.layout != "fixed":
            layouts = [draw_layout(self._scenario, np.random.default_rng(seed)) for seed in words[0].tolist()]
        _, shadows, fades, loads, losses, _ = self._place.arriving(words.view(np.int64))
        self._fades, self._loads = rows.put(self._fades, fades), rows.put(self._loads, loads)
        self._losses = rows.put(self._losses, losses)
        # Normal numbers come in pairs.
        shadowing = normal(uniform(shadows, 0, self._links + self._links % 2))[:, : self._links]
        if self._rho > 0.0:
            branches = self._fresh_branches(fades, 0)
            self._branches = rows.put(self._branches, branches)
            fading = self._mean_power(branches)
        else:
            fading = self._independent(fades, 0)
        level = torch.zeros((len(rows), *self._devices), dtype=torch.int64, device=self._place.device)
        if len(self._levels) > 1:
            level = torch.searchsorted(self._edges, self._load_numbers(loads, 0), right=True)
            self._level = rows.put(self._level, level)
        return EpisodeStart(
            layouts=layouts,
            shadowing=shadowing.to(self._place.real),
            fading=fading,
            load=self._levels[level],
        )

    def fading(self, rounds: Tensor) -> Tensor:
        """Small-scale gains of the next round (E, links).

        Args:
            rounds: Rounds of the episodes before that one (E,).
        """
        if self._rho == 0.0:
            return self._fresh(self._fades, rounds)
        moved = math.sqrt(1.0 - self._rho**2) * self._fresh(self._fades, rounds)
        self._branches = self._rho * self._branches + moved
        return self._mean_power(self._branches)

    def load(self, rounds: Tensor) -> Tensor | None:
        """Speed factors of the next round (E, N, K); ``None`` where they never change.

        Args:
            rounds: Rounds of the episodes before that one (E,).
        """
        if len(self._levels) == 1:
            return None
        u = self._load_numbers(self._loads, rounds)
        last = len(self._levels) - 1
        # The part of the unit interval beyond `stay` is cut in half: down, up; at the ends there is one way.
        up = (u >= self._stay + 0.5 * (1.0 - self._stay)) & (self._level < last) | (self._level == 0)
        moves = (u >= self._stay).to(torch.int64)
        self._level = self._level + moves * (2 * up.to(torch.int64) - 1)
        return self._levels[self._level]

    def remember(self) -> Callable[[], None]:
        """Remember what drawing a round changes; returns a function that puts it back."""
        branches, level = self._branches, self._level

        def put_back() -> None:
            self._branches, self._level = branches, level

        return put_back

    def arrived(self, survival: Tensor, micro_batches: Tensor, rounds: Tensor) -> Tensor:
        """Micro-batches whose gradients arrived (E, N, H), real numbers.

        Args:
            survival: Probability that a micro-batch survives a local step (E, N).
            micro_batches: ``M`` (E, N).
            rounds: Rounds of the episodes before this one (E,).
        """
        if self._lossy:
            return self._count(self._losses, rounds, survival, micro_batches)
        return micro_batches[..., None].expand(*survival.shape, self._steps).to(self._place.real)

    def _counted(self, seeds: Tensor, rounds: Tensor, survival: Tensor, micro_batches: Tensor) -> Tensor:
        """The inverse of the binomial distribution function at uniform numbers.

        As :func:`collapipe_env.kernels.arrivals.arrivals`, but with the whole function in one table.
        """
        shape = (*survival.shape, self._steps)
        # The second number of each pair would choose which ones arrive; only real training asks for that.
        u = uniform(seeds, rounds, 2 * math.prod(shape[1:])).reshape(*shape, 2)[..., 0]
        p, M = survival.double()[..., None], micro_batches.double()[..., None]
        # Counting the rarer outcome keeps the first term away from zero.
        few_lost = p >= 0.5
        rare = torch.where(few_lost, 1.0 - p, p)
        ratios = rare / (1.0 - rare) * (M - self._counts) / (self._counts + 1.0)
        terms = torch.cat(((1.0 - rare) ** M, ratios[..., :-1]), dim=-1).cumprod(dim=-1)
        reached = terms.cumsum(dim=-1)[..., None, :]
        beyond = (reached < torch.where(few_lost, u, 1.0 - u)[..., None]) & (self._counts < M)[..., None, :]
        count = beyond.sum(dim=-1)
        return torch.where(few_lost, M - count, count).to(self._place.real)

    def _doubles(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(array.astype(np.float64)).to(self._place.device)

    def _load_numbers(self, seeds: Tensor, rounds: Tensor | int) -> Tensor:
        return uniform(seeds, rounds, math.prod(self._devices)).reshape(-1, *self._devices)

    def _independent(self, seeds: Tensor, rounds: Tensor | int) -> Tensor:
        """Gamma(m) / m: a sum of exponentials is minus the logarithm of a product of uniform numbers."""
        m = self._diversity
        u = uniform(seeds, rounds, self._links * m)
        if m <= MOST_FACTORS:
            total = torch.log(u.reshape(-1, m, self._links).prod(dim=1))
        else:
            total = torch.log(u).reshape(-1, self._links, m).sum(dim=-1)
        return (total * (-1.0 / m)).to(self._place.real)

    def _fresh_branches(self, seeds: Tensor, rounds: Tensor | int) -> Tensor:
        width = 2 * self._diversity
        return normal(uniform(seeds, rounds, self._links * width)).reshape(-1, self._links, width)

    def _mean_power(self, branches: Tensor) -> Tensor:
        # Real and imaginary parts of a CN(0, 1) branch have variance 1/2 each.
        return ((branches * branches).sum(dim=-1) / (2.0 * self._diversity)).to(self._place.real)

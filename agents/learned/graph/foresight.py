"""Foresight in the graph net's training: the price of the heat that a plan leaves to later rounds.

The value of a state is the expected sum of the delays to come, each relative to the mean delay of a round and
discounted by the seconds until then:

    U = E sum_t exp(-(tau_t - tau_0) / T_h) (T_t - rho)    [s]

The discount counts seconds, as rounds differ in length and temperatures follow the clock. The mean ``rho``
must be subtracted: discounted by seconds, the delays themselves add up to ``T_h`` whatever is played. To
first order, ``U`` is a constant factor times the number of rounds that fit into the horizon.

A critic learns ``U`` as a sum over clusters, from what the net's own plans lead to. Each cluster's samples of
counts, and all its numbers of micro-batches, are then charged for the heat that they would leave to it. The
model tells the heat after the round, so each cluster has an advantage of its own. Powers are not charged:
the radio's part of the heat is small. An extension of this package [X].
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch

from collapipe_env.allocation import Allocation
from collapipe_env.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.dynamics.heat import Heat
from collapipe_env.dynamics.process_registry import active_processes
from collapipe_env.errors import ScenarioError

from .heat_after import HeatAfter
from .heat_critic import CriticInputs, HeatCritic, critic_inputs, heat_tensor
from .training_groups import Group

TRACE = 0.95
"""Weight ``lambda`` of longer returns against the critic's values."""
WINDOW = 32
"""Rounds of a group from which the critic learns at once."""
BATCH, BATCHES = 512, 24
"""Rounds in a gradient step of the critic, and its steps after each window."""
CRITIC_RATE = 1e-3
MEAN_RATE = 0.2
"""Weight of the latest window in the mean delay of a scenario."""
BEGINS, LASTS = 0.02, 10.0
"""Chance per round that an environment begins to play without foresight, and the mean rounds it does so."""


def _name(group: Group) -> str:
    """Name under which mean delays are kept; a scenario with new layouts has delays of its own."""
    return f"{group.scenario.name}, {group.scenario.cluster.layout}"


class Transition(NamedTuple):
    """One round of a group.

    Attributes:
        before: The critic's inputs at its start.
        after: Those at its end, before a new episode begins (E, ...).
        delay: Its length (E,) [s].
        ended: Whether an episode ended with it (E,), bool.
        own: Whether all clusters played the net's own plan (E,), bool; the critic values no other plans.
    """

    before: CriticInputs
    after: CriticInputs
    delay: FloatArray
    ended: BoolArray
    own: BoolArray


def returns(
    delay: FloatArray, cut: BoolArray, after: FloatArray, mean: float, horizon_s: float
) -> FloatArray:
    """Lambda returns (W, E), discounted by seconds, in mean rounds.

    Args:
        delay: Delays of successive rounds (W, E) [s].
        cut: Whether later rounds do not count (W, E); the critic's value then takes their place.
        after: The critic's values of the states after the rounds (W, E), in mean rounds.
        mean: Mean delay ``rho`` [s].
        horizon_s: ``T_h`` [s].
    """
    found = np.empty_like(after)
    following = after[-1]
    for t in range(len(delay) - 1, -1, -1):
        here = np.where(cut[t], after[t], (1.0 - TRACE) * after[t] + TRACE * following)
        following = found[t] = delay[t] / mean - 1.0 + np.exp(-delay[t] / horizon_s) * here
    return found


class Foresight:
    """Critic of heat and its memory of the latest rounds.

    Args:
        horizon_s: ``T_h`` [s], > 0. Three times the time constant of a device (six minutes for phones)
            reaches as far as its heat does.
        seed: Draws the rounds of the critic's gradient steps.

    Attributes:
        critic: The critic.
        error: Root of its mean squared error over the last window, in mean rounds; NaN before the first.
    """

    def __init__(self, horizon_s: float, seed: int = 0) -> None:
        self.horizon_s, self.error = horizon_s, math.nan
        self.critic = HeatCritic()
        self._adam = torch.optim.Adam(self.critic.parameters(), lr=CRITIC_RATE)
        self._rng = np.random.default_rng([seed, 0xF0])
        self._means: dict[str, float] = {}
        self._windows: WeakKeyDictionary[Group, list[Transition]] = WeakKeyDictionary()
        self._processes: WeakKeyDictionary[Group, Heat] = WeakKeyDictionary()
        self._exploring: WeakKeyDictionary[Group, BoolArray] = WeakKeyDictionary()
        self._pending: tuple[CriticInputs, CriticInputs, FloatArray, BoolArray] | None = None

    def charges(
        self,
        group: Group,
        plan: Allocation,
        worth: FloatArray,
        samples: IntArray,
        choices: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Charges, times ``V``, for the heat that counts and micro-batches leave to later rounds.

        The change of the discount with a cluster's own delay is left out: delays are relative to their mean.

        Args:
            group: The environments, before the round.
            plan: The plan that they are about to play (E, ...).
            worth: Worth of a second of each cluster's delay (E, N) [1/s].
            samples: Other blocks (E, N, S, K).
            choices: Numbers of micro-batches (C,).

        Returns:
            Charges of the samples (E, N, S) and of the numbers (E, N, C); 0 where devices do not warm up.
        """
        E, N, S, _ = samples.shape
        C = len(choices)
        self._pending = None
        if "heat" not in group.env.state.processes:
            return np.zeros((E, N, S)), np.zeros((E, N, C))
        blocks = np.concatenate(
            (plan.blocks[:, None], np.moveaxis(samples, 2, 1), np.repeat(plan.blocks[:, None], C, axis=1)),
            axis=1,
        )
        Q = 1 + S + C
        micro_batches = np.repeat(plan.micro_batches[:, None], Q, axis=1)
        micro_batches[:, 1 + S :] = choices[:, None].astype(np.int64)

        def same(array: FloatArray) -> FloatArray:
            return np.repeat(array[:, None], Q, axis=1)

        plans = Allocation(
            blocks=blocks,
            micro_batches=micro_batches,
            bandwidth=same(plan.bandwidth),
            device_power=same(plan.device_power),
            cu_power=same(plan.cu_power),
        )
        V = group.parameters.tradeoff_v
        after = HeatAfter(self._heat(group), group.parameters, group.truth, plans, worth / V)
        before = critic_inputs(group)
        present = group.env.state.present
        heat = heat_tensor(after.headroom, after.share, np.broadcast_to(present[:, None], after.share.shape))
        many = CriticInputs(
            before.steady[:, None].expand(-1, Q, -1, -1, -1),
            heat,
            before.present[:, None].expand(-1, Q, -1, -1),
        )
        with torch.no_grad():
            values = self.critic(many).double().numpy()
        played = CriticInputs(before.steady, heat[:, 0], before.present)
        self._pending = before, played, after.delay, group.whole
        mean = self._means.get(_name(group), float(after.delay.mean()))
        rate = V * mean * np.exp(-after.delay / self.horizon_s)
        charged = np.moveaxis(rate[:, None, None] * values, 1, 2)
        return charged[..., 1 : 1 + S], charged[..., 1 + S :]

    def explored(self, group: Group, plan: Allocation, choice_cost: FloatArray) -> Allocation:
        """Return the plan to play: now and then, for some rounds, with micro-batches without foresight.

        A net that has learnt to keep its devices cool would no longer see hot ones, and the critic would not
        notice that it fears them too much.

        Args:
            group: The environments.
            plan: The net's own plan (E, ...).
            choice_cost: Costs of all numbers of micro-batches in the round alone (E, N, C).
        """
        if self._pending is None:
            return plan
        E = len(plan.blocks)
        exploring = self._exploring.get(group, np.zeros(E, dtype=np.bool_))
        draws = self._rng.random(E)
        exploring = np.where(exploring, draws >= 1.0 / LASTS, draws < BEGINS)
        self._exploring[group] = exploring
        self._pending = *self._pending[:3], group.whole & ~exploring
        shortest = group.choices[choice_cost.argmin(axis=-1)].astype(np.int64)
        return replace(plan, micro_batches=np.where(exploring[:, None], shortest, plan.micro_batches))

    def played(self, group: Group) -> None:
        """Remember the round that :meth:`charges` priced, once it is played; learn from a full window."""
        if self._pending is None:
            return
        before, after, delay, own = self._pending
        self._pending = None
        window = self._windows.setdefault(group, [])
        ended = np.asarray(group.env.state.round_index) == 0
        window.append(Transition(before, after, delay, ended, own))
        if len(window) == WINDOW:
            self._learn(_name(group), window)
            window.clear()

    def _heat(self, group: Group) -> Heat:
        """The process of a group's scenario."""
        if group not in self._processes:
            if group.scenario.dynamics.time_base == "reference":
                raise ScenarioError(
                    f"{group.scenario.name}: dynamics.time_base = 'reference' does not suit "
                    "--graph.horizon-s, as heat does not follow the delays of rounds there: set 'mixed', or "
                    "train with --graph.horizon-s 0"
                )
            found = [p for p in active_processes(group.scenario) if isinstance(p, Heat)]
            self._processes[group] = found[0]
        return self._processes[group]

    def _learn(self, name: str, window: list[Transition]) -> None:
        """Fit the critic to the returns of a window."""
        delay = np.stack([t.delay for t in window])
        own = np.stack([t.own for t in window])
        latest = float(delay[own].mean())
        mean = self._means.get(name, latest)
        self._means[name] = mean = mean + MEAN_RATE * (latest - mean)

        def joined(inputs: list[CriticInputs]) -> CriticInputs:
            return CriticInputs(*(torch.stack(parts) for parts in zip(*inputs, strict=True)))

        before, after = joined([t.before for t in window]), joined([t.after for t in window])
        with torch.no_grad():
            values = self.critic(after).sum(dim=-1).double().numpy()
        cut = np.stack([t.ended for t in window])
        cut[:-1] |= ~own[1:]
        wanted = torch.from_numpy(returns(delay, cut, values, mean, self.horizon_s)[own]).float()
        mine = torch.from_numpy(own)
        flat = CriticInputs(*(part[mine] for part in before))
        for _ in range(BATCHES):
            chosen = torch.from_numpy(self._rng.integers(len(wanted), size=min(BATCH, len(wanted))))
            found = self.critic(CriticInputs(*(part[chosen] for part in flat))).sum(dim=-1)
            loss = ((found - wanted[chosen]) ** 2).mean()
            self._adam.zero_grad()
            loss.backward()
            self._adam.step()
        self.error = math.sqrt(float(loss.detach()))

"""Caps on the clocks of devices for a plan that is otherwise settled ([X]).

Where a device's power rises with the cube of its clock, computing ``x >= 1`` times as long takes ``1 / x^2``
of the energy. Under GPipe a local step lasts ``sum a + (M - 1) max a`` in each direction, so a stage that is
not the bottleneck lengthens the step only by its own passes of one micro-batch. With a price ``p`` of its
energy ``E / x^2`` and a worth ``w`` of a second of the cluster's delay, the best ``x`` solves

    w H (a + c) = 2 p E / x^3,    x = (2 p E / (w H (a + c)))^(1/3)

and under the exact drift ``p`` also falls with the energy. Stages that would become the bottleneck share one
longest time ``m``, which is found by one-dimensional search. Only the slowest clusters decide the round: the
worths of all delays sum to ``V``, and clusters with time to spare slow down until they have none. The problem
is convex in ``x``, so the answer is the best one for GPipe and heads that do not wait, except that it leaves
out the time of the optimiser's updates. Callers price the answer before they use it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.parameters import Parameters
from collapipe_env.physics.thermal import computing_seconds
from collapipe_env.simulator.round import RoundCosts
from collapipe_env.simulator.state import SystemState

WORTHS = 12
"""Number of trial worths of a cluster's delay, between which the search interpolates."""
SPAN = 1e-6
"""Least trial worth, over ``V``."""
REFINEMENTS = 2
"""Times that the trial worths are spread anew, between the neighbours of the worth that was found."""
HALVINGS = 14
"""Halvings of each search."""


class ClockProblem(NamedTuple):
    """Search for how much longer devices compute; every array may have axes before the last two.

    Attributes:
        forward: Time of a micro-batch's forward pass without caps (..., N, K) [s].
        backward: The same for the backward pass (..., N, K) [s].
        energy: Energy of computing in the round that a cap saves (..., N, K) [J]; 0 where it saves none.
        other_ratio: Other energy over the budget, less the round's allowance (..., N, K).
        backlog: ``z`` (..., N, K).
        budget: ``Ebar`` (..., N, K) [J].
        extra_price: Price of energy in addition to the queue's (..., N, K) [1/J].
        longest: Largest ``x`` that a device may use (..., N, K), >= 1.
        others_forward: Longest forward time of the other elements of the chain (..., N) [s].
        others_backward: The same for the backward pass (..., N) [s].
        steps: ``H`` (..., N).
        micro_batches: ``M`` (..., N).
        delay: ``T_n`` without caps (..., N) [s].
        exact: Whether the queue after the round prices energy, rather than the one before it.
    """

    forward: FloatArray
    backward: FloatArray
    energy: FloatArray
    other_ratio: FloatArray
    backlog: FloatArray
    budget: FloatArray
    extra_price: FloatArray
    longest: FloatArray
    others_forward: FloatArray
    others_backward: FloatArray
    steps: FloatArray
    micro_batches: FloatArray
    delay: FloatArray
    exact: bool

    def saved(self, x: FloatArray) -> FloatArray:
        """Marginal saving of computing longer, ``2 p E / x^3`` (..., N, K); it falls with ``x``."""
        used = self.energy / (x * x)
        price = self.backlog / self.budget
        if self.exact:
            price = np.maximum(self.backlog + used / self.budget + self.other_ratio, 0.0) / self.budget
        return np.asarray(2.0 * (price + self.extra_price) * used / x)

    def delays(self, x: FloatArray) -> FloatArray:
        """``T_n`` if devices compute ``x`` times as long (..., N) [s]."""
        at = np.ones_like(x)
        return np.asarray(self.delay + self.steps * (self._step(x) - self._step(at)))

    def _step(self, x: FloatArray) -> FloatArray:
        """The part of a local step that depends on the clocks (..., N) [s]."""
        forward, backward = x * self.forward, x * self.backward
        longest = np.maximum(forward.max(axis=-1), self.others_forward)
        longest = longest + np.maximum(backward.max(axis=-1), self.others_backward)
        return np.asarray((forward + backward).sum(axis=-1) + (self.micro_batches - 1.0) * longest)


def clock_problem(
    parameters: Parameters,
    state: SystemState,
    plan: Allocation,
    costs: RoundCosts,
    *,
    exact_drift: bool,
    extra_price: FloatArray | None = None,
) -> ClockProblem:
    """Set up the search for a plan's clocks.

    Args:
        parameters: Scalars of the scenario, which allows caps on clocks.
        state: The system (E, ...).
        plan: The plan without caps (E, ...).
        exact_drift: Whether the queue after the round prices energy.
        extra_price: Price of each node's energy in addition to its queue's (E, N, K+1) [1/J]; 0 by default.
    """
    elements = costs.elements
    energy = np.asarray(costs.energy[..., 1:], dtype=np.float64)
    computing = computing_seconds(parameters, plan, state.speed, state.clock) * state.compute_power
    used = (plan.device_blocks > 0) & state.cubic_power & costs.plays[..., None]
    computing = np.where(used, np.minimum(computing, energy), 0.0)
    share = np.asarray(state.speed) / np.asarray(state.full_speed)
    hops = elements.hop_forward.max(axis=-1), elements.hop_backward.max(axis=-1)
    steps = parameters.costs.local_steps if costs.local_steps is None else costs.local_steps
    clusters = energy.shape[:-1]
    budget = np.asarray(state.budget[..., 1:], dtype=np.float64)
    return ClockProblem(
        forward=np.asarray(elements.compute_forward, dtype=np.float64),
        backward=np.asarray(elements.compute_backward, dtype=np.float64),
        energy=computing,
        other_ratio=(energy - computing) / budget - np.asarray(costs.allowance)[..., None, None],
        backlog=np.asarray(state.live_backlog[..., 1:], dtype=np.float64),
        budget=budget,
        extra_price=np.zeros_like(energy) if extra_price is None else extra_price[..., 1:],
        longest=np.where(used, np.maximum(share / parameters.clock_cap_min, 1.0), 1.0),
        others_forward=np.maximum(np.maximum(hops[0], elements.uplink), elements.server_forward),
        others_backward=np.maximum(np.maximum(hops[1], elements.downlink), elements.server_backward),
        steps=np.broadcast_to(np.asarray(steps, dtype=np.float64), clusters),
        micro_batches=np.asarray(plan.micro_batches, dtype=np.float64),
        delay=np.asarray(costs.cluster_delay, dtype=np.float64),
        exact=exact_drift,
    )


def longer_computing(problem: ClockProblem, delay_price: FloatArray) -> FloatArray:
    """Best factors ``x`` by which devices compute longer (E, N, K), >= 1; 1 where energy has no price.

    Args:
        problem: The search (E, ...).
        delay_price: Worth of a second of the round, ``V`` (E,) [1/s], > 0.
    """
    at = np.ones_like(problem.longest)
    if not (problem.saved(at) > 0.0).any():
        return at
    # Worths from the greatest down, on a new first axis.
    high = np.log(np.broadcast_to(delay_price[:, None], problem.delay.shape))
    low, part = high + np.log(SPAN), np.linspace(0.0, 1.0, WORTHS)[:, None, None]
    for turn in range(1 + REFINEMENTS):
        trial = high + part * (low - high)
        delays = problem.delays(_stretched(problem, np.exp(trial)))
        worth = _balanced(delays, trial, delay_price)
        if turn < REFINEMENTS:
            apart = (high - low) / (WORTHS - 1)
            low, high = np.log(worth) - apart, np.log(worth) + apart
    return _stretched(problem, worth)


def _stretched(problem: ClockProblem, worth: FloatArray) -> FloatArray:
    """Best factors ``x`` (..., N, K) for given worths of the clusters' delays (..., N) [1/s]."""
    p = problem
    second = (worth * p.steps)[..., None]
    price = second * (p.forward + p.backward)
    low, high = np.zeros(price.shape), np.broadcast_to(np.log(p.longest), price.shape)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        gains = p.saved(np.exp(middle)) > price
        low, high = np.where(gains, middle, low), np.where(gains, high, middle)
    alone = np.where(p.saved(p.longest) > price, p.longest, np.exp(low))
    # Where slowing down gains nothing, the factor is exactly 1 and the clock has no cap.
    alone = np.where(p.saved(np.ones_like(p.forward)) > price, alone, 1.0)
    return _under_longest(p, second[..., 0], price, alone)


def _under_longest(p: ClockProblem, second: FloatArray, price: FloatArray, alone: FloatArray) -> FloatArray:
    """Best factors once the longest stage, for which the other micro-batches wait, has a price too."""
    slowest = p.forward.max(axis=-1)
    ratio = p.backward.max(axis=-1) / np.where(slowest > 0.0, slowest, 1.0)
    waits = second * (p.micro_batches - 1.0)
    low = np.broadcast_to(slowest, waits.shape)
    high = (p.forward * alone).max(axis=-1)
    divisor = np.where(p.forward > 0.0, p.forward, 1.0)

    def under(longest: FloatArray) -> FloatArray:
        """Factors with which no stage takes longer than ``longest`` in the forward pass."""
        room = np.maximum(longest[..., None] / divisor, 1.0)
        return np.where(p.forward > 0.0, np.minimum(alone, room), 1.0)

    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        x = under(middle)
        held = (x < alone) & (p.forward > 0.0)
        lost = np.where(held, (p.saved(x) - price) / divisor, 0.0).sum(axis=-1)
        waited = waits * ((middle > p.others_forward) + ratio * (ratio * middle > p.others_backward))
        low, high = np.where(lost > waited, middle, low), np.where(lost > waited, high, middle)
    return under(high)


def _balanced(delays: FloatArray, log_worth: FloatArray, delay_price: FloatArray) -> FloatArray:
    """Worths of the clusters' delays (E, N) [1/s], with sum ``V`` where that is possible.

    Args:
        delays: ``T_n`` for each worth (W, E, N) [s], rising along the first axis.
        log_worth: Logarithms of the worths (W, E, N), falling.
        delay_price: ``V`` (E,) [1/s].
    """
    low, high = delays[0].max(axis=-1), delays[-1].max(axis=-1)
    last = len(delays) - 2
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        worth = _worth_for(delays, log_worth, middle[:, None], last)
        too_early = worth.sum(axis=-1) > delay_price
        low, high = np.where(too_early, middle, low), np.where(too_early, high, middle)
    return _worth_for(delays, log_worth, high[:, None], last)


def _worth_for(delays: FloatArray, log_worth: FloatArray, deadline: FloatArray, last: int) -> FloatArray:
    """Worth at which each cluster ends at a deadline (E, N); the least worth where it always ends earlier."""
    place = np.clip((delays <= deadline).sum(axis=0) - 1, 0, last)[None]
    before, after = (np.take_along_axis(delays, place + i, axis=0)[0] for i in (0, 1))
    first, second = (np.take_along_axis(log_worth, place + i, axis=0)[0] for i in (0, 1))
    span = after - before
    part = np.clip((deadline - before) / np.where(span > 0.0, span, 1.0), 0.0, 1.0)
    part = np.where(span > 0.0, part, (deadline >= after).astype(np.float64))
    return np.asarray(np.exp(first + part * (second - first)))


def caps_of_clocks(state: SystemState, x: FloatArray, least: float) -> FloatArray:
    """Caps under which devices compute ``x`` times as long (E, N, K); 1 where ``x`` is 1.

    Args:
        state: The system (E, ...).
        x: Factors by which devices compute longer (E, N, K), >= 1.
        least: Least cap, in (0, 1].
    """
    share = np.asarray(state.speed) / np.asarray(state.full_speed)
    return np.asarray(np.where(x > 1.0, np.maximum(share / x, least), 1.0))

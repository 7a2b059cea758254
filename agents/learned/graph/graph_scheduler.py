"""The graph net as a scheduler: segments, then powers and micro-batches, then shares of the uplink.

Training and play decide here alike: training with gradients and samples, play without.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from collapipe_env.agents.dssra.hazard_memory import failure_risk
from collapipe_env.agents.dssra.parallel_rounds import as_record
from collapipe_env.agents.dssra.pricing import best_shares
from collapipe_env.agents.dssra.round_input import round_input
from collapipe_env.dynamics.channel_knowledge import gains_are_exact
from collapipe_env.envs.graph_observation import GraphObserver
from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.overheads import NO_OVERHEADS
from collapipe_env.physics.parameters import Parameters
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.refusal import require_budgets_per_round, require_room
from collapipe_env.simulator.state import SystemState

from .counts import sample_counts
from .graph_costs import cheaper_to_stay
from .net import GraphNet, NetAnswer
from .net_inputs import NetInputs, net_inputs
from .plan_inputs import PlanInputs, plan_inputs
from .process_inputs import process_inputs

_LEAST_ABOVE = 1e-7
"""Least part of a share above the floor, from which a cluster can still depart."""


class Plan(NamedTuple):
    """The net's plan before shares.

    Attributes:
        logits: Logits of each device's count of blocks (E, N, K, L+1).
        answer: The net's answer for the rest.
        counts: Most likely blocks (E, N, K).
        samples: Sampled blocks (E, N, S, K).
        log_chance: Logarithms of their probabilities (E, N, S).
        power: Powers of CUs and devices (E, N, K+1) [W].
        choice_logits: Logits of the numbers of micro-batches (E, N, C).
        option: The options of the most likely ones (E, N).
        micro_batches: The most likely ones (E, N), int.
    """

    logits: torch.Tensor
    answer: NetAnswer
    counts: IntArray
    samples: IntArray
    log_chance: FloatArray
    power: torch.Tensor
    choice_logits: torch.Tensor
    option: IntArray
    micro_batches: IntArray

    @property
    def watts(self) -> FloatArray:
        """The powers as an array (E, N, K+1) [W]."""
        return np.ascontiguousarray(self.power.detach().numpy())

    def played(self, share: FloatArray) -> Allocation:
        """The most likely plan, with shares of the uplink (E, N)."""
        return Allocation(
            blocks=self.counts,
            micro_batches=self.micro_batches,
            bandwidth=share,
            device_power=self.watts[..., 1:],
            cu_power=self.watts[..., 0],
        )


class Decider:
    """Decisions of graph nets in one scenario.

    A net may be in single precision or, so that a row's decision is the same in any batch, in double.

    Attributes:
        parameters: The scenario's scalars.
        record: Its numbers, for compiled loops.
        choices: Allowed numbers of micro-batches (C,).
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.record: Any = as_record(parameters.numbers)
        self.choices = np.asarray(parameters.micro_batch_choices)
        # Without overheads, more micro-batches never hurt.
        self._first_choice = len(self.choices) - 1 if parameters.overheads == NO_OVERHEADS else 0
        self._observer = GraphObserver(parameters)

    def moves(self, state: SystemState) -> bool:
        """Whether a change of plan has a price: moments of moved blocks move."""
        return "migration" in state.processes and self.parameters.numbers.moment_bits > 0.0

    def plan(
        self, net: GraphNet, state: SystemState, samples: int = 0, rng: np.random.Generator | None = None
    ) -> Plan:
        """The net's plan for a state (E, ...).

        Where a change of plan has a price, clusters keep the previous round's blocks if that costs less.

        Args:
            samples: Samples ``S`` of the counts of each cluster.
            rng: Draws them.
        """
        inputs, L = net_inputs(self._observer.build(state)), self.parameters.costs.blocks
        there = NetInputs(*_beside(net, inputs))
        tokens = net.tokens(there, *_beside(net, [process_inputs(state)]))
        # Rounded, so that the last digits of a product, which depend on the batch, do not count.
        logits = net.count_logits(tokens, there, L).float().cpu()
        E, N, K, C = logits.shape
        cap = np.where(state.present, state.memory_cap, 0).astype(np.int64)
        counts, drawn = np.empty((E, N, K), np.int64), np.empty((E, N, samples, K), np.int64)
        log_chance = np.empty((E, N, samples))
        draws = np.empty((E * N, 0, K)) if rng is None else rng.random((E * N, samples, K))
        sample_counts(
            logits.detach().numpy().astype(np.float64).reshape(E * N, K, C), cap.reshape(E * N, K), L, draws,
            counts.reshape(E * N, K), drawn.reshape(E * N, samples, K), log_chance.reshape(E * N, samples),
        )  # fmt: skip
        answer = self._answer(net, tokens, inputs, counts)
        if self.moves(state):
            counts, answer = self._staying(net, state, tokens, inputs, cap, counts, answer)
        power, choice_logits = self._powers(answer), self._choice_logits(answer)
        option = self._likeliest(choice_logits)
        return Plan(
            logits, answer, counts, drawn, log_chance, power, choice_logits, option, self.choices[option]
        )

    def shares(
        self, plan: Plan, state: SystemState, *, departs: bool = False
    ) -> tuple[torch.Tensor, FloatArray]:
        """Shares of the uplink (E, N) for a plan, and each cluster's worth of a second of its delay (E, N).

        Args:
            state: The state (E, ...) for which the shares are the best ones.
            departs: Whether the net departs from them.
        """
        E, N, _ = plan.counts.shape
        share, worth = np.full((E, N), 1.0 / N), np.empty((E, N))
        inputs = round_input(self.parameters, state, plan.option, exact_drift=True)
        best_shares(inputs, self.record, plan.counts, plan.watts, share, worth)
        if departs:
            return departed(share, plan.answer.share_residual, self.parameters.bandwidth_floor), worth
        return torch.from_numpy(share), worth

    def _answer(self, net: GraphNet, tokens: torch.Tensor, inputs: NetInputs, counts: IntArray) -> NetAnswer:
        """The net's answer for known counts, on the host."""
        found: NetAnswer = net(tokens, PlanInputs(*_beside(net, plan_inputs(inputs, counts))))
        return NetAnswer(*(tensor.float().cpu() for tensor in found))

    def _powers(self, answer: NetAnswer) -> torch.Tensor:
        """Powers (E, N, K+1) [W]."""
        low, high = math.log(self.parameters.power_min_w), math.log(self.parameters.power_max_w)
        return torch.exp(low + (high - low) * answer.power.double())

    def _choice_logits(self, answer: NetAnswer) -> torch.Tensor:
        """Logits of the numbers of micro-batches (E, N, C)."""
        log2 = torch.from_numpy(np.log2(self.choices)).float()
        logits: torch.Tensor = (
            -answer.sharpness[..., None] * (log2 - answer.log2_micro_batches[..., None]) ** 2
        )
        return logits

    def _likeliest(self, choice_logits: torch.Tensor) -> IntArray:
        """Options of the most likely numbers of micro-batches (E, N)."""
        first = self._first_choice
        option: IntArray = first + choice_logits[..., first:].argmax(dim=-1).numpy()
        return option

    def _staying(
        self,
        net: GraphNet,
        state: SystemState,
        tokens: torch.Tensor,
        inputs: NetInputs,
        cap: IntArray,
        counts: IntArray,
        answer: NetAnswer,
    ) -> tuple[IntArray, NetAnswer]:
        """Counts and answer where each cluster keeps the previous round's blocks if that costs less."""
        previous = state.processes["migration"]["blocks"]
        fits = (previous <= cap).all(axis=-1) & (previous.sum(axis=-1) == self.parameters.costs.blocks)
        held = np.where(fits[..., None], previous, counts)
        if (held == counts).all():
            return counts, answer
        other = self._answer(net, tokens, inputs, held)
        row = round_input(self.parameters, state, exact_drift=True)
        stays = np.empty(fits.shape, np.bool_)
        plans = (
            (blocks, self._powers(found).detach().numpy(), self._likeliest(self._choice_logits(found)))
            for blocks, found in ((counts, answer), (held, other))
        )
        cheaper_to_stay(*next(plans), *next(plans), row, self.record, stays)
        keeps = torch.from_numpy(stays)
        mixed = (
            torch.where(keeps.reshape(*keeps.shape, *[1] * (a.dim() - keeps.dim())), b, a)
            for a, b in zip(answer, other, strict=True)
        )
        counts = np.where(stays[..., None], held, counts)
        # Powers are those that were judged; departures of shares weigh the final chains of all clusters.
        final = self._answer(net, tokens, inputs, counts)
        return counts, NetAnswer(*mixed)._replace(share_residual=final.share_residual)


def departed(share: FloatArray, residual: torch.Tensor, floor: float) -> torch.Tensor:
    """Shares (E, N) whose parts above the floor are scaled by ``exp(residual)``, and to their sum.

    Args:
        share: Shares (E, N) with sum 1.
        residual: Logs of the factors (E, N).
        floor: Least share of a cluster; ``N`` times it is below 1.
    """
    above = torch.from_numpy(np.log(np.maximum(share - floor, _LEAST_ABOVE)))
    found: torch.Tensor = floor + (1.0 - share.shape[-1] * floor) * torch.softmax(
        above + residual.double(), dim=-1
    )
    return found


def _beside(net: GraphNet, arrays: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Arrays as tensors of the type and on the device of the net's weights."""
    weight = net.cu.weight
    return (torch.from_numpy(array).to(weight.device, weight.dtype) for array in arrays)


class GraphScheduler(StateScheduler):
    """Plays the graph net; deterministic, with the same plan for a row in any batch.

    The uplink is shared out exactly for the net's segments and powers, as DSSRA does. Where gains are hidden,
    a net trained for that departs from the shares that are exact at the known gains.

    Args:
        net: The net; a copy of it plays.

    Raises:
        ScenarioError: Budgets are per second.
    """

    name = "graph net"

    def __init__(self, scenario: Scenario, net: GraphNet) -> None:
        super().__init__(scenario)
        require_budgets_per_round(f"scheduler {self.name!r}", self.parameters)
        self._decider = Decider(self.parameters)
        self._net = deepcopy(net).cpu().double().requires_grad_(requires_grad=False)
        # A head of zeros changes nothing but roundings.
        self._departs = not gains_are_exact(scenario) and net.has_share_head
        self._risk = failure_risk(scenario) if bool(net.risk.weight.any()) else None

    def reset(self, seed: int | None = None) -> None:  # noqa: ARG002 - part of the interface
        """Forget the stays of earlier rounds; nothing is random."""
        if self._risk is not None:
            self._risk.reset()

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round.

        Args:
            state: The system before the round (E, ...); where the net reads failures, row ``i`` is the same
                environment in every call.

        Returns:
            The allocation (E, ...).

        Raises:
            AllocationError: If the devices present in some cluster cannot hold the encoder.
        """
        if self._risk is not None:
            state = self._risk.added(state)
        require_room(np.where(state.present, state.memory_cap, 0), self.parameters.costs.blocks)
        with torch.inference_mode():
            plan = self._decider.plan(self._net, state)
            share, _ = self._decider.shares(plan, state, departs=self._departs)
        found = plan.played(share.numpy())
        # Idle devices send nothing, unless moments of theirs move.
        silent = found.blocks == 0
        if self._decider.moves(state):
            silent &= state.processes["migration"]["blocks"] == 0
        return replace(found, device_power=np.where(silent, self.parameters.power_min_w, found.device_power))

"""Miniatures whose devices fail: the expected delay of every plan, and schedules that have the least.

Devices come and go by themselves, in steps of ``T_ref``, whatever is played. Where changes of plan are free
and no budget binds, a plan leaves nothing behind for later rounds. The best schedule therefore takes, in each
round, the plan with the least expected delay for the present devices: no values of later states are needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapipe_env.agents.dssra.hazard_memory import HazardMemory
from collapipe_env.dynamics.presence import PRESENCE, Presence
from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.backends import NUMPY
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import StateScheduler
from collapipe_env.simulator.build import system_parameters, usual_round
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.failed_rounds import Failures
from collapipe_env.simulator.moving_system import MovingSystem
from collapipe_env.simulator.state import SystemState
from research.miniatures.system import full_power, repeated, splits, state_of

CELLS = 24
"""Parts of ``T_ref``; a failure counts as in the middle of its part."""


class Plans(NamedTuple):
    """All plans for the present devices, and the delay that failures add to them.

    Attributes:
        blocks: Blocks of each device (A, K), int.
        micro_batches: ``M`` (A,), int.
        delay: Delay without a failure (A,) [s].
        extra: Delay that the failure of a device adds, in the middle of each cell of ``T_ref`` (A, K, Q) [s];
            0 for a device without blocks.
    """

    blocks: IntArray
    micro_batches: IntArray
    delay: FloatArray
    extra: FloatArray


class FailingSystem:
    """One cluster whose devices leave and fail, and every plan of its rounds.

    Args:
        scenario: One cluster in a fixed layout with the process `presence` alone: constant hazards, no
            announced ends, and no budget that binds. Links have nearly their mean gains.

    Attributes:
        scenario: The scenario.
        hazards: Hazard of each class (C,) [1/s].
        round_s: ``T_ref`` [s].
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.parameters = scenario, system_parameters(scenario)
        system = MovingSystem(scenario, self.parameters.costs, 1, NUMPY)
        processes = {process.name: process for process in system.processes}
        presence = processes.get(PRESENCE)
        strange = set(processes) - {"fading", "shadowing", PRESENCE}
        if strange or scenario.clusters != 1 or not isinstance(presence, Presence):
            raise ValueError(f"the scenario {scenario.name!r} is not one failing cluster: {strange}")
        spec = presence.spec
        if spec.on_shape != 1.0 or spec.graceful != 0.0:
            raise ValueError(
                f"the scenario {scenario.name!r} has other ends of stays than of a constant hazard"
            )
        self.hazards = np.asarray(spec.hazard_factors) / spec.on_mean_s
        self.spec, self.round_s = spec, usual_round(scenario)
        self._carried, self._failures = system.carried, Failures(self.parameters, presence.recovery)
        self._plans: dict[int, Plans] = {}

    def plans(self, mask: int) -> Plans:
        """All plans for some devices.

        Args:
            mask: Present devices: bit ``k`` for device ``k``, above 0.
        """
        if mask not in self._plans:
            self._plans[mask] = self._worked_out(mask)
        return self._plans[mask]

    def allocation(self, blocks: IntArray, micro_batches: IntArray) -> Allocation:
        """Plans at full power, which is fastest with one cluster and no budgets (R, ...)."""
        return full_power(blocks, micro_batches, self.parameters.power_max_w)

    def _state(self, there: IntArray, rows: int) -> SystemState:
        """The system with some devices present, at mean gains (rows, ...)."""
        system = MovingSystem(self.scenario, self.parameters.costs, rows, NUMPY)
        carried = repeated(self._carried, rows)
        carried[PRESENCE]["present"] = np.broadcast_to(there > 0, (rows, 1, len(there))).copy()
        carried[PRESENCE]["announced"] = np.zeros((rows, 1, len(there)), dtype=np.bool_)
        return state_of(system, self.scenario, carried, rows)

    def _worked_out(self, mask: int) -> Plans:
        K, choices = self.scenario.max_devices, np.asarray(self.parameters.micro_batch_choices)
        there = (mask >> np.arange(K)) & 1
        caps = self._state(there, 1).memory_cap[0, 0]
        divided = splits(self.scenario.blocks, caps)
        blocks = np.repeat(divided, len(choices), axis=0)
        many = np.tile(choices, len(divided))
        delay = np.empty(len(blocks))
        extra = np.zeros((len(blocks), K, CELLS))
        at = (np.arange(CELLS) + 0.5) / CELLS
        for k in (None, *np.flatnonzero(there)):
            rows = np.arange(len(blocks)) if k is None else np.flatnonzero(blocks[:, k])
            cells = 1 if k is None else CELLS
            each = np.repeat(rows, cells)
            state = self._state(there, len(each))
            costs = round_costs(self.parameters, state, self.allocation(blocks[each], many[each]))
            if k is None:
                delay[:] = costs.delay
                continue
            failing = np.full((len(each), 1, K), np.inf)
            failing[:, 0, k] = np.tile(at, len(rows)) * costs.cluster_delay[:, 0]
            replayed = self._failures.replayed(state, costs, failing)
            if replayed is not None:
                extra[rows, k] = replayed.cluster_delay[:, 0].reshape(len(rows), CELLS)
        return Plans(blocks, many, delay, extra)

    def expected(self, mask: int, beliefs: FloatArray) -> FloatArray:
        """Expected delay of every plan (R, A) [s].

        Only the first working device that fails counts. With beliefs ``w_c`` about the class of device
        ``k``, it fails after ``r`` seconds with the density ``sum_c w_c h_c exp(-h_c r)``.

        Args:
            mask: Present devices, as for :meth:`plans`.
            beliefs: Probability of each class for each device (R, K, C).
        """
        plans, dr = self.plans(mask), self.round_s / CELLS
        edges = np.arange(CELLS + 1) * dr
        lasts = (beliefs[..., None] * np.exp(-self.hazards[:, None] * edges)).sum(axis=-2)
        fails = lasts[..., :-1] - lasts[..., 1:]
        middle = (beliefs[..., None] * np.exp(-self.hazards[:, None] * (edges[:-1] + dr / 2))).sum(axis=-2)
        logarithm, works = np.log(middle), (plans.blocks > 0).astype(np.float64)
        nobody = np.einsum("ak,rkq->raq", works, logarithm)
        found = np.broadcast_to(plans.delay, (len(beliefs), len(plans.delay))).copy()
        for k in range(works.shape[1]):
            others = np.exp(nobody - works[:, k][None, :, None] * logarithm[:, None, k])
            found += np.einsum("raq,rq,aq->ra", others, fails[:, k], plans.extra[:, k])
        return found

    def certain(self, factors: FloatArray) -> FloatArray:
        """Beliefs of a scheduler that knows the classes (R, K, C).

        Args:
            factors: Hazard factors of the devices (R, K).
        """
        return np.asarray(factors[..., None] == np.asarray(self.spec.hazard_factors), dtype=np.float64)

    def least_mean(self) -> float:
        """Mean delay of the best schedule that knows the classes, by the stationary law of devices [s].

        All classes of all devices are equally likely; a round without devices lasts ``T_ref``.
        """
        K, C = self.scenario.max_devices, len(self.hazards)
        classes = np.indices((C,) * K).reshape(K, -1).T
        stay = 1.0 / self.hazards
        there = (stay / (stay + self.spec.off_mean_s))[classes]
        beliefs = np.eye(C)[classes]
        total = self.round_s * (1.0 - there).prod(axis=-1)
        for mask in range(1, 1 << K):
            bits = (mask >> np.arange(K)) & 1
            chance = np.where(bits > 0, there, 1.0 - there).prod(axis=-1)
            total += chance * self.expected(mask, beliefs).min(axis=-1)
        return float(total.mean())


class LeastExpected(StateScheduler):
    """Plan with the least expected delay: the best schedule under its beliefs.

    Args:
        system: The small system.
        factors: Hazard factors of the devices of every row (E, K), for the best schedule with known classes;
            ``None`` to learn them from stays, as DSSRA+ does. That works for one or two classes.
    """

    name = "least expected"

    def __init__(self, system: FailingSystem, factors: FloatArray | None = None) -> None:
        super().__init__(system.scenario)
        self.system, self.factors = system, factors
        self._memory = HazardMemory(system.spec)
        if factors is None and len(system.hazards) > 2:
            raise ValueError("classes are learnt where there are one or two: give two hazard_factors")

    def reset(self, seed: int | None = None) -> None:  # noqa: ARG002 - part of the interface
        """Forget all stays."""
        self._memory.reset()

    def beliefs(self, state: SystemState) -> FloatArray:
        """Probability of each class for each device (E, K, C)."""
        if self.factors is not None:
            return self.system.certain(self.factors)
        mean, h = self._memory.update(state)[:, 0], self.system.hazards
        if len(h) == 1:
            return np.ones((*mean.shape, 1))
        second = np.clip((mean - h[0]) / (h[1] - h[0]), 0.0, 1.0)
        return np.stack((1.0 - second, second), axis=-1)

    def allocate(self, state: SystemState) -> Allocation:
        """Decide one round; see :meth:`StateScheduler.act`."""
        K = self.scenario.max_devices
        masks = state.present[:, 0] @ (1 << np.arange(K))
        beliefs = self.beliefs(state)
        blocks, many = np.empty((len(masks), K), dtype=np.int64), np.empty(len(masks), dtype=np.int64)
        for mask in np.unique(masks):
            rows, plans = np.flatnonzero(masks == mask), self.system.plans(int(mask))
            best = np.argmin(self.system.expected(int(mask), beliefs[rows]), axis=-1)
            blocks[rows], many[rows] = plans.blocks[best], plans.micro_batches[best]
        return self.system.allocation(blocks, many)

"""Heat of the devices after a round, for many plans at a time, by the package's own model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from collapipe_env.allocation import Allocation
from collapipe_env.arrays import FloatArray
from collapipe_env.dynamics.heat import Heat
from collapipe_env.physics.parameters import SystemParameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.state import SystemState

SHORTEST = 0.1
"""Least length of an imagined round, over the length of the plan's round."""


class HeatAfter:
    """Thermal state after a round in which one cluster departs from the plan.

    Attributes:
        delay: Length of the round under the plan itself (E,) [s].
        lengths: Length of the round if only that cluster departs from it (E, Q, N) [s].
        headroom: Thermal headroom after it (E, Q, N, K).
        share: Share of the full clock after it (E, Q, N, K).
    """

    def __init__(
        self,
        process: Heat,
        parameters: SystemParameters,
        state: SystemState,
        plans: Allocation,
        weight: FloatArray,
    ) -> None:
        """Imagine the round.

        Args:
            process: The process ``heat`` of the scenario.
            parameters: The scenario.
            state: The system before the round (E, ...).
            plans: Plans (E, Q, ...); the first is the plan from which the others depart.
            weight: Seconds by which a second of a cluster's delay makes the round longer (E, N).
        """
        E, Q, N, K = plans.blocks.shape
        fields = {
            name: np.ascontiguousarray(getattr(plans, name))
            for name in ("blocks", "micro_batches", "bandwidth", "device_power", "cu_power")
        }
        rows = Allocation(**{name: array.reshape(E * Q, *array.shape[2:]) for name, array in fields.items()})
        costs = round_costs(parameters, state[np.repeat(np.arange(E), Q)], rows)
        slower = costs.cluster_delay.reshape(E, Q, N)
        self.delay: FloatArray = costs.delay.reshape(E, Q)[:, 0]
        lengths = self.delay[:, None, None] + weight[:, None, :] * (slower - slower[:, :1])
        self.lengths: FloatArray = np.maximum(lengths, SHORTEST * self.delay[:, None, None])

        # Every cluster of every plan is a system of its own, whose round has its own length.
        def alone(array: Any) -> Any:
            return array.reshape(E * Q * N, 1, *array.shape[3:])

        def repeated(array: Any) -> Any:
            if array.ndim == 1:  # one number for the environment
                return np.repeat(array, Q * N)
            return alone(np.broadcast_to(array[:, None], (E, Q, *array.shape[1:])))

        energy = costs.energy.reshape(E, Q, N, K + 1)
        plan = Allocation(**{name: alone(array) for name, array in fields.items()})
        after = process.advance(
            {name: repeated(array) for name, array in state.processes["heat"].items()},
            SimpleNamespace(
                speed=repeated(state.speed),
                clock=repeated(state.clock),
                compute_power=repeated(state.compute_power),
                present=repeated(state.present),
            ),
            SimpleNamespace(energy=alone(energy), allocation=plan),
            None,
            self.lengths.reshape(-1),
        )
        self.headroom: FloatArray = after["headroom"].reshape(E, Q, N, K)
        self.share: FloatArray = after["share"].reshape(E, Q, N, K)

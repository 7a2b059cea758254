"""Allocations that the action box can express."""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import Allocation
from collapipe_env.simulator.check import check_values
from collapipe_env.simulator.decision import rows_of
from collapipe_env.simulator.refusal import SLACK
from collapipe_env.simulator.state import Parameters


class ActionBox:
    """Scalars of an action box, and what it can express.

    Args:
        parameters: Scalars of the scenario.
        devices: ``K``, devices of the largest cluster.

    Attributes:
        opened: Decisions that the scenario opens beyond CollaPipe's own, in the order of their entries.
        sits_out: Whether clusters that cannot hold the encoder sit out though participation is not open.
    """

    def __init__(self, parameters: Parameters, devices: int) -> None:
        p = parameters
        self.parameters, self.clusters, self.devices, self.blocks = p, p.clusters, devices, p.costs.blocks
        self.micro_batch_choices, self.bandwidth_floor = p.micro_batch_choices, p.bandwidth_floor
        self.power_min_w, self.power_max_w = p.power_min_w, p.power_max_w
        self.opened = p.opened
        self.sits_out = p.may_sit_out and "participation" not in p.opened

    def check_expressible(self, allocation: Allocation) -> None:
        """Refuse allocations that no action can express.

        Args:
            allocation: Leading axes ``...``.

        Raises:
            AllocationError: Names the first fault.
        """
        shape = (self.clusters, self.devices)
        if np.shape(allocation.blocks)[-2:] != shape:
            raise AllocationError(f"blocks has shape {np.shape(allocation.blocks)}, expected (..., {shape})")
        lead = np.ndim(allocation.blocks) - 2
        allocation = allocation.map(lambda array: np.reshape(array, (-1, *np.shape(array)[lead:])))
        if allocation.is_grouped:
            raise AllocationError(
                "the action box cannot express stages of several devices, and orders of devices: play this "
                "allocation through env.unwrapped.step_allocation(allocation)"
            )
        rows = rows_of(allocation)
        for row in rows:
            if row.name not in self.opened and all(each.neutral is None for each in row.fields.values()):
                raise AllocationError(
                    f"the action box cannot express {row.name} where the scenario's decisions do not list "
                    f"{row.name}: play this allocation through env.unwrapped.step_allocation(allocation)"
                )
        check_values(rows, self.parameters, allocation, SLACK)
        for row in rows:
            if row.name in self.opened:
                row.expressible(self.parameters, allocation)
        plays = allocation.plays
        # Clusters that sit out have no band; in a round in which all sit out, the band is not given out.
        total = np.where(plays.any(axis=-1), np.sum(np.where(plays, allocation.bandwidth, 0.0), axis=-1), 1.0)
        least = np.min(np.where(plays, allocation.bandwidth, 1.0))
        if np.any(np.abs(total - 1.0) > 1e-6) or least < self.bandwidth_floor - 1e-9:
            raise AllocationError(
                f"bandwidth shares sum to {np.min(total):.6g}..{np.max(total):.6g} with a least share of "
                f"{least:.3g}: the box gives out the whole band and at least "
                f"{self.bandwidth_floor:.3g} to every cluster"
            )

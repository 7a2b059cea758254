"""The even split: the yardstick of every scenario."""

from __future__ import annotations

import numpy as np

from collapipe_env.allocation import Allocation
from collapipe_env.apportionment import apportion
from collapipe_env.simulator.state import SystemParameters, SystemState

REFERENCE_MICRO_BATCHES = 4


def even_split(
    parameters: SystemParameters, state: SystemState, micro_batches: int = REFERENCE_MICRO_BATCHES
) -> Allocation:
    """Blocks split evenly over all devices that are present, equal bandwidth, full power, fixed ``M``.

    A device whose memory cannot hold its part holds what fits; the others take the rest.

    Args:
        parameters: Scalars of the scenario.
        state: State with any leading axes.
        micro_batches: Wanted number of micro-batches; the nearest allowed one is taken (the larger of
            two equally near).
    """
    choices = np.asarray(parameters.micro_batch_choices, dtype=np.int64)
    nearest = choices[::-1][np.argmin(np.abs(choices[::-1] - micro_batches))]
    clusters = state.uplink_gain.shape
    return Allocation(
        blocks=apportion(parameters.costs.blocks, state.present.astype(np.float64), state.memory_cap),
        micro_batches=np.full(clusters, nearest),
        bandwidth=np.full(clusters, 1.0 / parameters.clusters),
        device_power=np.full(state.speed.shape, parameters.power_max_w),
        cu_power=np.full(clusters, parameters.power_max_w),
    )

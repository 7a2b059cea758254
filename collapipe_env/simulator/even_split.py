"""The even split, the reference plan of every scenario."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collapipe_env.ground.arrays import Array
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.apportionment import apportion
from collapipe_env.simulator.state import Parameters, SystemState

REFERENCE_MICRO_BATCHES = 4


def nearest_choice(choices: Sequence[int], wanted: int) -> int:
    """The allowed number of micro-batches nearest to the wanted one, the larger of two equally near."""
    return min(reversed(choices), key=lambda choice: abs(choice - wanted))


def equal_resources(parameters: Parameters, devices: tuple[int, ...]) -> dict[str, Array]:
    """Equal bandwidth and full power, for schedulers that choose neither.

    Args:
        devices: Shape (..., N, K).

    Returns:
        ``bandwidth`` (..., N), ``device_power`` (..., N, K) [W] and ``cu_power`` (..., N) [W].
    """
    clusters = devices[:-1]
    return {
        "bandwidth": np.full(clusters, 1.0 / parameters.clusters),
        "device_power": np.full(devices, parameters.power_max_w),
        "cu_power": np.full(clusters, parameters.power_max_w),
    }


def even_split(
    parameters: Parameters, state: SystemState, micro_batches: int = REFERENCE_MICRO_BATCHES
) -> Allocation:
    """Blocks split evenly over all devices that are present, equal bandwidth, full power, fixed ``M``.

    A device whose memory cannot hold its part holds what fits; the others take the rest.

    Args:
        state: State with any leading axes.
        micro_batches: Wanted number of micro-batches; the nearest allowed one is taken (the larger of
            two equally near).
    """
    nearest = nearest_choice(parameters.micro_batch_choices, micro_batches)
    return Allocation(
        blocks=apportion(parameters.costs.blocks, state.present.astype(np.float64), state.memory_cap),
        micro_batches=np.full(state.uplink_gain.shape, nearest, dtype=np.int64),
        **equal_resources(parameters, state.speed.shape),
    )

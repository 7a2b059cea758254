"""Inputs of the graph net for devices that warm up, in addition to those of every system.

They are the array ``heat`` of the graph observation, thermal headroom and share of the full clock, in columns
of their own. Their weights are 0 in a net that was trained without them, so its decisions do not change.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapipe_env.arrays import Array, at_least, namespace
from collapipe_env.simulator.state import SystemState

HEAT_INPUTS = 3
NEAR = 0.8
"""Headroom from which a device counts as close to its set point."""
_NONE: npt.NDArray[np.float32] = np.zeros((0, 0, 0, HEAT_INPUTS), np.float32)


def heat_columns(headroom: Array, share: Array, present: Array) -> Array:
    """Inputs for the heat of devices (..., HEAT_INPUTS), 0 for absent ones.

    Args:
        headroom: Thermal headroom (...), 1 at the set point.
        share: Share of the full clock (...), 0 to 1.
        present: Whether the device is present (...), bool.
    """
    xp = namespace(headroom)
    close = at_least(headroom - NEAR, 0.0) / (1.0 - NEAR)
    columns = xp.stack((headroom, close, 1.0 - share), axis=-1)
    return columns * xp.astype(present, columns.dtype)[..., None]


def heat_inputs(state: SystemState) -> npt.NDArray[np.float32]:
    """Inputs for heat of a state in NumPy arrays (E, N, K, HEAT_INPUTS); (0, 0, 0, HEAT_INPUTS) without heat.

    Args:
        state: The system (E, ...).
    """
    heat = state.processes.get("heat")
    if heat is None:
        return _NONE
    columns: npt.NDArray[np.float32] = heat_columns(heat["headroom"], heat["share"], state.present)
    return np.ascontiguousarray(columns, dtype=np.float32)

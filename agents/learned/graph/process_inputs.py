"""Inputs of the graph net for what processes do to devices, in addition to those of every system.

They are the thermal headroom and the share of the full clock, as in the array ``heat`` of the graph
observation, and the estimated probability of failing in the round. Their weights are 0 in a net that was
trained without them, so its decisions do not change.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapipe_env.agents.dssra.hazard_memory import RISK
from collapipe_env.dynamics.presence import PRESENCE
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.simulator.state import SystemState

HEAT_INPUTS, RISK_INPUTS = 3, 2
PROCESS_INPUTS = HEAT_INPUTS + RISK_INPUTS
NEAR = 0.8
"""Headroom from which a device counts as close to its set point."""
_RARE = 0.003
"""Probability below which failures hardly differ."""


def heat_columns(headroom: FloatArray, share: FloatArray, present: npt.NDArray[np.bool_]) -> FloatArray:
    """Inputs for the heat of devices (..., HEAT_INPUTS), 0 for absent ones.

    Args:
        headroom: Thermal headroom (...), 1 at the set point.
        share: Share of the full clock (...), 0 to 1.
        present: Whether the device is present (...).
    """
    close = np.maximum(headroom - NEAR, 0.0) / (1.0 - NEAR)
    columns: FloatArray = np.stack((headroom, close, 1.0 - share), axis=-1)
    return columns * present[..., None]


def risk_columns(risk: FloatArray, present: npt.NDArray[np.bool_]) -> FloatArray:
    """Inputs for the failures of devices (..., RISK_INPUTS), 0 for absent ones.

    Args:
        risk: Probability of failing in the round (...).
        present: Whether the device is present (...).
    """
    columns: FloatArray = np.stack((5.0 * risk, 1.0 + np.log(risk + _RARE) / 3.0), axis=-1)
    return columns * present[..., None]


def process_inputs(state: SystemState) -> npt.NDArray[np.float32]:
    """Inputs of a state in NumPy arrays (E, N, K, PROCESS_INPUTS), 0 for processes that are off.

    Args:
        state: The system (E, ...), with :data:`RISK` in the arrays of ``presence`` if failures are read.

    Returns:
        No rows, (0, 0, 0, PROCESS_INPUTS), where devices neither warm up nor fail.
    """
    heat, risk = state.processes.get("heat"), state.processes.get(PRESENCE, {}).get(RISK)
    if heat is None and risk is None:
        return np.zeros((0, 0, 0, PROCESS_INPUTS), np.float32)
    columns = np.zeros((*state.present.shape, PROCESS_INPUTS), np.float32)
    if heat is not None:
        columns[..., :HEAT_INPUTS] = heat_columns(heat["headroom"], heat["share"], state.present)
    if risk is not None:
        columns[..., HEAT_INPUTS:] = risk_columns(risk, state.present)
    return columns

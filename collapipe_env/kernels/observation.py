"""Scaling of flat observations, row by row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapipe_env.ground.arrays import BoolArray, IntArray
from collapipe_env.ground.compiled import compiled


@compiled
def scale_rows(
    scales: npt.NDArray[np.float32], present: BoolArray, hidden: IntArray, out: npt.NDArray[np.float32]
) -> None:
    """Turn the values of features into numbers of the observation.

    Args:
        scales: Factor, shift, least and greatest number of each column (4, D).
        present: Whether each device is there (E, N K).
        hidden: First columns of features of devices that are 0 for absent ones.
        out: Values (E, D); receives ``value * factor - shift``, within the bounds.
    """
    E, D = out.shape
    for e in range(E):
        for i in range(D):
            out[e, i] = min(max(out[e, i] * scales[0, i] - scales[1, i], scales[2, i]), scales[3, i])
        for k in range(present.shape[1]):
            if not present[e, k]:
                for first in hidden:
                    out[e, first + k] = 0.0

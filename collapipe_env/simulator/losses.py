"""Which micro-batches a round loses (`system_model.md` section 7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from collapipe_env.simulator.draws import FloatArray, RowDraws, uniform


class MicroBatchLosses:
    """Draws survival of every micro-batch in every local step.

    The same numbers are drawn whatever the allocation is, so that schedulers meet the same luck on the
    same seed (common random numbers).

    Args:
        num_envs: ``E``.
        clusters: ``N``.
        local_steps: ``H``.
        max_micro_batches: Largest allowed ``M``.
        lossy: False where the link mode never loses a micro-batch.
    """

    def __init__(
        self, num_envs: int, clusters: int, local_steps: int, max_micro_batches: int, *, lossy: bool
    ) -> None:
        self._shape = (num_envs, clusters, local_steps, max_micro_batches)
        self._draws = RowDraws(num_envs, self._shape[1:], uniform) if lossy else None

    def reset(self, rows: npt.NDArray[np.intp], rngs: Sequence[np.random.Generator]) -> None:
        """Give rows new generators."""
        if self._draws is not None:
            self._draws.reset(rows, rngs)

    def draw(self, survival: FloatArray) -> npt.NDArray[np.bool_]:
        """Return which micro-batches survive (E, N, H, M_max); only the first ``M_n`` of each count.

        Args:
            survival: Probability that a micro-batch survives a local step (E, N).
        """
        if self._draws is None:
            return np.ones(self._shape, dtype=np.bool_)
        survived: npt.NDArray[np.bool_] = self._draws.take() < survival[..., None, None]
        return survived

"""TITANIC (Su, Hu, Li, Li, INFOCOM 2024, DOI 10.1109/INFOCOM52122.2024.10621164), as we read it.

Stated by the paper's abstract: a subset of clients is selected by an efficiently solved integer
optimisation, and the model is partitioned over them. Its objective and constraints are not public to us;
the integer programme here is our reconstruction ([R], ``algorithms.md`` section 3)::

    min sum_i x_i T_i + lambda sum_i x_i,   T_i = z_i tau_i + c_i
    s.t. sum_i z_i = L,  x_i <= z_i <= cap_i x_i,  x_i in {0, 1}

with ``tau_i`` a block's forward and backward time on client ``i`` for the mini-batch, ``c_i`` the time to
exchange activations and gradients with the data owner, and ``z_i`` the blocks it gets. The data owner of
this system is the CU, which takes part in every plan, so the constraint that it is chosen holds by itself.
Launches are part of ``tau_i``, overheads and latencies of messages part of ``c_i`` ([X]). The update at the
end of a local step, which all clients do at once, has no place in a sum: the round is charged with it, and
with what comes once in a round (collection, upload, new weights).

Model parallelism is sequential (``M = 1``), and neither powers nor bandwidth are controlled; that the
paper has no pipelining is our assumption.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray
from collapipe_env.ground.errors import AllocationError
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.state import SystemState

from .planning.block_partition import optimal_blocks
from .planning.chain_problem import ChainProblem, chain_problems
from .planning.plan_baseline import SegmentBaseline


def select_clients(total: int, cap: IntArray, block_s: FloatArray, client_s: FloatArray) -> IntArray:
    """Solve the integer programme exactly: a partition whose hop to a client costs the same from anywhere.

    Args:
        total: ``L``.
        cap: Blocks that each client can hold (K,), summing to at least ``L``.
        block_s: ``tau`` (K,) [s].
        client_s: Cost of choosing a client, ``c + lambda`` (K,) [s].

    Returns:
        Blocks ``z`` of each client (K,).
    """
    hop_s = np.zeros((len(cap) + 1, len(cap) + 1))
    hop_s[:, 1:] = client_s
    return optimal_blocks(total, cap, block_s, hop_s, False, np.inf)[1]


class Titanic(SegmentBaseline):
    """Client selection and partition in every round, without pipelining.

    Args:
        client_price_s: ``lambda``, seconds that using one more client must save, >= 0.
        micro_batches: Wanted number of micro-batches, 1 by default; the nearest allowed one is used.

    Raises:
        AllocationError: If the price is negative or not finite.
    """

    name = "TITANIC"
    default_micro_batches = 1

    def __init__(
        self, scenario: Scenario, *, client_price_s: float = 0.0, micro_batches: int | None = None
    ) -> None:
        super().__init__(scenario, micro_batches=micro_batches)
        if not 0.0 <= client_price_s < np.inf:
            raise AllocationError(
                f"Titanic(client_price_s = {client_price_s!r}): expected a finite number >= 0"
            )
        self.client_price_s = float(client_price_s)

    def segments(self, state: SystemState, cap: IntArray) -> IntArray:
        """See :meth:`SegmentBaseline.segments`."""
        blocks, total = np.zeros_like(cap), self.parameters.costs.blocks
        for at, problem in chain_problems(self.parameters, state).items():
            block_s, client_s = self.client_times(problem)
            blocks[at] = select_clients(total, cap[at], block_s, client_s + self.client_price_s)
        return blocks

    def client_times(self, problem: ChainProblem) -> tuple[FloatArray, FloatArray]:
        """The times ``tau`` and ``c`` of every device of a cluster (K,) [s], of a whole mini-batch."""
        block_s, hop_s = problem.both_ways(self.micro_batches)
        # A latency passes once each way in a pipeline of micro-batches, which takes 1 / M of these times.
        return block_s, hop_s[0, 1:] + 2.0 * self.micro_batches * self.parameters.overheads.latency_s

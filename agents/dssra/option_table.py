"""Options of a cluster: micro-batches, setting of recomputation and blocks left to the server.

An option is the index of a row of a table, so the search passes one whole number where it would otherwise
pass three.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import Array, IntArray
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.parameters import Parameters

MICRO_BATCHES, SETTING, SERVER_BLOCKS = range(3)
"""Columns of the table: ``M``; 0 for the workload's setting of recomputation and 1 for the other one; encoder
blocks that the server runs."""


def option_table(parameters: Parameters, most_server: int) -> IntArray:
    """Return all options of a scenario (O, 3), in ascending order of setting, ``M`` and blocks on the server.

    Args:
        most_server: Most blocks that a cluster may leave to the server.
    """
    settings = range(1 if parameters.other_costs is None else 2)
    sizes, blocks = parameters.micro_batch_choices, range(most_server + 1)
    return np.array([(M, setting, kept) for setting in settings for M in sizes for kept in blocks])


def options_with(
    table: IntArray, micro_batches: Array, setting: Array | int = 0, server_blocks: Array | int = 0
) -> IntArray:
    """Options of allowed numbers of micro-batches, with a setting and blocks on the server (...)."""
    sizes, per_size = np.unique(table[:, MICRO_BATCHES]), table[:, SERVER_BLOCKS].max() + 1
    place = setting * len(sizes) + np.searchsorted(sizes, micro_batches)
    found: IntArray = place * per_size + server_blocks
    return found


def options_of(plan: Allocation, table: IntArray, *, recompute: bool) -> IntArray:
    """Options of a plan's clusters (..., N).

    Args:
        plan: The plan (...), of allowed numbers of micro-batches.
        recompute: The workload's setting of recomputation.
    """
    chosen = np.asarray(plan.said("recompute"))
    other = (chosen >= 0) & ((chosen > 0) != recompute)
    return options_with(table, np.asarray(plan.micro_batches), other, np.asarray(plan.server.server_blocks))


def recomputes(options: IntArray, *, recompute: bool) -> IntArray:
    """Whether clusters recompute (..., N), 0 or 1.

    Args:
        options: Rows of their options (..., N, 3).
        recompute: The workload's setting of recomputation.
    """
    chosen: IntArray = ((options[..., SETTING] == 1) != recompute).astype(np.int64)
    return chosen

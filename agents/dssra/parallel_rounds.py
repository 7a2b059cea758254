"""The rounds of a whole batch: compiled searches in threads, without the interpreter's lock.

Every environment is solved on its own, so its result depends neither on the batch nor on the threads.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray, loop_record
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.parameters import Numbers

from .round_input import RoundInput
from .round_solver import SearchBudget, solve_rounds

_PIECES = 4  # per thread: searches take different times


class OpenPlan(NamedTuple):
    """Plans of a batch, by device.

    Attributes:
        segments: Blocks (E, N, K).
        power: Powers of CUs and devices (E, N, K+1) [W].
        share: Shares (E, N).
        option: Options (E, N) (see :mod:`.option_table`).
    """

    segments: IntArray
    power: FloatArray
    share: FloatArray
    option: IntArray


def default_threads() -> int:
    """Threads for a batch: one per processor, but only one in a worker process.

    Processes that ``multiprocessing`` started share the processors already. ``NUMBA_NUM_THREADS`` and
    ``OMP_NUM_THREADS`` lower the number.

    Raises:
        AllocationError: ``OMP_NUM_THREADS`` is not a number (or a list that begins with one) above 0.
    """
    if multiprocessing.parent_process() is not None:
        return 1
    config: Any = numba.config  # counts the processors that this process may use
    threads = int(config.NUMBA_NUM_THREADS)
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if limit:
        if not limit.isdecimal() or int(limit) < 1:
            raise AllocationError(f"OMP_NUM_THREADS: expected a number of threads, at least 1, got {limit!r}")
        threads = min(threads, int(limit))
    return threads


@lru_cache(maxsize=256)
def as_record(parameters: Numbers) -> np.void:
    """The scenario's scalars as one record (:func:`~collapipe_env.ground.arrays.loop_record`), shared."""
    record: np.void = loop_record(parameters)[0]
    return record


def solve_batch(
    inputs: RoundInput,
    parameters: Numbers,
    budget: SearchBudget,
    threads: int,
    start: OpenPlan | None = None,
) -> OpenPlan:
    """Find the plans of all environments.

    The threads end with the call, as the process may fork before the next one.

    Args:
        inputs: The environments, with a leading axis E.
        budget: How long to search each environment.
        threads: Most threads, >= 1.
        start: Plans to begin with; by default the search makes its own.
    """
    environments, _, clusters, devices = inputs.cap.shape
    plan = OpenPlan(
        np.empty((environments, clusters, devices), dtype=np.int64),
        np.empty((environments, clusters, devices + 1)),
        np.empty((environments, clusters)),
        np.empty((environments, clusters), dtype=np.int64),
    )
    for array, first in () if start is None else zip(plan, start, strict=True):
        array[...] = first
    record: Any = as_record(parameters)

    def solve(first: int, last: int) -> None:
        solve_rounds(first, last, inputs, record, budget, start is not None, *plan)

    threads = min(threads, environments)
    if threads <= 1:
        solve(0, environments)
        return plan
    edges = np.linspace(0, environments, min(threads * _PIECES, environments) + 1).astype(int).tolist()
    with ThreadPoolExecutor(threads) as pool:
        # Reading the results raises an error from a thread.
        list(pool.map(solve, edges[:-1], edges[1:]))
    return plan

"""The rounds of a whole batch: compiled searches in threads, without the interpreter's lock.

Every environment is solved on its own, so its result depends neither on the batch nor on the threads. The
search knows GPipe, recomputation and blocks on the server ([X]); plans go in and come out as allocations.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np

from collapipe_env.ground.arrays import FloatArray, IntArray, loop_record
from collapipe_env.ground.errors import AllocationError
from collapipe_env.physics.allocation import COMMON, COPIES, Allocation
from collapipe_env.physics.parameters import Numbers

from .option_table import MICRO_BATCHES, SERVER_BLOCKS, SETTING, options_of, recomputes
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


@dataclass(frozen=True)
class Openings:
    """Decisions beyond CollaPipe's own that a scenario leaves open.

    Attributes:
        server_blocks: Blocks on the server.
        recompute: Recomputation.
        recomputes: The workload's own setting of recomputation.
        options: All options of a cluster (O, 3).
    """

    server_blocks: bool
    recompute: bool
    recomputes: bool
    options: IntArray


def open_plan(allocation: Allocation, openings: Openings) -> OpenPlan:
    """Return plans from allocations (E, ...) with one device in each stage; schedules are left out."""
    return OpenPlan(
        np.asarray(allocation.device_blocks),
        np.asarray(allocation.node_power, dtype=np.float64),
        np.asarray(allocation.bandwidth, dtype=np.float64),
        options_of(allocation, openings.options, recompute=openings.recomputes),
    )


def allocation_of(plan: OpenPlan, openings: Openings) -> Allocation:
    """Return allocations of plans; fields of closed decisions are left out."""
    chosen = openings.options[plan.option]
    kept = chosen[..., SERVER_BLOCKS]
    extra: dict[str, Any] = {}
    if openings.recompute:
        extra["recompute"] = recomputes(chosen, recompute=openings.recomputes)
    if openings.server_blocks:
        extra["server_blocks"] = kept
        extra["server_mode"] = np.where((kept > 0).any(axis=-1), COPIES, COMMON)
    return Allocation(
        blocks=plan.segments,
        micro_batches=chosen[..., MICRO_BATCHES],
        bandwidth=plan.share,
        device_power=plan.power[..., 1:],
        cu_power=plan.power[..., 0],
        **extra,
    )


def search_open_rounds(
    inputs: RoundInput,
    parameters: Numbers,
    budget: SearchBudget,
    threads: int,
    openings: Openings,
    start: OpenPlan | None = None,
) -> Iterator[OpenPlan]:
    """Search the whole open space, and where blocks may be on the server, also without any there.

    Args:
        inputs: The environments (E, ...).
        budget: How long to search each environment.
        threads: Most threads, >= 1.
        openings: The open decisions.
        start: Plans to begin with; by default the search makes its own.
    """
    changed = ("price", "common", "moving_noise")  # by a search
    searches = [(inputs, start)]
    if openings.server_blocks and len(inputs.choices):
        # Once blocks are on the server, the search does not always find its way back.
        own = np.ascontiguousarray(inputs.choices[:, openings.options[inputs.choices[0], SETTING] == 0])
        closed = inputs._replace(common=inputs.common.copy(), choices=own)
        closed.common["most_server"] = 0
        searches.append((closed, None))
    for given, first in searches:
        copied = given._replace(**{name: getattr(given, name).copy() for name in changed})
        yield solve_batch(copied, parameters, budget, threads, first)

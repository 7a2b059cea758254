"""Delay, energy, memory and losses of one round under an allocation: a pure function.

The simulator calls it for the rounds that are played. Model-based schedulers call it for candidate
allocations, which have extra leading axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TypeAlias

import numpy as np

from collapipe_env.ground.arrays import Array, FloatArray, loop_array
from collapipe_env.ground.records import declarations, made
from collapipe_env.ground.registry import Registry
from collapipe_env.kernels.cluster_chain import System
from collapipe_env.kernels.plain_round import plain_round
from collapipe_env.kernels.round_rows import OPENED, PlainPlan, places_of
from collapipe_env.physics.allocation import Allocation
from collapipe_env.simulator.general_costs import absent_delay, general_round_costs
from collapipe_env.simulator.own_results import checked_price
from collapipe_env.simulator.round import RoundCosts, RowsOfLoop, Terms, with_terms
from collapipe_env.simulator.running import running_state
from collapipe_env.simulator.state import Parameters, SystemState

_TYPES = {"real": np.dtype(np.float64), "whole": np.dtype(np.int64), "truth": np.dtype(np.bool_)}


class _LoopFields:
    """Fields of a record that the loop reads, and the form in which it takes them."""

    def __init__(self, record: type, names: Sequence[str]) -> None:
        declared = [is_ for name in names if (is_ := declarations(record).get(name))]
        self._axes = [is_.axes for is_ in declared]
        self._kinds = [np.ndarray] * len(declared)
        self._types = [_TYPES[is_.kind] for is_ in declared]
        self._read = attrgetter(*names[: len(declared)])
        self.shapes = lru_cache(maxsize=16)(self._shapes)

    def _shapes(self, E: int, N: int, K: int) -> list[tuple[int, ...]]:
        sizes = {"": (), "N": (N,), "K": (K,), "K+1": (K + 1,)}
        return [sum((sizes[axis] for axis in axes.split()), (E,)) for axes in self._axes]

    def of(self, record: Allocation | SystemState, E: int, N: int, K: int) -> Sequence[Array] | None:
        """The arrays; ``None`` where one has another shape or library."""
        arrays = self._read(record)
        if list(map(type, arrays)) != self._kinds or list(map(_shape, arrays)) != self.shapes(E, N, K):
            return None
        if list(map(_type, arrays)) != self._types or not all(map(_writable, arrays)):
            return list(map(loop_array, arrays, self._types))
        return arrays


_shape, _type, _writable = attrgetter("shape"), attrgetter("dtype"), attrgetter("flags.carray")
_PLAN = _LoopFields(Allocation, PlainPlan._fields)
_ORDERS = _LoopFields(Allocation, ("schedule", "caps"))
_SYSTEM = _LoopFields(SystemState, (*System._fields, "present"))
_ALWAYS_READ = ("energy_ratio", "survival")
_CLOSED: FloatArray = np.empty((0, 0, 0))
_FREE: FloatArray = np.empty((0, 0))

Pricing: TypeAlias = Callable[[RoundCosts, Parameters, SystemState, Allocation], Terms | None]

PRICES: Registry[Pricing] = Registry(
    "price",
    {
        "server": "collapipe_env.dynamics.server_queue:encoder_terms",
        "replicas": "collapipe_env.dynamics.replicas:replica_terms",
        "migration": "collapipe_env.dynamics.migration:migration_terms",
    },
)
"""Prices beyond the physics of a round, in the order in which they are added: functions of the physics'
round, the scalars, the system and the plan, which return terms; ``None`` adds nothing. A price is on where
the scenario has a process, or terms, of its name."""


def round_costs(
    parameters: Parameters,
    state: SystemState,
    allocation: Allocation,
    interference_w: Array | None = None,
) -> RoundCosts:
    """Evaluate one round (`system_model.md` sections 3 to 7).

    In NumPy arrays with one batch axis, plans with one device in each stage and no encoder blocks on the
    server go through a compiled loop, all others through :func:`general_round_costs`; the results agree
    apart from rounding.

    Args:
        state: Channels, speeds, memories; leading axes broadcastable with the allocation's.
        interference_w: Interference to use instead of the allocation's own (..., N) [W], for solvers that
            hold it fixed. Moments travel under the interference of their own phase.
    """
    costs: RoundCosts | None = None
    if allocation.clock_cap is not None:
        state = running_state(state, allocation)
    if allocation.stage is None and allocation.server_mode is None:
        costs = _looped(parameters, state, allocation, interference_w)
    if costs is None:
        costs = general_round_costs(parameters, state, allocation, interference_w)
    found = []
    for price in _prices(parameters.prices, PRICES.changes):
        terms = price(costs, parameters, state, allocation)
        if terms is not None:
            found.append(terms)
    return with_terms(costs, parameters, state, found) if found else costs


_PRICES_FOUND: dict[tuple[tuple[str, ...], int], tuple[Pricing, ...]] = {}


def _prices(names: tuple[str, ...], changes: int) -> tuple[Pricing, ...]:
    key = names, changes
    if key not in _PRICES_FOUND:  # a dictionary, because PyTorch's compiler goes through caches of functools
        shipped, found = PRICES.shipped(), {name: PRICES.get(name) for name in PRICES if name in names}
        each = (f if name in shipped else checked_price(name, f) for name, f in found.items())
        _PRICES_FOUND[key] = tuple(each)
    return _PRICES_FOUND[key]


def _looped(
    parameters: Parameters, state: SystemState, plan: Allocation, interference_w: Array | None
) -> RoundCosts | None:
    """Price plans in a compiled loop; ``None`` where only the general form takes them.

    The loop takes NumPy arrays with one batch axis, the plan's and the state's.
    """
    blocks = plan.blocks
    if type(blocks) is not np.ndarray or blocks.ndim != 3:
        return None
    if blocks.dtype.kind != "i" or plan.micro_batches.dtype.kind != "i":
        return None
    if plan.is_scheduled and np.any(np.asarray(plan.chunks) > 1):
        return None
    E, N, K = blocks.shape
    chosen, system = _PLAN.of(plan, E, N, K), _SYSTEM.of(state, E, N, K)
    orders = None if plan.schedule is None else _ORDERS.of(plan, E, N, K)
    if chosen is None or system is None or (orders is None and plan.schedule is not None):
        return None
    opened = _opened(parameters, state, plan)
    if opened.size and opened.shape[1:] != (E, N):
        return None
    fixed = _FREE if interference_w is None else np.broadcast_to(interference_w, (E, N)).astype(np.float64)
    places, length = places_of(E, N, K)
    block = np.empty(length)
    plain_round(parameters.record, block, *system, *chosen, opened, fixed)
    weights: dict[str, FloatArray] = {}
    if orders is not None:
        # Imported here: plans with GPipe need not load the compiled schedules.
        from collapipe_env.kernels.scheduled_round import WeightRows, scheduled_round

        some, of_stages = np.empty((len(WeightRows._fields), E, N)), np.empty((E, N, K))
        scheduled_round(parameters.record, block, some, of_stages, *orders, *system, *chosen, opened)
        weights = {**dict(zip(WeightRows._fields, some, strict=True)), "compute_weight": of_stages}
    return made(
        RoundCosts,
        _loop=RowsOfLoop(block, places, parameters.overheads, weights),
        # Infos hand the delay out: as a view it would keep the whole block.
        delay=block[places["delay"][0]].copy(),
        **{name: block[places[name][0]].reshape(places[name][1]) for name in _ALWAYS_READ},
        allocation=plan,
        budget_period_s=parameters.budget_period_s,
        idle_round_s=parameters.idle_round_s,
        local_steps=plan.taken_steps(
            parameters.costs.local_steps, decided=bool(parameters.local_steps_choices)
        ),
        plays=plan.plays,
        server_budget_j=parameters.server.budget_j,
    )


def _opened(parameters: Parameters, state: SystemState, plan: Allocation) -> FloatArray:
    """Rows of :data:`~collapipe_env.kernels.round_rows.OPENED` of a plan (rows, E, N)."""
    if plan.recompute is plan.local_steps is plan.participates is None:
        return _CLOSED
    other: Array = 0.0
    if plan.recompute is not None:
        own = parameters.costs.training_memory.recompute
        other = (plan.recompute >= 0) & ((plan.recompute > 0) != own)
    steps = plan.whole_steps(parameters.costs.local_steps)
    plays = plan.plays
    absent = -1.0 if plays.all() else np.where(plays, -1.0, absent_delay(parameters, state, plan))
    opened = np.empty((len(OPENED), *plays.shape))
    opened[OPENED.other_setting], opened[OPENED.local_steps], opened[OPENED.counted] = other, steps, absent
    return opened

"""Delay, energy, memory and losses of one round under an allocation: a pure function.

The simulator calls it for the rounds that are played. Model-based schedulers call it for candidate
allocations, which have extra leading axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import numpy as np

from collapipe_env.ground.arrays import Array, FloatArray, loop_array
from collapipe_env.ground.records import declarations
from collapipe_env.ground.registry import Registry
from collapipe_env.kernels.plain_round import plain_round
from collapipe_env.kernels.round_rows import CLUSTER, DEVICE, NODE, ROUND, PlainPlan, System
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.elements import PipelineElements
from collapipe_env.simulator.general_costs import absent_delay, general_round_costs
from collapipe_env.simulator.own_results import checked_price
from collapipe_env.simulator.round import RoundCosts, Terms, with_terms
from collapipe_env.simulator.running import running_state
from collapipe_env.simulator.state import Parameters, SystemState

T = TypeVar("T")
_TYPES = {"real": np.dtype(np.float64), "whole": np.dtype(np.int64)}
_PLAN, _SYSTEM = (
    tuple((name, of[name].axes, _TYPES[of[name].kind]) for name in names if name in of)
    for of, names in (
        (declarations(Allocation), PlainPlan._fields),
        (declarations(SystemState), System._fields),
    )
)
_ROWS = (*ROUND._fields, *CLUSTER._fields, *NODE._fields, *DEVICE._fields)
_CHAIN = tuple(name for name in _ROWS if name in PipelineElements.__dataclass_fields__)
_CLOSED: FloatArray = np.empty((0, 0, 0))

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

    Plain plans in NumPy arrays with one batch axis go through a compiled loop, all others through
    :func:`general_round_costs`; the results agree apart from rounding.

    Args:
        state: Channels, speeds, memories; leading axes broadcastable with the allocation's.
        interference_w: Interference to use instead of the allocation's own (..., N) [W], for solvers that
            hold it fixed. Moments travel under the interference of their own phase.
    """
    costs: RoundCosts | None = None
    if allocation.clock_cap is not None:
        state = running_state(state, allocation)
    if interference_w is None and allocation.is_plain:
        costs = _looped(parameters, state, allocation)
    if costs is None:
        costs = general_round_costs(parameters, state, allocation, interference_w)
    found = []
    for price in _prices(parameters.prices, PRICES.changes):
        terms = price(costs, parameters, state, allocation)
        if terms is not None:
            found.append(terms)
    return with_terms(costs, parameters, state, found) if found else costs


@lru_cache(maxsize=16)
def _prices(names: tuple[str, ...], changes: int) -> tuple[Pricing, ...]:  # noqa: ARG001 - a key
    shipped, found = PRICES.shipped(), {name: PRICES.get(name) for name in PRICES if name in names}
    return tuple(f if name in shipped else checked_price(name, f) for name, f in found.items())


def _looped(parameters: Parameters, state: SystemState, plan: Allocation) -> RoundCosts | None:
    """Price plain plans in a compiled loop; ``None`` where only the general form takes the arrays.

    The loop takes NumPy arrays with one batch axis, the plan's and the state's.
    """
    blocks = plan.blocks
    if type(blocks) is not np.ndarray or blocks.ndim != 3:
        return None
    if blocks.dtype.kind != "i" or plan.micro_batches.dtype.kind != "i":
        return None
    E, N, K = blocks.shape
    sizes = {
        "": (E,),
        "N": (E, N),
        "N N": (E, N, N),
        "N K": (E, N, K),
        "N K+1": (E, N, K + 1),
        "N K+1 K+1": (E, N, K + 1, K + 1),
    }
    chosen, system = _in_loop_form(plan, _PLAN, sizes), _in_loop_form(state, _SYSTEM, sizes)
    opened = _opened(parameters, state, plan)
    if chosen is None or system is None or (opened.size and opened.shape[1:] != (E, N)):
        return None
    written = (
        np.empty((len(ROUND), E)),
        np.empty((len(CLUSTER), E, N)),
        np.empty((len(NODE), E, N, K + 1)),
        np.empty((len(DEVICE), E, N, K)),
    )
    plain_round(parameters.numbers, System(*system), PlainPlan._make((*chosen, opened)), *written)
    rounds, clusters, nodes, devices = written
    rows = (*rounds, *clusters, *nodes, *devices)
    named: dict[str, Any] = dict(zip(_ROWS, rows, strict=True))
    times, extra = {name: named.pop(name) for name in _CHAIN}, parameters.overheads
    own_steps = parameters.costs.local_steps
    times |= {"hop_latency": extra.latency_s, "edge_latency": extra.edge_latency_s}
    named |= {
        "elements": _filled(PipelineElements, times),
        "allocation": plan,
        "budget_period_s": parameters.budget_period_s,
        "idle_round_s": parameters.idle_round_s,
        "local_steps": plan.taken_steps(own_steps, decided=bool(parameters.local_steps_choices)),
        "plays": plan.plays,
        "server_budget_j": parameters.server.budget_j,
    }
    return _filled(RoundCosts, named)


def _filled(kind: type[T], values: Mapping[str, Any]) -> T:
    """A frozen dataclass with some values, the others by default; its own constructor sets field by field."""
    found = object.__new__(kind)
    found.__dict__.update(values)
    return found


def _in_loop_form(
    record: Allocation | SystemState,
    fields: Sequence[tuple[str, str, np.dtype[Any]]],
    sizes: Mapping[str, tuple[int, ...]],
) -> list[Array] | None:
    """Arrays of some fields as loops take them; ``None`` where one has another shape or library."""
    found = []
    for name, axes, kind in fields:
        array = getattr(record, name)
        if type(array) is not np.ndarray or array.shape != sizes[axes]:
            return None
        if array.dtype != kind or not array.flags.carray:
            array = loop_array(array, kind)
        found.append(array)
    return found


def _opened(parameters: Parameters, state: SystemState, plan: Allocation) -> FloatArray:
    """Rows of :data:`~collapipe_env.kernels.round_rows.OPENED` of a plan (rows, E, N)."""
    if plan.recompute is plan.local_steps is plan.participates is None:
        return _CLOSED
    other: Array = np.zeros(plan.micro_batches.shape)
    if plan.recompute is not None:
        own = parameters.costs.training_memory.recompute
        other = (plan.recompute >= 0) & ((plan.recompute > 0) != own)
    steps = plan.whole_steps(parameters.costs.local_steps)
    absent = np.where(plan.plays, -1.0, absent_delay(parameters, state, plan))
    return loop_array(np.stack((other, steps, absent)), np.float64)

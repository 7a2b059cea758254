"""Other whole numbers for the clusters of plans: blocks, micro-batches, and those of open decisions ([X])."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from collapipe_env.ground.arrays import Array, BoolArray, IntArray
from collapipe_env.physics.allocation import Allocation, with_values
from collapipe_env.physics.parameters import Parameters
from collapipe_env.simulator.decision import Jump, opened_rows
from collapipe_env.simulator.memory_choices import SCHEDULE_CHOICES
from collapipe_env.simulator.state import SystemState

MOST_MOVES = 1000
"""Most moves of blocks between two devices of a cluster, over all clusters; larger systems try none."""


class Jumps(NamedTuple):
    """Other values for plans, ``J`` of them.

    Attributes:
        kinds: What each changes.
        values: New values by field (R, J, ...).
        changed: Clusters that each changes (R, J, N), bool.
    """

    kinds: tuple[str, ...]
    values: Mapping[str, Array]
    changed: BoolArray

    def chosen(self, plan: Allocation, rows: IntArray, choice: IntArray) -> Allocation:
        """Plans in which each cluster takes the values of one jump.

        Args:
            plan: The plans that the jumps belong to (R, ...).
            rows: Plan to begin with (Q,).
            choice: Number of the jump of each cluster (Q, N), -1 for none.
        """
        take, place, base = choice >= 0, np.maximum(choice, 0), plan[rows]
        found, every = {}, np.arange(choice.shape[1])
        for name, values in self.values.items():
            now = np.asarray(base.given(name))
            new = values[rows[:, None], place, every]
            found[name] = np.where(take if now.ndim == 2 else take[..., None], new, now)
        return with_values(base, found)


def jumps_from(parameters: Parameters, state: SystemState, plan: Allocation) -> Jumps:
    """Other values for plans: each cluster's neighbours.

    Args:
        state: The system of each plan (R, ...).
        plan: The plans (R, ...), with a value for every open decision.
    """
    found = [*_moves_of_blocks(plan), *_orders(parameters, plan)]
    for row in opened_rows(parameters.opened):
        found += row.jumps(row, parameters, state, plan)
    names = sorted({name for jump in found for name in jump.values})
    now = {name: np.asarray(plan.given(name)) for name in names}
    values = {
        name: np.stack([np.asarray(jump.values.get(name, now[name])) for jump in found], axis=1)
        for name in names
    }
    changed = np.zeros((len(plan.blocks), len(found), plan.blocks.shape[1]), dtype=bool)
    for name, each in values.items():
        other = each != now[name][:, None]
        changed |= other if other.ndim == 3 else other.any(axis=-1)
    return Jumps(tuple(jump.kind for jump in found), values, changed & plan.plays[:, None])


def is_large(plan: Allocation) -> bool:
    """Whether single blocks have more than :data:`MOST_MOVES` ways to move."""
    N, K = plan.blocks.shape[1:]
    return bool(N * K * (K - 1) > MOST_MOVES)


def _moves_of_blocks(plan: Allocation) -> Iterator[Jump]:
    """A block, or all blocks, of one device given to another; two devices' blocks exchanged."""
    if is_large(plan):
        return
    blocks, K = plan.blocks, plan.blocks.shape[2]
    own = np.eye(K, dtype=blocks.dtype)
    for giver in range(K):
        held = blocks[..., giver, None]
        for taker in range(K):
            if taker == giver:
                continue
            way = own[taker] - own[giver]
            yield Jump("blocks", {"blocks": blocks + np.minimum(held, 1) * way})
            yield Jump("blocks", {"blocks": blocks + np.where(held > 1, held, 0) * way})
            if giver < taker:
                more = np.where(blocks[..., taker, None] > 0, held - blocks[..., taker, None], 0)
                yield Jump("blocks", {"blocks": blocks + np.where(held > 0, more, 0) * way})


def _orders(parameters: Parameters, plan: Allocation) -> Iterator[Jump]:
    """Every number of micro-batches, with every schedule where that is open."""
    for M in parameters.micro_batch_choices:
        values: dict[str, Array] = {"micro_batches": np.full_like(plan.micro_batches, M)}
        if "schedule" not in parameters.opened:
            yield Jump("order", values)
            continue
        for schedule in SCHEDULE_CHOICES:
            yield Jump("order", {**values, "schedule": np.full_like(plan.micro_batches, schedule)})


def explicit(parameters: Parameters, plan: Allocation) -> Allocation:
    """The plan with a value for every open decision."""
    found: dict[str, Array] = {}
    for view in (plan.schedules, plan.server):
        found |= view._asdict()
    rows = opened_rows(parameters.opened)
    names = {name: declared for row in rows for name, declared in row.fields.items()}
    values = {
        name: found[name] if name in found else plan.said(name, declared) for name, declared in names.items()
    }
    return with_values(plan, values)


def settled(parameters: Parameters, state: SystemState, plan: Allocation, before: Allocation) -> Allocation:
    """The plan with what follows from its whole numbers.

    A device that had no blocks begins with the power of its CU; decisions settle their own values.

    Args:
        state: The system of each plan (R, ...).
        plan: The plans (R, ...).
        before: The plans that they were made of (R, ...).
    """
    new = (plan.blocks > 0) & (before.blocks == 0)
    power = np.where(new, np.maximum(plan.device_power, plan.cu_power[..., None]), plan.device_power)
    plan = with_values(plan, {"device_power": power})
    for row in opened_rows(parameters.opened):
        values = row.settled(parameters, state, plan)
        plan = with_values(plan, values) if values else plan
    return plan

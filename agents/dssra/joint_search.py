"""Joint search of all decisions of a round from a plan, with exact prices ([X]).

DSSRA's own search (:mod:`.round_solver`) knows GPipe, full clocks and clusters that do not wait for each
other. Where a scenario opens schedules, clocks or decisions of one's own, or has a common head, the search
here continues from its plan. In turns every cluster takes the best of a table of other whole numbers
(:mod:`.joint_jumps`) at the others' plans, and all powers, shares and clocks follow (:mod:`.joint_slides`).
The best jumps of each kind are compared only after their powers have followed, as a new schedule or number of
micro-batches wants other powers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.physics.allocation import Allocation, stack_allocations, with_values
from collapipe_env.simulator.memory_choices import SCHEDULE_CHOICES
from collapipe_env.simulator.state import SystemState

from .joint_jumps import Jumps, explicit, is_large, jumps_from, settled
from .joint_prices import JointPrices, Worth, either
from .joint_slides import Improved, slide

if TYPE_CHECKING:
    from collections.abc import Sequence


SEARCHED_BEFORE = frozenset({"recompute", "server_blocks", "participation", "local_steps"})
"""Open decisions without a joint search: DSSRA's own knows two of them, its objective judges no other."""
TEMPERATURES = (6e-2, 1e-2, 5e-4)
"""Temperatures of the soft maxima, over the round's delay."""
STARTS = 5
"""Most starts of an environment that are improved beyond the first steps."""
KEEP = 3
"""Most plans of an environment that are improved at each temperature but the first."""
TURNS = 12
"""Most turns of jumps at each temperature."""
STEPS, FOLLOWING, LAST = 4, 2, 20
"""Most steps of the numbers before the turns, after a jump, and at the end."""
LARGE_TURNS, LARGE_LAST = 2, 12
"""The same of turns and of the end in systems that are too large for moves of single blocks."""
NEAR = 0.1
"""Rise of the price, over the worth of the round's delay, up to which a jump is tried with new numbers."""
WORTHWHILE = 2e-4
"""Least fall of a turn."""


def search_jointly(worth: Worth, state: SystemState, starts: Sequence[Allocation]) -> Allocation:
    """Improve plans.

    Args:
        worth: What is minimised.
        state: The system (E, ...).
        starts: Plans to begin with (E, ...), the first of which can be played.

    Returns:
        Plans (E, ...) that are no worse than the first.
    """
    p = worth.parameters
    turns, last = (LARGE_TURNS, LARGE_LAST) if is_large(starts[0]) else (TURNS, LAST)
    given = [explicit(p, plan) for plan in starts]
    pricing = JointPrices(worth, state, given[0])
    if "schedule" in p.opened:
        given = [
            settled(p, state, with_values(plan, {"schedule": np.full_like(plan.schedule, kind)}), plan)
            for kind in SCHEDULE_CHOICES
            for plan in given
        ]
    environments, many = len(state.present), len(starts)
    plan, rows = stack_allocations(given, np.concatenate), np.tile(np.arange(environments), len(given))
    cold = np.zeros(len(rows))
    value = pricing.whole(pricing.of(plan, rows), rows, cold)
    # Starts that cannot be played give way to the first, which runs GPipe.
    playable = np.isfinite(value)
    plan = either(plan[rows], plan, playable)
    value = np.where(playable, value, value[rows])
    first = _least(value, rows)
    best, least = plan[first], value[first]
    now = slide(pricing, plan, rows, TEMPERATURES[0] * pricing.delay[rows], STEPS)
    # Each start goes on under its best schedule.
    kept = _least(now.value, np.tile(np.arange(many * environments), len(given) // many))
    kept = kept[_least(now.value[kept], rows[kept], STARTS)]
    now, rows = now.rows(kept), rows[kept]
    for temperature in TEMPERATURES:
        warm = temperature * pricing.delay[rows]
        if temperature != TEMPERATURES[0]:
            now = slide(pricing, now.plan, rows, warm, 2 * STEPS)
        live = np.arange(len(rows))
        for _ in range(turns):
            after, moved = _turn(pricing, now.rows(live), rows[live], warm[live])
            now, live = now.replaced(live, after), live[moved]
            if not len(live):
                break
        kept = _least(pricing.whole(now.prices, rows, cold[: len(rows)]), rows, KEEP)
        now, rows = now.rows(kept), rows[kept]
    now = slide(pricing, now.plan, rows, warm[kept], last)
    value = pricing.whole(now.prices, rows, cold[: len(rows)])
    kept = _least(value, rows)
    return either(best, now.plan[kept], value[kept] < least)


def _least(value: FloatArray, groups: IntArray, keep: int = 1) -> IntArray:
    """Rows of the least values of each group, in order of groups.

    Args:
        value: Values (R,).
        groups: Group of each (R,), all of them equally often.
        keep: Most rows of a group.
    """
    order = np.lexsort((value, groups)).reshape(groups.max() + 1, -1)
    return np.asarray(order[:, :keep].ravel())


def _turn(
    pricing: JointPrices, now: Improved, rows: IntArray, temperature: FloatArray
) -> tuple[Improved, BoolArray]:
    """Let clusters jump; return the plans, and where they became better (R,), bool.

    Args:
        now: The plans.
        rows: Environment of each (R,).
        temperature: Of the soft maxima (R,) [s].
    """
    p, every = pricing.parameters, np.arange(len(rows))
    jumps = jumps_from(p, pricing.states(rows), now.plan)
    alone = _alone(pricing, now, jumps, rows, temperature)
    choice = _candidates(jumps, alone, now.value)
    tried = choice.shape[1]
    again = np.repeat(every, tried)
    plans = jumps.chosen(now.plan, again, choice.reshape(-1, choice.shape[2]))
    plans = settled(p, pricing.states(rows[again]), plans, now.plan[again])
    found = pricing.of(plans, rows[again])
    value = pricing.whole(found, rows[again], temperature[again])
    worth = pricing.worth[rows] * pricing.delay[rows]
    near = np.flatnonzero(value < (now.value + NEAR * worth)[again])
    if len(near):
        after = slide(pricing, plans[near], rows[again[near]], temperature[again[near]], FOLLOWING)
        plans, found, value = Improved(plans, found, value).replaced(near, after)
    best = value.reshape(-1, tried).argmin(axis=1)
    place = every * tried + best
    moved = value[place] < now.value - WORTHWHILE * worth
    prices = now.prices.taken(place, found, moved)
    return Improved(
        either(now.plan, plans[place], moved), prices, np.where(moved, value[place], now.value)
    ), moved


def _alone(
    pricing: JointPrices, now: Improved, jumps: Jumps, rows: IntArray, temperature: FloatArray
) -> FloatArray:
    """Price of each plan if one cluster alone jumps (R, J, N); infinite where nothing changes."""
    count = len(jumps.kinds)
    again = np.repeat(np.arange(len(rows)), count)
    every = np.tile(np.arange(count), len(rows))
    choice = np.broadcast_to(every[:, None], (len(again), now.plan.blocks.shape[1]))
    plans = jumps.chosen(now.plan, again, choice)
    plans = settled(pricing.parameters, pricing.states(rows[again]), plans, now.plan[again])
    found = pricing.of(plans, rows[again], np.repeat(now.prices.interference, count, axis=0))
    alone = pricing.alone(now.prices, found, rows, temperature)
    return np.where(jumps.changed, alone, np.inf)


def _candidates(jumps: Jumps, alone: FloatArray, value: FloatArray) -> IntArray:
    """Jumps to try (R, C, N), -1 for a cluster that stays.

    All clusters that gain by one jump together, and for each kind the best single jump, even if it does not
    pay before the powers follow.
    """
    R, _, N = alone.shape
    every = np.arange(R)

    def single(places: IntArray, among: FloatArray) -> IntArray:
        best, least = places[among.argmin(axis=1)], among.min(axis=1)
        cluster = least.argmin(axis=1)
        found = np.full((R, N), -1)
        found[every, cluster] = np.where(np.isfinite(least[every, cluster]), best[every, cluster], -1)
        return found

    places = np.arange(alone.shape[1])
    together = np.where(alone.min(axis=1) < value[:, None], alone.argmin(axis=1), -1)
    found = [together]
    kinds = np.array(jumps.kinds)
    found += [single(places[kinds == kind], alone[:, kinds == kind]) for kind in dict.fromkeys(jumps.kinds)]
    return np.stack(found, axis=1)

"""Cost of a change of plan on top of a round: the moments of moved blocks travel before it ([X])."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from collapipe_env.dynamics.previous_plan import holders_of
from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.kernels.handovers import handover_rows
from collapipe_env.kernels.moments_phase import phase_rows
from collapipe_env.physics import energy, radio
from collapipe_env.physics.allocation import Allocation
from collapipe_env.physics.migration import Handover, Migration, MovingTimes, handover, moving_times
from collapipe_env.physics.parameters import SystemParameters
from collapipe_env.physics.participation import players
from collapipe_env.simulator.process import Price
from collapipe_env.simulator.state import SystemState
from collapipe_env.simulator.surcharges import priced

if TYPE_CHECKING:
    from collapipe_env.simulator.costs import RoundCosts


def with_migration(
    costs: RoundCosts, parameters: SystemParameters, state: SystemState, allocation: Allocation
) -> RoundCosts:
    """Costs of a round with the phase that moves moments before its local steps.

    Args:
        costs: The round without it.
        parameters: Scalars of the scenario, with migration.
        state: The system; where it carries no earlier plan, as a reference state does not, the costs are
            returned unchanged.
        allocation: The plan.
    """
    change = change_of_plan(parameters, state, allocation)
    if change is None or parameters.migration is None:
        return costs
    if not parameters.migration.moves:
        nothing = namespace(costs.delay).zeros_like(costs.cluster_delay)
        return replace(costs, migration=nothing, moments=change.moments)
    times = phase_times(parameters, state, allocation, change)
    drawn = parameters.radio_power
    power = energy.radio_power(allocation.node_power, drawn.d2d_circuit_w, drawn.efficiency)
    joules = power * times.sent + drawn.receive_w * times.received
    price = Price(times.duration, joules)
    return priced(costs, state, price, migration=times.duration, moments=change.moments)


def change_of_plan(
    parameters: SystemParameters, state: SystemState, allocation: Allocation
) -> Handover | None:
    """Blocks that a plan hands over; ``None`` where a change of plan costs nothing.

    Args:
        parameters: Scalars of the scenario.
        allocation: The plan.
    """
    previous, rules = state.processes.get("migration"), parameters.migration
    if previous is None or rules is None:
        return None
    after = holders_of(allocation, parameters.costs.blocks)
    plays = players(allocation)
    if plays is not None:
        # A cluster that sits out keeps the plan that it had.
        after = namespace(after).where(plays[..., None, None], after, previous["holders"])
    change = _handed_over(previous["holders"], state.present, after, rules.moves)
    return change if plays is None else _of_players(change, plays)


def _handed_over(before: Array, present: Array, after: Array, moves: bool) -> Handover:
    """Blocks that change hands, in a compiled loop where the arrays are NumPy's."""
    # One state may serve all plans: only the array form repeats it.
    if type(before) is not np.ndarray or before.ndim != 4 or before.shape != after.shape:
        return handover(before, present, after, moves)
    E, N, L, nodes = before.shape
    found = Handover(
        moved=np.empty((E, N, nodes - 1, nodes - 1)),
        leaving=np.empty((E, N, nodes - 1)),
        moments=np.empty((E, N, L), dtype=np.int64),
        involved=np.empty((E, N, nodes - 1), dtype=np.bool_),
    )
    here, now = np.ascontiguousarray(present), np.ascontiguousarray(after)
    handover_rows(np.ascontiguousarray(before), here, now, moves, *found)
    return found


def _of_players(change: Handover, plays: Array) -> Handover:
    """The handover without clusters that sit out: their devices do nothing, even where a holder has gone."""
    xp, each = namespace(plays), plays[..., None]
    nothing = (xp.zeros_like(array) for array in change)
    chosen = (each[..., None], each, each, each)
    return Handover(*map(xp.where, chosen, change, nothing))


def phase_times(
    parameters: SystemParameters, state: SystemState, allocation: Allocation, change: Handover
) -> MovingTimes:
    """Times of the phase, in which the owners, old and new, and the CUs of all clusters interfere.

    Args:
        parameters: Scalars of the scenario, with migration.
        allocation: The plan.
        change: Blocks that it hands over.
    """
    p, power, plays = parameters, allocation.node_power, players(allocation)
    assert p.migration is not None
    if plays is None:
        looped = _looped_phase(p, p.migration, state, power, change)
        if looped is not None:
            return looped
    sent = radio.mean_active_power(power, change.involved)
    if plays is not None:
        sent = namespace(sent).where(plays, sent, namespace(sent).zeros_like(sent))
    seconds = seconds_per_bit(p, state, power, radio.interference(state.cross_gain, sent))
    return moving_times(change, p.migration.block_bits * seconds, p.migration.through_cu)


def seconds_per_bit(
    parameters: SystemParameters, state: SystemState, power: Array, disturbance: Array
) -> Array:
    """Airtime of a bit from node to node (..., N, K+1, K+1) [s], sender first.

    Args:
        parameters: Scalars of the scenario.
        power: Transmit powers of the CU and the devices (..., N, K+1) [W].
        disturbance: Interference in each cluster (..., N) [W].
    """
    p = parameters
    noise = radio.d2d_noise(p.noise_density, p.d2d_bandwidth_hz, disturbance)
    snr = radio.d2d_snr(power, state.d2d_gain, noise)
    # A node has no link to itself: an infinite SNR makes its time zero instead of NaN.
    snr = namespace(snr).where(snr > 0.0, snr, math.inf)
    rates = radio.shannon_rate(radio.usable_snr(snr, p.d2d_snr_cap), p.d2d_bandwidth_hz)
    exponent = radio.failure_exponent(snr, p.waterfall_threshold)
    seconds: Array = radio.seconds_per_bit(rates, exponent, p.transmissions)
    return seconds


def _looped_phase(
    p: SystemParameters, rules: Migration, state: SystemState, power: Array, change: Handover
) -> MovingTimes | None:
    """Times of the phase by a compiled loop; ``None`` unless all are NumPy arrays, a state per plan."""
    arrays = (power, state.d2d_gain, state.cross_gain, change.moved, change.leaving, change.involved)
    if any(type(array) is not np.ndarray or len(array) != len(power) for array in arrays) or power.ndim != 3:
        return None
    times = MovingTimes(np.empty(power.shape[:2]), np.empty(power.shape), np.empty(power.shape))
    law = (p.noise_density, p.d2d_bandwidth_hz, p.d2d_snr_cap, p.waterfall_threshold)
    powers, gain, cross_gain, moved, leaving, involved = map(np.ascontiguousarray, arrays)
    phase_rows(
        law,
        p.transmissions,
        rules.block_bits,
        rules.through_cu,
        powers,
        gain,
        cross_gain,
        moved,
        leaving,
        involved,
        *times,
    )
    return times

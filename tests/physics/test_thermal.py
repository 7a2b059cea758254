"""Heat of a device: check values, governors one move at a time, and for how long a round keeps it busy."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from round_support import KINDS, PRICES, plans_of

from collapipe_env.physics.energy import compute_power
from collapipe_env.physics.thermal import (
    allocated_power,
    busy_phase,
    clock_share,
    computing_seconds,
    governor_moves,
    moved_level,
    temperature_after,
)
from collapipe_env.simulator.general_costs import general_round_costs

R, C, ROOM = 6.0, 60.0, 25.0


def one(value):
    return np.array([value])


def after(temperature, power, time, ambient=ROOM, resistance=R, capacity=C):
    found = temperature_after(one(temperature), one(ambient), one(power), one(time), resistance, capacity)
    return float(found[0])


def test_check_values():
    assert after(25.0, 3.0, 10.0) == pytest.approx(25.49312, abs=5e-6)
    assert after(25.0, 3.0, 360.0) == pytest.approx(36.37817, abs=5e-6)
    assert after(25.0, 3.0, 1e6) == pytest.approx(43.0, abs=1e-9)
    # -R C ln(1 - 12 / 48) seconds at 8 W from 25 to 37 C.
    assert -R * C * math.log(1 - 12 / 48) == pytest.approx(103.566, abs=5e-4)
    assert after(25.0, 8.0, 103.566) == pytest.approx(37.0, abs=1e-4)
    assert after(31.0, 8.0, 10.0, resistance=0.0) == ROOM


def test_the_allocator_grants_what_the_kernel_documents():
    granted = allocated_power(np.array([37.0, 43.0, 40.0, 46.0, 43.6, 100.0, 31.0]), 37.0, 43.0, 2.5, 0.3)
    # Three times at switch-on, once at the set point, half as steep above, the floor, no upper bound.
    np.testing.assert_allclose(granted, [7.5, 2.5, 5.0, 1.25, 2.25, 0.3, 12.5], rtol=1e-12)


@given(st.floats(0.05, 50.0), st.floats(0.01, 50.0), st.booleans())
def test_a_device_at_its_share_draws_what_it_is_granted(granted, full, cubic):
    clock, per_cycle = 2e9, 16.0
    kappa, stated = (full / clock**3, 0.0) if cubic else (0.0, full)
    share = float(clock_share(one(granted), one(full), np.array([cubic]))[0])
    power = compute_power(share * clock * per_cycle, per_cycle, kappa, stated, clock * per_cycle)
    assert power == pytest.approx(min(granted, full), rel=1e-9)
    assert 0.0 < share <= 1.0


def test_a_device_without_power_keeps_its_clock():
    assert clock_share(one(1.0), one(0.0), np.array([False])).tolist() == [1.0]


@given(st.lists(st.floats(0.01, 60.0), min_size=1, max_size=40), st.sampled_from([1.0, 7.0, 0.3]))
def test_no_time_is_lost_between_moves(delays, period):
    remainder, moved = one(0.0), 0.0
    for delay in delays:
        moves, remainder = governor_moves(remainder, one(delay), period)
        assert 0.0 <= remainder[0] < period
        assert moves[0] <= math.floor(delay / period) + 1
        moved += moves[0]
    assert moved * period + remainder[0] == pytest.approx(sum(delays), abs=1e-9 + 1e-12 * sum(delays))


@given(
    st.lists(st.tuples(st.integers(0, 4), st.floats(20.0, 60.0)), min_size=3, max_size=3),
    st.integers(0, 9),
)
def test_levels_move_one_by_one(devices, moves):
    level = np.array([[[j for j, _ in devices]]])
    theta = np.array([[[t for _, t in devices]]])
    found = moved_level(level, theta, one(float(moves)), 4, 43.0, 2.0)
    for (j, reading), after_moves in zip(devices, found[0, 0].tolist(), strict=True):
        expected = j
        for _ in range(moves):
            if reading > 43.0:
                expected = min(expected + 1, 4)
            elif reading < 41.0:
                expected = max(expected - 1, 0)
        assert after_moves == expected
        assert abs(after_moves - j) <= moves
    assert found.dtype == level.dtype
    tensors = moved_level(
        torch.asarray(level), torch.asarray(theta), torch.asarray([float(moves)]), 4, 43.0, 2.0
    )
    np.testing.assert_array_equal(tensors.numpy(), found)


def energies(parameters, state, plan):
    return general_round_costs(parameters, state, plan).energy[..., 1:]


@pytest.mark.parametrize("opens", [False, True])
@pytest.mark.parametrize("prices", PRICES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_device_is_busy_while_it_computes_and_sends(kind, prices, opens):
    """Both times are slopes of the energy: over the compute power, and over that of a sender's circuits."""
    parameters, state, plan = plans_of(kind, 7, opens, steps=3, link_errors="arq", **PRICES[prices])
    # Of clusters that play, at the clocks of the system.
    plan = dataclasses.replace(plan, clock_cap=None, participates=None, bandwidth=plan.bandwidth + 1e-3)
    radio, energy = parameters.radio_power, energies(parameters, state, plan)
    more = dataclasses.replace(state, compute_power=state.compute_power + 1.0)
    computing = computing_seconds(parameters, plan, state.speed, state.clock)
    np.testing.assert_allclose(computing, energies(parameters, more, plan) - energy, rtol=1e-9, atol=1e-9)
    assert (computing > 0.0).any()
    stronger = radio._replace(d2d_circuit_w=radio.d2d_circuit_w + 1.0)
    airtime = energies(dataclasses.replace(parameters, radio_power=stronger), state, plan) - energy
    delay = general_round_costs(parameters, state, plan).delay[:, None, None]
    arrays = radio, plan.device_power, energy, computing, state.compute_power
    busy = busy_phase(*arrays, delay)
    whole = np.minimum(computing + airtime, delay)
    if radio.receive_w == 0.0:
        np.testing.assert_allclose(busy.seconds, whole, rtol=1e-9, atol=1e-9)
    assert (busy.seconds >= whole * (1 - 1e-9)).all()
    assert (busy.seconds <= delay).all()
    idle = energy == 0.0
    # Also in a round that is shorter than the work, and one of no length.
    short, none = busy_phase(*arrays, np.array(1e-6)), busy_phase(*arrays, np.array(0.0))
    np.testing.assert_allclose(short.seconds[~idle], 1e-6, rtol=1e-12)
    for found in (busy, short):
        np.testing.assert_allclose(found.seconds * found.power, energy, rtol=1e-12)
        assert (found.power[idle] == 0.0).all()
    assert (none.seconds == 0.0).all()
    assert (none.power == 0.0).all()

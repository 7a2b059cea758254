"""Batteries: books that balance, hysteresis, sources, and what a round may ask of a device at most."""

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.physics.batteries import (
    Demand,
    charge_after,
    eligible_after,
    energy_caps,
    memory_for,
    plugged_seconds,
    round_demand,
    solar_power,
)
from collapipe_env.physics.memory import memory_caps
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec, system_parameters, workload_costs

whole = st.integers(0, 10_000)


@given(whole, st.lists(st.tuples(whole, whole), max_size=30))
def test_books_balance_to_the_last_joule(start, rounds):
    """Whole joules are exact in floating point, so the books are too; against a loop in whole numbers."""
    capacity = 5000
    first = min(start, capacity)
    charge, books, expected = np.array([float(first)]), first, first
    for drawn, gained in rounds:
        charged = charge_after(charge, np.array([float(drawn)]), np.array([float(gained)]), float(capacity))
        deficit, spill = int(charged.deficit[0]), int(charged.spill[0])
        books += gained + deficit - drawn - spill
        expected = min(max(expected - drawn + gained, 0), capacity)
        charge = charged.charge
        assert charge[0] == expected == books
        assert 0 <= charge[0] <= capacity
        assert deficit >= 0
        assert spill >= 0
        # What is cut off is cut off at an end of the battery.
        assert deficit == 0 or charge[0] == 0.0
        assert spill == 0 or charge[0] == capacity


def test_eligibility_has_a_memory():
    """Down through both levels and up again; on the levels themselves nothing changes."""
    levels = [0.5, 0.3, 0.2, 0.15, 0.149, 0.15, 0.3, 0.301, 0.2, 0.15, 0.1]
    eligible, found = np.array([True]), []
    for level in levels:
        eligible = eligible_after(eligible, np.array([level]), 0.15, 0.3)
        found.append(bool(eligible[0]))
    assert found == [True, True, True, True, False, False, False, True, True, True, False]


def test_time_on_a_charger():
    plugged = np.array([True, True, False, False, True])
    residual = np.array([4.0, 20.0, 4.0, 20.0, 10.0])
    np.testing.assert_array_equal(plugged_seconds(plugged, residual, np.full(5, 10.0)), [4, 10, 6, 0, 10])


def test_a_panel_by_day_and_by_night():
    """Noon gives all, sunrise and night nothing; over a day a clear sky gives A_0 / pi on average."""
    time = np.array([0.0, 21600.0, 43200.0, 64800.0, 7200.0])
    clear = np.ones(5)
    np.testing.assert_allclose(solar_power(3.0, time, clear), [0, 3, 0, 0, 1.5], atol=1e-12)
    np.testing.assert_allclose(solar_power(3.0, time, 0.4 * clear), [0, 1.2, 0, 0, 0.6], atol=1e-12)
    np.testing.assert_array_equal(solar_power(3.0, time, -clear), np.zeros(5))
    np.testing.assert_array_equal(solar_power(3.0, time, 7.0 * clear), solar_power(3.0, time, clear))
    day = np.arange(0.0, 86400.0, 60.0)
    assert solar_power(3.0, day, np.ones_like(day)).mean() == pytest.approx(3.0 / np.pi, rel=1e-5)


def test_caps_by_hand():
    """floor((b - 3 - 2) / 4), from 0 to 6."""
    charge = np.array([0.0, 8.9, 9.0, 13.0, 12.999, 1e6])
    demand = Demand(np.full(6, 3.0), np.full(6, 4.0))
    np.testing.assert_array_equal(energy_caps(charge, demand, 2.0, 6), [0, 0, 1, 2, 1, 6])


@pytest.mark.parametrize("name", ["small", "medium"])
@pytest.mark.parametrize("recompute", [False, True])
def test_memory_holds_as_many_blocks_as_the_cap_says(name, recompute):
    scenario = load_scenario({"base": name, "workload": {"recompute": recompute}})
    costs = workload_costs(scenario)
    caps = np.arange(costs.blocks + 2.0)
    memory = memory_for(caps, costs)
    assert np.isinf(memory[costs.blocks :]).all()
    found = memory_caps(costs, np.minimum(memory, 1e15))
    np.testing.assert_array_equal(found[: costs.blocks], caps[: costs.blocks])
    # In single precision, too.
    single = memory[: costs.blocks].astype(np.float32)
    np.testing.assert_array_equal(memory_caps(costs, single), caps[: costs.blocks])


DEAR_RADIO = {"d2d_circuit_w": 1.0, "edge_circuit_w": 1.8, "amplifier_efficiency": 0.35, "receive_w": 1.0}


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"radio": {**DEAR_RADIO, "link_errors": "arq"}},
        {"radio": DEAR_RADIO, "workload": {"distribution": "relay", "local_steps": 3}},
        {"workload": {"recompute": True}, "overheads": {"block_s": 0.02, "message_s": 0.05}},
    ],
)
def test_no_round_at_full_power_asks_for_more(sections):
    """Energies of rounds of random plans at full power stay within the demand, and come near it."""
    budgets = {"device_energy_j": 1e6, "cu_energy_j": 1e6}
    scenario = load_scenario({"base": "medium", "budgets": budgets, **sections})
    env = CollaPipeVectorEnv(8, scenario, "surrogate")
    env.reset(seed=0)
    codec, rng, closest = action_codec(scenario), np.random.default_rng(1), 0.0
    for _ in range(6):
        state = env.state
        demand = round_demand(
            system_parameters(scenario),
            state.present,
            state.speed,
            state.clock,
            state.compute_power,
            state.d2d_gain,
            state.cross_gain,
        )
        parts = codec.split(rng.uniform(-1.0, 1.0, (8, codec.action_size)))
        full = {name: np.ones_like(parts[name]) for name in ("device_power", "cu_power")}
        env.step(codec.join({**parts, **full}).astype(np.float32))
        record = env.last_round
        held = record.allocation.device_blocks
        most = np.where(held > 0, demand.fixed + held * demand.block, 0.0)
        spent = record.costs.energy[..., 1:]
        assert (spent <= most * (1.0 + 1e-9)).all()
        closest = max(closest, (spent[held > 0] / most[held > 0]).max())
    assert closest > 0.9


@pytest.mark.parametrize("convert", [torch.asarray, array_api_strict.asarray], ids=["torch", "strict"])
def test_other_array_libraries_give_the_same(convert):
    scenario = load_scenario("medium")
    env = CollaPipeVectorEnv(3, scenario, "surrogate")
    env.reset(seed=0)
    state, parameters = env.state, system_parameters(scenario)
    names = ("present", "speed", "clock", "compute_power", "d2d_gain", "cross_gain")
    arrays = [np.ascontiguousarray(getattr(state, name)) for name in names]
    ours = round_demand(parameters, *arrays)
    theirs = round_demand(parameters, *map(convert, arrays))
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(other), own, rtol=1e-12)
    charge = np.linspace(0.0, 60.0, ours.fixed.size).reshape(ours.fixed.shape)
    caps = energy_caps(charge, ours, 1.0, scenario.blocks)
    other = energy_caps(convert(charge), theirs, 1.0, scenario.blocks)
    np.testing.assert_array_equal(np.asarray(other), caps)
    assert len(np.unique(caps)) > 1
    np.testing.assert_allclose(
        np.asarray(memory_for(other, parameters.costs)), memory_for(caps, parameters.costs), rtol=1e-12
    )

"""Caps on clocks: their closed form, nothing at all where they are 1, and the least energy under them."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unpriced_support import PAPER_RADIO

from collapipe_env.feasibility import energy_feasibility
from collapipe_env.feasibility.sampled_rounds import sample_rounds
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.clock_caps import running_clocks
from collapipe_env.physics.energy import compute_power
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split
from collapipe_env.simulator.running import running_state

OPEN = load_scenario({"base": "small", "name": "open", "decisions": [*COLLAPIPE, "clock_cap"]})
CLOSED = load_scenario("small")
STATE = sample_rounds(OPEN).state[:3]
PARAMETERS = system_parameters(OPEN)


@given(
    share=st.floats(0.1, 1.0),
    cap=st.floats(0.1, 1.0),
    full=st.floats(1e9, 1e12),
    kappa=st.floats(1e-28, 1e-26),
    active=st.one_of(st.just(0.0), st.floats(0.5, 20.0)),
)
def test_the_slower_of_load_and_cap_decides_and_power_follows_the_profile(share, cap, full, kappa, active):
    kappa, per_cycle = (0.0 if active else kappa), 16.0
    arrays = [np.array([v]) for v in (per_cycle, kappa, active, full)]
    speed = np.array([share * full])
    found = running_clocks(
        speed,
        speed / per_cycle,
        compute_power(speed, *arrays),
        np.array([full]),
        np.array([kappa > 0.0]),
        np.array([cap]),
    )
    expected = np.array([min(share, cap) * full])
    np.testing.assert_allclose(found.speed, expected, rtol=1e-12)
    np.testing.assert_allclose(found.clock, expected / per_cycle, rtol=1e-12)
    np.testing.assert_allclose(found.compute_power, compute_power(expected, *arrays), rtol=1e-12)
    again = running_clocks(*found, np.array([full]), np.array([kappa > 0.0]), np.array([cap]))
    for one, two in zip(found, again, strict=True):
        np.testing.assert_array_equal(one, two)


def test_free_clocks_are_the_closed_decision_bit_for_bit():
    plan = even_split(PARAMETERS, STATE)
    ones = replace(plan, clock_cap=np.ones_like(plan.device_power))
    for one, two in (
        (round_costs(system_parameters(CLOSED), STATE, plan), round_costs(PARAMETERS, STATE, ones)),
        (round_costs(PARAMETERS, STATE, plan), round_costs(PARAMETERS, STATE, ones)),
    ):
        for field in fields(one):
            left, right = getattr(one, field.name), getattr(two, field.name)
            if isinstance(left, np.ndarray):
                np.testing.assert_array_equal(left, right, err_msg=field.name)
    assert running_state(STATE, plan) is STATE


def test_the_field_is_kept_in_its_range():
    assert OPEN.with_overrides({"devices.clock_cap_min": 0.5}).devices.clock_cap_min == 0.5
    for least in (0.0, 1.5):
        with pytest.raises(ScenarioError, match="clock_cap_min"):
            OPEN.with_overrides({"devices.clock_cap_min": least})


def test_the_search_for_the_least_energy_takes_the_slowest_clocks():
    # CUs have plenty, so that devices are each cluster's worst nodes, and radios take next to nothing.
    changes = {"budgets.cu_energy_j": 1e3, "radio": PAPER_RADIO}
    kept, open_ = (scenario.with_overrides(changes) for scenario in (CLOSED, OPEN))
    closed, slow = (energy_feasibility(scenario).least_use for scenario in (kept, open_))
    # Computing takes 0.2^2 of the energy, and radios what they took.
    # The search itself finds the least use to a few per cent.
    assert ((slow > 0.038 * closed) & (slow < 0.1 * closed)).all()
    # The least use is no more than that of a plan which is played, the even split at these clocks.
    sample, parameters = sample_rounds(open_), system_parameters(open_)
    plan = even_split(parameters, sample.state)
    least = parameters.power_min_w
    plan = replace(
        plan,
        micro_batches=np.full_like(plan.micro_batches, parameters.micro_batch_choices[0]),
        device_power=np.full_like(plan.device_power, least),
        cu_power=np.full_like(plan.cu_power, least),
        clock_cap=np.full_like(plan.device_power, 0.2),
    )
    used = round_costs(parameters, sample.state, plan).energy_ratio.mean(axis=0)
    assert (slow.mean(axis=0) <= used[..., 1:].max(axis=-1) + 1e-9).all()
    fast = round_costs(parameters, sample.state, replace(plan, clock_cap=None)).energy_ratio.mean(axis=0)
    assert (fast[..., 1:] > used[..., 1:]).all()

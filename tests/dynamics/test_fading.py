"""Fading, shadowing and loads have the laws that they are documented to have."""

import numpy as np
import pytest
from process_support import numbers, seeds

from collapipe_env.dynamics.fading import Fading
from collapipe_env.dynamics.load import Load
from collapipe_env.ground.backends import NUMPY
from collapipe_env.learners.idle import IdleLearner
from collapipe_env.scenario import fixed_layout, load_scenario
from collapipe_env.simulator.system import laid_out, link_deviations
from collapipe_env.simulator.world import World


def course(process, rows, rounds):
    """What a process carries in each round, from the first."""
    words = seeds(rows)
    system = laid_out(process.scenario, words, NUMPY)
    carried = [process.begin(system, numbers(process, words, 0))]
    for t in range(1, rounds):
        moved = carried[-1]
        if process.defines("advance"):
            moved = process.advance(moved, None, None, numbers(process, words, t), None)
        carried.append(moved)
    return system, carried


def fading_gains(rows, links, diversity, rho, rounds):
    """Gains of links (rounds, rows, links)."""
    scenario = load_scenario({"base": "small", "radio": {"diversity": diversity}})
    fading = Fading(scenario, links=links, correlation=rho)
    return np.stack([fading.gain(carried) for carried in course(fading, rows, rounds)[1]])


def load_path(rows, levels, stay, rounds):
    """Shares of the full speed (rounds, rows, N, K)."""
    dynamics = {"load_levels": levels, "load_stay_probability": stay}
    load = Load(load_scenario({"base": "small", "dynamics": dynamics}))
    system, carried = course(load, rows, rounds)
    return np.stack([load.apply(system, c).speed / system.speed for c in carried])


@pytest.mark.parametrize("diversity", [1, 4])
@pytest.mark.parametrize("rho", [0.0, 0.6, 0.95])
def test_fading_law(diversity, rho):
    rows, links, rounds = 200, 20, 40
    gains = fading_gains(rows, links, diversity, rho, rounds)
    assert gains.shape == (rounds, rows, links)
    # Correlated rounds tell less: of n rounds about n (1 - rho^2) / (1 + rho^2) count.
    samples = gains.size * (1 - rho**2) / (1 + rho**2)
    deviation = 1.0 / np.sqrt(diversity * samples)
    assert abs(gains.mean() - 1.0) < 5.0 * deviation
    assert gains.var() == pytest.approx(1.0 / diversity, rel=0.06)
    # The law is the stationary one from the first round on.
    assert gains[0].var() == pytest.approx(1.0 / diversity, rel=0.2)
    flat = gains - 1.0
    for lag in (1, 2):
        found = (flat[lag:] * flat[:-lag]).mean() * diversity
        assert found == pytest.approx(rho ** (2 * lag), abs=0.03)


def test_loads_keep_their_level_as_often_as_the_scenario_says():
    path = load_path(400, (0.25, 0.5, 1.0), 0.7, 6)
    assert len(np.unique(path)) == 3
    np.testing.assert_allclose((np.diff(path, axis=0) == 0.0).mean(axis=(0, 1)), 0.7, atol=0.05)
    np.testing.assert_allclose(load_path(2, (0.8,), 0.5, 3), 0.8, rtol=1e-15)
    assert Load.of(load_scenario({"base": "small", "dynamics": {"load_levels": [1.0]}})) is None


def test_fading_without_memory_is_the_mean_of_exponentials():
    # Also beyond the number of factors that a product of uniform numbers may have.
    for diversity in (1, 3, 16, 17):
        gains = fading_gains(2, 5, diversity, 0.0, 2)
        u = NUMPY.uniform(seeds(2), np.ones(2, dtype=np.int64), 5 * diversity)
        shape, axis = ((2, diversity, 5), 1) if diversity <= 16 else ((2, 5, diversity), 2)
        expected = -np.log(u.reshape(shape)).mean(axis=axis)
        np.testing.assert_allclose(gains[1], expected, rtol=1e-12)


def test_fading_with_memory_follows_its_recurrence():
    rho, m = 0.7, 2
    gains = fading_gains(3, 4, m, rho, 3)
    branches = 0.0
    for t in range(3):
        u = NUMPY.uniform(seeds(3), np.full(3, t), 4 * 2 * m).reshape(3, 4, m, 2)
        w = np.sqrt(-np.log(u[..., 0])) * np.exp(2j * np.pi * u[..., 1])  # CN(0, 1)
        branches = w if t == 0 else rho * branches + np.sqrt(1.0 - rho**2) * w
        np.testing.assert_allclose(gains[t], (np.abs(branches) ** 2).mean(axis=-1), rtol=1e-12)


def test_shadowing_is_lognormal_and_symmetric():
    scenario = load_scenario(
        {
            "base": "medium",
            "radio": {"d2e_shadowing_db": 8.0, "d2d_shadowing_db": 4.0, "diversity": 128},
            "budgets": {"cu_energy_j": 40},
        }
    )
    E = 100
    world = World(scenario, IdleLearner(E), E)
    state = world.reset([np.random.default_rng([0, row]) for row in range(E)])
    np.testing.assert_array_equal(state.d2d_gain, np.swapaxes(state.d2d_gain, -1, -2))
    assert (np.diagonal(state.d2d_gain, axis1=-2, axis2=-1) == 0.0).all()
    uplink_db = 10 * np.log10(state.uplink_gain)
    hop_db = 10 * np.log10(state.d2d_gain[..., 0, 1:])
    assert (uplink_db - uplink_db.mean(axis=0)).std() == pytest.approx(8.0, rel=0.08)
    assert (hop_db - hop_db.mean(axis=0)).std() == pytest.approx(4.0, rel=0.08)


def test_links_with_a_line_of_sight_have_its_shadowing():
    radio = {
        "d2d_path_loss": "inh-open",
        "d2d_shadowing_db": None,
        "d2e_shadowing_db": 5.0,
        "diversity": 1024,
    }
    scenario, E = load_scenario({"base": "small", "radio": radio}), 400
    world = World(scenario, IdleLearner(E), E)
    world.reset([np.random.default_rng([0, row]) for row in range(E)])
    decibel = 10 * np.log10(world.system.carried["shadowing"]["gain"])
    wanted = link_deviations(fixed_layout(scenario))
    assert set(wanted) == {3.0, 8.03, 5.0}
    np.testing.assert_allclose(decibel.std(axis=0), wanted, rtol=0.15)

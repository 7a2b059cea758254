"""What is drawn: fading, loads and losses have the laws that they are documented to have."""

import numpy as np
import pytest
from scipy.stats import binom

from collapipe_env.dynamics.fading import Fading
from collapipe_env.dynamics.load import Load
from collapipe_env.ground.backends import NUMPY
from collapipe_env.kernels.arrivals import arrivals
from collapipe_env.learners.surrogate import SurrogateLearner
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import action_codec
from collapipe_env.simulator.learner import Arrivals
from collapipe_env.simulator.system import laid_out
from collapipe_env.simulator.world import World


def rngs(count, seed=0):
    return [np.random.default_rng([seed, i]) for i in range(count)]


def seeds(count, seed=0):
    return np.random.SeedSequence(seed).generate_state(count, np.uint64)


def numbers(process, words, t):
    """What a process draws in a round."""
    return NUMPY.uniform(words, np.full(len(words), t), process.numbers, process.factors)


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


def test_each_device_keeps_its_level_as_often_as_the_scenario_says():
    path = load_path(400, (0.25, 0.5, 1.0), 0.7, 6)
    assert len(np.unique(path)) == 3
    np.testing.assert_allclose((np.diff(path, axis=0) == 0.0).mean(axis=(0, 1)), 0.7, atol=0.05)


def test_constant_load():
    np.testing.assert_allclose(load_path(2, (0.8,), 0.5, 3), 0.8, rtol=1e-15)


def test_load_is_off_where_all_devices_have_their_full_speed():
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


@pytest.mark.parametrize(
    "radio",
    [
        {"waterfall_threshold": 2.0},
        {"waterfall_threshold": 4.0, "link_errors": "arq", "max_transmissions": 2},
    ],
    ids=["drop", "arq"],
)
def test_survival_has_the_probability_of_the_round(radio):
    scenario = load_scenario(
        {
            "base": "small",
            "radio": radio,
            "workload": {"local_steps": 2},
            "budgets": {"device_energy_j": 100, "cu_energy_j": 100},
        }
    )
    E, rounds = 32, 30
    simulator = World(scenario, SurrogateLearner.from_scenario(scenario, E), E)
    simulator.reset(rngs(E))
    codec = action_codec(scenario)
    rng = np.random.default_rng(0)
    hits = expected = variance = 0.0
    seen = []
    for _ in range(rounds):
        action = rng.uniform(-1.0, 1.0, (E, codec.action_size))
        record = simulator.step(codec.decode(action, simulator.state.memory_cap))
        p = record.costs.survival
        drawn = record.allocation.micro_batches * scenario.workload.local_steps
        survived = record.arrivals.survived
        counted = np.arange(survived.shape[-1]) < record.allocation.micro_batches[..., None, None]
        kept = (survived & counted).sum(axis=(-2, -1))
        np.testing.assert_allclose(record.surviving_fraction(), kept / drawn)
        hits += kept.sum()
        expected += (p * drawn).sum()
        variance += (p * (1 - p) * drawn).sum()
        seen.append(p)
    assert 0.05 < np.mean(seen) < 0.95, "nearly certain outcomes would test nothing"
    assert abs(hits - expected) < 4.0 * np.sqrt(variance)


def draw(survival, micro_batches, most, steps, words, t=0):
    """Arrivals of rows (E, N) in a round."""
    rounds = np.full(len(words), t, dtype=np.uint64)
    counts, pick = arrivals(words, rounds, survival, micro_batches, steps)
    return Arrivals(counts, micro_batches, pick, most)


def lost(survival, micro_batches, rows=200, clusters=5, steps=4):
    counts = np.full((rows, clusters), micro_batches)
    return draw(np.full((rows, clusters), survival), counts, 8, steps, seeds(rows))


@pytest.mark.parametrize("survival", [0.02, 0.4, 0.5, 0.9, 0.999])
def test_arrivals_are_binomial_and_any_set_is_equally_likely(survival):
    M = 6
    drawn = lost(survival, M)
    counts = drawn.counts.ravel()
    law = binom(M, survival).pmf(np.arange(M + 1)) * counts.size
    found = np.bincount(counts, minlength=M + 1)
    assert (np.abs(found - law) < 5.0 * np.sqrt(law) + 1.0).all()
    np.testing.assert_array_equal(drawn.survived.sum(axis=-1), drawn.counts)
    assert not drawn.survived[..., M:].any()
    # Given the number, every micro-batch is as likely as any other, and so is every pair.
    flat = drawn.survived[..., :M].reshape(-1, M).astype(float)
    expected = flat.mean()
    assert np.abs(flat.mean(axis=0) - expected).max() < 5.0 * np.sqrt(0.25 / len(flat))
    pairs = (flat.T @ flat / len(flat))[np.triu_indices(M, 1)]
    assert np.ptp(pairs) < 10.0 * np.sqrt(0.25 / len(flat))


@pytest.mark.parametrize("survival", [0.3, 0.55, 0.98, 0.9999])
@pytest.mark.parametrize("M", [64, 2048, 65536])
def test_many_micro_batches(survival, M):
    counts = draw(np.full((40, 2), survival), np.full((40, 2), M), M, 1, seeds(40)).counts
    deviation = np.sqrt(M * survival * (1.0 - survival))
    assert abs(counts.mean() - M * survival) < 5.0 * deviation / np.sqrt(counts.size)
    assert counts.std() == pytest.approx(deviation, rel=0.35, abs=1.0)


def test_certain_outcomes():
    assert (lost(1.0, 8).counts == 8).all()
    assert (lost(0.0, 8).counts == 0).all()
    assert lost(1.0, 8).survived.all()


def test_luck_does_not_depend_on_the_allocation():
    poor, rich = lost(0.3, 8), lost(0.8, 8)
    assert (poor.survived <= rich.survived).all()
    assert poor.counts.sum() < rich.counts.sum()


def test_every_round_and_row_has_its_own_luck():
    survival, M = np.full((50, 4), 0.5), np.full((50, 4), 8)
    words = seeds(50)
    first, second = (draw(survival, M, 8, 3, words, t).counts for t in (0, 1))
    np.testing.assert_array_equal(draw(survival, M, 8, 3, words).counts, first)
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 5.0 / np.sqrt(first.size)
    alone = draw(survival[7:8], M[7:8], 8, 3, words[7:8], 1)
    np.testing.assert_array_equal(alone.counts[0], second[7])


def test_clusters_whose_round_is_lost_deliver_nothing():
    drawn = lost(0.7, 8, rows=3)
    trained = np.random.default_rng(0).random((3, 5)) < 0.5
    kept = drawn.only(trained)
    for whole in (kept, type(drawn).of(drawn.survived, drawn.micro_batches).only(trained)):
        np.testing.assert_array_equal(whole.counts, np.where(trained[..., None], drawn.counts, 0))
        expected = np.where(trained[..., None, None], drawn.survived, False)
        np.testing.assert_array_equal(whole.survived, expected)


def test_shadowing_is_lognormal_and_symmetric():
    scenario = load_scenario(
        {
            "base": "medium",
            "radio": {"d2e_shadowing_db": 8.0, "d2d_shadowing_db": 4.0, "diversity": 128},
            "budgets": {"cu_energy_j": 40},
        }
    )
    E = 100
    simulator = World(scenario, SurrogateLearner.from_scenario(scenario, E), E)
    state = simulator.reset(rngs(E))
    np.testing.assert_array_equal(state.d2d_gain, np.swapaxes(state.d2d_gain, -1, -2))
    assert (np.diagonal(state.d2d_gain, axis1=-2, axis2=-1) == 0.0).all()
    uplink_db = 10 * np.log10(state.uplink_gain)
    hop_db = 10 * np.log10(state.d2d_gain[..., 0, 1:])
    assert (uplink_db - uplink_db.mean(axis=0)).std() == pytest.approx(8.0, rel=0.08)
    assert (hop_db - hop_db.mean(axis=0)).std() == pytest.approx(4.0, rel=0.08)

"""Mobility: gains of links between devices that move, and shadowing that walks with them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import path_losses
from process_support import numbers, process_of, seeds

from collapipe_env.dynamics.mobility import staying
from collapipe_env.ground.backends import NUMPY
from collapipe_env.kernels.channels import split_links
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.system import laid_out


def walking(fields=None, **sections):
    """A scenario of two clusters of unlike sizes, in which nothing but devices moves."""
    return {
        "base": "small",
        "cluster": {"devices": [3, 2], "layout": "per_episode"},
        "budgets": {"device_energy_j": 20},
        **sections,
        "dynamics": {"rounds": 6, "processes": {"mobility": fields or {}}},
    }


def started(scenario, rows, seed=0):
    """The process of a scenario, the system of its layouts with shadowing, and what it carries at first."""
    scenario = load_scenario(scenario)
    words = seeds(rows, seed)
    system = laid_out(scenario, words, NUMPY)
    shadowing = process_of(scenario, "shadowing")
    system = shadowing.apply(system, shadowing.begin(system, numbers(shadowing, words, 0)))
    process = process_of(scenario, "mobility")
    return process, system, words, process.begin(system, numbers(process, words + np.uint64(7), 0))


def gains_by_hand(process, system, carried, row, n):
    """Gains between the nodes of a cluster, pair by pair."""
    sc, side = process.scenario, process.scenario.cluster.area_side_m
    N, K = sc.clusters, sc.max_devices
    places = [(side / 2, side / 2), *zip(carried["x"][row, n], carried["y"][row, n], strict=True)]
    expected, pair = np.zeros((K + 1, K + 1)), 0
    for i in range(K + 1):
        for j in range(i + 1, K + 1):
            metres = max(math.dist(places[i], places[j]), sc.cluster.hop_min_m)
            at = n * K * (K + 1) // 2 + pair
            seen = system.hop_luck[row, at] < path_losses.mixed_office(metres)
            decibel = -(path_losses.inh_los if seen else path_losses.inh_nlos)(metres, 3.5, bs=1.0)
            if "shadowing_db" in carried:
                decibel += carried["shadowing_db"][row, at]
            if "environment_db" in carried:
                decibel += carried["environment_db"][row, N + at]
            expected[i, j] = expected[j, i] = 10.0 ** (decibel / 10.0)
            pair += 1
    return expected


@pytest.mark.parametrize("shadow", [0.0, 4.0])
@pytest.mark.parametrize("environment", [0.0, 1.2])
def test_gains_are_those_of_the_places(shadow, environment):
    scenario = walking({"environment_sd_db": environment}, radio={"d2d_shadowing_db": shadow})
    process, system, words, carried = started(scenario, 4)
    assert ("shadowing_db" in carried, "environment_db" in carried) == (shadow > 0, environment > 0)
    N = process.scenario.clusters
    for t in range(1, 5):
        carried = process.advance(carried, None, None, numbers(process, words, t), np.full(4, 15.0 * t))
        applied = process.apply(system, carried)
        uplink, d2d = split_links(applied.link_gain, None, (N, process.scenario.max_devices))
        for row in range(4):
            for n in range(N):
                expected = gains_by_hand(process, system, carried, row, n)
                np.testing.assert_allclose(d2d[row, n], expected, rtol=1e-9)
        drift = carried["environment_db"][:, :N] if environment else 0.0
        np.testing.assert_allclose(uplink, system.link_gain[:, :N] * 10.0 ** (drift / 10.0), rtol=1e-12)


def test_devices_that_pause_begin_in_the_layout_with_its_gains():
    scenario = walking(fields={"environment_sd_db": 0.0}, radio={"d2d_shadowing_db": 4.0})
    process, system, _, carried = started(scenario, 200)
    standing = carried["speed"] == 0.0
    side = process.scenario.cluster.area_side_m
    place = np.stack([carried["x"], carried["y"]], axis=-1) - side / 2
    np.testing.assert_allclose(place[standing], system.device_offset[standing], atol=1e-9)
    assert (place[~standing] != system.device_offset[~standing]).all()
    share = 120.0 / (120.0 + 0.5214 * side * math.log(3.0))
    there = standing[:, 0]  # all three slots of the first cluster hold a device
    assert there.mean() == pytest.approx(share, abs=0.05)
    # Shadowing is the episode's own: where a whole cluster stands, so are its gains.
    still = standing.all(axis=-1)
    assert still.sum() > 50
    N, K = process.scenario.clusters, process.scenario.max_devices
    before = split_links(system.link_gain, None, (N, K))[1]
    after = split_links(process.apply(system, carried).link_gain, None, (N, K))[1]
    np.testing.assert_allclose(after[still], before[still], rtol=1e-9)


def test_slots_without_a_device_stay_on_their_control_unit():
    process, _, words, carried = started(walking(), 5)
    for t in range(1, 6):
        half = process.scenario.cluster.area_side_m / 2
        for name, at in (("x", half), ("y", half), ("speed", 0.0)):
            assert (carried[name][:, 1, 2] == at).all()
        carried = process.advance(carried, None, None, numbers(process, words, t), np.full(5, 90.0))


def test_shadowing_forgets_with_the_ways_of_both_nodes():
    """Its law, link by link, from the ways that devices really went."""
    fields = {"environment_sd_db": 2.0, "environment_time_s": 20.0, "pause_s": 5.0}
    process, _, words, first = started(walking(fields, radio={"d2d_shadowing_db": 4.0}), 1200)
    seconds = np.full(1200, 6.0)
    second = process.advance(first, None, None, numbers(process, words, 1), seconds)
    N, K = process.scenario.clusters, process.scenario.max_devices
    way = np.hypot(second["x"] - first["x"], second["y"] - first["y"])
    nodes = np.concatenate([np.zeros((1200, N, 1)), way], axis=-1)
    ends = np.triu_indices(K + 1, 1)
    rho = np.exp(-(nodes[..., ends[0]] + nodes[..., ends[1]]) / 13.0).reshape(1200, -1)
    s0, s1 = first["shadowing_db"], second["shadowing_db"]
    assert s0.std() == pytest.approx(4.0, rel=0.025)
    assert s1.std() == pytest.approx(4.0, rel=0.02)
    # What is new is as wide as the square of the memory leaves room for, and independent of what was.
    fresh = (s1 - rho * s0)[rho < 1.0] / (4.0 * np.sqrt(1.0 - rho[rho < 1.0] ** 2))
    assert fresh.std() == pytest.approx(1.0, rel=0.02)
    assert abs(np.corrcoef(fresh, s0[rho < 1.0])[0, 1]) < 0.04
    np.testing.assert_array_equal(s1[rho == 1.0], s0[rho == 1.0])
    assert (rho < 0.9).any()
    e0, e1 = first["environment_db"], second["environment_db"]
    assert e0.std() == pytest.approx(2.0, rel=0.02)
    assert e1.std() == pytest.approx(2.0, rel=0.02)
    assert np.corrcoef(e0.ravel(), e1.ravel())[0, 1] == pytest.approx(math.exp(-6.0 / 20.0), abs=0.03)
    # Links are independent of each other.
    both = np.corrcoef(np.concatenate([s1, e1], axis=1).T)
    assert np.abs(both - np.eye(len(both))).max() < 0.12


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(0, 12), st.integers(0, 2**32))
def test_who_stays_so_that_the_encoder_fits(devices, blocks, seed):
    """Against one device after the other, with ties."""
    rng = np.random.default_rng(seed)
    present, caps = rng.random((4, 2, devices)) < 0.8, rng.integers(0, 6, (4, 2, devices))
    left = present & (rng.random(present.shape) < 0.5)
    order = rng.integers(0, 4, present.shape).astype(np.float64)
    found = staying(present, left, order, caps, blocks)
    for row, n in np.ndindex(4, 2):
        there, held = set(np.flatnonzero(left[row, n])), caps[row, n][left[row, n]].sum()
        going = np.flatnonzero(present[row, n] & ~left[row, n])
        for k in sorted(going, key=lambda k, o=order[row, n]: (o[k], k)):
            if held < blocks:
                there.add(k)
            held += caps[row, n, k]
        assert set(np.flatnonzero(found[row, n])) == there

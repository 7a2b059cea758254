"""Invariants of drawn layouts."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import path_losses

from collapipe_env.scenario import (
    ClusterSpec,
    DeviceProfile,
    DeviceSpec,
    Layout,
    Scenario,
    draw_layout,
    fixed_layout,
    load_scenario,
)
from collapipe_env.scenario.layout import TRIES_PER_CLUSTER, place_clusters


def d2d_gains(distance_m: float) -> list[float]:
    """Of a hop with and without a line of sight, both antennas at 1 m."""
    laws = path_losses.inh_los, path_losses.inh_nlos
    return [10.0 ** (-law(distance_m, 3.5, bs=1.0) / 10.0) for law in laws]


def d2e_gains(distance_m: float) -> list[float]:
    """The same to a base station of 8 dBi."""
    laws = path_losses.umi_los, path_losses.umi_nlos
    return [10.0 ** ((8.0 - law(distance_m, 3.5)) / 10.0) for law in laws]


def one_of(found: float, expected: list[float], rel: float = 1e-9) -> bool:
    return any(found == pytest.approx(one, rel=rel) for one in expected)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    clusters = draw(st.integers(1, 5))
    nearest = draw(st.floats(10, 200))
    side = draw(st.floats(1, 100))
    cluster: dict[str, Any] = {
        "clusters": clusters,
        "devices": draw(st.lists(st.integers(1, 5), min_size=clusters, max_size=clusters)),
        "cu_distance_min_m": nearest,
        "cu_distance_max_m": nearest + draw(st.floats(150, 400)),
        "cluster_separation_min_m": draw(st.floats(1, 60)),
        "area_side_m": side,
        "hop_min_m": draw(st.floats(0.5, 10)),
        "layout_seed": draw(st.integers(0, 2**32)),
    }
    return load_scenario({"workload": {"blocks": 1}, "cluster": cluster})


def assert_equal_layouts(one: Layout, other: Layout) -> None:
    for field in dataclasses.fields(Layout):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), field.name)


@settings(max_examples=40, deadline=None)
@given(scenario=scenarios(), seed=st.integers(0, 2**32))
def test_layout_invariants(scenario: Scenario, seed: int) -> None:
    cluster = scenario.cluster
    N, K = cluster.clusters, cluster.max_devices
    layout = draw_layout(scenario, np.random.default_rng(seed))

    assert layout.present.shape == (N, K)
    np.testing.assert_array_equal(layout.present.sum(axis=1), cluster.devices_per_cluster)
    assert all(row[: row.sum()].all() for row in layout.present)  # devices fill the first slots

    distance = np.linalg.norm(layout.cu_position, axis=1)
    assert (distance >= cluster.cu_distance_min_m * (1 - 1e-12)).all()
    assert (distance <= cluster.cu_distance_max_m * (1 + 1e-12)).all()
    for n in range(N):
        assert one_of(layout.d2e_path_gain[n], d2e_gains(distance[n]))
        for m in range(N):
            if m == n:
                assert layout.cross_gain[n, n] == 0.0
                continue
            apart = math.dist(layout.cu_position[n], layout.cu_position[m])
            assert apart >= cluster.cluster_separation_min_m * (1 - 1e-12)
            assert one_of(layout.cross_gain[n, m], d2d_gains(apart))
    np.testing.assert_array_equal(layout.cross_gain, layout.cross_gain.T)

    offset = layout.device_position - layout.cu_position[:, None, :]
    assert (np.abs(offset) <= cluster.area_side_m / 2 + 1e-9).all()
    assert (offset[~layout.present] == 0.0).all()
    np.testing.assert_array_equal(layout.d2d_path_gain, np.swapaxes(layout.d2d_path_gain, 1, 2))
    for n in range(N):
        nodes = [layout.cu_position[n], *layout.device_position[n]]
        for i in range(K + 1):
            assert layout.d2d_path_gain[n, i, i] == 0.0
            for j in range(i + 1, K + 1):
                hop = max(math.dist(nodes[i], nodes[j]), cluster.hop_min_m)
                hidden = int(layout.d2d_luck[n, i, j] >= path_losses.mixed_office(hop))
                assert layout.d2d_path_gain[n, i, j] == pytest.approx(d2d_gains(hop)[hidden], rel=1e-6)

    assert (layout.memory_bytes[~layout.present] == 0.0).all()
    assert np.isin(layout.memory_bytes[layout.present], [384e6, 512e6, 1e9]).all()
    assert ((layout.max_clock_hz >= 0.5e9) & (layout.max_clock_hz <= 2e9)).all()
    for field in dataclasses.fields(Layout):
        array = getattr(layout, field.name)
        assert np.isfinite(array).all()
        assert not array.flags.writeable


def test_fixed_layout_is_cached_and_follows_its_seed() -> None:
    small = load_scenario("small")
    layout = fixed_layout(small)
    assert fixed_layout(small) is layout
    assert fixed_layout(small.with_overrides({"workload.batch_size": 8})) is layout
    assert_equal_layouts(layout, draw_layout(small, np.random.default_rng(small.cluster.layout_seed)))
    moved = fixed_layout(small.with_overrides({"cluster.layout_seed": 987}))
    assert (moved.cu_position != layout.cu_position).all()


def test_positions_are_uniform_in_distance_angle_and_square() -> None:
    scenario = load_scenario(
        {"workload": {"blocks": 1}, "cluster": {"clusters": 1, "devices": 1, "cu_distance_min_m": 100.0}}
    )
    rng = np.random.default_rng(2)
    layouts = [draw_layout(scenario, rng) for _ in range(600)]
    distance = np.array([np.linalg.norm(layout.cu_position[0]) for layout in layouts])
    angle = np.array([math.atan2(*layout.cu_position[0]) for layout in layouts])
    offset = np.array([layout.device_position[0, 0] - layout.cu_position[0] for layout in layouts])
    for values, low, high in ((distance, 100, 300), (angle, -math.pi, math.pi), (offset, -20, 20)):
        uniform = np.sort((values.ravel() - low) / (high - low))
        gap = np.abs(uniform - (np.arange(len(uniform)) + 0.5) / len(uniform)).max()
        assert gap * math.sqrt(len(uniform)) < 1.63  # Kolmogorov-Smirnov at the 1 % level


def test_profiles_of_both_kinds_of_power_mix() -> None:
    kinds = (
        DeviceProfile(name="clocked", switched_capacitance=1e-27, weight=1),
        DeviceProfile(name="measured", active_power_w=5.0, weight=3, memory_bytes=(2e9,)),
    )
    scenario = Scenario(
        devices=DeviceSpec(profiles=kinds),
        cluster=ClusterSpec(clusters=8, devices=500, cluster_separation_min_m=10),
        name="mix",
    )
    layout = draw_layout(scenario, np.random.default_rng(0))
    measured = layout.profile == 1
    assert 0.72 < measured.mean() < 0.78  # 3/4, standard deviation 0.007
    np.testing.assert_array_equal(layout.active_power_w, np.where(measured, 5.0, 0.0))
    np.testing.assert_array_equal(layout.switched_capacitance, np.where(measured, 0.0, 1e-27))
    np.testing.assert_array_equal(layout.memory_bytes[measured], 2e9)
    sizes, counts = np.unique(layout.memory_bytes[~measured], return_counts=True)
    np.testing.assert_array_equal(sizes, [384e6, 512e6, 1e9])
    assert counts.min() > 250  # about 333 each
    assert layout.max_clock_hz.min() >= 0.5e9
    assert layout.max_clock_hz.max() <= 2e9
    assert layout.max_clock_hz.mean() == pytest.approx(1.25e9, rel=0.03)


def test_centres_are_those_of_plain_rejection_sampling() -> None:
    cluster = ClusterSpec(
        clusters=60, devices=2, cluster_separation_min_m=75.0, cu_distance_min_m=1.0, cu_distance_max_m=400.0
    )
    for seed in range(3):
        rng, centres = np.random.default_rng(seed), np.empty((0, 2))
        while len(centres) < 60:
            for size in (64, TRIES_PER_CLUSTER - 64):
                distance = 1.0 + 399.0 * rng.random(size)
                angle = 2.0 * np.pi * rng.random(size)
                points = np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1)
                gap = np.hypot(*np.moveaxis(points[:, None] - centres[None], 2, 0))
                free = points[(gap >= 75.0).all(axis=1)]
                if len(free):
                    centres = np.vstack([centres, free[:1]])
                    break
            else:
                centres = np.empty((0, 2))  # start again
        found = place_clusters(cluster, np.random.default_rng(seed))
        assert np.array_equal(found, centres)


TIGHT = {"clusters": 4, "devices": 3, "cu_distance_max_m": 109.6, "cluster_separation_min_m": 129.5}
"""Four clusters that hardly fit."""


def test_a_draw_falls_back_after_one_start() -> None:
    """Places of a first start are kept as they are; only where it fails the known ones are taken."""
    scenario = load_scenario(
        {"base": "small", "cluster": {**TIGHT, "layout": "per_episode", "layout_seed": 0}}
    )
    known = {tuple(place) for place in fixed_layout(scenario).cu_position}
    cluster, taken, firsts = scenario.cluster, set(), set()
    for seed in range(25):
        # As the layout draws them: devices first.
        rng = np.random.default_rng(seed)
        rng.random(5 * 4 * cluster.max_devices)  # profile, clock, memory and two coordinates
        drawn = draw_layout(scenario, np.random.default_rng(seed)).cu_position
        centres: list[tuple[float, float]] = []
        for _ in range(4):
            found = first_free(scenario, rng, centres)
            if found is None:
                break
            centres.append(found)
        if len(centres) == 4:
            np.testing.assert_allclose(drawn, centres, rtol=1e-12)
        else:
            assert {tuple(place) for place in drawn} == known
            firsts.add(tuple(drawn[0]))
        taken.add(len(centres) == 4)
    assert taken == {True, False}
    assert len(firsts) > 1  # not always the same cluster in the same place


def first_free(
    scenario: Scenario, rng: np.random.Generator, centres: list[tuple[float, float]]
) -> tuple[float, float] | None:
    """The first of 4096 candidates, drawn as 64 and the rest, that is far enough from all centres."""
    cluster = scenario.cluster
    for size in (64, 4032):
        distances = rng.random(size) * (cluster.cu_distance_max_m - cluster.cu_distance_min_m)
        for r, turn in zip(distances + cluster.cu_distance_min_m, rng.random(size), strict=True):
            place = (r * math.cos(2 * math.pi * turn), r * math.sin(2 * math.pi * turn))
            if all(math.dist(place, other) >= cluster.cluster_separation_min_m for other in centres):
                return place
    return None

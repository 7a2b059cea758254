"""Layouts: positions of clusters and devices, and properties of devices, drawn from a scenario."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from collapipe_env.ground.arrays import BoolArray, FloatArray, IntArray
from collapipe_env.ground.errors import ScenarioError

if TYPE_CHECKING:
    from collapipe_env.physics.path_loss import Links
    from collapipe_env.scenario.radio_section import RadioSpec
    from collapipe_env.scenario.sections import ClusterSpec, DeviceSpec, Sections


TRIES_PER_CLUSTER = 4096
"""Candidates for one cluster's centre before the whole placement starts again."""

TRIES_AT_ALL = 2**20
"""Candidates after which placement does not start again. Many tightly packed clusters use them up in a single
start, which takes seconds."""

RESTARTS = 16
"""Fresh starts before the geometry counts as impossible; an unlucky first cluster may block the rest."""


@dataclass(frozen=True, eq=False)
class Layout:
    """One draw of positions and device properties; all arrays are read-only.

    Where clusters differ in size, the surplus slots of the smaller ones are absent devices. Their values
    are harmless: they stand on their CU (every gain is positive and finite, as for a hop of ``hop_min_m``),
    have an ordinary clock (no speed is zero), and offer no memory (no block fits).

    A device's power while computing at clock f is, vectorised,
    ``where(active_power_w > 0, active_power_w * f / max_clock_hz, switched_capacitance * f**3)``:
    the array that its profile does not give is zero.

    Attributes:
        present: Whether a slot holds a device (N, K).
        cu_position: Clusters' centres, where the CUs stand, with the base station at the origin (N, 2) [m].
        device_position: Devices (N, K, 2) [m].
        d2e_path_gain: Path-loss gain CU to base station (N,), linear, in (0, 1).
        d2d_path_gain: Path-loss gain between the nodes of a cluster, node 0 the CU (N, K+1, K+1), linear,
            symmetric, zero on the diagonal; distances below ``hop_min_m`` count as ``hop_min_m``.
        d2e_shadowing_db: Deviation of the shadowing of the former (N,) [dB].
        d2d_shadowing_db: Deviation of the shadowing of the latter (N, K+1, K+1), symmetric [dB].
        d2d_luck: Numbers in [0, 1) that draw the lines of sight of the latter (N, K+1, K+1), symmetric: a
            pair has one where the law's probability at its distance is larger.
        cross_gain: Path-loss gain X between two clusters' centres (N, N), linear, symmetric, zero on the
            diagonal.
        profile: Index of each device's profile in ``scenario.devices.profiles`` (N, K).
        max_clock_hz: Clock at full speed (N, K) [Hz], > 0.
        flops_per_cycle: (N, K) [FLOP/cycle], > 0.
        switched_capacitance: kappa (N, K) [W/Hz^3], 0 where the profile gives an active power.
        active_power_w: Power while computing at full clock (N, K) [W], 0 where the profile gives kappa.
        memory_bytes: Memory a device offers (N, K) [byte], 0 where absent.
    """

    present: BoolArray
    cu_position: FloatArray
    device_position: FloatArray
    d2e_path_gain: FloatArray
    d2d_path_gain: FloatArray
    d2e_shadowing_db: FloatArray
    d2d_shadowing_db: FloatArray
    d2d_luck: FloatArray
    cross_gain: FloatArray
    profile: IntArray
    max_clock_hz: FloatArray
    flops_per_cycle: FloatArray
    switched_capacitance: FloatArray
    active_power_w: FloatArray
    memory_bytes: FloatArray

    def __post_init__(self) -> None:
        for array in vars(self).values():
            array.setflags(write=False)


def draw_layout(scenario: Sections, rng: np.random.Generator) -> Layout:
    """Draw a layout.

    The base station is at the origin, CU n at the centre of its cluster's square (at a uniform distance
    and angle, redrawn until the centres are far enough apart), the devices are uniform in the square, and
    each device's profile, full clock and memory are independent draws. [R]

    Where the clusters hardly fit, some may find no place. They then take the places of the layout of
    ``layout_seed`` in random order, and no draw fails or takes long.
    """
    return _draw(
        scenario.cluster, scenario.devices, scenario.radio, rng, lambda: fixed_layout(scenario).cu_position
    )


def fixed_layout(scenario: Sections) -> Layout:
    """Return the layout of the scenario's ``layout_seed``; equal scenarios share one (cached) object.

    Raises:
        ScenarioError: If the clusters cannot be kept apart.
    """
    return _cached_layout(scenario.cluster, scenario.devices, scenario.radio)


@lru_cache(maxsize=64)
def _cached_layout(cluster: ClusterSpec, devices: DeviceSpec, radio: RadioSpec) -> Layout:
    return _draw(cluster, devices, radio, np.random.default_rng(cluster.layout_seed))


def _draw(
    cluster: ClusterSpec,
    devices: DeviceSpec,
    radio: RadioSpec,
    rng: np.random.Generator,
    known_places: Callable[[], FloatArray] | None = None,
) -> Layout:
    """Draw a layout, devices first: they need a fixed number of draws, the clusters a varying number.

    Lines of sight, where links draw them, come last.
    """
    N, K = cluster.clusters, cluster.max_devices
    present = np.arange(K) < np.array(cluster.devices_per_cluster)[:, None]
    weights = np.array([profile.weight for profile in devices.profiles])
    profile = rng.choice(len(weights), size=(N, K), p=weights / weights.sum())

    def each(name: str) -> FloatArray:
        """A field of each device's profile (N, K), 0 where it is not given."""
        return np.array([getattr(kind, name) or 0.0 for kind in devices.profiles])[profile]

    slowest = each("clock_min_hz")
    clock = slowest + (each("clock_max_hz") - slowest) * rng.random((N, K))
    pick = rng.random((N, K))
    memory = np.zeros((N, K))
    for index, kind in enumerate(devices.profiles):
        sizes = np.array(kind.memory_bytes)
        chosen = sizes[(pick * len(sizes)).astype(np.int64)]
        memory = np.where((profile == index) & present, chosen, memory)
    offset = np.where(present[:, :, None], cluster.area_side_m * (rng.random((N, K, 2)) - 0.5), 0.0)
    try:
        centre = place_clusters(cluster, rng, RESTARTS if known_places is None else 1)
    except ScenarioError:
        if known_places is None:
            raise
        centre = rng.permutation(known_places())
    position = centre[:, None, :] + offset
    # Offsets, not positions, so that the rounding of far-away centres does not affect the hops.
    nodes = np.concatenate([np.zeros((N, 1, 2)), offset], axis=1)
    hop = np.maximum(_pairwise_distance(nodes), cluster.hop_min_m)
    to_station = np.hypot(centre[:, 0], centre[:, 1])
    d2e_gain, d2e_deviation, _ = _drawn(radio.d2e_links, to_station, radio.d2e_shadowing_db, rng)
    d2d_gain, d2d_deviation, luck = map(_mirrored, _drawn(radio.d2d_links, hop, radio.d2d_shadowing_db, rng))
    apart = _pairwise_distance(centre) + np.eye(N)  # no log of zero
    cross_gain, *_ = _drawn(radio.d2d_links, apart, 0.0, rng)
    return Layout(
        present=present,
        cu_position=centre,
        device_position=position,
        d2e_path_gain=d2e_gain,
        d2d_path_gain=d2d_gain,
        d2e_shadowing_db=d2e_deviation,
        d2d_shadowing_db=d2d_deviation,
        d2d_luck=luck,
        cross_gain=_mirrored(cross_gain),
        profile=profile,
        max_clock_hz=clock,
        flops_per_cycle=each("flops_per_cycle"),
        switched_capacitance=each("switched_capacitance"),
        active_power_w=each("active_power_w"),
        memory_bytes=memory,
    )


def _pairwise_distance(points: FloatArray) -> FloatArray:
    """Distances (..., P, P) between points (..., P, 2), exactly symmetric."""
    difference = np.abs(points[..., :, None, :] - points[..., None, :, :])
    return np.asarray(np.hypot(difference[..., 0], difference[..., 1]))


def _drawn(
    links: Links, distance: FloatArray, deviation_db: float | None, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gains over distances of any shape, deviations of their shadowing [dB], and the luck of lines of sight.

    Args:
        deviation_db: The scenario's; ``None`` for the law's.
    """
    luck = np.zeros(distance.shape) if links.law.sight is None else rng.random(distance.shape)
    gain = np.asarray(links.gain(distance, luck))
    if deviation_db is not None:
        return gain, np.full(distance.shape, deviation_db), luck
    return gain, np.asarray(links.deviation_db(distance, luck)), luck


def _mirrored(values: FloatArray) -> FloatArray:
    """Values of pairs (..., P, P), the upper ones both ways, with zeros on the diagonal."""
    upper = np.triu(values, 1)
    return upper + upper.swapaxes(-1, -2)


def place_clusters(cluster: ClusterSpec, rng: np.random.Generator, starts: int = RESTARTS) -> FloatArray:
    """Draw the clusters' centres around the base station at the origin.

    Each centre has a uniform distance in ``[cu_distance_min_m, cu_distance_max_m]`` and a uniform angle and
    is redrawn until it is at least ``cluster_separation_min_m`` from all earlier ones.

    Args:
        starts: Fresh starts before giving up; the result of the first one does not depend on it.

    Returns:
        Centres (N, 2) [m].

    Raises:
        ScenarioError: If no placement is found after many tries.
    """
    best = tries = 0
    for _ in range(starts):
        if tries > TRIES_AT_ALL:
            break
        centres = np.empty((0, 2))
        while len(centres) < cluster.clusters:
            found, drawn = _free_candidate(cluster, centres, rng)
            tries += drawn
            if found is None:
                break
            centres = np.vstack([centres, found])
        else:
            return centres
        best = max(best, len(centres))
    raise ScenarioError(
        f"cluster: only {best} of clusters = {cluster.clusters} could be placed cluster_separation_min_m = "
        f"{cluster.cluster_separation_min_m:g} m apart between cu_distance_min_m = "
        f"{cluster.cu_distance_min_m:g} m and cu_distance_max_m = {cluster.cu_distance_max_m:g} m; lower the "
        "separation or the number of clusters, or widen the distances"
    )


def _free_candidate(
    cluster: ClusterSpec, centres: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray | None, int]:
    """Return the first candidate that keeps its distance from ``centres``, and the number drawn."""
    drawn, separation = 0, cluster.cluster_separation_min_m
    span = cluster.cu_distance_max_m - cluster.cu_distance_min_m
    for size in (64, TRIES_PER_CLUSTER - 64):  # a small batch is nearly always enough
        distance = cluster.cu_distance_min_m + span * rng.random(size)
        angle = 2.0 * np.pi * rng.random(size)
        candidates = np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1)
        free = np.arange(size)
        if drawn and len(centres):
            # Few of many candidates are free: a tree, slow to import, quickly leaves out what is clearly too
            # near. Exact distances decide the rest.
            from scipy.spatial import cKDTree

            nearest, _ = cKDTree(centres).query(candidates)
            free = np.flatnonzero(nearest >= separation * (1.0 - 1e-9))
        drawn += size
        for index in free:
            gap = candidates[index] - centres
            if (np.hypot(gap[:, 0], gap[:, 1]) >= separation).all():
                return np.asarray(candidates[index]), drawn
    return None, drawn

"""The system that processes act on: gains of links, speeds, memories and presence of one round."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np

from collapipe_env.ground.arrays import Array, Constant, FloatArray, WordArray, concatenate, namespace
from collapipe_env.ground.backends.base import Backend
from collapipe_env.ground.records import SMALLEST, Declared, mapped
from collapipe_env.kernels.channels import rows_of_matrices
from collapipe_env.scenario import Layout, Scenario, draw_layout, fixed_layout

MOBILITY = "mobility"
"""Name of the process that moves devices and needs their positions in the system."""


def walking_side(scenario: Scenario) -> float:
    """Side of the square that a cluster's devices walk in [m]; the cluster's own where they stand still."""
    side, spec = scenario.cluster.area_side_m, dict(scenario.dynamics.processes).get(MOBILITY)
    return side * spec.roaming if spec is not None and spec.area == "open" else side


def reach_of(scenario: Scenario) -> float | None:
    """Distance from its CU beyond which a device is away [m]: the corners of the cluster's square.

    Returns:
        The distance; ``None`` where no device leaves.
    """
    spec = dict(scenario.dynamics.processes).get(MOBILITY)
    leave = spec is not None and spec.area == "open"
    return scenario.cluster.area_side_m / math.sqrt(2.0) if leave else None


class System(NamedTuple):
    """Arrays of ``R`` environments; a process returns ``system._replace(...)``, a copy with other arrays."""

    link_gain: Annotated[Array, Declared("links", low=SMALLEST)]
    """Large-scale gains of all links, path loss and shadowing: the ``N`` uplinks first, then each cluster's
    pairs of nodes in the order (0, 1), (0, 2), ..., (K-1, K); node 0 is the CU."""
    small_scale: Annotated[Array | None, Declared("links", low=SMALLEST)]
    """Small-scale gains of the links, factors of the large-scale gains; ``None`` for 1."""
    cross_gain: Annotated[Array, Declared("N N", low=0.0)]
    """Path-loss gain between clusters' centres."""
    speed: Annotated[Array, Declared("N K", "FLOP/s", low=SMALLEST)]
    """Compute speed now, positive also for absent devices."""
    memory_bytes: Annotated[Array, Declared("N K", "byte", low=0.0)]
    """Memory offered, zero for absent devices."""
    present: Annotated[Array, Declared("N K", kind="truth")]
    """Present devices."""
    full_speed: Annotated[Array, Declared("N K", "FLOP/s", low=SMALLEST)]
    """Speed at the full clock."""
    flops_per_cycle: Annotated[Array, Declared("N K", "FLOP", low=SMALLEST)]
    """Operations of a clock cycle."""
    switched_capacitance: Annotated[Array, Declared("N K", "W s^3", low=0.0)]
    """``kappa``, zero where the profile states a power."""
    active_power: Annotated[Array, Declared("N K", "W", low=0.0)]
    """Power at full speed, zero where the profile gives only a clock."""
    server_share: Annotated[Array, Declared("", low=SMALLEST, high=1.0)]
    """Share of the server that other tenants leave to the clusters."""
    cu_position: Annotated[Array | None, Declared("N 2", "m")] = None
    """Positions of the CUs, with the base station at the origin; ``None`` where devices stand still."""
    device_offset: Annotated[Array | None, Declared("N K 2", "m")] = None
    """Positions of devices relative to their CU in the layout; ``None`` where they stand still."""
    hop_luck: Annotated[Array | None, Declared("pairs", low=0.0, high=1.0)] = None
    """Numbers that draw lines of sight between the nodes of clusters; ``None`` where devices stand still."""
    known_gain: Annotated[Array | None, Declared("links", low=0.0)] = None
    """Known gains of all links before the round, including small-scale gains; ``None`` where the true gains
    are known."""
    shadowing_db: Annotated[Array | None, Declared("links", "dB", low=0.0)] = None
    """Deviation of each link's shadowing in the layout; ``None`` where uplinks are alike, and pairs too."""


def laid_out(scenario: Scenario, seeds: WordArray, backend: Backend) -> System:
    """Systems without shadowing, fading and load, in the scenario's own layout or in drawn layouts.

    Args:
        seeds: Seeds of the layouts (R,).
    """
    if scenario.cluster.layout == "fixed":
        one = _stacked(scenario, [fixed_layout(scenario)], backend)
        xp = namespace(one.speed)
        if xp is np:
            return mapped(one, lambda a: np.repeat(a, len(seeds), axis=0))
        return mapped(one, lambda a: xp.broadcast_to(a, (len(seeds), *a.shape[1:])))
    layouts = [draw_layout(scenario, np.random.default_rng(seed)) for seed in seeds.tolist()]
    return _stacked(scenario, layouts, backend)


def _stacked(scenario: Scenario, layouts: list[Layout], backend: Backend) -> System:
    def stacked(name: str) -> FloatArray:
        return np.stack([getattr(layout, name) for layout in layouts])

    per_cycle = stacked("flops_per_cycle")
    full_speed = backend.array(stacked("max_clock_hz") * per_cycle)
    moves = MOBILITY in dict(scenario.dynamics.processes)
    return System(
        link_gain=backend.array(np.stack([link_path_gains(layout) for layout in layouts])),
        small_scale=None,
        cross_gain=backend.array(stacked("cross_gain")),
        speed=full_speed,
        memory_bytes=backend.array(stacked("memory_bytes")),
        present=backend.array(stacked("present")),
        full_speed=full_speed,
        flops_per_cycle=backend.array(per_cycle),
        switched_capacitance=backend.array(stacked("switched_capacitance")),
        active_power=backend.array(stacked("active_power_w")),
        server_share=backend.array(np.ones(len(layouts))),
        cu_position=backend.array(stacked("cu_position")) if moves else None,
        device_offset=(
            backend.array(stacked("device_position") - stacked("cu_position")[:, :, None]) if moves else None
        ),
        hop_luck=backend.array(np.stack([_of_pairs(one.d2d_luck) for one in layouts])) if moves else None,
        shadowing_db=(
            backend.array(np.stack([link_deviations(layout) for layout in layouts]))
            if scenario.radio.shadowing_differs
            else None
        ),
    )


def link_count(scenario: Scenario) -> int:
    """Number of links of an environment: uplinks and pairs of nodes, as in :attr:`System.link_gain`."""
    N, K = scenario.clusters, scenario.max_devices
    return N * (1 + K * (K + 1) // 2)


def axis_sizes(scenario: Scenario) -> dict[str, tuple[int, ...]]:
    """Sizes of the axes of arrays that processes carry, by name."""
    N, K = scenario.clusters, scenario.max_devices
    sizes = {"N": N, "K": K, "K+1": K + 1, "L": scenario.blocks, "links": link_count(scenario)}
    sizes["pairs"] = sizes["links"] - N
    return {name: (size,) for name, size in sizes.items()}


def link_path_gains(layout: Layout) -> FloatArray:
    """Path gains of a layout's links (links,), in the order of :attr:`System.link_gain`."""
    return _in_order(layout.d2e_path_gain, layout.d2d_path_gain)


def link_deviations(layout: Layout) -> FloatArray:
    """Deviations of the shadowing of a layout's links (links,) [dB], in the order of their gains."""
    return _in_order(layout.d2e_shadowing_db, layout.d2d_shadowing_db)


def _in_order(d2e: FloatArray, d2d: FloatArray) -> FloatArray:
    return np.concatenate((d2e, _of_pairs(d2d)))


def _of_pairs(d2d: FloatArray) -> FloatArray:
    first, second = np.triu_indices(d2d.shape[-1], 1)
    return d2d[:, first, second].ravel()


def joined_links(uplink_gain: Array, d2d_gain: Array) -> Array:
    """Gains of all links (R, links), in the order of :attr:`System.link_gain`; undoes :func:`split_links`.

    Args:
        uplink_gain: Gains of uplinks (R, N).
        d2d_gain: Gains of pairs of nodes (R, N, K+1, K+1), symmetric.
    """
    if type(uplink_gain) is np.ndarray:
        return rows_of_matrices(uplink_gain, d2d_gain)
    xp, clusters = namespace(uplink_gain), d2d_gain.shape[1:]
    places = _upper_places(*clusters[:2]).like(uplink_gain, xp.int64)
    flat = xp.reshape(d2d_gain, (d2d_gain.shape[0], math.prod(clusters)))
    return concatenate((uplink_gain, xp.take(flat, places, axis=-1)))


@lru_cache(maxsize=16)
def _upper_places(clusters: int, nodes: int) -> Constant:
    """Places above the diagonals of the flattened matrices of pairs of nodes, cluster by cluster."""
    first, second = np.triu_indices(nodes, 1)
    each = nodes * nodes * np.arange(clusters)[:, None]
    return Constant((each + first * nodes + second).ravel())

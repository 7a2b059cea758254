"""Mobility: devices walk in their cluster's square, and the shadowing of their links changes with them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

import numpy as np

from collapipe_env.dynamics.walks import NAMES, PauseGo, parts, pause_and_go, start_pausing_and_going
from collapipe_env.ground.arrays import Array, Constant, at_least, loop_record, namespace
from collapipe_env.ground.errors import StateError
from collapipe_env.ground.state_trees import REMEDY
from collapipe_env.kernels.walking import WalkLaw, keep_rows, walk_rows
from collapipe_env.physics.memory import gpipe_needs, memory_caps
from collapipe_env.physics.motion import (
    MOST_LEGS,
    NUMBERS_PER_LEG,
    correlated,
    leaves_on_leg,
    length,
)
from collapipe_env.physics.radio import gain_of
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.fields import OnlyIf, field, real, require_range, spec
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.process import Carried, CarriedArray, Process
from collapipe_env.simulator.randomness import normal
from collapipe_env.simulator.system import MOBILITY, System, link_count, reach_of, walking_side

ANNOUNCED_S = 60.0
"""Longest time ahead for which a departure is foreseen [s]."""
_WRITTEN = (*NAMES, "leaves_s", "shadowing_db", "environment_db")
_DRIFTS = OnlyIf("with environment_sd_db above 0", lambda spec: spec.environment_sd_db > 0.0)
_OPEN = OnlyIf("with area: open", lambda spec: spec.area == "open")


@spec
class MobilitySpec:
    """Fields of ``dynamics.processes.mobility``.

    Devices stand, then walk straight to a uniform point of the square, and so on.

    The deviation of the shadowing between two nodes is ``radio.d2d_shadowing_db``.
    """

    area: Literal["closed", "open"] = field(
        "closed",
        "closed: nobody leaves the cluster's square; open: devices walk in a larger square around it, and "
        "are away while they are outside the circle through its corners",
    )
    pause_s: float = real(120.0, "mean pause", "[0.1, 1e6] s")
    speed_min_m_s: float = real(0.5, "least speed of a leg", "[0.01, 100] m/s")
    speed_max_m_s: float = real(1.5, "greatest speed of a leg, at least the least one", "[0.01, 100] m/s")
    decorrelation_m: float = real(
        13.0,
        "distance over which the correlation of shadowing between two nodes falls to 1/e",
        "[0.1, 1e6] m",
    )
    environment_sd_db: float = real(
        1.2,
        "standard deviation of the changes on every link with time alone, such as people; 0 for none",
        "[0, 30] dB",
    )
    environment_time_s: float = real(20.0, "time constant of these changes", "[0.01, 1e6] s", _DRIFTS)
    roaming: float = real(
        1.25, "side of an open area's square over the side of the cluster's square", "[1, 10] sides", _OPEN
    )

    def __post_init__(self) -> None:
        require_range(self, "speed_min_m_s", "speed_max_m_s")


class Mobility(Process):
    """Devices that move in their cluster's square, or out of it ([X]); CUs and the base station stand still.

    Distances give path losses by the scenario's own laws, with ``cluster.hop_min_m`` as the shortest hop. The
    shadowing of a pair of nodes is ``S' = rho S + sqrt(1 - rho^2) sigma n`` in dB, ``rho = exp(-(|dx_i| +
    |dx_j|) / d)`` with the net displacements of the two nodes in the round and the decorrelation distance
    ``d``. A second such process, also on uplinks, changes with time: ``rho = exp(-Delta / tau)``. Both begin
    in their stationary law, the first with the episode's shadowing.

    Devices that pause begin where the layout puts them, stretched over the square that they walk in. Slots
    without a device stay on their CU.

    Where the area is open, a device farther from its CU than the corners of the cluster's square is away.
    Departures can be foreseen: ``leaves_s`` is the time until a device passes that circle on its present
    course. Where the encoder would not fit the remaining devices, the nearest of the devices outside stay.
    """

    name = MOBILITY
    endogenous = False
    after = ("shadowing",)
    Spec = MobilitySpec

    def __init__(self, scenario: Scenario, spec: MobilitySpec) -> None:
        super().__init__(scenario, spec)
        N, K = scenario.clusters, scenario.max_devices
        self._hops = scenario.radio.d2d_links
        self._devices, self._side = (N, K), walking_side(scenario)
        self._stretch = self._side / scenario.cluster.area_side_m
        self._reach = reach_of(scenario)
        side = self._side
        self._law = PauseGo(side, spec.pause_s, spec.speed_min_m_s, spec.speed_max_m_s)
        numbers = (
            *self._law,
            math.inf if self._reach is None else self._reach,
            ANNOUNCED_S,
            scenario.radio.shadowing_db[1],
            spec.decorrelation_m,
            spec.environment_sd_db,
            spec.environment_time_s,
        )
        self._walk = loop_record(WalkLaw(*map(float, numbers)))
        there = np.arange(K) < np.asarray(scenario.cluster.devices_per_cluster)[:, None]
        self._there = Constant(there.astype(np.float64))
        # Nodes of each pair, in the order of `System.link_gain`; without the CU, at 0.
        first, second = (np.eye(K + 1)[1:, nodes] for nodes in np.triu_indices(K + 1, 1))
        self._added, self._apart = Constant(first + second), Constant(first - second)
        self._costs = system_parameters(scenario).costs
        self._needs = gpipe_needs(self._costs)
        self._deviation_db = scenario.radio.shadowing_db[1]
        self._walking, self._drifting = self._deviation_db > 0.0, spec.environment_sd_db > 0.0
        self._links = link_count(scenario)
        self._pairs = self._links - N
        # The count does not depend on shadowing, so devices walk the same ways with and without it.
        self._first_of_pairs = N * K * MOST_LEGS * NUMBERS_PER_LEG
        self._first_of_links = self._first_of_pairs + _even(self._pairs)
        self.numbers = self._first_of_links + _even(self._links)
        place, fastest = "position in the cluster's square, from its {} edge", spec.speed_max_m_s
        devices = partial(CarriedArray, "N K")
        within = partial(devices, "m", 0.0, side)
        self.carries = {
            "x": within(shown=(0.0, side), about=place.format("western")),
            "y": within(shown=(0.0, side), about=place.format("southern")),
            "speed": devices("m/s", 0.0, fastest, shown=(0.0, fastest), about="speed of the device"),
            "target_x": within(about="end of the leg"),
            "target_y": within(about="end of the leg"),
            "pause": devices("s", 0.0, about="rest of the pause, 0 on a leg"),
            "cu_position": CarriedArray("N 2", "m"),
        }
        if self._reach is not None:
            what = "time until the device leaves on its present course; the upper bound if it does not leave"
            shown = 0.0, ANNOUNCED_S
            self.carries["leaves_s"] = devices("s", *shown, seen="always", shown=shown, about=what)
        # Shadowing would tell the true gains where schedulers know others.
        if self._walking:
            self.carries["shadowing_db"] = CarriedArray("pairs", "dB", seen="never")
        if self._drifting:
            self.carries["environment_db"] = CarriedArray("links", "dB", seen="never")

    def begin(self, system: System, u: Array) -> Carried:
        """Start walks and both kinds of shadowing in their stationary laws."""
        xp = namespace(u)
        assert system.device_offset is not None
        assert system.cu_position is not None
        there = self._there.like(u)
        half = 0.5 * self._side
        offset = xp.astype(system.device_offset, xp.float64)
        x, y = (xp.clip(half + self._stretch * offset[..., i], 0.0, self._side) for i in (0, 1))
        mine = xp.reshape(u[:, : self._first_of_pairs], (*x.shape, -1))
        walk = start_pausing_and_going(self._law, x, y, mine)
        for name in walk:
            # Slots without a device: on the CU, at rest.
            rest = 0.0 if name in ("speed", "pause") else half
            walk[name] = xp.where(there > 0.0, walk[name], rest)
        carried = {**walk, "cu_position": system.cu_position}
        if self._reach is not None:
            carried["leaves_s"] = self._leaves(walk)
        if self._walking:
            # The shadowing that the episode drew, for the places of the layout.
            pairs = system.link_gain[:, self.scenario.clusters :] / self._path_gains({"x": x, "y": y}, system)
            carried["shadowing_db"] = 10.0 * xp.log10(xp.astype(pairs, xp.float64))
        if self._drifting:
            fresh = normal(u, self._first_of_links, self._links)
            carried["environment_db"] = self.spec.environment_sd_db * fresh
        return carried

    def advance(self, carried: Carried, state: Any, costs: Any, u: Array, delta_s: Array) -> Carried:  # noqa: ARG002
        """Walk for the seconds that passed, and move the shadowing."""
        there, xp = self._there.like(u), namespace(u)
        seconds = xp.astype(delta_s, u.dtype, copy=False)
        shadowing, drift = carried.get("shadowing_db"), carried.get("environment_db")
        if xp is np:
            none = np.empty((len(u), 0))
            before = (none if shadowing is None else shadowing, none if drift is None else drift)
            walk, *after = walk_rows(self._walk, there, seconds, u, *before, *parts(carried))
            found = zip(_WRITTEN, (*walk, *after), strict=True)
            return {**carried, **{name: values for name, values in found if name in carried}}
        following = dict(carried)
        following |= pause_and_go(self._law, carried, there, seconds, u)
        if self._reach is not None:
            following["leaves_s"] = self._leaves(following)
        if shadowing is not None:
            east, north = (following[name] - carried[name] for name in ("x", "y"))
            lag = self._of_pairs(length(east, north), self._added) / self.spec.decorrelation_m
            noise = self._deviation_db * normal(u, self._first_of_pairs, self._pairs)
            following["shadowing_db"] = correlated(shadowing, -xp.expm1(-lag), noise)
        if drift is not None:
            lag = (seconds / self.spec.environment_time_s)[:, None]
            noise = self.spec.environment_sd_db * normal(u, self._first_of_links, self._links)
            following["environment_db"] = correlated(drift, -xp.expm1(-lag), noise)
        return following

    def _from_cu(self, walk: Carried) -> tuple[Array, Array]:
        """Place of each device seen from its CU (R, N, K) [m], both coordinates."""
        half = 0.5 * self._side
        return walk["x"] - half, walk["y"] - half

    def _leaves(self, walk: Carried) -> Array:
        """Time until each device leaves on its present course (R, N, K), at most ``ANNOUNCED_S`` [s]."""
        assert self._reach is not None
        x, y, to_x, to_y, speed, _ = parts(walk)
        return leaves_on_leg(self._reach, ANNOUNCED_S, *self._from_cu(walk), to_x - x, to_y - y, speed)

    def _of_pairs(self, devices: Array, ends: Constant) -> Array:
        """Sums or differences of the two nodes of each pair (R, pairs); 0 for the CU.

        Args:
            devices: Numbers of devices (R, N, K).
            ends: Weight of each device in each pair of its cluster (K, pairs of a cluster), 0, 1 or -1.
        """
        xp = namespace(devices)
        return xp.reshape(xp.matmul(devices, ends.like(devices)), (-1, self._pairs))

    def _path_gains(self, walk: Carried, system: System) -> Array:
        """Path gains between the clusters' pairs (R, pairs), of at least the shortest hop.

        A pair keeps the number that draws its line of sight, so that it changes with the distance alone.
        """
        east, north = (self._of_pairs(place, self._apart) for place in self._from_cu(walk))
        distance = at_least(length(east, north), self.scenario.cluster.hop_min_m)
        return self._hops.gain(distance, system.hop_luck)

    def apply(self, system: System, carried: Carried) -> System:
        """Set the gains of the pairs, change those of uplinks, and send away who is outside.

        The nearest devices outside stay where the encoder would not fit the others.
        """
        large = system.link_gain
        xp, N = namespace(large), self.scenario.clusters
        decibel = carried.get("environment_db")
        # An array of its own, to write to.
        decibel = (
            xp.zeros_like(large, dtype=xp.float64) if decibel is None else xp.asarray(decibel, copy=True)
        )
        if self._walking:
            decibel[:, N:] += carried["shadowing_db"]
        factor = gain_of(decibel)
        factor[:, :N] *= large[:, :N]
        factor[:, N:] *= self._path_gains(carried, system)
        links = xp.astype(factor, large.dtype)
        if self._reach is None:
            return system._replace(link_gain=links)
        if xp is np:
            arrays = carried["x"], carried["y"], system.memory_bytes, system.present
            present = keep_rows(self._walk, self._needs, self._costs.blocks, *arrays)
            return system._replace(link_gain=links, present=present)
        away = length(*self._from_cu(carried))
        caps = memory_caps(self._costs, system.memory_bytes)
        inside = system.present & (away <= self._reach)
        present = staying(system.present, inside, away, caps, self._costs.blocks)
        return system._replace(link_gain=links, present=present)

    def check(self, carried: Carried) -> None:
        """Refuse walks that contradict themselves."""
        place = f"simulator/processes/{self.name}"
        if ((carried["speed"] > 0.0) & (carried["pause"] > 0.0)).any():
            raise StateError(f"{place}/speed does not agree with pause: {REMEDY}")
        if (
            self._reach is not None
            and np.abs(carried["leaves_s"] - self._leaves(carried)).max() > 1e-9 * ANNOUNCED_S
        ):
            raise StateError(f"{place}/leaves_s does not agree with the walk: {REMEDY}")


def _even(count: int) -> int:
    """Number of uniform numbers for ``count`` normal ones, which come in pairs."""
    return count + count % 2


def staying(present: Array, left: Array, order: Array, caps: Array, blocks: int) -> Array:
    """Devices that stay (R, N, K): those that do not leave, and as many others as the encoder needs.

    Args:
        present: Devices that are present before any leaves (R, N, K), bool.
        left: Present devices that do not leave (R, N, K), bool.
        order: Leaving devices with the smallest numbers are kept first (R, N, K), >= 0.
        caps: Blocks that fit the memory of each device (R, N, K), int.
        blocks: Encoder depth ``L``.
    """
    xp = namespace(left)
    caps = xp.where(present, caps, xp.zeros_like(caps))
    place = xp.where(left, -1.0, order)
    index = xp.arange(order.shape[-1], device=getattr(order, "device", None))
    tied = (place[..., None, :] == place[..., None]) & (index < index[:, None])
    before = (place[..., None, :] < place[..., None]) | tied
    room: Array = xp.sum(xp.where(before, caps[..., None, :], 0), axis=-1)
    return left | (present & (room < blocks))

"""The observation: one flat vector with a documented, named layout (`environment.md`, Observation)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from collapipe_env.ground.arrays import Array, at_most, concatenate, namespace
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.kernels.observation import Scales, Seen, observe_rows, scale_gains, show_rows
from collapipe_env.physics.radio import path_gain_d2d, path_gain_d2e
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.state import SystemState

GAIN_BOUND = 3.0
"""Bound of the gain and loss features; 1 is the edge of the ordinary range."""
_SHOWN_BY_LOOP = (np.dtype(np.float64), np.dtype(np.int64))
"""Types of carried arrays that a compiled loop can write into the observation."""


@dataclass(frozen=True)
class Feature:
    """One named block of the observation.

    Attributes:
        slice: Its place in the vector.
        shape: Its shape, ``(N, K)``, ``(N,)`` or ``()``.
        low: Lower bound.
        high: Upper bound.
        description: Meaning, with the scaling.
        unit: Unit of ``scale * value + offset``.
        scale: See ``unit``.
        offset: See ``unit``.
    """

    slice: slice
    shape: tuple[int, ...]
    low: float
    high: float
    description: str
    unit: str = "1"
    scale: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class FeatureSource:
    """A feature that is appended to the core block of the observation.

    Attributes:
        name: Its name in the layout; must be new.
        shape: Shape in one environment: ``(N, K)`` (0 for absent devices), ``(N,)``, ``()`` or any other.
        low: Lower bound of the scaled values; smaller values are raised to it.
        high: Upper bound; larger values are lowered to it.
        description: Meaning, with the scaling.
        value: Scaled values (E, *shape) of a state (E, ...), with the operations of its arrays' library.
        unit: Unit of ``scale * value + offset``.
        scale: See ``unit``.
        offset: See ``unit``.
        carried: Process and name of the carried array that it shows, less the offset and divided by the
            scale; ``None`` for any other feature.
    """

    name: str
    shape: tuple[int, ...]
    low: float
    high: float
    description: str
    value: Callable[[SystemState], Array]
    unit: str = "1"
    scale: float = 1.0
    offset: float = 0.0
    carried: tuple[str, str] | None = None


class ObservationLayout(Mapping[str, Feature]):
    """Names the features of an observation, in order.

    Example:
        >>> layout = env.unwrapped.observation_layout      # doctest: +SKIP
        >>> layout["device_backlog"].slice                 # doctest: +SKIP
        >>> layout.unpack(observation)["device_backlog"]   # (N, K)  # doctest: +SKIP
        >>> layout.physical(observation)["device_speed"]   # (N, K) [FLOP/s]  # doctest: +SKIP
    """

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self._features = dict(features)

    def __getitem__(self, name: str) -> Feature:
        return self._features[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)

    @property
    def size(self) -> int:
        """Length of the vector, ``6 N K + 2 N + 2`` plus the features of processes."""
        return max(int(f.slice.stop) for f in self._features.values())

    def unpack(self, observation: Array) -> dict[str, Array]:
        """Split observations (..., D) into named arrays (..., *shape)."""
        lead = observation.shape[:-1]
        return {
            name: observation[..., f.slice].reshape((*lead, *f.shape)) for name, f in self._features.items()
        }

    def physical(self, observation: Array) -> dict[str, Array]:
        """Return observations in physical units, that is before scaling.

        Backlogs are in energy budgets of a round, speeds in FLOP/s, capacities in encoder blocks, gains in
        dB, the round in rounds, the loss in nats; ``device_present`` is bool. Values that the observation
        caps stay capped: backlogs at ``budgets.backlog_cap``, capacities at ``L``, gains at their bounds.

        Args:
            observation: (..., D), NumPy arrays or tensors.

        Returns:
            Named arrays (..., *shape), float64; NaN for absent devices.
        """
        xp = namespace(observation)
        # In single precision the bounds -1 and 1 would not come back exactly.
        parts = self.unpack(xp.astype(observation, xp.float64))
        present = parts["device_present"] > 0.5
        found: dict[str, Array] = {}
        devices = self["device_present"].shape
        for name, feature in self._features.items():
            values = feature.scale * parts[name] + feature.offset
            if name == "device_present":
                values = present
            elif feature.shape == devices:
                values = xp.where(present, values, xp.nan)
            found[name] = values
        return found

    def describe(self) -> str:
        """Return a table of the features, one per line."""
        return "\n".join(
            f"{name:18s} [{f.slice.start}:{f.slice.stop}] {f.shape!s:8s} "
            f"[{f.low:g}, {f.high:g}]  {f.description}"
            for name, f in self._features.items()
        )


class ObservationBuilder:
    """Builds observations (E, D) from states, scaled by constants of the scenario.

    Gains are in dB, shifted and scaled so that the path losses that the layout can produce span
    [-1, 1] (fading goes a little beyond). Features of absent devices are 0, including their presence.

    Args:
        scenario: The scenario, which sets the scales.
        extra: Features to append to the core block, in order.

    Attributes:
        layout: Names, places and scales of the features.

    Raises:
        ScenarioError: If two features have one name.
    """

    def __init__(self, scenario: Scenario, extra: Sequence[FeatureSource] = ()) -> None:
        N, K = scenario.clusters, scenario.max_devices
        self._shape = (N, K)
        self._blocks = scenario.blocks
        self._rounds = scenario.dynamics.rounds
        self._backlog_cap = scenario.budgets.backlog_cap
        self._top_speed = max(p.clock_max_hz * p.flops_per_cycle for p in scenario.devices.profiles)
        self._loss_scale = math.log(max(scenario.workload.outputs, 2))
        c = scenario.cluster
        self._d2d_scale = d2d_range(scenario)
        self._d2e_scale = _db_range(path_gain_d2e, c.cu_distance_min_m, c.cu_distance_max_m)
        self._extra = tuple(extra)
        self.layout = self._make_layout()
        self._extra_starts = tuple(self.layout[source.name].slice.start for source in self._extra)
        self._size = self.layout.size
        self._scales = Scales(
            backlog_cap=self._backlog_cap,
            top_speed=self._top_speed,
            blocks=float(self._blocks),
            d2d_centre=self._d2d_scale[0],
            d2d_half=self._d2d_scale[1],
            d2e_centre=self._d2e_scale[0],
            d2e_half=self._d2e_scale[1],
            rounds=float(self._rounds),
            loss=self._loss_scale,
            bound=GAIN_BOUND,
        )

    def _make_layout(self) -> ObservationLayout:
        N, K = self._shape
        cap, bound, devices, clusters = self._backlog_cap, GAIN_BOUND, (N, K), (N,)
        (d2d, per_d2d), (d2e, per_d2e) = self._d2d_scale, self._d2e_scale
        half_speed, half_blocks = self._top_speed / 2.0, self._blocks / 2.0
        rows: list[tuple[Any, ...]] = [
            ("device_backlog", devices, 0.0, 1.0,
             f"energy queue z of the device, divided by {cap:g} and capped at 1", "budgets", cap, 0.0),
            ("device_speed", devices, -1.0, 1.0,
             "present compute speed; -1 for 0, 1 for the fastest profile", "FLOP/s", half_speed, half_speed),
            ("device_capacity", devices, -1.0, 1.0,
             f"blocks that the memory holds; -1 for 0, 1 for {self._blocks}", "blocks",
             half_blocks, half_blocks),
            ("device_hop_gain", devices, -bound, bound,
             "gain from the previous node, in dB, scaled", "dB", per_d2d, d2d),
            ("device_cu_gain", devices, -bound, bound, "gain to the CU, in dB, scaled", "dB", per_d2d, d2d),
            ("device_present", devices, 0.0, 1.0, "1 if the device is present", "1", 1.0, 0.0),
            ("uplink_gain", clusters, -bound, bound,
             "gain from the CU to the base station, in dB, scaled", "dB", per_d2e, d2e),
            ("cu_backlog", clusters, 0.0, 1.0,
             f"energy queue z of the CU, divided by {cap:g} and capped at 1", "budgets", cap, 0.0),
            ("round", (), 0.0, 1.0,
             "rounds played, divided by the length of the episode", "rounds", self._rounds, 0.0),
            ("loss", (), -1.0, bound,
             "smoothed evaluation loss divided by the loss of a uniform guess, minus 1", "nats",
             self._loss_scale, self._loss_scale),
        ]  # fmt: skip
        rows.extend(
            (f.name, f.shape, f.low, f.high, f.description, f.unit, f.scale, f.offset) for f in self._extra
        )
        features: dict[str, Feature] = {}
        start = 0
        for name, shape, *rest in rows:
            if name in features:
                raise ScenarioError(f"two features of the observation are called {name!r}: rename one")
            size = math.prod(shape)
            features[name] = Feature(slice(start, start + size), shape, *rest)
            start += size
        return ObservationLayout(features)

    def space(self) -> spaces.Box:
        """The observation space, with each feature's own bounds."""
        low, high = np.empty(self.layout.size, np.float32), np.empty(self.layout.size, np.float32)
        for feature in self.layout.values():
            low[feature.slice], high[feature.slice] = feature.low, feature.high
        return spaces.Box(low, high, dtype=np.float32)

    def build(self, state: SystemState) -> npt.NDArray[np.float32]:
        """Observations (E, D) of states (E, ...); a fresh array."""
        out = np.empty((len(state.backlog), self._size), dtype=np.float32)
        seen = Seen(
            state.backlog,
            state.speed,
            state.memory_cap,
            state.d2d_gain,
            state.present,
            state.uplink_gain,
            state.round_index,
            state.loss,
        )
        observe_rows(self._scales, seen, out)
        N, K = self._shape
        # Taking the logarithms of all gains at once takes a quarter of the time of a loop over them.
        for gains in (out[:, 3 * N * K : 5 * N * K], out[:, 6 * N * K : 6 * N * K + N]):
            np.log(gains, out=gains)
        scale_gains(self._scales, N, N * K, out)
        for source, first in zip(self._extra, self._extra_starts, strict=True):
            self._show(source, first, state, out)
        return out

    def _show(
        self, source: FeatureSource, first: int, state: SystemState, out: npt.NDArray[np.float32]
    ) -> None:
        """Write an appended feature, from its first column on."""
        if source.carried is not None:
            process, name = source.carried
            values = state.processes[process][name]
            if values.dtype in _SHOWN_BY_LOOP:
                rows = values.reshape(len(out), -1)
                show_rows(rows, source.offset, source.scale, (source.low, source.high), first, out)
                return
        values = self._columns(source, state)
        out[:, first : first + values.shape[1]] = values

    def _columns(self, source: FeatureSource, state: SystemState) -> Array:
        """Columns (E, numbers) of an appended feature, within its bounds."""
        xp = namespace(state.backlog)
        values = xp.clip(source.value(state), source.low, source.high)
        return xp.reshape(values, (len(state.backlog), math.prod(source.shape)))

    def build_generic(self, state: SystemState) -> Array:
        """Observations (E, D), float32, of states (E, ...) of any array library, as a fresh array of it.

        With NumPy arrays the result equals that of :meth:`build` apart from rounding.
        """
        xp = namespace(state.backlog)
        E, N, K = state.present.shape
        real = state.backlog.dtype
        # The array API standard leaves mixing of integers and reals open, hence the explicit types.
        present = xp.astype(state.present, real)
        backlog = at_most(state.backlog / self._backlog_cap, 1.0)
        capacity = at_most(xp.astype(state.memory_cap, real), self._blocks)
        gain = state.d2d_gain
        # Elements (k, k + 1) of a matrix of K + 1 columns stand K + 2 apart.
        hop_gain = xp.reshape(gain, (E, N, (K + 1) ** 2))[..., 1 :: K + 2]
        devices = (
            backlog[..., 1:] * present,
            (state.speed * (2.0 / self._top_speed) - 1.0) * present,
            (capacity * (2.0 / self._blocks) - 1.0) * present,
            scaled_db(hop_gain, self._d2d_scale) * present,
            scaled_db(gain[..., 0, 1:], self._d2d_scale) * present,
            present,
        )
        played = at_most(xp.astype(state.round_index, real) / self._rounds, 1.0)
        loss = xp.clip(state.loss / self._loss_scale - 1.0, -1.0, GAIN_BOUND)
        columns = (
            *(xp.reshape(feature, (E, N * K)) for feature in devices),
            scaled_db(state.uplink_gain, self._d2e_scale),
            backlog[..., 0],
            played[:, None],
            loss[:, None],
            *(xp.astype(self._columns(source, state), real) for source in self._extra),
        )
        return xp.astype(concatenate(columns), xp.float32)


def d2d_range(scenario: Scenario) -> tuple[float, float]:
    """Centre and half-width of the gains between nodes of a cluster that a layout can produce [dB]."""
    c = scenario.cluster
    farthest = max(math.sqrt(2.0) * c.area_side_m, c.hop_min_m)
    return _db_range(path_gain_d2d, c.hop_min_m, farthest)


def _db_range(path_gain: object, near_m: float, far_m: float) -> tuple[float, float]:
    """Centre and half-width in dB of the path gains between two distances (half-width at least 10 dB)."""
    edges = 10.0 * np.log10(path_gain(np.array([near_m, far_m])))  # type: ignore[operator]
    return float(edges.mean()), max(float(edges[0] - edges[1]) / 2.0, 10.0)


def scaled_db(gain: Array, scale: tuple[float, float]) -> Array:
    """Gains in dB, less the centre and divided by the half-width of a scale, within their bounds.

    Args:
        gain: Gains > 0, any shape.
        scale: Centre and half-width [dB].
    """
    xp = namespace(gain)
    centre, half = scale
    scaled = (10.0 / half) * xp.log10(gain) - centre / half
    return xp.clip(scaled, -GAIN_BOUND, GAIN_BOUND)

"""The observation: one flat vector with a documented, named layout (`environment.md`, Observation)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from collapipe_env.envs.features import features_of
from collapipe_env.ground.arrays import Array, concatenate, namespace
from collapipe_env.kernels.observation import scale_rows
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.feature import Feature
from collapipe_env.simulator.state import SystemState

_SINGLE = np.dtype(np.float32)


@dataclass(frozen=True)
class FlatPart:
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
    unit: str
    scale: float
    offset: float


class ObservationLayout(Mapping[str, FlatPart]):
    """Names the features of an observation, in order.

    Example:
        >>> layout = env.unwrapped.observation_layout      # doctest: +SKIP
        >>> layout["device_backlog"].slice                 # doctest: +SKIP
        >>> layout.unpack(observation)["device_backlog"]   # (N, K)  # doctest: +SKIP
        >>> layout.physical(observation)["device_speed"]   # (N, K) [FLOP/s]  # doctest: +SKIP
    """

    def __init__(self, features: Mapping[str, FlatPart]) -> None:
        self._features = dict(features)

    def __getitem__(self, name: str) -> FlatPart:
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


class _Scaling(NamedTuple):
    """The way from a feature's values to its numbers: ``value * factor - shift``, from ``low`` to ``high``.

    Values that are ratios are replaced by their natural logarithms before; ``hidden`` ones are 0 where the
    device is absent.
    """

    feature: Feature
    columns: slice
    factor: float
    shift: float
    low: float
    high: float
    hidden: bool


class FlatObserver:
    """Builds flat observations (E, D) from states, scaled by constants of the scenario.

    Features of absent devices are 0, including their presence; arrays of processes show what they carry.

    Raises:
        ScenarioError: If two features have one name.
    """

    def __init__(self, scenario: Scenario) -> None:
        devices = (scenario.clusters, scenario.max_devices)
        sizes = {"N": scenario.clusters, "K": scenario.max_devices}
        parts: dict[str, FlatPart] = {}
        rows: list[_Scaling] = []
        start = 0
        for f in features_of(scenario):
            shape = tuple(sizes[axis] for axis in f.axes.split())
            columns = slice(start, start + math.prod(shape))
            low, high = f.least - f.beyond[0], 1.0 + f.beyond[1]
            factor = (10.0 / math.log(10.0) if f.decibel else 1.0) / f.scale
            hidden = f.masked and shape == devices
            parts[f.name] = FlatPart(columns, shape, low, high, f.description, f.unit, f.scale, f.offset)
            rows.append(_Scaling(f, columns, factor, f.offset / f.scale, low, high, hidden))
            start = columns.stop
        self.layout = ObservationLayout(parts)
        self._rows = tuple(rows)
        self._reads = tuple(
            (attrgetter(f.value) if isinstance(f.value, str) else f.value, f.cut and itemgetter(f.cut))
            for f in (row.feature for row in rows)
        )
        self._ratios: list[slice] = []
        for columns in (row.columns for row in rows if row.feature.decibel):
            joins = self._ratios and self._ratios[-1].stop == columns.start
            first = self._ratios.pop().start if joins else columns.start
            self._ratios.append(slice(first, columns.stop))
        self._hidden = np.array([row.columns.start for row in rows if row.hidden])
        widths = [row.columns.stop - row.columns.start for row in rows]
        numbers = np.array([(row.factor, row.shift, row.low, row.high) for row in rows], dtype=_SINGLE)
        self._scales = np.repeat(numbers, widths, axis=0).T.copy()

    def space(self) -> spaces.Box:
        """The observation space, with each feature's own bounds."""
        return spaces.Box(self._scales[2], self._scales[3], dtype=np.float32)

    def build(self, state: SystemState) -> npt.NDArray[np.float32]:
        """Observations (E, D) of states (E, ...) in NumPy arrays; a fresh array."""
        shape = (len(state.present), -1)
        values = []
        for value, cut in self._reads:  # Feature.read, in half its time
            array = value(state)
            values.append(cut(array) if cut else array)
        if len(state.present) > 1:  # a single row can do without ten views, which take as long as the joining
            values = [value.reshape(shape) for value in values]
        axis = 1 if len(state.present) > 1 else None
        seen = np.concatenate(values, axis=axis, dtype=_SINGLE, casting="unsafe").reshape(shape)
        # NumPy takes the logarithms of many numbers in a quarter of the time of a loop over them.
        for columns in self._ratios:
            ratios = seen[:, columns]
            np.log(ratios, out=ratios)
        scale_rows(self._scales, state.present.reshape(shape), self._hidden, seen)
        return seen

    def build_generic(self, state: SystemState) -> Array:
        """Observations (E, D), float32, of states (E, ...) of any array library, as a fresh array of it.

        With NumPy arrays the result equals that of :meth:`build` apart from rounding.
        """
        xp, real = namespace(state.backlog), state.backlog.dtype
        found = []
        for row in self._rows:
            # The array API standard leaves mixing of integers and reals open, hence the explicit types.
            values = xp.astype(row.feature.read(state), real)
            numbers = (xp.log(values) if row.feature.decibel else values) * row.factor - row.shift
            numbers = xp.clip(numbers, row.low, row.high)
            if row.hidden:
                numbers = xp.where(state.present, numbers, 0.0)
            found.append(xp.reshape(numbers, (state.present.shape[0], -1)))
        return xp.astype(concatenate(tuple(found)), xp.float32)

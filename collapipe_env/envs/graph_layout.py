"""Names, shapes, bounds and units of the graph observation, and the way back to physical quantities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from collapipe_env.envs.graph_motion import DEPARTURE_FEATURES, MOTION_FEATURES
from collapipe_env.envs.graph_observation import (
    ABSENCE_FEATURES,
    BETWEEN_FEATURES,
    CONTEXT_FEATURES,
    CU_FEATURES,
    DEVICE_FEATURES,
    HOP_FEATURES,
    OPENED_FEATURES,
    SERVER_FEATURES,
    SHARE,
    Form,
    GraphFeature,
    hops_there,
)
from collapipe_env.envs.graph_stay import STAY_FEATURES
from collapipe_env.ground.arrays import Array, at_least, namespace

HEAT_FEATURES = (
    GraphFeature(
        "headroom",
        "thermal headroom: the temperature that the governor reads over its set point, counted from 25 C",
        "1",
        Form(log=False, added=0.0, low=0.0, high=1.5),
    ),
    GraphFeature("clock_share", "share of the full clock that heat leaves", "1", SHARE),
)


@dataclass(frozen=True)
class GraphPart:
    """One array of the graph observation.

    Attributes:
        description: Meaning of its leading axes.
        shape: Its shape in one environment.
        axes: Its shape in letters.
        features: Features on its last axis, in order; none where the entries themselves are 0 or 1.
        blocks: Encoder blocks ``L``, a bound of some features.
    """

    description: str
    shape: tuple[int, ...]
    axes: str
    features: tuple[GraphFeature, ...]
    blocks: int

    def place(self, name: str) -> int:
        """Place of a feature on the last axis.

        Raises:
            ValueError: If no feature has this name.
        """
        return [feature.name for feature in self.features].index(name)

    def space(self) -> spaces.Box:
        """Values that the array may have."""
        if not self.features:
            return spaces.Box(0.0, 1.0, self.shape, np.float32)
        return spaces.Box(
            self._spread([feature.form.low for feature in self.features]),
            self._spread([feature.high(self.blocks) for feature in self.features]),
            dtype=np.float32,
        )

    def _spread(self, bounds: list[float]) -> npt.NDArray[np.float32]:
        return np.broadcast_to(np.array(bounds, dtype=np.float32), self.shape).copy()


class GraphLayout(Mapping[str, GraphPart]):
    """Names the arrays of a graph observation and their features.

    Example:
        >>> layout = env.unwrapped.observation_layout             # doctest: +SKIP
        >>> observation["device"][..., layout["device"].place("log_backlog")]  # (N, K)  # doctest: +SKIP
        >>> layout.unpack(observation)["device"]["log_backlog"]   # the same  # doctest: +SKIP
        >>> layout.physical(observation)["device"]["backlog"]     # (N, K) [budgets]  # doctest: +SKIP

    Args:
        clusters: ``N``.
        devices: ``K``, devices of the largest cluster.
        blocks: ``L``.
        recompute: Whether schedulers choose recomputation.
        schedule: Whether schedulers choose the pipeline schedule.
        server: Whether the server has an energy budget or tenants that come and go.
        participation: Whether schedulers choose the clusters that take part.
        heat: Whether devices warm up.
        motion: Whether devices move.
        departures: Whether devices may leave an open area.
        stays: Whether devices come and go.
        clocks: Whether schedulers may cap clocks.
    """

    def __init__(
        self,
        clusters: int,
        devices: int,
        blocks: int,
        *,
        recompute: bool = False,
        schedule: bool = False,
        server: bool = False,
        participation: bool = False,
        heat: bool = False,
        motion: bool = False,
        departures: bool = False,
        stays: bool = False,
        clocks: bool = False,
    ) -> None:
        N, K, nodes = clusters, devices, devices + 1
        rows = {
            "cu": ("control units", (N,), "N", CU_FEATURES),
            "device": ("devices, 0 for absent ones", (N, K), "N, K", DEVICE_FEATURES),
            "hop": (
                "hops from node to node of a cluster, node 0 the control unit; 0 for a node itself and for "
                "absent devices",
                (N, nodes, nodes),
                "N, K+1, K+1",
                HOP_FEATURES,
            ),
            "between": (
                "two clusters; 0 for a cluster and itself",
                (N, N),
                "N, N",
                BETWEEN_FEATURES,
            ),
            "present": ("1 if the device is present", (N, K), "N, K", ()),
            "context": ("the system; the same in every round", (), "", CONTEXT_FEATURES),
        }
        opened = tuple(compress(OPENED_FEATURES, (recompute, schedule, clocks)))
        if opened:
            rows["opened"] = ("devices, with open decisions", (N, K), "N, K", opened)
        if server:
            rows["server"] = (
                "the edge server, if it has an energy budget or tenants that come and go",
                (),
                "",
                SERVER_FEATURES,
            )
        if participation:
            rows["absence"] = ("clusters, if they may sit out", (N,), "N", ABSENCE_FEATURES)
        if heat:
            rows["heat"] = ("devices, if they warm up", (N, K), "N, K", HEAT_FEATURES)
        if motion:
            rows["motion"] = ("devices, if they move; 0 for absent ones", (N, K), "N, K", MOTION_FEATURES)
        if departures:
            rows["departure"] = (
                "devices, if they may leave; 0 for absent ones",
                (N, K),
                "N, K",
                DEPARTURE_FEATURES,
            )
        if stays:
            rows["stay"] = (
                "devices, if they come and go; 0 for absent ones",
                (N, K),
                "N, K",
                STAY_FEATURES,
            )
        self._parts: dict[str, GraphPart] = {}
        for name, (description, lead, letters, features) in rows.items():
            shape = (*lead, len(features)) if features else lead
            axes = ", ".join(filter(None, (letters, str(len(features)) if features else "")))
            self._parts[name] = GraphPart(description, shape, axes, features, blocks)

    def __getitem__(self, name: str) -> GraphPart:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def space(self) -> spaces.Dict:
        """The observation space: a ``Box`` for each array, with the bounds of its features."""
        return spaces.Dict({name: part.space() for name, part in self._parts.items()})

    def unpack(self, observation: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
        """Split observations by features.

        Args:
            observation: Arrays (..., *shape) by name, NumPy arrays or tensors.

        Returns:
            Views (...) of each feature, by array and feature. ``present`` has one feature, of the same name.
        """
        return {
            name: (
                {feature.name: observation[name][..., i] for i, feature in enumerate(part.features)}
                if part.features
                else {name: observation[name]}
            )
            for name, part in self._parts.items()
        }

    def physical(self, observation: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
        """Return observations in physical units, with the logarithms undone.

        Added constants are subtracted again. Times are in seconds, powers in watts, queues in energy budgets
        of a round, capacities in encoder blocks. Small times and ratios have an error of about 1e-10, because
        single precision stores them with the added constant.

        Args:
            observation: Arrays (..., *shape) by name, NumPy arrays or tensors.

        Returns:
            Quantities (...) by array and quantity (features without ``log_``), float64; switches and presence
            are bool. NaN for absent devices, their hops, and hops from a node to itself.
        """
        xp = namespace(*observation.values())
        present = observation["present"] > 0.5
        known = dict.fromkeys(("device", "opened", "heat", "motion", "departure", "stay"), present) | {
            "hop": hops_there(present)
        }
        found: dict[str, dict[str, Array]] = {}
        for name, part in self._parts.items():
            found[name] = {} if part.features else {name: present}
            for i, feature in enumerate(part.features):
                values = _quantity(feature, xp.astype(observation[name][..., i], xp.float64))
                if name in known:
                    values = xp.where(known[name], values, xp.nan)
                found[name][feature.quantity] = values
        return found

    def describe(self) -> str:
        """Return a table of the features, one per line below their array."""
        lines = []
        for name, part in self._parts.items():
            lines.append(f"{name} {part.shape}: {part.description}")
            lines += [
                f"  {i:2d} {f.name:20s} [{f.form.low:g}, {f.high(part.blocks):g}] {f.unit:8s} {f.description}"
                for i, f in enumerate(part.features)
            ]
        return "\n".join(lines)

    @classmethod
    def markdown(cls) -> str:
        """Return the documentation's table of features, which is the same for every size."""
        lines = ["| array | feature | unit | meaning |", "| --- | --- | --- | --- |"]
        for name, part in cls(1, 1, 1).items():
            lines.append(f"| `{name}` ({part.axes}) | | | {part.description} |")
            lines += [f"| | `{f.name}` | {f.unit} | {f.description} |" for f in part.features]
        return "\n".join(lines)


def _quantity(feature: GraphFeature, values: Array) -> Array:
    """Quantity that a feature's float64 values stand for."""
    if feature.form.flag:
        return values > 0.5
    if not feature.form.log:
        return values
    xp = namespace(values)
    if feature.form.added == 1.0:
        return xp.expm1(values)
    # Rounding must not make a time negative.
    return at_least(xp.exp(values) - feature.form.added, 0.0)

"""Names, shapes, bounds and units of the graph observation, and the way back to physical quantities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from collapipe_env.envs.graph_additions import GraphAddition
from collapipe_env.envs.graph_observation import (
    BETWEEN_FEATURES,
    CONTEXT_FEATURES,
    CU_FEATURES,
    DEVICE_FEATURES,
    HOP_FEATURES,
    GraphFeature,
    hops_there,
)
from collapipe_env.ground.arrays import Array, at_least, namespace


@dataclass(frozen=True)
class GraphPart:
    """One array of the graph observation.

    Attributes:
        description: Meaning of its leading axes.
        shape: Its shape in one environment.
        axes: Its shape in letters.
        features: Features on its last axis, in order; none where the entries themselves are 0 or 1.
        blocks: Encoder blocks ``L``, a bound of some features.
        of_devices: Whether its leading axes are those of devices, so that absent ones have no values.
    """

    description: str
    shape: tuple[int, ...]
    axes: str
    features: tuple[GraphFeature, ...]
    blocks: int
    of_devices: bool

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


_DEVICES = ("N", "K")
_CORE: tuple[tuple[str, str, tuple[str, ...], tuple[GraphFeature, ...]], ...] = (
    ("cu", "control units", ("N",), CU_FEATURES),
    ("device", "devices, 0 for absent ones", _DEVICES, DEVICE_FEATURES),
    (
        "hop",
        "hops from node to node of a cluster, node 0 the control unit; 0 for a node itself and for absent "
        "devices",
        ("N", "K+1", "K+1"),
        HOP_FEATURES,
    ),
    ("between", "two clusters; 0 for a cluster and itself", ("N", "N"), BETWEEN_FEATURES),
    ("present", "1 if the device is present", _DEVICES, ()),
    ("context", "the system; the same in every round", (), CONTEXT_FEATURES),
)
"""Name, description, letters of the leading axes and features of the arrays that every scenario has."""


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
        additions: Arrays that the scenario adds.
    """

    def __init__(
        self, clusters: int, devices: int, blocks: int, additions: Iterable[GraphAddition] = ()
    ) -> None:
        sizes = {"N": clusters, "K": devices, "K+1": devices + 1}
        rows = (*_CORE, *((a.name, a.description, a.axes, a.features) for a in additions))
        self._parts: dict[str, GraphPart] = {}
        for name, description, axes, features in rows:
            shape = tuple(sizes[letter] for letter in axes) + ((len(features),) if features else ())
            letters = ", ".join((*axes, str(len(features))) if features else axes)
            self._parts[name] = GraphPart(description, shape, letters, features, blocks, axes == _DEVICES)

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
        found: dict[str, dict[str, Array]] = {}
        for name, part in self._parts.items():
            found[name] = {} if part.features else {name: present}
            for i, feature in enumerate(part.features):
                values = _quantity(feature, xp.astype(observation[name][..., i], xp.float64))
                if name == "hop":
                    values = xp.where(hops_there(present), values, xp.nan)
                elif part.of_devices:
                    values = xp.where(present, values, xp.nan)
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

"""Names, shapes, bounds and units of the graph observation, and the way back to physical quantities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from gymnasium import spaces

from collapipe_env.envs.graph_features import CORE, GraphArray
from collapipe_env.ground.arrays import Array, namespace


class GraphLayout(Mapping[str, GraphArray]):
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
        self, clusters: int, devices: int, blocks: int, additions: Iterable[GraphArray] = ()
    ) -> None:
        arrays = (array.sized(clusters, devices, blocks) for array in (*CORE, *additions))
        self._parts = {array.name: array for array in arrays}

    def __getitem__(self, name: str) -> GraphArray:
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
            there = hops_there(present) if name == "hop" else present
            found[name] = {} if part.features else {name: present}
            for i, feature in enumerate(part.features):
                values = feature.form.quantity(xp.astype(observation[name][..., i], xp.float64))
                if part.axes.startswith("N K"):
                    values = xp.where(there, values, xp.nan)
                found[name][feature.quantity] = values
        return found

    def describe(self) -> str:
        """Return a table of the features, one per line below their array."""
        lines = []
        for name, part in self._parts.items():
            lines.append(f"{name} {part.shape}: {part.description}")
            lines += [
                f"  {i:2d} {f.name:20s} [{f.form.low:g}, {f.form.high:g}] {f.unit:8s} {f.description}"
                for i, f in enumerate(part.features)
            ]
        return "\n".join(lines)

    @classmethod
    def markdown(cls) -> str:
        """Return the documentation's table of features, which is the same for every size."""
        lines = ["| array | feature | unit | meaning |", "| --- | --- | --- | --- |"]
        for name, part in cls(1, 1, 1).items():
            last = [str(len(part.features))] if part.features else []
            lines.append(f"| `{name}` ({', '.join(part.axes.split() + last)}) | | | {part.description} |")
            lines += [f"| | `{f.name}` | {f.unit} | {f.description} |" for f in part.features]
        return "\n".join(lines)


def hops_there(present: Array) -> Array:
    """Hops between two nodes of a cluster that are both present.

    Args:
        present: Devices that are present (..., N, K), bool.

    Returns:
        (..., N, K+1, K+1), bool; False on the diagonal. Node 0, the CU, is always present.
    """
    xp = namespace(present)
    there = xp.concat((xp.ones_like(present[..., :1]), present), axis=-1)
    nodes = there.shape[-1]
    place = {} if xp is np else {"device": present.device}
    itself = xp.eye(nodes, dtype=xp.bool, **place)
    return there[..., :, None] & there[..., None, :] & ~itself

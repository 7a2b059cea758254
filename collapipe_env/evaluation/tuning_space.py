"""Scalars of DSSRA+ that have an effect in a scenario, and the coordinates in which they are searched."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from collapipe_env.dynamics.channel_knowledge import hidden_gains
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.dssra_plus_section import NEUTRAL

DIGITS = 4
"""Significant digits of a candidate's scalars, so that the played values can be written down exactly."""
UNTRUE = frozenset({"delayed", "noisy"})
"""Modes of the process ``channel_knowledge`` in which a round's gains differ from what schedulers see."""


class Range(NamedTuple):
    """Range in which a scalar is searched.

    Attributes:
        low: Smallest value, above 0.
        high: Largest value; below 1 for a share.
        share: Whether it is a share, searched in its log-odds; others are searched in their logarithm.
    """

    low: float
    high: float
    share: bool = False

    def value(self, coordinate: float) -> float:
        """Return the value at a coordinate in [0, 1], rounded to :data:`DIGITS` digits."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        at = low + min(max(coordinate, 0.0), 1.0) * (high - low)
        value = 1.0 / (1.0 + math.exp(-at)) if self.share else math.exp(at)
        return float(f"{value:.{DIGITS}g}")

    def coordinate(self, value: float) -> float:
        """Return the coordinate of a value; a value outside the range counts as the nearer end."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        at = self._scaled(min(max(value, self.low), self.high))
        return (at - low) / (high - low)

    def _scaled(self, value: float) -> float:
        return math.log(value / (1.0 - value)) if self.share else math.log(value)


RANGES: Mapping[str, Range] = MappingProxyType(
    {
        "migration_weight": Range(0.05, 5.0),
        "heat_price": Range(1e-3, 10.0),  # s/J
        "heat_start": Range(0.05, 0.95, share=True),
        "channel_weight": Range(0.05, 0.99, share=True),
        "failure_price": Range(0.1, 100.0),  # s
        "gain_caution": Range(0.05, 5.0),
    }
)
"""Range of each scalar."""


def tunable(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of the scalars that have an effect in a scenario.

    Raises:
        ScenarioError: If no scalar has an effect.
    """
    processes = dict(scenario.dynamics.processes)
    migration = processes.get("migration")
    found: list[str] = []
    if migration is not None and migration.moments == "move":
        found.append("migration_weight")
    if "heat" in processes:
        found += ["heat_price", "heat_start"]
    hidden = hidden_gains(scenario)
    if "traces" in processes or (hidden is not None and UNTRUE & set(hidden.modes)):
        found.append("channel_weight")
    if hidden is not None:
        found.append("gain_caution")
    presence = processes.get("presence")
    if presence is not None and presence.graceful < 1.0 and presence.recovery != "drop-round":
        found.append("failure_price")
    if not found:
        raise ScenarioError(
            f"scenario {scenario.name!r} has nothing to tune: moving blocks costs nothing, nothing heats up, "
            "no device fails and known gains are the true ones, so dssra-plus equals dssra; turn on a "
            "process such as migration or heat under dynamics.processes"
        )
    return tuple(found)


def scalars_at(names: Sequence[str], coordinates: FloatArray) -> dict[str, float]:
    """Return scalars at coordinates.

    Args:
        names: Names of the scalars.
        coordinates: One for each, in [0, 1] (D,).
    """
    return {name: RANGES[name].value(float(at)) for name, at in zip(names, coordinates, strict=True)}


def coordinates_of(scalars: Mapping[str, float]) -> FloatArray:
    """Return the coordinates of scalars (D,), in [0, 1].

    Args:
        scalars: Values by name.
    """
    return np.array([RANGES[name].coordinate(value) for name, value in scalars.items()])


def neutral_scalars(names: Sequence[str]) -> dict[str, float]:
    """Return the values with which DSSRA+ equals DSSRA.

    Args:
        names: Names of the scalars.
    """
    return {name: NEUTRAL[name] for name in names}

"""Scalars of DSSRA+ that have an effect in a scenario, and the ranges in which they are searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from collapipe_env.dynamics.channel_knowledge import hidden_gains
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.dssra_plus_section import NEUTRAL

UNTRUE = frozenset({"delayed", "noisy"})
"""Modes of the process ``channel_knowledge`` in which a round's gains differ from what schedulers see."""


class Range(NamedTuple):
    """Range in which a scalar is searched, in its logarithm or evenly."""

    low: float
    high: float
    log: bool = True


RANGES: Mapping[str, Range] = MappingProxyType(
    {
        "migration_weight": Range(0.05, 5.0),
        "heat_price": Range(1e-3, 10.0),  # s/J
        "heat_start": Range(0.05, 0.95, log=False),
        "channel_weight": Range(0.05, 0.99, log=False),
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
    processes, hidden = dict(scenario.dynamics.processes), hidden_gains(scenario)
    migration, presence = processes.get("migration"), processes.get("presence")
    untrue = hidden is not None and UNTRUE & set(hidden.modes)
    fails = presence is not None and presence.graceful < 1.0 and presence.recovery != "drop-round"
    effects = {
        "migration_weight": migration is not None and migration.moments == "move",
        "heat_price": "heat" in processes,
        "heat_start": "heat" in processes,
        "channel_weight": "traces" in processes or untrue,
        "gain_caution": hidden is not None,
        "failure_price": fails,
    }
    found = tuple(name for name, has in effects.items() if has)
    if not found:
        raise ScenarioError(
            f"scenario {scenario.name!r} has nothing to tune: moving blocks costs nothing, nothing heats up, "
            "no device fails and known gains are the true ones, so dssra-plus equals dssra; turn on a "
            "process such as migration or heat under dynamics.processes"
        )
    return found


def neutral_scalars(names: Sequence[str]) -> dict[str, float]:
    """Return the values with which DSSRA+ equals DSSRA."""
    return {name: NEUTRAL[name] for name in names}
